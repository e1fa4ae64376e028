"""Results of requests by time, kept until later responses show that they are of the log that koff knows."""

from collections.abc import Collection, Iterable, Mapping

from koff.monitor.duties.offsets import FetchOffsets
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox, Pending, Requester
from koff.monitor.requests import OffsetKind, TopicPartition

TIMEOUT_S = 10.0
_BOUNDS: tuple[OffsetKind, ...] = ("start", "end")

Results = dict[int, int]
"""Offsets by time, of one partition. Times are by the tracker's clock."""


class Confirmations:
    """Results that wait until the bounds of the log were requested again.

    The first record of some time or later may just be the first one that is left: the log start offset moves,
    and what koff knows of it is up to a minute old. And the topic may have been created again: its end offset
    is then lower.
    """

    def __init__(self, outbox: Outbox, ends: Requester) -> None:
        """`ends` takes the bounds first: they are samples like others."""
        self._outbox, self._ends = outbox, ends
        self._found: dict[TopicPartition, Results] = {}
        # The results that are being confirmed, and the bounds that are still missing.
        self._waiting: dict[TopicPartition, tuple[Results, set[OffsetKind]]] = {}
        self._requested: dict[int, set[TopicPartition]] = {}  # by id of each open request

    @property
    def is_open(self) -> bool:
        return bool(self._requested)

    def partitions(self) -> set[TopicPartition]:
        """The partitions with results."""
        return {*self._found, *self._waiting}

    def add(self, offsets: Mapping[TopicPartition, int], at_ms: int) -> None:
        """Adds results of a request for the offsets at that time."""
        for at, offset in offsets.items():
            self._found.setdefault(at, {})[at_ms] = offset

    def request(self, asking: Collection[TopicPartition], now: Moment) -> None:
        """Requests the bounds of partitions with results. Those in `asking` wait: they get more results."""
        ready = self._found.keys() - asking - self._waiting.keys()
        for kind in _BOUNDS if ready else ():
            request_id = self._outbox.next_id()
            self._requested[request_id] = set(ready)
            self._outbox.send(FetchOffsets(request_id, kind, frozenset(ready)), self._ends, now, TIMEOUT_S)
        for at in sorted(ready):
            self._waiting[at] = self._found.pop(at), set(_BOUNDS)

    def receive(
        self, pending: Pending[FetchOffsets], offsets: Mapping[TopicPartition, int | str]
    ) -> dict[TopicPartition, Results]:
        """Takes bounds, or a part of them. Returns the results that are confirmed now."""
        requested = self._requested.get(pending.request.id, set())
        confirmed = {}
        for at in [at for at in offsets if at in requested]:
            requested.discard(at)
            if isinstance(offsets[at], str):
                self._put_back(at)
            elif at in self._waiting:
                results, missing = self._waiting[at]
                missing.discard(pending.request.kind)
                if not missing:
                    confirmed[at] = results
                    del self._waiting[at]
        return confirmed

    def give_up(self, pending: Pending[FetchOffsets]) -> None:
        """There are no more results of that request: what waits for them is requested again later."""
        for at in self._requested.pop(pending.request.id, set()):
            self._put_back(at)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops all results of these partitions."""
        for at in partitions:
            self._found.pop(at, None)
            self._waiting.pop(at, None)
            for requested in self._requested.values():
                requested.discard(at)

    def _put_back(self, at: TopicPartition) -> None:
        results, _ = self._waiting.pop(at, ({}, None))
        if results:
            self._found[at] = results | self._found.get(at, {})
        for requested in self._requested.values():
            requested.discard(at)

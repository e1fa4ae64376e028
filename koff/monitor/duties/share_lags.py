"""The lags of share groups from their coordinators, while `__share_group_state` may not be read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from koff.monitor.duties.groups import FETCH_S, PATIENCE_S
from koff.monitor.followed_log import FollowedLog
from koff.monitor.means import Means
from koff.monitor.moment import Moment
from koff.monitor.outbox import Pending, Shared
from koff.monitor.requests import Request, Result
from koff.tracker import ShareLag

TIMEOUT_S = 30.0
_NO_LAG = "the coordinator returned no lag, as brokers before Kafka 4.2 do"
_SILENT = "not all of their coordinators have responded lately"
_NOT_RETURNED = "their coordinators returned no lags; koff needs DESCRIBE on the groups"


@dataclass(frozen=True, slots=True)
class ShareLagsFetched(Result):
    """The lags of share groups, from the coordinators of these `partitions`.

    Groups that are missing are unknown. Of the groups in `partial`, only some partitions are known. `final`
    is set in the last result of a request. `why` is an error, if lags are missing because of one.
    """

    lags: Mapping[str, Sequence[ShareLag]]
    partitions: frozenset[int]
    partial: frozenset[str] = frozenset()
    why: str = ""

    @property
    def failure(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True)
class FetchShareLags(Request):
    """The lags of all share groups. Each coordinator has its own `ShareLagsFetched`.

    `partitions` are all partitions of the offsets topic, or those whose coordinators are to be asked.
    """

    metric = "share_lags"
    partitions: frozenset[int]
    partition_count: int

    def carry_out(self, means: Means) -> None:
        parts = means.leaders.split_by_coordinator(self.partitions, self.partition_count)
        means.fetch_parts([[part] for part in parts], partial(self._fetch, means), self._fail)

    def _fetch(self, means: Means, partitions: frozenset[int]) -> ShareLagsFetched:
        from koff.client.groups.coordinators import fetch_from_coordinators
        from koff.client.groups.fetch_options import FetchOptions

        options = FetchOptions(
            deadline_s=FETCH_S,
            describe=False,
            patience_s=PATIENCE_S,
            partitions=partitions if self.partition_count > 1 else None,
            share_offsets="only",
        )
        fetched = fetch_from_coordinators(means.lister, options)
        failed = dict(fetched.failed)
        lags: dict[str, list[ShareLag]] = {
            group.name: [] for group in fetched.groups if group.name not in failed
        }
        for row in fetched.share_offsets:
            rows = lags.setdefault(row.group, [])
            if row.lag is None and row.start >= 0:  # the group has read the partition
                failed.setdefault(row.group, _NO_LAG)
            else:
                rows.append(ShareLag(row.topic, row.topic_id, row.partition, row.lag))
        errors = [*(f"{group}: {error}" for group, error in failed.items()), *fetched.incomplete]
        return ShareLagsFetched(
            self.id, lags, partitions, frozenset(failed) & lags.keys(), why=errors[0] if errors else ""
        )

    def _fail(self, partitions: frozenset[int], why: str) -> ShareLagsFetched:
        return ShareLagsFetched(self.id, {}, partitions, why=why)


class _Response(NamedTuple):
    """When the lags of a partition's groups were requested, and why there are none ("": there are)."""

    requested_s: float = float("-inf")
    error: str = ""


class ShareLags:
    """Requests the lags of share groups at each sample, as long as the log cannot be their source.

    The list of topics may lack the topic because koff may not DESCRIBE it. So that counts as denied, too.
    """

    def __init__(self, share: FollowedLog, offsets: FollowedLog, shared: Shared, *, may_ask: bool) -> None:
        """`may_ask`: coordinators may be the source."""
        self._tracker, self._outbox, self._steady_ms = shared
        self._share, self._offsets, self._may_ask = share, offsets, may_ask
        self._is_source = self._was_requested = False
        self._responses: dict[int, _Response] = {}  # the newest, by partition of the offsets topic

    def find_missing_why(self, since_s: float) -> str | None:
        """Why lags of share groups may be missing; None while the log is their source.

        Lags that were requested before `since_s` are too old.
        """
        share = self._share
        if not self._is_closed:
            return None
        if not self._may_ask:
            return share.denied or f"there is no topic {share.topic}, or koff may not DESCRIBE it"
        if error := self._find_error():
            return error
        is_silent = any(response.requested_s < since_s for response in self._present_responses())
        return _SILENT if is_silent else _NOT_RETURNED

    @property
    def _is_closed(self) -> bool:
        """Whether the log cannot be the source."""
        return self._share.exists is False or self._share.denied is not None

    def _present_responses(self) -> list[_Response]:
        """The newest response of each partition that there is."""
        return [self._responses.get(number, _Response()) for number in range(self._offsets.partition_count)]

    def _find_error(self) -> str:
        return next((response.error for response in self._present_responses() if response.error), "")

    def request(self, now: Moment) -> None:
        """Requests the lags from coordinators that have responded since the last request."""
        if not self._may_ask:
            return
        is_closed = self._is_closed
        if not is_closed and self._is_source:
            self._tracker.shares.forget_descriptions()
            self._responses = {}
        self._is_source = is_closed
        self._was_requested &= is_closed
        if not (is_closed and self._tracker.shares.has_share_groups()):
            return
        count = self._offsets.partition_count
        wanted = frozenset(range(count)) - self._outbox.list_waiting(FetchShareLags)
        if wanted:
            self._was_requested = True
            self._outbox.send(FetchShareLags(self._outbox.next_id(), wanted, count), self, now, TIMEOUT_S)

    @property
    def is_settled(self) -> bool:
        """Whether no request to a coordinator is open, and none has to be sent for the first time."""
        is_due = self._is_source and not self._was_requested and self._tracker.shares.has_share_groups()
        return not is_due and not self._outbox.has(FetchShareLags)

    def receive(self, given: ShareLagsFetched, pending: Pending[FetchShareLags], now: Moment) -> None:
        if self._is_source:  # else the log is the source again
            requested_ms = self._steady_ms(pending.requested)
            self._tracker.shares.describe(given.lags, given.partial, requested_ms=requested_ms)
            self._note(given.partitions, _Response(pending.requested.at_s, given.why), now)
        pending.waiting -= given.partitions

    def give_up(self, pending: Pending[FetchShareLags], why: str, now: Moment) -> None:
        """The request failed: coordinators that have not responded to it will not."""
        if self._is_source:
            self._note(pending.waiting, _Response(pending.requested.at_s, why), now)

    def _note(self, partitions: Collection[int], response: _Response, now: Moment) -> None:
        """Notes the response of these partitions. The first error is an event, and the end of all errors."""
        had_failed, count = bool(self._find_error()), self._offsets.partition_count
        responses = self._responses | dict.fromkeys(partitions, response)
        self._responses = {number: newest for number, newest in responses.items() if number < count}
        error = self._find_error()
        if error and not had_failed:
            self._outbox.note(now, "lags of share groups are missing", warn=True, why=error)
        elif had_failed and not error:
            self._outbox.note(now, "all lags of share groups were returned")

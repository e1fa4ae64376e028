"""A reader of one partition: a thin view on a feed that it shares with others."""

from __future__ import annotations

import time
from collections.abc import Iterator

from koff.client.batch import Batch, FetchedBatch
from koff.client.broker.conf import ConsumerConf
from koff.client.closing import Closing
from koff.client.cluster import OffsetSpec
from koff.client.errors import NoData, OffsetOutOfRange
from koff.client.feed.shared_feed import Lane, SharedFeed
from koff.client.message import Message
from koff.errors import Closed, ConnectError, Denied, KoffError

_LOOK_S = 0.1
"""How often a consumer that waits looks at the clock."""


class PartitionConsumer(Closing):
    """Reads one partition in order; a `Consumer`. For one thread at a time; others may close it.

    A broker's restart or a new leader only makes it wait. After `ConnectError`, `NoData` or
    `OffsetOutOfRange` the next call goes on at the same place.
    """

    def __init__(self, feed: SharedFeed, lane: Lane, conf: ConsumerConf, *, patience_s: float) -> None:
        self.conf = conf
        self.feed = feed
        self.lane = lane
        self._patience_s = patience_s
        self._left: Iterator[Message] = iter(())
        self._closed = False
        self._failing_since: float | None = None
        self.begin()

    @property
    def topic(self) -> str:
        return self.lane.topic

    @property
    def partition(self) -> int:
        return self.lane.partition

    def __repr__(self) -> str:
        return f"<Consumer of {self.topic}/{self.partition}{', closed' if self._closed else ''}>"

    def close(self) -> None:
        """Reads no more. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self.feed.drop(self.lane)

    def __iter__(self) -> Iterator[Message]:
        """The messages, until there is `NoData`."""
        try:
            while True:
                yield from self._left
                self._left = iter(self.consume_batch())
        except NoData:
            return

    def consume(self) -> Message:
        """The next message. Raises `NoData`, `OffsetOutOfRange`, `ConnectError`."""
        for message in self._left:
            if self._closed:
                break
            return message
        self._left = iter(self.consume_batch())
        return next(self._left)

    def consume_batch(self, max_messages: int = 10_000) -> Batch:
        """The next messages, at least one, as soon as there are some. Raises as `consume` does."""
        self.begin()
        while True:
            batch = self.ahead(max_messages)
            if batch is not None:
                return batch
            self.feed.wait([self.lane], _LOOK_S)

    def begin(self) -> None:
        """Somebody starts to wait: that is when patience starts too."""
        self._asked_at = time.monotonic()

    def ahead(self, max_messages: int) -> Batch | None:
        """What has come, None for nothing yet; raises once that has lasted too long since `begin`."""
        lane = self.lane
        if self._closed:
            raise Closed(f"the consumer of {lane.topic}/{lane.partition} is closed")
        if left := list(self._left):
            self._left = iter(left[max_messages:])
            return Batch(lane.topic, lane.partition, left[:max_messages])
        messages = self.feed.take(lane, max_messages)
        if messages:
            self._failing_since = None
            self.begin()
            return FetchedBatch(lane.topic, lane.partition, messages)
        if lane.lost or lane.failure:
            raise self._lost()
        if self._due(time.monotonic()):
            self._ask_leader()
        return None

    def _due(self, now: float) -> bool:
        """Whether to ask the leader: nothing comes though more should, or the end has lasted long enough."""
        lane, conf = self.lane, self.conf
        if lane.end is None or self.feed.trouble or self._failing_since is not None:
            return now - max(self._asked_at, lane.served_at) >= conf.retry_err_wait_s
        return conf.retry_limit >= 0 and now - max(self._asked_at, lane.end_at) >= conf.no_data_after_s

    def _ask_leader(self) -> None:
        lane = self.lane
        try:
            latest = self.feed.offset(lane)
        except Denied:
            raise
        except ConnectError as failure:
            self._failing(failure)
        else:
            self._failing_since = None
            if lane.end is not None and latest <= lane.next and self.conf.retry_limit >= 0:
                raise NoData(f"{lane.topic}/{lane.partition} has nothing after offset {lane.next - 1} yet")
        self.begin()

    def _failing(self, failure: ConnectError) -> None:
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._failing_since >= self._patience_s:
            self._failing_since = None
            raise failure

    def _lost(self) -> KoffError:
        lane, failure = self.lane, self.lane.failure
        self.feed.forgive(lane)
        if failure is not None:
            return failure
        try:
            earliest, latest = self.feed.offset(lane, OffsetSpec.EARLIEST), self.feed.offset(lane)
        except KoffError as unanswered:
            return unanswered
        return OffsetOutOfRange(lane.topic, lane.partition, lane.next, earliest, latest)

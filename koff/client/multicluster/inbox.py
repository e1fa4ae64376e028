"""The inbox of a `Reader`: fetched messages that wait to be read, and the state of each subscription."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from koff.client.cluster_conf import ClusterConf
from koff.client.message import Message
from koff.client.multicluster.balancers import payload_bytes
from koff.client.multicluster.conf import ReaderConf
from koff.client.multicluster.errors import ReadErrors
from koff.client.multicluster.message_tracker import MessageTracker
from koff.client.multicluster.stats import NO_VALUES, ClientStats, ReaderStats, Summary
from koff.client.redelivery.conf import RedeliveryCounts
from koff.errors import Closed, KoffError
from koff.logs import get_logger

log = get_logger("client.multicluster")


@dataclass(slots=True, eq=False)
class ReaderSubscription:
    """The state of one `ReaderConf` in one cluster: its position, its counts, and its error.

    The inbox's lock guards it. `response_at` and `reported_at` belong to its thread.

    - `start_at`: where the thread has yet to start reading. Messages that come before that are dropped.
    - `failure`: why it cannot be read; None once it can. `is_reported`: `take_messages` has raised it.
    - `failed_attempts`: how often in a row it could not be read.
    - `ended`: its thread has ended with `failure`; nothing more is read.
    - `queued`: how many messages of each partition are in the inbox. `tracker` has more that wait to be
      delivered again.
    - `processed`: the offset to commit of each partition, for a group's thread.
    - `tracker`: with `ReaderConf.redelivery`.
    - `paused`: the partitions of which no message is handed out; None in it: all.
    - `response_at`: when its cluster last responded. `reported_at`: when silence was last reported
      (monotonic).
    """

    conf: ReaderConf
    cluster_conf: ClusterConf
    offset: int
    lag: int = -1
    start_at: int | None = None
    failure: KoffError | None = None
    is_reported: bool = False
    failed_attempts: int = 0
    ended: bool = False
    queued: Counter[int] = field(default_factory=Counter)
    processed: dict[int, int] = field(default_factory=dict)
    tracker: MessageTracker | None = None
    paused: frozenset[int | None] = frozenset()
    response_at: float = field(default_factory=time.monotonic)
    reported_at: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    wait_s: Summary = NO_VALUES
    read_s: Summary = NO_VALUES

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self.cluster_conf.cluster_name

    @property
    def partition(self) -> int:
        """The partition that is read; -1 with a group."""
        return -1 if self.conf.group_id else self.conf.partition or 0

    @property
    def free_capacity(self) -> int:
        """The free places in its queue; negative if a fetch returned more messages than there was room for.

        Messages of paused partitions do not count: they must not keep the others from being fetched.
        """
        waiting = sum(count for partition, count in self.queued.items() if not self.is_paused(partition))
        return self.conf.queue_capacity - waiting - self._delayed

    @property
    def _delayed(self) -> int:
        """How many messages wait to be delivered again."""
        return self.tracker.delayed if self.tracker else 0

    def is_paused(self, partition: int) -> bool:
        """Whether no message of the partition may be handed out."""
        return None in self.paused or partition in self.paused

    def clear_error(self) -> None:
        """Notes that it can be read again, or shall be read elsewhere."""
        self.failure, self.is_reported, self.failed_attempts = None, False, 0

    def build_stats(self, client: ClientStats) -> ReaderStats:
        """The statistics now, with those of its client."""
        return ReaderStats(
            cluster=self.cluster,
            topic=self.conf.topic,
            partition=self.partition,
            offset=self.offset,
            lag=self.lag,
            queue_length=self.queued.total() + self._delayed,
            queue_capacity=self.conf.queue_capacity,
            failure=str(self.failure or ""),
            wait_s=self.wait_s,
            read_s=self.read_s,
            client=client,
            redelivery=self.tracker.counts if self.tracker else RedeliveryCounts(),
            **self.counts,
        )


@dataclass(slots=True, eq=False)
class InboxBatch:
    """Messages of one partition in log order, fetched when the partition ended at `end_offset`.

    `raws` are confluent-kafka's messages, with `ReaderConf.redelivery`. `again`: the messages were handed out
    before, and failed.
    """

    subscription: ReaderSubscription
    messages: Sequence[Message]
    end_offset: int = -1
    raws: Sequence[Any] = ()
    again: bool = False

    @property
    def partition(self) -> int:
        """The partition of its messages."""
        return self.messages[0].partition


class Inbox:
    """Messages that were fetched by all subscriptions and not read yet. Threads may share it.

    Each error is raised once; a fetching thread reports an error again while it lasts.
    """

    def __init__(self, subscriptions: Sequence[ReaderSubscription]) -> None:
        # Guards the subscriptions too. Reentrant, because `Reader.set_offset` holds it and calls this inbox.
        self.lock = threading.RLock()
        self.closed = False
        self._changed = threading.Condition(self.lock)  # a batch or an error was added
        self._room_freed = threading.Condition(self.lock)
        self._subscriptions = subscriptions
        self._batches: deque[InboxBatch] = deque()
        """Those of paused partitions keep their places."""

    def put_batches(self, batches: Iterable[InboxBatch]) -> None:
        """Adds the batches, except those that `set_offset` has moved away from while they were fetched."""
        with self.lock:
            for batch in batches:
                if batch.subscription.start_at is None:
                    self._batches.append(batch)
                    batch.subscription.queued[batch.partition] += len(batch.messages)
                    self.clear_error(batch.subscription)
            self._changed.notify_all()

    def put_again(self, batch: InboxBatch) -> None:
        """Adds a batch of failed messages, before all others: they are the oldest."""
        with self.lock:
            self._batches.appendleft(batch)
            batch.subscription.queued[batch.partition] += len(batch.messages)
            self._changed.notify_all()

    def set_paused(
        self, subscription: ReaderSubscription, partitions: Collection[int] | None, *, paused: bool
    ) -> None:
        """Pauses or resumes these partitions of the subscription; None: the subscription.

        Fetched messages of paused partitions wait until they are resumed.
        """
        with self.lock:
            if paused:
                subscription.paused |= {None} if partitions is None else {*partitions}
            elif partitions is None:
                subscription.paused = frozenset()
            else:
                subscription.paused -= {*partitions}
            self._changed.notify_all()
            self._room_freed.notify_all()

    def report_error(self, subscription: ReaderSubscription, error: KoffError) -> bool:
        """Notes a failed attempt to read the subscription. Returns whether the subscription has failed now.

        It has after `max_attempts` in a row: then keeps the reason, and logs it, once until `clear_error`.
        """
        with self.lock:
            subscription.counts["errors"] += 1
            subscription.failed_attempts += 1
            if subscription.failed_attempts < subscription.conf.max_attempts:
                return False
            if subscription.failure is None:
                log.warning(
                    "reader cannot read its cluster: the reader continues with the other clusters",
                    cluster=subscription.cluster,
                    topic=subscription.conf.topic,
                    reason=str(error),
                )
            subscription.failure, subscription.is_reported = error, False
            self._changed.notify_all()
            return True

    def report_end(self, subscriptions: Iterable[ReaderSubscription], error: KoffError) -> None:
        """Keeps the reason why the subscriptions are not read any more. The next `take_messages` raises it.

        From then on it counts as an error of these subscriptions at each call.
        """
        with self.lock:
            for subscription in subscriptions:
                subscription.failure, subscription.is_reported, subscription.ended = error, False, True
                subscription.counts["errors"] += 1
            self._changed.notify_all()

    def clear_error(self, subscription: ReaderSubscription) -> None:
        """Clears the subscription's error, because it can be read again."""
        with self.lock:
            if subscription.failure is not None:
                log.info(
                    "reader can read its cluster again",
                    cluster=subscription.cluster,
                    topic=subscription.conf.topic,
                )
            subscription.clear_error()

    def take_messages(self, timeout_s: float | None, *, commit: bool = False) -> list[Message]:
        """The next messages of one cluster; [] after `timeout_s`. `commit`: a group commits their offsets.

        Only adjacent batches of one cluster are returned together, so that each cluster has its turn. Raises
        `ReadErrors` if all subscriptions have failed, and once also while others can be read if some have
        ended. Raises `Closed`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self.lock:
            while True:
                self.check_open()
                if batches := self._pop_batches(commit=commit):
                    return [message for batch in batches for message in batch.messages]
                if errors := self._take_errors():  # instead of waiting
                    raise ReadErrors(errors, readers=len(self._subscriptions))
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return []
                self._changed.wait(left_s)

    def wait_for_room(self, subscriptions: Sequence[ReaderSubscription], timeout_s: float) -> int:
        """How many messages the queues of these subscriptions have room for.

        Waits up to `timeout_s` while there is no room, then returns 0.
        """
        with self.lock:
            if sum(each.free_capacity for each in subscriptions) <= 0:
                self._room_freed.wait(timeout_s)
            return max(sum(each.free_capacity for each in subscriptions), 0)

    def drop_partitions(self, subscription: ReaderSubscription, partitions: Collection[int]) -> None:
        """Drops what waits of these partitions. Messages that were handed out cannot be acknowledged now."""
        with self.lock:
            if subscription.tracker is not None:
                subscription.tracker.drop_partitions(partitions)
            self._batches = deque(
                batch
                for batch in self._batches
                if batch.subscription is not subscription or batch.partition not in partitions
            )
            for partition in partitions:
                subscription.queued.pop(partition, None)
            self._room_freed.notify_all()

    def check_open(self) -> None:
        """Raises `Closed` after `close`."""
        if self.closed:
            raise Closed("the reader is closed")

    def close(self) -> bool:
        """Drops all batches and wakes all threads that wait. Returns whether this is the first call."""
        with self.lock:
            was_closed, self.closed = self.closed, True
            self._batches.clear()
            self._changed.notify_all()
            self._room_freed.notify_all()
            return not was_closed

    def _take_errors(self) -> list[KoffError]:
        """The errors of all subscriptions if all have failed, or else of those that have ended, once."""
        failed = [
            each for each in self._subscriptions if each.ended or (each.failure and not each.is_reported)
        ]
        if len(failed) < len(self._subscriptions):
            failed = [each for each in failed if each.ended]
            if all(each.is_reported for each in failed):
                return []
        for each in failed:
            each.is_reported = True
        return [each.failure for each in failed if each.failure is not None]

    def _pop_batches(self, *, commit: bool) -> list[InboxBatch]:
        """The first batches that are not paused, up to the first batch of another cluster."""
        taken: list[InboxBatch] = []
        paused: list[InboxBatch] = []
        while self._batches:
            batch = self._batches.popleft()
            if batch.subscription.is_paused(batch.partition):
                paused.append(batch)
            elif taken and batch.subscription.cluster != taken[0].subscription.cluster:
                self._batches.appendleft(batch)
                break
            else:
                taken.append(batch)
        self._batches.extendleft(reversed(paused))
        for batch in taken:
            self._hand_out(batch, commit=commit)
        self._room_freed.notify_all()
        return taken

    def _hand_out(self, batch: InboxBatch, *, commit: bool) -> None:
        """Counts the batch's messages as read from now on: moves the offset and the lag."""
        subscription, next_offset = batch.subscription, batch.messages[-1].offset + 1
        subscription.queued[batch.partition] -= len(batch.messages)
        subscription.counts["messages"] += len(batch.messages)
        subscription.counts["bytes"] += sum(map(payload_bytes, batch.messages))
        if subscription.tracker is not None:
            subscription.tracker.hand_out(batch.messages, batch.raws)
        elif commit:
            subscription.processed[batch.partition] = next_offset
        if not (subscription.conf.group_id or batch.again):  # a group's offsets are at its coordinator
            subscription.offset = next_offset
            is_known = batch.end_offset >= 0
            subscription.lag = max(batch.end_offset - next_offset, 0) if is_known else -1

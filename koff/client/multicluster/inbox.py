"""The inbox of a `Reader`: fetched messages that wait to be read, and the state of each subscription."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from koff.client.cluster_conf import ClusterConf
from koff.client.message import Message
from koff.client.multicluster.balancers import payload_bytes
from koff.client.multicluster.client_statistics import ClientStats, SummaryBuilder
from koff.client.multicluster.conf import ReaderConf
from koff.client.multicluster.message_tracker import MessageTracker
from koff.client.multicluster.stats import ReaderStats
from koff.client.redelivery.conf import RedeliveryCounts
from koff.errors import KoffError
from koff.logs import get_logger

log = get_logger("client.multicluster")


@dataclass(slots=True, eq=False)
class ReaderSubscription:
    """The state of one `ReaderConf` in one cluster: its position, its counts, and its error.

    - `generation`: raised by each `set_offset`. Messages that were fetched for an older generation are
      dropped.
    - `unreported_error`: an error that `take_batches` has not returned yet. `failure` is the error's text;
      it stays until the subscription can be read again.
    - `failed_attempts`: how often in a row it could not be read.
    - `ended`: why its thread has ended; nothing more is read.
    - `queued`: how many of its messages are in the inbox. `tracker` has more that wait to be delivered again.
    - `tracker`: with `ReaderConf.redelivery`.
    - `paused`: no message is handed out; `paused_partitions`: none of these. `held` is how many such messages
      were fetched.
    """

    conf: ReaderConf
    cluster_conf: ClusterConf
    offset: int
    lag: int = -1
    generation: int = 0
    unreported_error: KoffError | None = None
    failure: str = ""
    failed_attempts: int = 0
    ended: KoffError | None = None
    queued: int = 0
    tracker: MessageTracker | None = None
    paused: bool = False
    paused_partitions: set[int] = field(default_factory=set)
    held: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    wait_s: SummaryBuilder = field(default_factory=SummaryBuilder)
    read_s: SummaryBuilder = field(default_factory=SummaryBuilder)

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self.cluster_conf.cluster_name

    @property
    def partition(self) -> int:
        """The partition that is read; -1 with a group."""
        return -1 if self.conf.group_id else self.conf.partition or 0

    def is_paused(self, partition: int) -> bool:
        """Whether no message of the partition may be handed out."""
        return self.paused or partition in self.paused_partitions

    @property
    def waiting(self) -> int:
        """How many messages wait to be read, those included that wait to be delivered again.

        Those of paused partitions do not count: they must not keep the others from being fetched.
        """
        return self.queued + (self.tracker.delayed if self.tracker else 0)

    def add_count(self, name: str, number: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    def build_stats(self, client: ClientStats) -> ReaderStats:
        """The statistics now, with those of its client."""
        return ReaderStats(
            cluster=self.cluster,
            topic=self.conf.topic,
            partition=self.partition,
            offset=self.offset,
            lag=self.lag,
            queue_length=self.waiting + self.held,
            queue_capacity=self.conf.queue_capacity,
            failure=self.failure,
            wait_s=self.wait_s.build(),
            read_s=self.read_s.build(),
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
    generation: int
    messages: Sequence[Message]
    end_offset: int = -1
    raws: Sequence[Any] = ()
    again: bool = False

    @property
    def is_paused(self) -> bool:
        """Whether the batch may not be handed out."""
        return self.subscription.is_paused(self.messages[0].partition)


class Inbox:
    """Messages that were fetched by all subscriptions and not read yet. Threads may share it.

    Each error is returned once; a fetching thread reports an error again while it lasts.
    """

    def __init__(self, subscriptions: Sequence[ReaderSubscription]) -> None:
        # Guards the subscriptions too. Reentrant, because `Reader.set_offset` holds it and calls this inbox.
        self.lock = threading.RLock()
        self.closed = False
        self._changed = threading.Condition(self.lock)  # a batch or an error was added
        self._room_freed = threading.Condition(self.lock)
        self._subscriptions = subscriptions
        self._batches: deque[InboxBatch] = deque()
        self._held: deque[InboxBatch] = deque()
        """Batches of paused partitions."""
        self._unreported_end: KoffError | None = None

    def put_batches(self, batches: Iterable[InboxBatch]) -> None:
        """Adds the batches, except batches of an older generation: `set_offset` has moved away from them."""
        with self.lock:
            for batch in batches:
                # `set_offset` may have come while the fetch was in progress.
                if batch.generation == batch.subscription.generation:
                    self._add_batch(batch)
                    self.clear_error(batch.subscription)
            self._changed.notify_all()

    def put_again(self, subscription: ReaderSubscription, batches: Iterable[InboxBatch]) -> None:
        """Adds batches of failed messages, before all others: they are the oldest."""
        with self.lock:
            for batch in batches:
                self._add_batch(batch, first=True)
            self._changed.notify_all()

    def set_paused(
        self, subscription: ReaderSubscription, partitions: Collection[int] | None, *, paused: bool
    ) -> None:
        """Pauses or resumes these partitions of the subscription; None: the subscription.

        Fetched messages of paused partitions wait, apart from the others, until they are resumed.
        """
        with self.lock:
            if partitions is not None:
                known = subscription.paused_partitions
                subscription.paused_partitions = (
                    known.union(partitions) if paused else known.difference(partitions)
                )
            else:
                subscription.paused = paused
                if not paused:
                    subscription.paused_partitions = set()
            # Held batches of a partition are older than its other batches.
            batches = [*self._held, *self._batches]
            self._held.clear()
            self._batches.clear()
            for each in self._subscriptions:
                each.queued = each.held = 0
            for batch in batches:
                self._add_batch(batch)
            self._changed.notify_all()
            self._room_freed.notify_all()

    def report_error(self, subscription: ReaderSubscription, error: KoffError) -> bool:
        """Notes a failed attempt to read the subscription. Returns whether the subscription has failed now.

        It has after `max_attempts` in a row: then keeps the reason, and logs it, once until `clear_error`.
        """
        with self.lock:
            subscription.add_count("errors")
            subscription.failed_attempts += 1
            if subscription.failed_attempts < subscription.conf.max_attempts:
                return False
            if not subscription.failure:
                log.warning(
                    "reader cannot read its cluster: the reader continues with the other clusters",
                    cluster=subscription.cluster,
                    topic=subscription.conf.topic,
                    reason=str(error),
                )
            subscription.unreported_error, subscription.failure = error, str(error)
            self._changed.notify_all()
            return True

    def report_end(self, subscriptions: Iterable[ReaderSubscription], error: KoffError) -> None:
        """Keeps the reason why the subscriptions are not read any more. The next `take_batches` returns it.

        From then on it counts as an error of these subscriptions at each call.
        """
        with self.lock:
            self._unreported_end = error
            for subscription in subscriptions:
                subscription.ended, subscription.failure = error, str(error)
                subscription.add_count("errors")
            self._changed.notify_all()

    def clear_error(self, subscription: ReaderSubscription) -> None:
        """Clears the subscription's error, because it can be read again."""
        with self.lock:
            if subscription.failure:
                log.info(
                    "reader can read its cluster again",
                    cluster=subscription.cluster,
                    topic=subscription.conf.topic,
                )
            subscription.unreported_error, subscription.failure = None, ""
            subscription.failed_attempts = 0

    def take_batches(self, timeout_s: float | None) -> tuple[list[InboxBatch], list[KoffError]]:
        """The next batches of one cluster, or the errors of all subscriptions if all have failed.

        Returns the errors of ended subscriptions once also while others can be read. Both are empty after
        `timeout_s` or once the inbox is closed. Only adjacent batches of one cluster are returned together,
        so that each cluster has its turn.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self.lock:
            while not self.closed:
                if self._batches:
                    return self._pop_batches(), []
                if self._unreported_end is not None:  # also if others can be read: it is no outage
                    return [], self._take_ends()
                # No messages. If every reader has failed, raise the errors instead of waiting.
                # A reader whose thread has ended counts as failed each time.
                errors = [
                    error
                    for subscription in self._subscriptions
                    if (error := subscription.unreported_error or subscription.ended) is not None
                ]
                if len(errors) == len(self._subscriptions):
                    for subscription in self._subscriptions:
                        subscription.unreported_error = None
                    return [], errors
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    break
                self._changed.wait(left_s)
        return [], []

    def wait_for_room(self, subscriptions: Sequence[ReaderSubscription], timeout_s: float) -> int:
        """How many messages the queues of these subscriptions have room for.

        Waits up to `timeout_s` while there is no room, then returns 0.
        """
        with self.lock:
            if _free_capacity(subscriptions) <= 0:
                self._room_freed.wait(timeout_s)
            return max(_free_capacity(subscriptions), 0)

    def drop_batches(self, should_drop: Callable[[InboxBatch], bool]) -> None:
        """Drops the batches for which `should_drop` is true."""
        with self.lock:
            for batches in (self._batches, self._held):
                kept = [batch for batch in batches if not should_drop(batch)]
                for batch in filter(should_drop, batches):
                    self._count_batch(batch, -len(batch.messages))
                batches.clear()
                batches.extend(kept)
            self._room_freed.notify_all()

    def close(self) -> None:
        """Drops all batches and wakes all threads that wait."""
        with self.lock:
            self.closed = True
            self._batches.clear()
            self._held.clear()
            self._changed.notify_all()
            self._room_freed.notify_all()

    def _add_batch(self, batch: InboxBatch, *, first: bool = False) -> None:
        batches = self._held if batch.is_paused else self._batches
        (batches.appendleft if first else batches.append)(batch)
        self._count_batch(batch, len(batch.messages))

    def _count_batch(self, batch: InboxBatch, number: int) -> None:
        if batch.is_paused:
            batch.subscription.held += number
        else:
            batch.subscription.queued += number

    def _take_ends(self) -> list[KoffError]:
        self._unreported_end = None
        return [each.ended for each in self._subscriptions if each.ended is not None]

    def _pop_batches(self) -> list[InboxBatch]:
        taken = [self._batches.popleft()]
        # Add the batches of the same cluster that follow, up to the first batch of another cluster.
        cluster = taken[0].subscription.cluster
        while self._batches and self._batches[0].subscription.cluster == cluster:
            taken.append(self._batches.popleft())
        # Messages count as read from now on: move the offset and the lag.
        for batch in taken:
            subscription, last = batch.subscription, batch.messages[-1]
            subscription.queued -= len(batch.messages)
            subscription.add_count("messages", len(batch.messages))
            subscription.add_count("bytes", sum(map(payload_bytes, batch.messages)))
            if subscription.tracker is not None:
                subscription.tracker.hand_out(batch.messages, batch.raws)
            if not (subscription.conf.group_id or batch.again):  # a group's offsets are at its coordinator
                subscription.offset = last.offset + 1
                is_known = batch.end_offset >= 0
                subscription.lag = max(batch.end_offset - subscription.offset, 0) if is_known else -1
        self._room_freed.notify_all()
        return taken


def _free_capacity(subscriptions: Sequence[ReaderSubscription]) -> int:
    """The free places in the queues; negative if a fetch returned more messages than there was room for."""
    return sum(subscription.conf.queue_capacity - subscription.waiting for subscription in subscriptions)

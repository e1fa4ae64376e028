"""The inbox of a `Reader`: fetched messages that wait to be read."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from koff.client.message import Message
from koff.client.multicluster.balancers import payload_bytes
from koff.client.multicluster.errors import ReadErrors
from koff.client.multicluster.subscription import ReaderSubscription, ReadPartition
from koff.errors import Closed, KoffError
from koff.logs import get_logger

log = get_logger("client.multicluster")


@dataclass(slots=True, eq=False)
class InboxBatch:
    """Messages of one partition in log order, fetched when the partition ended at `end_offset`.

    `raws` are confluent-kafka's messages. `again`: the messages were handed out before, and failed.
    """

    subscription: ReaderSubscription
    partition: ReadPartition
    messages: Sequence[Message]
    raws: Sequence[Any] = ()
    end_offset: int = -1
    again: bool = False

    @property
    def is_paused(self) -> bool:
        """Whether the batch may not be handed out now."""
        return self.subscription.is_paused(self.partition.partition)


class Inbox:
    """Messages that were fetched by all subscriptions and not read yet. Threads may share it.

    Each error is raised once; a fetching thread reports an error again while it lasts. That of an ended
    subscription counts at each call.
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
                if batch.partition.start_at is None and batch.subscription.is_read(batch.partition):
                    self._batches.append(batch)
                    batch.partition.queued += len(batch.messages)
                    self.clear_error(batch.subscription)
            self._changed.notify_all()

    def put_again(self, batch: InboxBatch) -> None:
        """Adds a batch of failed messages, before all others: they are the oldest."""
        with self.lock:
            self._batches.appendleft(batch)
            batch.partition.queued += len(batch.messages)
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

    def report_error(
        self, subscription: ReaderSubscription, error: KoffError, partition: ReadPartition | None = None
    ) -> bool:
        """Notes a failed attempt to read the subscription. Returns whether the subscription has failed now.

        The error of a `partition` counts only while it is read: not after `set_offset`. The subscription has
        failed after `max_attempts` in a row, or when it has ended: then the inbox keeps the reason, and logs
        it, once until `clear_error`.
        """
        with self.lock:
            if partition is not None and not subscription.is_read(partition):
                return False
            subscription.counts["errors"] += 1
            subscription.failed_attempts += 1
            if subscription.failed_attempts < subscription.conf.max_attempts and not subscription.ended:
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

    def note_end(
        self, subscription: ReaderSubscription, partition: ReadPartition, end: int, *, has_more: bool
    ) -> None:
        """Notes that the partition was read up to `end`, perhaps over control records after the last message.

        `has_more`: messages before `end` come with the next `put_batches`.
        """
        with self.lock:
            partition.read_to = end
            if (
                subscription.is_read(partition)
                and subscription.offset >= 0
                and not (partition.queued or has_more)
            ):
                subscription.offset, subscription.lag = max(subscription.offset, end), 0

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
        with self.lock:
            self.wait_for_messages(timeout_s)
            return self.poll_messages(commit=commit)

    def wait_for_messages(self, timeout_s: float | None) -> bool:
        """Waits until `poll_messages` has messages or an error; returns whether it has after `timeout_s`."""
        with self.lock:
            return self._changed.wait_for(self._is_ready, timeout_s)

    def _is_ready(self) -> bool:
        has_messages = any(not batch.is_paused for batch in self._batches)
        return self.closed or has_messages or bool(self._find_failed())

    def poll_messages(self, *, commit: bool) -> list[Message]:
        """The next messages of one cluster; [] if there are none now. Raises what `take_messages` does."""
        with self.lock:
            self.check_open()
            batches = self._pop_batches(commit=commit)
            if not batches and (failed := self._find_failed()):
                for each in failed:
                    each.is_reported = True
                errors = [each.failure for each in failed if each.failure is not None]
                raise ReadErrors(errors, readers=len(self._subscriptions))
            return [message for batch in batches for message in batch.messages]

    def wait_for_room(self, subscriptions: Sequence[ReaderSubscription], timeout_s: float) -> int:
        """How many messages the queues of these subscriptions have room for.

        Waits up to `timeout_s` while there is no room, then returns 0.
        """
        with self.lock:
            if sum(each.free_capacity for each in subscriptions) <= 0:
                self._room_freed.wait(timeout_s)
            return max(sum(each.free_capacity for each in subscriptions), 0)

    def drop_former_batches(self) -> None:
        """Drops the batches of partitions that are not read any more."""
        with self.lock:
            self._batches = deque(each for each in self._batches if each.subscription.is_read(each.partition))
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

    def _find_failed(self) -> list[ReaderSubscription]:
        """Whose errors are to be raised: all if all have failed, or else those that have ended, once."""
        failed = [
            each for each in self._subscriptions if each.ended or (each.failure and not each.is_reported)
        ]
        if len(failed) < len(self._subscriptions):
            failed = [each for each in failed if each.ended]
            if all(each.is_reported for each in failed):
                return []
        return failed

    def _pop_batches(self, *, commit: bool) -> list[InboxBatch]:
        """The first batches that are not paused, up to the first batch of another cluster."""
        taken: list[InboxBatch] = []
        paused: list[InboxBatch] = []
        while self._batches:
            batch = self._batches.popleft()
            if batch.is_paused:
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
        subscription, partition, next_offset = (
            batch.subscription,
            batch.partition,
            batch.messages[-1].offset + 1,
        )
        partition.queued -= len(batch.messages)
        subscription.counts["messages"] += len(batch.messages)
        subscription.counts["bytes"] += sum(map(payload_bytes, batch.messages))
        if subscription.acknowledgements is not None:
            for message, raw in zip(batch.messages, batch.raws, strict=True):
                subscription.acknowledgements.hand_out(partition, message, raw)
        elif commit:
            partition.to_commit = next_offset
        if partition.read_to > next_offset and not partition.queued:
            next_offset = partition.read_to
        if not (subscription.conf.group_id or batch.again):  # a group's offsets are at its coordinator
            subscription.offset = next_offset
            is_known = batch.end_offset >= 0
            subscription.lag = max(batch.end_offset - next_offset, 0) if is_known else -1

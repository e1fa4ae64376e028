"""`Delivery`: fetched messages that wait for the application, and what it reports about them."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from koff.client.batch import Batch
from koff.client.delivery.errors import PartitionError
from koff.client.delivery.partition import PartitionState, ReadPartition
from koff.client.message import Message
from koff.errors import Closed
from koff.logs import get_logger

log = get_logger("client.delivery")
P = TypeVar("P", bound=ReadPartition)
_CHECK_S = 0.1
"""How often a waiting `take` looks whether failed messages are due, and partitions may be handed out.

It gets no notification of either."""


class Delivery(Generic[P]):
    """The fetched messages of partitions, which take turns. Threads may share it.

    The callbacks run while `lock` is held:

    - `is_ready`: whether messages of the partition may be handed out now.
    - `on_handed_out`: gets the messages that are handed out.
    - `on_processed`: gets each offset up to which all messages of a partition are processed.
    - `on_error`: gets each message that is passed over.
    """

    # `_turns` has each partition with a message once: so a partition with many messages, or one of which
    # nothing may be handed out, does not delay the others.

    def __init__(
        self,
        *,
        is_ready: Callable[[P], bool],
        on_processed: Callable[[P, int], None],
        on_error: Callable[[PartitionError], None],
        on_handed_out: Callable[[P, Sequence[Message]], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
        lock: threading.Condition | None = None,
    ) -> None:
        # Threads of the application and of intakes wait on the same condition. Each wait has a short limit,
        # so a notification that wakes the wrong thread only delays the right one. Reentrant. Held until an
        # offset is noted: otherwise the partition could be lost meanwhile, and be read again.
        self.lock = lock or threading.Condition()
        self.closed = False
        self._clock, self._is_ready = clock, is_ready
        self._on_processed, self._on_error, self._on_handed_out = on_processed, on_error, on_handed_out
        self._turns: deque[P] = deque()

    def close(self) -> bool:
        """Hands out no more messages: waiting calls of `take` raise `Closed`. Whether it was open."""
        with self.lock:
            was_closed, self.closed = self.closed, True
            self._turns.clear()
            self.lock.notify_all()
            return not was_closed

    def wait_for_change(self, timeout_s: float) -> None:
        """Waits until a message is handed out or acknowledged, at most `timeout_s`."""
        with self.lock:
            self.lock.wait(timeout_s)

    def wake_all(self) -> None:
        """Makes waiting threads look again."""
        with self.lock:
            self.lock.notify_all()

    # --- Messages -------------------------------------------------------------------------------------------

    def put(self, partition: P, batch: Batch) -> None:
        """Adds fetched messages of the partition, in log order. Drops them unless it is READING."""
        with self.lock:
            if self._may_deliver(partition):
                partition.buffered.extend(batch.raw)
                self.lock.notify_all()

    def take(
        self,
        most: int | None = None,
        timeout_s: float | None = None,
        *,
        commit: bool = False,
        has_failed: Callable[[], bool] = lambda: False,
    ) -> list[Message]:
        """As `poll`, but waits for messages; [] after `timeout_s`, and when `has_failed` returns true."""
        until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        messages: list[Message] = []
        # A failed message that was processed meanwhile is not handed out: then there may be none.
        while not messages and self.wait_for_messages(max(until - time.monotonic(), 0.0), has_failed):
            messages = self.poll(most, commit=commit)
            if has_failed():
                break
        return messages

    def wait_for_messages(
        self, timeout_s: float | None = None, has_failed: Callable[[], bool] = lambda: False
    ) -> bool:
        """Waits until there are messages, `close`, or `has_failed`; returns whether so after `timeout_s`."""
        until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        with self.lock:
            while not self._is_ready_to_poll(has_failed):
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return False
                self.lock.wait(min(left_s, _CHECK_S))
            return True

    def _is_ready_to_poll(self, has_failed: Callable[[], bool]) -> bool:
        now = self._clock()
        has_messages = any(self._is_ready(each) and each.has_due(now) for each in self._turns)
        return self.closed or has_messages or has_failed()

    def poll(self, most: int | None = None, *, commit: bool = False) -> list[Message]:
        """The next messages of one cluster, up to `most`. [] if there are none now. Raises `Closed`.

        `commit`: the offsets after them have to be committed, unless their partition is tracked.
        """
        taken: list[Message] = []
        with self.lock:
            self.check_open()
            for _ in range(len(self._turns)):
                if taken and (self._turns[0].cluster != taken[0].cluster or len(taken) == most):
                    break
                partition = self._turns.popleft()
                if self._is_ready(partition):
                    taken += self._hand_out(partition, most, commit=commit)
                if partition.waiting:
                    self._turns.append(partition)
            if taken:
                self.lock.notify_all()
        return taken

    def check_open(self) -> None:
        """Raises `Closed` after `close`."""
        if self.closed:
            raise Closed("the reader is closed")

    def _hand_out(self, partition: P, most: int | None, *, commit: bool) -> list[Message]:
        raws = partition.pop(most, self._clock())
        if not raws:
            return []
        messages = list(Batch(partition.topic, partition.partition, raw=raws, cluster=partition.cluster))
        partition.next_offset = max(partition.next_offset, messages[-1].offset + 1)
        partition.was_read, logs = True, partition.logs
        self._on_handed_out(partition, messages)
        if partition.assignment:
            for message in messages:
                message.assignment = partition.assignment
        if partition.rule is None:
            partition.to_commit = partition.next_offset if commit else partition.to_commit
        else:
            for message, raw in zip(messages, raws, strict=True):
                if partition.deliver(message.offset, raw) > 1:
                    partition.rule.count("redelivered")
                message.on_ack = lambda message: self._ack(partition, logs, message.offset)
                message.on_nack = lambda message, cause: self._nack(partition, logs, message, cause)
        return messages

    def _may_deliver(self, partition: P) -> bool:
        """Whether more messages of the partition may be handed out. If so, it gets a turn."""
        if partition.state is not PartitionState.READING or self.closed:
            return False
        if partition not in self._turns:
            self._turns.append(partition)
        return True

    # --- States ---------------------------------------------------------------------------------------------

    def change_state(self, partition: P, state: PartitionState) -> None:
        """Sets the partition's state, which is not READING: hands out no more messages of it."""
        with self.lock:
            partition.state = state
            self.drop_messages(partition)

    def drop_messages(self, partition: P) -> None:
        """Hands out no message of the partition that was fetched before."""
        with self.lock:
            partition.drop_messages()
            if partition in self._turns:
                self._turns.remove(partition)
            self.lock.notify_all()

    def is_drained(self, partition: P) -> bool:
        """Whether each handed-out message of the partition was acknowledged, or failed."""
        with self.lock:
            return partition.drained

    # --- Acknowledgements -----------------------------------------------------------------------------------

    def mark_processed_up_to(self, partition: P, offset: int) -> bool:
        """Marks the messages up to that offset as processed. Returns false if the partition is LOST."""
        with self.lock:
            is_lost = partition.state is PartitionState.LOST
            if not is_lost:
                self._note_processed(partition, partition.mark_processed_up_to(offset))
            return not is_lost

    def _ack(self, partition: P, logs: int, offset: int) -> None:
        with self.lock:
            if not _is_read(partition, logs):
                log.debug("acknowledgement ignored: the partition is lost", at=partition.topic_partition)
                return
            self._note_processed(partition, partition.mark_processed(offset))

    def _nack(self, partition: P, logs: int, message: Message, cause: BaseException | None) -> None:
        """Has the message delivered again later; after its last delivery, passes it over."""
        rule = partition.rule
        assert rule is not None
        with self.lock:
            failed = partition.mark_failed(message.offset) if _is_read(partition, logs) else None
            if failed is None:
                return
            raw, deliveries = failed
            if deliveries <= rule.max_redeliveries:
                self._delay(partition, raw, rule.redelivery.delay_s(deliveries))
                return
            if rule.write_dead_letter is None:
                self._pass_over(partition, message, deliveries, cause)
                return
            partition.mark_in_progress(message.offset)  # a partition that is given up waits for the write
        # Without the lock: the write may take seconds.
        try:
            rule.write_dead_letter(raw, deliveries, cause)
        except Exception as error:  # the message must not stay in progress
            with self.lock:
                if not _is_read(partition, logs):
                    return
                partition.mark_failed(message.offset)
                text = f"offset {message.offset} failed {deliveries} times, and is delivered again: {error}"
                self._report(partition, text, message, error)
                self._delay(partition, raw, rule.redelivery.longest_s)
            return
        with self.lock:
            rule.count("dead_letters")
            if _is_read(partition, logs):  # else the next owner delivers the message, too
                self._pass_over(partition, message, deliveries, cause)

    def _delay(self, partition: P, raw: object, delay_s: float) -> None:
        # While the partition drains, the next owner gets the message.
        if self._may_deliver(partition):
            partition.delayed.append((self._clock() + delay_s, raw))
        self.lock.notify_all()

    def _pass_over(
        self, partition: P, message: Message, deliveries: int, cause: BaseException | None
    ) -> None:
        """Reports the message, and counts it as processed."""
        assert partition.rule is not None
        partition.rule.count("passed_over")
        text = f"offset {message.offset} failed {deliveries} times and is passed over: {cause!r}"
        self._report(partition, text, message, cause)
        self._note_processed(partition, partition.mark_processed(message.offset))

    def _report(self, partition: P, text: str, message: Message, cause: BaseException | None) -> None:
        error = PartitionError(partition.topic, partition.partition, text, message)
        error.__cause__ = cause
        self._on_error(error)

    def _note_processed(self, partition: P, processed: int | None) -> None:
        """Passes on the partition's `processed_up_to` if it moved."""
        self.lock.notify_all()
        if processed is not None:
            self._on_processed(partition, processed)


def _is_read(partition: ReadPartition, logs: int) -> bool:
    """Whether acknowledgements count of messages that were handed out after so many logs were forgotten."""
    return partition.state is not PartitionState.LOST and partition.logs == logs

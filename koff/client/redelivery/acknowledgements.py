"""Processes what the application reports about messages that were handed out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from koff.client.message import Message
from koff.client.redelivery.conf import Redelivery, RedeliveryCounts
from koff.client.redelivery.delivered_partition import DeliveredPartition
from koff.client.redelivery.errors import PartitionError
from koff.logs import get_logger

log = get_logger("client.redelivery")
P = TypeVar("P", bound=DeliveredPartition)
WriteDeadLetter = Callable[[Any, int, BaseException | None], None]
"""Writes confluent-kafka's message elsewhere, with how often it was delivered and the last cause."""


class Acknowledgements(Generic[P]):
    """Notes which messages are processed, and decides what becomes of a message that failed.

    The callbacks run while `lock` is held, except `write_dead_letter`:

    - `is_lost`: whether acknowledgements of the partition do not count any more.
    - `delay`: gets a message that has to be delivered again after some seconds.
    - `on_processed`: gets each new `processed_up_to` of a partition.
    - `on_error`: gets each message that is passed over. `write_dead_letter` writes such a message before
      that, and raises an error if it cannot.
    - `on_change`: called when a message is acknowledged.

    `counts` has what became of messages that failed.
    """

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        *,
        max_redeliveries: int,
        redelivery: Redelivery,
        is_lost: Callable[[P], bool],
        delay: Callable[[P, Any, float], None],
        on_processed: Callable[[P, int], None],
        on_error: Callable[[PartitionError], None],
        on_change: Callable[[], None] = lambda: None,
        write_dead_letter: WriteDeadLetter | None = None,
    ) -> None:
        self.counts = RedeliveryCounts()
        self._lock = lock
        self._max_redeliveries, self._redelivery = max_redeliveries, redelivery
        self._is_lost, self._delay, self._on_change = is_lost, delay, on_change
        self._on_processed, self._on_error = on_processed, on_error
        self._write_dead_letter = write_dead_letter

    def hand_out(self, partition: P, message: Message, raw: Any) -> None:
        """Notes that the message, made of confluent-kafka's `raw`, is handed out. Needs `lock`."""
        if partition.deliver(message.offset, raw) > 1:
            self._count("redelivered")
        message.on_ack = lambda message: self._ack(partition, message.offset)
        message.on_nack = lambda message, cause: self._nack(partition, message, cause)

    def mark_processed_up_to(self, partition: P, offset: int) -> None:
        """Marks the messages up to that offset as processed. Needs `lock`."""
        self._note_processed(partition, partition.mark_processed_up_to(offset))

    def _ack(self, partition: P, offset: int) -> None:
        with self._lock:
            if self._is_lost(partition):
                log.debug(
                    "acknowledgement ignored: the partition is lost",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=offset,
                )
                return
            self._note_processed(partition, partition.mark_processed(offset))

    def _nack(self, partition: P, message: Message, cause: BaseException | None) -> None:
        """Has the message delivered again later; after its last delivery, passes it over."""
        with self._lock:
            failed = partition.mark_failed(message.offset)
            if failed is None or self._is_lost(partition):
                return
            raw, deliveries = failed
            if deliveries <= self._max_redeliveries:
                self._delay(partition, raw, self._redelivery.delay_s(deliveries))
                return
            if self._write_dead_letter is None:
                self._pass_over(partition, message, deliveries, cause)
                return
            partition.mark_in_progress(message.offset)  # a partition that is given up waits for the write
        # Without the lock: the write may take seconds.
        try:
            self._write_dead_letter(raw, deliveries, cause)
        except Exception as error:  # the message must not stay in progress
            with self._lock:
                partition.mark_failed(message.offset)
                text = f"offset {message.offset} failed {deliveries} times, and is delivered again: {error}"
                self._on_error(_make_error(partition, text, message, error))
                self._delay(partition, raw, self._redelivery.longest_s)
            return
        with self._lock:
            self._count("dead_letters")
            if not self._is_lost(partition):  # else the next owner delivers the message, too
                self._pass_over(partition, message, deliveries, cause)

    def _pass_over(
        self, partition: P, message: Message, deliveries: int, cause: BaseException | None
    ) -> None:
        """Reports the message, and counts it as processed."""
        self._count("passed_over")
        text = f"offset {message.offset} failed {deliveries} times and is passed over: {cause!r}"
        self._on_error(_make_error(partition, text, message, cause))
        self._note_processed(partition, partition.mark_processed(message.offset))

    def _count(self, name: str) -> None:
        """Adds one to that number of `counts`. The caller holds the lock."""
        self.counts = self.counts._replace(**{name: getattr(self.counts, name) + 1})

    def _note_processed(self, partition: P, processed: int | None) -> None:
        """Passes on the partition's `processed_up_to` if it moved. The caller holds the lock."""
        self._on_change()
        if processed is not None:
            self._on_processed(partition, processed)


def _make_error(
    partition: DeliveredPartition, text: str, message: Message, cause: BaseException | None
) -> PartitionError:
    error = PartitionError(partition.topic, partition.partition, text, message)
    error.__cause__ = cause
    return error

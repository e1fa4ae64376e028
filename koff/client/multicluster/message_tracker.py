"""The messages of one reader that were handed out, until the application has processed them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller
from typing import Any

from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.message import Message
from koff.client.multicluster.conf import ReaderConf
from koff.client.redelivery.acknowledgements import Acknowledgements
from koff.client.redelivery.conf import RedeliveryCounts
from koff.client.redelivery.dead_letters import DeadLetters
from koff.client.redelivery.delivered_partition import DeliveredPartition
from koff.client.redelivery.errors import PartitionError


class MessageTracker(Closing):
    """Notes which messages of a reader are processed, and keeps those that failed until they are due.

    Only for a `conf` with `redelivery`. `lock` is the inbox's lock, which guards the tracker, too. Every
    method acquires it. `on_processed` gets a partition and the offset to commit each time it moves.
    `on_error` gets each message that is passed over.
    """

    def __init__(
        self,
        cluster: ClusterConf,
        conf: ReaderConf,
        lock: threading.RLock,
        on_processed: Callable[[int, int], None],
        on_error: Callable[[PartitionError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert conf.redelivery is not None
        self._topic, self._lock, self._clock = conf.topic, lock, clock
        self._partitions: dict[int, DeliveredPartition] = {}
        """Each from its first message until it is dropped. Acknowledgements do not count after that."""
        self._delayed: list[tuple[float, DeliveredPartition, Any]] = []
        self._dead_letters: DeadLetters | None = None
        if dead_letter_topic := conf.redelivery.dead_letter_topic:
            self._dead_letters = DeadLetters(cluster, dead_letter_topic, conf.group_id)
        self._acknowledgements: Acknowledgements[DeliveredPartition] = Acknowledgements(
            lock,
            max_redeliveries=conf.max_redeliveries,
            redelivery=conf.redelivery,
            is_lost=self._is_dropped,
            delay=self._delay,
            on_processed=lambda partition, offset: on_processed(partition.partition, offset + 1),
            on_error=on_error,
            write_dead_letter=None if self._dead_letters is None else self._dead_letters.write_message,
        )

    @property
    def counts(self) -> RedeliveryCounts:
        """What became of messages that failed."""
        return self._acknowledgements.counts

    @property
    def delayed(self) -> int:
        """How many messages failed and wait until they are due."""
        return len(self._delayed)

    def close(self) -> None:
        """Ignores acknowledgements from now on, and closes the producer of dead letters."""
        with self._lock:
            self.drop_partitions(list(self._partitions))
        if self._dead_letters is not None:
            self._dead_letters.close()

    def hand_out(self, messages: Sequence[Message], raws: Sequence[Any]) -> None:
        """Notes that messages of one partition, with confluent-kafka's, go to the application."""
        with self._lock:
            number = messages[0].partition
            partition = self._partitions.setdefault(number, DeliveredPartition(self._topic, number))
            for message, raw in zip(messages, raws, strict=True):
                self._acknowledgements.hand_out(partition, message, raw)

    def mark_processed_up_to(self, partition: int, offset: int) -> None:
        """Marks the partition's messages up to that offset as processed."""
        with self._lock:
            if (known := self._partitions.get(partition)) is not None:
                self._acknowledgements.mark_processed_up_to(known, offset)

    def pop_due(self) -> dict[int, list[Any]]:
        """confluent-kafka's messages that are due to be delivered again, by partition, in log order."""
        with self._lock:
            now = self._clock()
            due: dict[int, list[Any]] = {}
            for due_at, partition, raw in self._delayed:
                if due_at <= now and not partition.was_processed(raw.offset()):
                    due.setdefault(partition.partition, []).append(raw)
            self._delayed = [each for each in self._delayed if each[0] > now]
        return {partition: sorted(raws, key=methodcaller("offset")) for partition, raws in due.items()}

    def drop_partitions(self, partitions: Iterable[int]) -> None:
        """Forgets these partitions: their messages are not delivered again, and cannot be acknowledged."""
        with self._lock:
            for number in partitions:
                self._partitions.pop(number, None)
            self._delayed = [each for each in self._delayed if not self._is_dropped(each[1])]

    def _is_dropped(self, partition: DeliveredPartition) -> bool:
        return self._partitions.get(partition.partition) is not partition

    def _delay(self, partition: DeliveredPartition, raw: Any, delay_s: float) -> None:
        if not self._is_dropped(partition):
            self._delayed.append((self._clock() + delay_s, partition, raw))

"""The queue of a reader or a group's member in memory: koff's `Delivery`, in virtual time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from koff.client.batch import Batch
from koff.client.delivery.delivery import Delivery, P
from koff.client.message import Message
from koff.kafkatest.memory_log import PartitionLog
from koff.kafkatest.virtual_clock import VirtualClock


class MemoryDelivery(Delivery[P]):
    """A `Delivery` in the time of a clock. It calls `fetch` whenever somebody waits: there are no threads."""

    def __init__(self, virtual_clock: VirtualClock, fetch: Callable[[], None], **callbacks: Any) -> None:
        super().__init__(clock=lambda: virtual_clock.now_s, lock=virtual_clock.changed, **callbacks)
        self._virtual_clock, self._fetch = virtual_clock, fetch

    def wait_for_messages(
        self, timeout_s: float | None = None, has_failed: Callable[[], bool] = lambda: False
    ) -> bool:
        """See `Delivery`."""

        def look() -> bool:
            if not self.closed:
                self._fetch()
            return self._is_ready_to_poll(has_failed)

        return self._virtual_clock.wait_for(look, float("inf") if timeout_s is None else timeout_s)

    def _delay(self, partition: P, raw: object, delay_s: float) -> None:
        super()._delay(partition, raw, delay_s)
        self._virtual_clock.call_later(delay_s, lambda: None)


@dataclass(slots=True)
class Cursor:
    """Where a partition is read next. The log of a topic that was created again is another one."""

    log: PartitionLog
    offset: int

    def read(self, topic: str, partition: int, most: int) -> Batch:
        """The next messages, up to so many, as librdkafka would return them."""
        read = self.log.read(self.offset, max(most, 0))
        self.offset += len(read)
        return Batch(topic, partition, raw=list(_make_raws(read)))


def _make_raws(messages: Iterable[Message]) -> Iterable[Any]:
    for message in messages:
        yield confluent_kafka.Message(
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            key=message.key,
            value=message.value,
            headers=list(message.headers),
            timestamp=(confluent_kafka.TIMESTAMP_CREATE_TIME, message.timestamp_ms or 0),
        )

"""librdkafka's clients: making one, and noticing that one is of no more use."""

from __future__ import annotations

import time
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from koff.client.foreign_errors import kafka_error
from koff.errors import ConfigError

log = structlog.get_logger(component="client")

SILENCE_S = 10.0
"""Who has heard nothing for so long asks whether there is a broker at all."""
_ANSWER_S = 2.0


def new_client(kind: Any, properties: dict[str, Any], **callbacks: Any) -> Any:
    """A confluent-kafka client, or `ConfigError` naming the property that librdkafka refuses."""
    try:
        return kind({**properties, **callbacks})
    except (KafkaException, ValueError, TypeError) as failure:
        error = kafka_error(failure)
        raise ConfigError(
            f"librdkafka refuses the properties: {error.str() if error else failure}"
        ) from failure


def consume_waiting(consumer: Consumer, max_messages: int, timeout_s: float) -> list[Message]:
    """The first message or event that comes within `timeout_s`, and those that wait behind it.

    At most `max_messages`. A lone message is returned at once: it does not wait for more. Raises
    `KafkaException`.
    """
    first = consumer.consume(1, timeout_s)
    return first + consumer.consume(max_messages - 1, 0) if first and max_messages > 1 else first


def cut_off(client: Any, topic: str, timeout_s: float = _ANSWER_S) -> bool:
    """Whether the client finds no broker that it could ask about the topic.

    Perhaps there is none; or it has forgotten all of them, its bootstrap servers too, for ever: librdkafka
    may, when a broker that is starting or stopping names none (its issue 5301; 2.16 still does). Then
    only a new client helps.
    """
    try:
        client.list_topics(topic, timeout=timeout_s)
    except KafkaException as failure:
        error = kafka_error(failure)
        return error is not None and error.code() == KafkaError._TRANSPORT
    return False


class Silence:
    """How long a client that reads has been silent, and so when to ask whether it is `cut_off`."""

    def __init__(self) -> None:
        self.broken()

    def broken(self) -> None:
        """Something came, or there is a new client."""
        self._since = time.monotonic()

    @property
    def long(self) -> bool:
        """Whether it is time to ask."""
        return time.monotonic() - self._since >= SILENCE_S

    def cut_off(self, client: Any, topic: str) -> bool:
        """Whether it has been silent for long because it is cut off; asks a broker only then."""
        if not self.long:
            return False
        lost = cut_off(client, topic)
        self.broken()
        if lost:
            log.debug("no broker is known any more: trying with a new client", topic=topic)
        return lost

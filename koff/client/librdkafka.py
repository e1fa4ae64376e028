"""Makes librdkafka clients, and finds out when a client must be replaced."""

import ctypes
import os
import time
from collections.abc import Mapping
from functools import cache
from typing import Any
from weakref import WeakSet

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from koff.client.foreign_errors import describe_error, extract_kafka_error, map_foreign_errors
from koff.client.property_names import find_unreadable
from koff.client.secret_file import SecretFile, read_again
from koff.errors import ConfigError
from koff.logs import get_logger

log = get_logger("client")

SILENCE_S = 10.0
"""After this time without a record or a response, koff checks whether the client still knows a broker."""
_METADATA_TIMEOUT_S = 2.0
_LOG_IN = ("sasl.username", "sasl.password")
ONE_IN_FLIGHT = {"max.in.flight.requests.per.connection": 1}
"""Makes an idempotent producer report only stored messages as delivered.

A partition may refuse a producer's first batch (its leader is not ready) and accept the second, because it
knows no sequence of the producer yet (Kafka's `ProducerAppendInfo.checkSequence`). When the second batch is
acknowledged, librdkafka 2.16 reports the first as delivered, too (`rd_kafka_dr_implicit_ack`).
"""


def new_client(kind: Any, properties: dict[str, Any], **callbacks: Any) -> Any:
    """A confluent-kafka client of class `kind`. Raises `ConfigError` naming the property that is refused."""
    brokers = str(properties.get("bootstrap.servers", ""))
    with map_foreign_errors("a client cannot be made", brokers):
        try:
            client = _make_weakly_referable(kind)({**properties, **callbacks})
        except (KafkaException, ValueError, TypeError) as error:  # the last two: a wrong type
            kafka_error = extract_kafka_error(error)
            why = find_unreadable(properties) or f"{kafka_error.str() if kafka_error else error}"
            raise ConfigError(f"librdkafka refuses the properties: {why}") from error
    _clients.add(client)
    return client


_clients: WeakSet[Any] = WeakSet()


@cache
def _make_weakly_referable(kind: type) -> type:
    """The class, or a subclass of it, whose objects `WeakSet` takes."""
    if kind.__weakrefoffset__:
        return kind
    return type(kind.__name__, (kind,), {"__slots__": ("__weakref__",)})


def _keep_clients() -> None:
    """Never frees the clients in a forked process: librdkafka would wait for threads that are not there."""
    for client in _clients:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


os.register_at_fork(after_in_child=_keep_clients)


def close_consumer(consumer: Consumer) -> None:
    """Closes the consumer. An error is only logged: the caller is done with the consumer."""
    try:
        consumer.close()
    except Exception as error:
        log.debug("a consumer was not closed cleanly", why=describe_error(error))


def close_producer(producer: Any) -> None:
    """Drops the messages that wait to be sent, and runs their delivery callbacks. An error is only logged."""
    try:
        producer.purge()
        producer.flush(1)
    except Exception as error:
        log.debug("a producer was not closed cleanly", why=describe_error(error))


def consume_waiting(consumer: Consumer, max_messages: int, timeout_s: float) -> list[Message]:
    """The first message or event that comes within `timeout_s`, and the messages that are queued behind it.

    Returns at most `max_messages`, and never waits for a second message. Raises what librdkafka raises.
    """
    # A single `consume(max_messages, timeout_s)` would wait for the whole timeout unless it is filled.
    first = consumer.consume(1, timeout_s)
    return first + consumer.consume(max_messages - 1, 0) if first and max_messages > 1 else first


def has_no_broker(client: Any, topic: str, timeout_s: float = _METADATA_TIMEOUT_S) -> bool:
    """Whether the client knows no broker to which it could send a metadata request for the topic.

    Either no broker can be reached, or the client has forgotten all brokers for good, its bootstrap servers
    too. librdkafka may forget them when a broker that is starting or stopping returns metadata without
    brokers (librdkafka issue 5301; version 2.16 still does). Only a new client can connect again after that.
    """
    try:
        client.list_topics(topic, timeout=timeout_s)
    except Exception as error:
        kafka_error = extract_kafka_error(error)
        # _TRANSPORT: there is no broker to send to. A broker that is only slow gives _TIMED_OUT.
        return kafka_error is not None and kafka_error.code() == KafkaError._TRANSPORT
    return False


def renew_log_in(client: Any, properties: Mapping[str, str]) -> None:
    """Gives a client whose log-in was refused the present user name and password, if these are in files.

    Not for callbacks: confluent-kafka 2.16 ends the process there.
    """
    log_in = {name: properties[name] for name in _LOG_IN if properties.get(name)}
    if len(log_in) == len(_LOG_IN) and any(isinstance(value, SecretFile) for value in log_in.values()):
        client.set_sasl_credentials(*read_again(log_in).values())


class SilenceTimer:
    """Measures how long a client has received nothing, and so when to check that it still knows a broker."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Starts again from zero: something was received, or the client is new."""
        self._since = time.monotonic()

    @property
    def has_expired(self) -> bool:
        """Whether nothing was received for `SILENCE_S`."""
        return time.monotonic() - self._since >= SILENCE_S

    def needs_new_client(self, client: Any, topic: str) -> bool:
        """Whether the timer has expired and the client `has_no_broker`.

        Sends a request only if the timer has expired, and then restarts the timer.
        """
        if not self.has_expired:
            return False
        must_replace = has_no_broker(client, topic)
        self.restart()
        if must_replace:
            log.debug("the client knows no broker any more: a new client replaces it", topic=topic)
        return must_replace

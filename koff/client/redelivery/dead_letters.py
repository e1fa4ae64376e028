"""Writes messages that the application could not process to a dead-letter topic."""

from __future__ import annotations

import threading
import time
from typing import Any

import confluent_kafka

from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.foreign_errors import describe_error
from koff.client.librdkafka import ONE_IN_FLIGHT, close_producer, new_client
from koff.client.message import Headers, Message, read_timestamp
from koff.client.message_check import choose_timestamp
from koff.errors import Closed, ConnectError

_WRITE_TIMEOUT_S = 10.0
_FLUSH_S = 0.1


def build_headers(group: str, raw: Any, deliveries: int, cause: BaseException | None) -> Headers:
    """The headers of confluent-kafka's message, and those that say where it came from and why it failed."""
    added = {
        "group": group,
        "topic": raw.topic(),
        "partition": raw.partition(),
        "offset": raw.offset(),
        "deliveries": deliveries,
        "cause": repr(cause),
    }
    own = ((f"koff-{name}", str(value).encode()) for name, value in added.items())
    return (*(raw.headers() or ()), *own)


class DeadLetters(Closing):
    """Writes messages to a dead-letter topic. Threads may share it. It connects at the first message.

    Key, value, headers and timestamp stay. The headers `koff-group`, `koff-topic`, `koff-partition`,
    `koff-offset`, `koff-deliveries` and `koff-cause` are added.
    """

    def __init__(self, cluster: ClusterConf, topic: str, group: str) -> None:
        self._cluster, self._topic, self._group = cluster, topic, group
        self._lock = threading.Lock()
        self._producer: Any = None
        self._closed = False

    def close(self) -> None:
        """Closes the producer. Safe to call twice."""
        with self._lock:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is not None:
            close_producer(producer)

    def write_message(self, raw: Any, deliveries: int, cause: BaseException | None) -> None:
        """Writes confluent-kafka's message. Raises `ConnectError` unless all in-sync replicas have it."""
        producer = self._get_producer()
        reports: list[Any] = []
        letter = Message(timestamp_ms=read_timestamp(raw))
        try:
            producer.produce(
                self._topic,
                value=raw.value(),
                key=raw.key(),
                headers=list(build_headers(self._group, raw, deliveries, cause)),
                on_delivery=lambda error, _: reports.append(error),
                timestamp=choose_timestamp(letter),
            )
            until = time.monotonic() + 2 * _WRITE_TIMEOUT_S  # librdkafka's timeout comes first
            while not reports and time.monotonic() < until:
                producer.flush(_FLUSH_S)
        except Exception as error:
            raise self._make_error(describe_error(error)) from error
        if not reports or reports[0] is not None:
            with self._lock:
                self._producer = None  # it may have forgotten all brokers: the next write makes a new one
            raise self._make_error(reports[0].str() if reports else "no acknowledgement came")

    def _get_producer(self) -> Any:
        with self._lock:
            if self._closed:
                raise Closed("the member has left the group")
            if self._producer is None:
                properties = self._cluster.librdkafka_properties(**ONE_IN_FLIGHT)
                forced = {
                    "enable.idempotence": "true",
                    "allow.auto.create.topics": "false",
                    "message.timeout.ms": int(_WRITE_TIMEOUT_S * 1000),
                }
                self._producer = new_client(confluent_kafka.Producer, {**properties, **forced})
            return self._producer

    def _make_error(self, why: object) -> ConnectError:
        return ConnectError(
            f"cannot write to the dead-letter topic {self._topic}: {why}; check that the topic exists"
        )

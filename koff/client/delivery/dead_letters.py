"""Writes messages that the application could not process to a dead-letter topic."""

import threading
from dataclasses import replace
from typing import Any

from koff.client.broker.conf import ProducerConf
from koff.client.broker.producer import PartitionProducer
from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.message import Message, read_timestamp
from koff.errors import Closed, ConnectError, KoffError

_WRITE_TIMEOUT_S = 10.0
_BY_KEY = -1
"""Lets librdkafka choose the partition, by the key."""


def build_dead_letter(group: str, raw: Any, deliveries: int, cause: BaseException | None) -> Message:
    """confluent-kafka's message, with headers that say where it came from and why it failed."""
    added = {
        "group": group,
        "topic": raw.topic(),
        "partition": raw.partition(),
        "offset": raw.offset(),
        "deliveries": deliveries,
        "cause": repr(cause),
    }
    own = ((f"koff-{name}", str(value).encode()) for name, value in added.items())
    headers = (*(raw.headers() or ()), *own)
    return Message(raw.value(), raw.key(), headers=headers, timestamp_ms=read_timestamp(raw))


class DeadLetters(Closing):
    """Writes messages to a dead-letter topic. Threads may share it. It connects at the first message.

    Key, value, headers and timestamp stay. The headers `koff-group`, `koff-topic`, `koff-partition`,
    `koff-offset`, `koff-deliveries` and `koff-cause` are added.
    """

    def __init__(self, cluster: ClusterConf, topic: str, group: str) -> None:
        self._cluster, self._topic, self._group = cluster, topic, group
        self._lock = threading.Lock()
        self._producer: PartitionProducer | None = None
        self._closed = False

    def close(self) -> None:
        """Closes the producer. Safe to call twice."""
        with self._lock:
            self._closed = True
        if self._producer is not None:
            self._producer.close()

    def write_message(self, raw: Any, deliveries: int, cause: BaseException | None) -> None:
        """Writes confluent-kafka's message. Raises `ConnectError` unless all in-sync replicas have it."""
        letter = build_dead_letter(self._group, raw, deliveries, cause)
        try:
            self._get_producer().produce(self._topic, _BY_KEY, letter)
        except KoffError as error:
            raise ConnectError(
                f"cannot write to the dead-letter topic {self._topic}: {error}; check that the topic exists"
            ) from error

    def _get_producer(self) -> PartitionProducer:
        with self._lock:
            if self._closed:
                raise Closed("the member has left the group")
            if self._producer is None:
                patient = replace(self._cluster, patience_s=_WRITE_TIMEOUT_S)
                self._producer = PartitionProducer(patient, ProducerConf(), lambda *_: None)
            return self._producer

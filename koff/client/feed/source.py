"""One librdkafka consumer that reads what it is told to, without a group: what every feed stands on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf
from koff.client.foreign_errors import FATAL_AT_START, connect_error
from koff.client.librdkafka import Silence, new_client
from koff.errors import Closed, ConnectError

LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
"""What is asked for is not in the log."""
GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
"""The partition is not there."""


@dataclass(frozen=True, slots=True)
class FeedConf:
    """How much a feed holds and waits. bench/catchup.py tells what a change does.

    More is not faster: what librdkafka holds is read from memory, what fits the caches is not.
    """

    queue_kib: int = 4_096
    queue_messages: int = 50_000
    fetch_bytes: int = 4 << 20
    fetch_max_bytes: int = 4 << 20
    fetch_min_bytes: int = 1
    fetch_wait_ms: int = 10
    queue_backoff_ms: int = 5
    error_backoff_ms: int = 500
    isolation: str = "read_committed"

    def librdkafka(self, cluster: ClusterConf) -> dict[str, Any]:
        """The properties of a consumer that joins no group and starts nowhere by itself."""
        properties = cluster.librdkafka(
            **{
                "queued.max.messages.kbytes": self.queue_kib,
                "queued.min.messages": self.queue_messages,
                "max.partition.fetch.bytes": self.fetch_bytes,
                "fetch.max.bytes": self.fetch_max_bytes,
                "fetch.min.bytes": self.fetch_min_bytes,
                "fetch.wait.max.ms": self.fetch_wait_ms,
                "check.crcs": "false",
                "fetch.queue.backoff.ms": self.queue_backoff_ms,
                "fetch.error.backoff.ms": self.error_backoff_ms,
            }
        )
        return {
            **properties,
            "group.id": properties.get("group.id", "koff"),  # librdkafka insists on one; never joined
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
            "allow.auto.create.topics": "false",
            "isolation.level": self.isolation,
        }


class Source(Closing):
    """A librdkafka consumer, and why it can reach no broker (`trouble`), while that is so.

    Broker restarts and leader changes are librdkafka's to survive; one that does not is replaced.
    """

    def __init__(self, cluster: ClusterConf, conf: FeedConf, name: str) -> None:
        self.trouble: ConnectError | None = None
        self._name = name
        self._trouble_at = 0.0
        self._brokers = cluster.brokers
        self._errors: list[KafkaError] = []
        self._properties = conf.librdkafka(cluster)
        self._consumer: Consumer | None = self._new_consumer()
        self._silence = Silence()

    def close(self) -> None:
        """Stops reading. Safe to call twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def answered(self, asked_at: float) -> None:
        """The cluster answered what was asked at `asked_at` (monotonic): older trouble is over."""
        if self._trouble_at < asked_at:
            self.trouble = None

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # librdkafka looks for the coordinator of the group that we never join
        del self._errors[:-20]
        self._errors.append(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.code() in FATAL_AT_START:
            self.trouble = connect_error(
                self._brokers, self._errors, was_up=True
            )  # one broker of several is no trouble
            self._trouble_at = time.monotonic()

    def _new_consumer(self) -> Consumer:
        consumer: Consumer = new_client(Consumer, self._properties, error_cb=self._note)
        return consumer

    def _revived(self, consumer: Consumer, at: Iterable[TopicPartition]) -> Consumer:
        """Another client, which reads on there, for one that is of no more use."""
        consumer.close()
        self._consumer = another = self._new_consumer()
        another.incremental_assign(list(at))
        return another

    def _client(self) -> Consumer:
        if self._consumer is None:
            raise Closed(f"{self._name} is closed")
        return self._consumer

"""One librdkafka consumer that reads assigned partitions without a group: the common part of all feeds."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.foreign_errors import FATAL_AT_START, LOG_IN_REFUSED, make_connect_error, map_foreign_errors
from koff.client.librdkafka import SilenceTimer, close_consumer, consume_waiting, new_client, renew_log_in
from koff.errors import Closed, ConnectError

OFFSET_LOST_CODES = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
)
"""The requested offset is not in the log."""
PARTITION_GONE_CODES = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
"""The partition does not exist."""


_LEAST_FETCH_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class FeedConf:
    """How much a feed buffers, and how long it waits. bench/catchup.py measures the effect of a change.

    Larger buffers are not faster: records that fit the CPU caches are read faster than records in memory.
    """

    queue_kib: int = 4_096
    queue_messages: int = 50_000
    fetch_bytes: int = 4 << 20
    fetch_max_bytes: int = 4 << 20
    fetch_min_bytes: int = 1
    fetch_wait_ms: int = 100
    queue_backoff_ms: int = 5
    error_backoff_ms: int = 500
    isolation: str = "read_committed"

    def librdkafka_properties(self, cluster: ClusterConf) -> dict[str, Any]:
        """The properties of a consumer that joins no group and never resets an offset by itself."""
        # The user's properties override these ...
        properties = cluster.librdkafka_properties(
            **{
                # With 100, a client repeats a refused log-in twenty times a second: librdkafka does not
                # double this pause after a refusal.
                "reconnect.backoff.ms": 1000,
                "queued.max.messages.kbytes": self.queue_kib,
                "queued.min.messages": self.queue_messages,
                "max.partition.fetch.bytes": self.fetch_bytes,
                # librdkafka refuses less than its message.max.bytes.
                "fetch.max.bytes": max(self.fetch_max_bytes, _LEAST_FETCH_BYTES),
                "fetch.min.bytes": self.fetch_min_bytes,
                "fetch.wait.max.ms": self.fetch_wait_ms,
                "check.crcs": "false",
                "fetch.queue.backoff.ms": self.queue_backoff_ms,
                "fetch.error.backoff.ms": self.error_backoff_ms,
            }
        )
        # ... but not these, on which the feeds rely.
        return {
            **properties,
            "group.id": properties.get("group.id", "koff"),  # librdkafka requires it; koff never joins
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
            "allow.auto.create.topics": "false",
            "isolation.level": self.isolation,
        }


class Source(Closing):
    """A librdkafka consumer without a group.

    `unreachable` is the error while no broker can be reached, and None otherwise. librdkafka recovers from
    broker restarts and leader changes by itself; a subclass replaces a client that has forgotten all brokers.
    """

    def __init__(
        self,
        cluster: ClusterConf,
        conf: FeedConf,
        name: str,
        make_callbacks: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._make_callbacks = make_callbacks
        self.unreachable: ConnectError | None = None
        self._name = name
        self._unreachable_at = 0.0
        self._brokers = cluster.brokers
        self._errors: list[KafkaError] = []
        self._was_refused = False
        self._cluster_conf, self._feed_conf = cluster, conf
        self._consumer: Consumer | None = self._new_consumer()
        self._silence = SilenceTimer()

    def close(self) -> None:
        """Stops reading. Safe to call twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            close_consumer(consumer)

    def note_response(self, requested_at: float) -> None:
        """Clears `unreachable` if its error is older than `requested_at`.

        `requested_at` is the monotonic time of a request to which the cluster has responded since.
        """
        if self._unreachable_at < requested_at:
            self.unreachable = None

    def _consume(
        self, consumer: Consumer, max_messages: int, timeout_s: float
    ) -> tuple[list[Message], list[Message]]:
        """The records that come within `timeout_s`, and the events: messages with an error.

        Returns as soon as something is there. Records and ends of partitions show that the cluster responds.
        """
        with self._map_errors():
            if self._was_refused:
                self._was_refused = False
                renew_log_in(consumer, self._cluster_conf.properties)
            messages = consume_waiting(consumer, max_messages, timeout_s)
        # Most fetches have no event. The scan by `map` runs in C: cheaper than a Python call a message.
        events: list[Any] = []
        if any(map(Message.error, messages)):
            events = [message for message in messages if message.error()]
            messages = [message for message in messages if message.error() is None]
        if messages or any(event.error().code() == KafkaError._PARTITION_EOF for event in events):
            self.unreachable = None
            self._silence.restart()
        return messages, events

    def _map_errors(self) -> AbstractContextManager[None]:
        return map_foreign_errors("partitions cannot be read", self._brokers)

    def _note_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # librdkafka looks for the coordinator of `group.id`, a group that koff never joins
        del self._errors[:-20]  # the newest are enough for a cause
        self._errors.append(error)
        self._was_refused |= error.code() in LOG_IN_REFUSED
        # The loss of one broker among several does not make the cluster unreachable.
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.code() in FATAL_AT_START:
            self.unreachable = make_connect_error(self._brokers, self._errors)
            self._unreachable_at = time.monotonic()

    def _new_consumer(self) -> Consumer:
        properties = self._feed_conf.librdkafka_properties(self._cluster_conf)
        callbacks = self._make_callbacks()
        consumer: Consumer = new_client(Consumer, properties, error_cb=self._note_error, **callbacks)
        return consumer

    def _replace_consumer(self, consumer: Consumer, positions: Iterable[TopicPartition]) -> None:
        """Closes a consumer that knows no broker any more; a new consumer reads from `positions` on."""
        close_consumer(consumer)
        self._consumer = replacement = self._new_consumer()
        with self._map_errors():
            replacement.incremental_assign(list(positions))

    def _get_consumer(self) -> Consumer:
        if self._consumer is None:
            raise Closed(f"{self._name} is closed")
        return self._consumer

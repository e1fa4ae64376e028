"""A cluster that a `Writer` writes to: its producer, its partitions, and whether it can be reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf
from koff.client.foreign_errors import extract_kafka_error, make_connect_error
from koff.client.librdkafka import ONE_IN_FLIGHT, SilenceTimer, new_client
from koff.client.message_check import find_fault
from koff.client.multicluster.client_statistics import INTERVAL, ClientStatistics
from koff.client.multicluster.conf import WriterConf
from koff.client.multicluster.pending_writes import PendingWrite
from koff.errors import ConfigError
from koff.logs import get_logger

log = get_logger("client.multicluster")

_POLL_S = 0.1
_PROBE_S = 1.0
"""How long a metadata request may take, and the pause between requests to a cluster that failed."""
_METADATA_AGE_S = 60.0
"""After this time the metadata of a cluster that is up is requested again: its topic may have grown."""
_QUEUE_FULL_WAIT_S = 0.01
_RESERVED_PROPERTIES = (
    "acks",
    "request.required.acks",
    "enable.idempotence",
    "message.timeout.ms",
    "delivery.timeout.ms",
)

_TOPIC_REFUSED = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_MESSAGE_REFUSED = frozenset(
    {
        KafkaError._INVALID_ARG,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
    }
)
_REFUSED = _TOPIC_REFUSED | _MESSAGE_REFUSED
"""After these errors a message is certainly not in the log, and another try at the cluster cannot help."""


class Reach(Enum):
    """Whether a cluster can be written to. UNKNOWN until its first response, error or connect timeout."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


SettleWrite = Callable[["WriteTarget", PendingWrite, "KafkaError | None", Any], None]
"""Called with the result of a write: the error or None, and librdkafka's message, which is None if librdkafka
never accepted the message."""


class WriteTarget(Closing):
    """Writes to one cluster. Idempotent: librdkafka's retries neither duplicate nor reorder messages.

    A thread runs the delivery callbacks, and requests the topic's metadata: seldom while the cluster is up,
    and every second after it failed, until it responds. No message is sent to a failed cluster as a test.
    """

    def __init__(
        self,
        name: str,
        cluster: ClusterConf,
        conf: WriterConf,
        settle: SettleWrite,
        on_reach_changed: Callable[[], None],
    ) -> None:
        self.name = name
        self.reach = Reach.UNKNOWN
        self.failure = ""
        self._cluster, self._conf = cluster, conf
        self._settle, self._on_reach_changed = settle, on_reach_changed
        self._balancer = conf.balancer()
        self._partitions = 0
        self._next_probe_at = 0.0
        self._connect_deadline = time.monotonic() + cluster.connect_timeout_s
        self._broken = False
        self._silence = SilenceTimer()
        self.statistics = ClientStatistics()
        # Guards `_producer` and the balancer, and keeps the messages of different calls apart.
        self._send_lock = threading.Lock()
        self._stopping = threading.Event()
        self._producer = self._create_producer()
        self._replaced: list[Producer] = []
        """Producers that were replaced, and still have results to report."""
        self._thread = threading.Thread(target=self._run, name=f"koff-write-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. The caller has waited until every write was settled."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def send_writes(self, writes: Sequence[PendingWrite]) -> None:
        """Gives the messages to librdkafka, next to each other and in this order. Each is settled later."""
        with self._send_lock:
            failed = [
                (write, error)
                for write in writes
                if not write.settled and (error := self._send_one(write)) is not None
            ]
        # Settle without the lock: `_settle` may run `on_completion`, which is the user's code.
        for write, error in failed:
            write.in_librdkafka = False
            self._settle(self, write, error, None)

    def _send_one(self, write: PendingWrite) -> KafkaError | None:
        """Gives one message to librdkafka. Returns an error if librdkafka does not accept it."""
        message, deadline = write.message, time.monotonic() + self._conf.write_timeout_s
        write.last_target = self
        while True:
            try:
                if fault := find_fault(message):
                    return KafkaError(KafkaError._INVALID_ARG, fault)
                partition = self._balancer.balance(message, self._partitions)
                write.in_librdkafka = True  # before the call: the report may come within it
                self._producer.produce(
                    self._conf.topic,
                    value=message.value,
                    key=message.key,
                    partition=partition,
                    headers=list(message.headers),
                    timestamp=message.timestamp_ms or 0,
                    on_delivery=partial(self._on_delivery, write),
                )
                return None
            except BufferError as full:  # too many bytes in librdkafka's queue (queue.buffering.max.kbytes)
                if self._stopping.wait(_QUEUE_FULL_WAIT_S) or time.monotonic() > deadline:
                    return KafkaError(KafkaError._QUEUE_FULL, str(full))
            except KafkaException as error:
                kafka_error = extract_kafka_error(error) or KafkaError(KafkaError._FAIL, str(error))
                self._broken = self._broken or kafka_error.fatal()
                return kafka_error
            except Exception as error:  # the user's balancer failed, or a key or value is not bytes
                return KafkaError(KafkaError._INVALID_ARG, f"{type(error).__name__}: {error}")

    def _on_delivery(self, write: PendingWrite, error: KafkaError | None, delivered: Any) -> None:
        write.in_librdkafka = False
        if error is not None:
            self._broken = self._broken or error.fatal()
            if error.code() not in _MESSAGE_REFUSED:  # otherwise the error is about this message only
                self._mark_down(error.str())
        self._settle(self, write, error, delivered)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve_producers()
                if time.monotonic() >= self._next_probe_at:
                    self._probe_cluster()
            except BaseException as error:  # the thread must not end: it settles the messages
                with suppress(BaseException):  # the log of the application may fail, too
                    log.warning("a write thread continues after an error", cluster=self.name, exc_info=error)
                    self._mark_down(f"{type(error).__name__}: {error}")
                self._stopping.wait(_PROBE_S)

    def _serve_producers(self) -> None:
        """Runs delivery callbacks, also those of replaced producers, and replaces a broken producer."""
        self._producer.poll(_POLL_S)
        for replaced in self._replaced:
            replaced.poll(0)
        self._replaced = [replaced for replaced in self._replaced if len(replaced)]
        if self._broken:
            self._replace_producer()

    def _probe_cluster(self) -> None:
        """Requests the topic's metadata: how many partitions it has, and whether the cluster responds."""
        try:
            topic = self._producer.list_topics(self._conf.topic, timeout=_PROBE_S).topics[self._conf.topic]
        except KafkaException as error:
            if self._silence.has_expired and not len(self._producer):
                # librdkafka may have forgotten all brokers, see `has_no_broker`: replace the client.
                self._broken = True
                self._silence.restart()
            kafka_error = extract_kafka_error(error)
            self._note_no_response(
                make_connect_error(self._cluster.brokers, [kafka_error] if kafka_error else [])
            )
            return
        # The cluster responded. One partition with a leader is enough to write to it.
        self._silence.restart()
        with_leader = [partition for partition in topic.partitions.values() if partition.leader >= 0]
        if topic.error is not None:
            self._mark_down(f"{self._conf.topic}: {topic.error.str()}")
        elif not with_leader:
            self._mark_down(f"all partitions of {self._conf.topic} are leaderless")
        else:
            self._partitions = len(topic.partitions)
            self._mark_up()

    def _note_no_response(self, error: Exception) -> None:
        # While messages are delivered, a failed metadata request alone does not mark the cluster as down.
        if self.reach is Reach.UP:
            self._next_probe_at = time.monotonic() + _PROBE_S
        elif self.reach is Reach.UNKNOWN and time.monotonic() < self._connect_deadline:
            self._next_probe_at = 0.0
        else:
            self._mark_down(str(error))

    def _mark_up(self) -> None:
        was_down, self.reach, self.failure = self.reach is Reach.DOWN, Reach.UP, ""
        self._next_probe_at = time.monotonic() + _METADATA_AGE_S
        if was_down:
            log.info("cluster can be written to again", cluster=self.name, topic=self._conf.topic)
        self._on_reach_changed()

    def _mark_down(self, reason: str) -> None:
        was_down, self.reach, self.failure = self.reach is Reach.DOWN, Reach.DOWN, reason
        self._next_probe_at = time.monotonic() + _PROBE_S
        if not was_down:
            log.warning(
                "cluster cannot be written to: other clusters take its messages until it responds",
                cluster=self.name,
                topic=self._conf.topic,
                reason=reason,
            )
            self._on_reach_changed()

    def _on_client_error(self, error: KafkaError) -> None:
        self._broken = self._broken or error.fatal()
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._mark_down(str(make_connect_error(self._cluster.brokers, [error], was_up=True)))

    def _replace_producer(self) -> None:
        """Replaces a broken producer by a new one. The messages of the broken one are settled as failed."""
        with self._send_lock:
            broken, self._producer, self._broken = self._producer, self._create_producer(), False
        # The thread polls the broken producer until each of its messages was reported.
        broken.purge()
        self._replaced.append(broken)

    def _create_producer(self) -> Producer:
        conf, user_properties = self._conf, self._cluster.properties
        # The writer's guarantees depend on these properties.
        for name in _RESERVED_PROPERTIES:
            if name in user_properties:
                raise ConfigError(
                    f"{name} is the writer's own: leave it out of the properties of {self.name}"
                )
        timeout_ms = max(int(conf.write_timeout_s * 1000), 1)
        properties = self._cluster.librdkafka_properties(
            **{
                **INTERVAL,
                "linger.ms": conf.batch_timeout_s * 1000,
                "batch.num.messages": conf.batch_size,
                "batch.size": conf.batch_bytes,
                "compression.type": conf.compression,
                "queue.buffering.max.messages": 0,  # no limit: the writer limits messages in flight
                "socket.timeout.ms": max(timeout_ms, 1_000),
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 500,
                **ONE_IN_FLIGHT,
            }
        )
        reserved = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": timeout_ms}
        callbacks = {"error_cb": self._on_client_error, "stats_cb": self.statistics.make_callback()}
        producer: Producer = new_client(Producer, {**properties, **reserved}, **callbacks)
        return producer


def is_refusal(error: KafkaError) -> bool:
    """Whether the cluster certainly did not write the message, and never will."""
    return error.code() in _REFUSED

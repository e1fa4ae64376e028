"""One of the clusters that are written to: its producer, its partitions, and whether it can be reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf
from koff.client.foreign_errors import connect_error, kafka_error
from koff.client.librdkafka import Silence, new_client
from koff.client.message import Message
from koff.client.multicluster.conf import WriterConf
from koff.errors import ConfigError

log = structlog.get_logger(component="client.multicluster")

_POLL_S = 0.1
_PROBE_S = 1.0
"""How long a cluster may take to tell its partitions, and how soon it is asked again."""
_PARTITIONS_AGE_S = 60.0
_FULL_S = 0.01
_OWN = ("acks", "request.required.acks", "enable.idempotence", "message.timeout.ms", "delivery.timeout.ms")

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
"""Errors after which a message is surely not in the log, nor would be after another try there."""


class Reach(Enum):
    """Whether a cluster can be written to, as far as is known."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


@dataclass(slots=True, eq=False)
class Item:
    """A message on its way into some cluster. `number` is its place among all that were handed in."""

    message: Message
    number: int
    place: int
    call: Any
    began: float
    attempts: int = 0
    due: float = 0.0
    in_doubt: bool = False
    reason: str = ""
    last: Target | None = None
    refused: set[Target] = field(default_factory=set)


Settle = Callable[["Target", Item, "KafkaError | None", Any], None]
"""Told what became of an item: the error, if any, and librdkafka's message, None where that never had it."""


class Target(Closing):
    """Writes into one cluster, idempotently: what librdkafka tries again neither doubles nor swaps anything.

    A thread of its own serves deliveries, and asks a cluster that failed whether it is back. No message is
    sent to find that out.
    """

    def __init__(
        self, name: str, cluster: ClusterConf, conf: WriterConf, settle: Settle, changed: Callable[[], None]
    ) -> None:
        self.name = name
        self.reach = Reach.UNKNOWN
        self.failure = ""
        self._cluster, self._conf = cluster, conf
        self._settle, self._changed = settle, changed
        self._balancer = conf.balancer()
        self._partitions = 0
        self._ask_at = 0.0
        self._give_up_at = time.monotonic() + cluster.connect_timeout_s
        self._broken = False
        self._silence = Silence()
        self._sending = threading.Lock()
        self._over = threading.Event()
        self._producer = self._new_producer()
        self._thread = threading.Thread(target=self._serve, name=f"koff-write-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. Whoever calls it has waited until every item was settled."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def send(self, items: Sequence[Item]) -> None:
        """Hands the items to librdkafka, next to each other and in that order; each will be settled."""
        with self._sending:
            failed = [(item, error) for item in items if (error := self._produce(item)) is not None]
        for item, error in failed:
            self._settle(self, item, error, None)

    def _produce(self, item: Item) -> KafkaError | None:
        """Why it could not even be handed over, if it could not."""
        message, deadline = item.message, time.monotonic() + self._conf.write_timeout_s
        item.last = self
        while True:
            try:
                partition = self._balancer.balance(message, self._partitions)
                self._producer.produce(
                    self._conf.topic,
                    value=message.value,
                    key=message.key,
                    partition=partition,
                    headers=list(message.headers),
                    timestamp=message.timestamp_ms or 0,
                    on_delivery=partial(self._delivered, item),
                )
            except BufferError as full:  # so many bytes (queue.buffering.max.kbytes) are under way
                if self._over.wait(_FULL_S) or time.monotonic() > deadline:
                    return KafkaError(KafkaError._QUEUE_FULL, str(full))
            except KafkaException as failure:
                error = kafka_error(failure) or KafkaError(KafkaError._FAIL, str(failure))
                self._broken = self._broken or error.fatal()
                return error
            except Exception as failure:  # a balancer's, or what is no bytes
                return KafkaError(KafkaError._INVALID_ARG, f"{type(failure).__name__}: {failure}")
            else:
                return None

    def _delivered(self, item: Item, error: KafkaError | None, delivered: Any) -> None:
        if error is not None:
            self._broken = self._broken or error.fatal()
            if error.code() not in _MESSAGE_REFUSED:
                self._went_down(error.str())
        self._settle(self, item, error, delivered)

    def _serve(self) -> None:
        while not self._over.is_set():
            self._producer.poll(_POLL_S)
            if self._broken:
                self._replace()
            if time.monotonic() >= self._ask_at:
                self._ask()

    def _ask(self) -> None:
        """Learns the topic's partitions, and so whether the cluster can be written to."""
        try:
            topic = self._producer.list_topics(self._conf.topic, timeout=_PROBE_S).topics[self._conf.topic]
        except KafkaException as failure:
            if self._silence.long and not len(self._producer):
                self._broken = True  # see `cut_off`: what asks next is a new client
                self._silence.broken()
            error = kafka_error(failure)
            self._no_answer(connect_error(self._cluster.brokers, [error] if error else []))
            return
        self._silence.broken()
        led = [partition for partition in topic.partitions.values() if partition.leader >= 0]
        if topic.error is not None:
            self._went_down(f"{self._conf.topic}: {topic.error.str()}")
        elif not led:
            self._went_down(f"no partition of {self._conf.topic} has a leader")
        else:
            self._partitions = len(topic.partitions)
            self._came_up()

    def _no_answer(self, failure: Exception) -> None:
        if self.reach is Reach.UP:  # it was but the age of the partitions that made us ask
            self._ask_at = time.monotonic() + _PROBE_S
        elif self.reach is Reach.UNKNOWN and time.monotonic() < self._give_up_at:
            self._ask_at = 0.0
        else:
            self._went_down(str(failure))

    def _came_up(self) -> None:
        back, self.reach, self.failure = self.reach is Reach.DOWN, Reach.UP, ""
        self._ask_at = time.monotonic() + _PARTITIONS_AGE_S
        if back:
            log.info("cluster is written to again", cluster=self.name, topic=self._conf.topic)
        self._changed()

    def _went_down(self, reason: str) -> None:
        told, self.reach, self.failure = self.reach is Reach.DOWN, Reach.DOWN, reason
        self._ask_at = time.monotonic() + _PROBE_S
        if not told:
            log.warning(
                "cluster cannot be written to: others take its messages until it answers",
                cluster=self.name,
                topic=self._conf.topic,
                reason=reason,
            )
            self._changed()

    def _note(self, error: KafkaError) -> None:
        self._broken = self._broken or error.fatal()
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._went_down(str(connect_error(self._cluster.brokers, [error], was_up=True)))

    def _replace(self) -> None:
        """A new producer for one that is beyond repair, whose messages are all settled as failed."""
        with self._sending:
            broken, self._producer, self._broken = self._producer, self._new_producer(), False
        broken.purge()
        broken.flush(_PROBE_S)

    def _new_producer(self) -> Producer:
        conf, given = self._conf, self._cluster.properties
        for name in _OWN:
            if name in given:
                raise ConfigError(
                    f"{name} is the writer's own: leave it out of the properties of {self.name}"
                )
        timeout_ms = max(int(conf.write_timeout_s * 1000), 1)
        properties = self._cluster.librdkafka(
            **{
                "linger.ms": conf.batch_timeout_s * 1000,
                "batch.num.messages": conf.batch_size,
                "batch.size": conf.batch_bytes,
                "compression.type": conf.compression,
                "queue.buffering.max.messages": 0,  # the writer counts
                "socket.timeout.ms": max(timeout_ms, 1_000),
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 500,
            }
        )
        own = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": timeout_ms}
        producer: Producer = new_client(Producer, {**properties, **own}, error_cb=self._note)
        return producer


def refused(error: KafkaError) -> bool:
    """Whether that cluster surely did not write the message, and never will."""
    return error.code() in _REFUSED

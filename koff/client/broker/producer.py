"""Writing messages to partitions, each call's side by side, and knowing afterwards where they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from koff.client.broker.conf import ProducerConf, RequiredAcks
from koff.client.closing import Closing
from koff.client.cluster import ClusterConf
from koff.client.errors import ProduceError
from koff.client.librdkafka import cut_off, new_client
from koff.client.message import Message
from koff.errors import Closed

_CHUNK = 10_000
_QUEUE = 1_000_000
_LOOK_S = 0.01
_headers, _timestamp_ms = attrgetter("headers"), attrgetter("timestamp_ms")
_NOT_WRITTEN = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._INVALID_ARG,
        KafkaError._QUEUE_FULL,
        KafkaError._PURGE_QUEUE,
    }
)
"""What surely kept a message out of the log. After all else it may be there, only nobody said so."""


class PartitionProducer(Closing):
    """Writes to the partitions that it is told; a `Producer`. Threads may share it.

    `check` raises when there is no such partition. The messages of a call are in one record batch up to a
    megabyte, and in several that stand side by side beyond that.
    """

    def __init__(self, cluster: ClusterConf, conf: ProducerConf, check: Callable[[str, int], None]) -> None:
        self.conf = conf
        self._cluster = cluster
        self._check = check
        self._queueing = threading.Lock()
        self._producer: Any = None
        self._closed = False
        self._known: dict[str, int] = {}
        self._renew(None)

    def close(self) -> None:
        """Gives up what is not written yet: whoever waits for it gets `ProduceError`. Safe to call twice."""
        with self._queueing:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(1)

    def produce(self, topic: str, partition: int, *messages: Message) -> int | None:
        """The offset of the first message; each message's place is set. None with required acks NONE, and
        where brokers took a retry for what they had already, and did not say where: that offset stays -1.

        Raises `ProduceError` unless all were written, `UnknownTopic`, `ConnectError`.
        """
        if not messages:
            raise ValueError("there is no message to produce")
        if not self._closed:
            self._check(topic, partition)
        call = _ProduceCall(topic, partition, messages)
        with self._queueing:
            if self._producer is None:
                raise Closed("the producer is closed")
            producer = self._producer
            self._make_known(topic, partition)
            call.queue(producer)
        while not call.done:
            producer.flush(_LOOK_S)  # sends at once, and says who is ready, whoever's call it was
        call.match()
        if call.fatal or (call.failed and cut_off(producer, topic)):
            self._renew(producer)
        return call.settle(told=self.conf.required_acks is not RequiredAcks.NONE)

    def _make_known(self, topic: str, partition: int) -> None:
        """Has librdkafka look again at a topic that has grown since it looked first."""
        known = self._known.setdefault(topic, partition + 1)
        if partition >= known:
            try:
                found = self._producer.list_topics(topic, timeout=self.conf.request_timeout_s)
            except KafkaException:
                return  # the reports will tell
            self._known[topic] = max(known, len(found.topics[topic].partitions))

    def _renew(self, broken: Any) -> None:
        """Another librdkafka client for one that can go on no more."""
        with self._queueing:
            if self._producer is broken and not self._closed:
                properties = _properties(self._cluster, self.conf)
                self._producer = new_client(confluent_kafka.Producer, properties, error_cb=_ignore)


class _ProduceCall:
    """Messages on their way, and what has become of them.

    Without a failure the reports need no matching: order is kept, so that sorted offsets belong to the
    messages in turn. One shared callback is what makes a report cheap.
    """

    def __init__(self, topic: str, partition: int, messages: Sequence[Message]) -> None:
        self.failed = self.fatal = False
        self._topic = topic
        self._partition = partition
        self._messages = messages
        self._offsets: list[int] = []
        self._errors: dict[int, KafkaError] = {}
        self._unmatched: list[tuple[KafkaError | None, Any]] = []
        self._placeless: set[int] = set()

    @property
    def done(self) -> bool:
        told = len(self._offsets) + len(self._errors) + len(self._placeless) + len(self._unmatched)
        return told >= len(self._messages)

    def queue(self, producer: Any) -> None:
        """Hands all messages over, in order, waiting for room when there is none."""
        plain = not any(map(_headers, self._messages)) and set(map(_timestamp_ms, self._messages)) == {None}
        singly = not plain or not hasattr(producer, "produce_batch")  # 2.16.1 takes neither in a batch
        at, count = 0, len(self._messages)
        while at < count:
            while len(producer) > _QUEUE - _CHUNK:
                producer.flush(_LOOK_S)
            taken = self._queue_one(producer, at) if singly else self._queue_many(producer, at)
            if not taken:
                producer.flush(_LOOK_S)
            at += taken

    def _queue_one(self, producer: Any, at: int) -> int:
        message = self._messages[at]
        try:
            producer.produce(
                self._topic,
                message.value,
                message.key,
                self._partition,
                on_delivery=partial(self._told_of, at),
                timestamp=message.timestamp_ms or 0,
                headers=list(message.headers),
            )
        except BufferError:
            return 0
        except KafkaException as failure:
            self._errors[at] = failure.args[0]
        return 1

    def _queue_many(self, producer: Any, at: int) -> int:
        """How many were taken, or refused for good. What does not fit is to come again, from there on."""
        messages = self._messages[at : at + _CHUNK]
        chunk: list[dict[str, Any]] = [
            {"value": each.value} if each.key is None else {"value": each.value, "key": each.key}
            for each in messages
        ]
        queued: int = producer.produce_batch(
            self._topic, chunk, partition=self._partition, on_delivery=self._report()
        )
        if queued == len(chunk):
            return queued
        refused = {number: fields["_error"] for number, fields in enumerate(chunk) if "_error" in fields}
        kept = len(chunk)
        while refused.get(kept - 1) is not None and refused[kept - 1].code() == KafkaError._QUEUE_FULL:
            kept -= 1
        self._errors |= {at + number: error for number, error in refused.items() if number < kept}
        return kept

    def _report(self) -> Callable[[KafkaError | None, Any], None]:
        """A function that takes note of one report: called for each message, and so quicker than a method."""
        keep, fail = self._offsets.append, self._unmatched.append

        def told(error: KafkaError | None, message: Any) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                keep(offset)
            else:
                fail((error, message))

        return told

    def _told_of(self, at: int, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._errors[at] = error
        elif message.offset() is not None:
            self._offsets.append(message.offset())
        else:
            self._placeless.add(at)

    def settle(self, *, told: bool) -> int | None:
        """After `match`: the first message's offset, if it was `told`. Sets the places of those written."""
        topic, partition = self._topic, self._partition
        for message in self._messages:
            message.topic = topic
            message.partition = partition
        if told:
            written: Sequence[Message] = self._messages
            if self._errors or self._placeless:
                without = self._placeless.union(self._errors)
                written = [each for at, each in enumerate(self._messages) if at not in without]
            self._offsets.sort()
            for message, offset in zip(written, self._offsets, strict=True):
                message.offset = offset
        if self._errors:
            unknown = [at for at, error in self._errors.items() if error.code() not in _NOT_WRITTEN]
            reasons = {at: error.str() for at, error in self._errors.items()}
            raise ProduceError(f"{self._topic}/{self._partition}", len(self._messages), reasons, unknown)
        return self._messages[0].offset if told and 0 not in self._placeless else None

    def match(self) -> None:
        """Finds the message of each report without an offset: by content, as two that are alike are equal."""
        failures = [*self._errors.values(), *(error for error, _ in self._unmatched if error)]
        self.failed, self.fatal = bool(failures), any(error.fatal() for error in failures)
        if not self._unmatched:
            return
        places: dict[tuple[Any, Any], list[int]] = {}
        for at, message in enumerate(self._messages):
            if at not in self._errors:
                places.setdefault((message.key, message.value), []).append(at)
        for error, message in self._unmatched:
            at = places[message.key(), message.value()].pop()
            if error is None:
                self._placeless.add(at)
            else:
                self._errors[at] = error
        self._unmatched.clear()


def _properties(cluster: ClusterConf, conf: ProducerConf) -> dict[str, Any]:
    """librdkafka's properties for what is configured.

    Order is kept by idempotence, and where that is not to be had by one request at a time.
    """
    wait_ms, timeout_ms = int(conf.retry_wait_s * 1000), int(conf.request_timeout_s * 1000)
    idempotent = conf.required_acks is RequiredAcks.ALL and conf.retry_limit > 0
    ordered = {"enable.idempotence": "true"} if idempotent else {"max.in.flight": 1}
    return cluster.librdkafka(
        **{
            "acks": int(conf.required_acks),
            "compression.type": conf.compression.value,
            "request.timeout.ms": timeout_ms,
            "retries": conf.retry_limit,
            "retry.backoff.ms": max(wait_ms, 1),
            "retry.backoff.max.ms": max(wait_ms, 1),
            "message.timeout.ms": (conf.retry_limit + 1) * (timeout_ms + wait_ms),
            "linger.ms": 1000,  # until a flush: the messages of a call leave together
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": _QUEUE,
            "topic.metadata.propagation.max.ms": 5000,
            **ordered,
        }
    )


def _ignore(error: KafkaError) -> None:
    """What it does to messages is in their reports."""

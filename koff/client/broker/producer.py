"""`PartitionProducer` writes messages to partitions, and sets the offset of each message."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError

from koff.client.broker.async_calls import AsyncCalls, OnDone
from koff.client.broker.conf import ProducerConf, RequiredAcks
from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.errors import ProduceError
from koff.client.foreign_errors import describe_error, extract_kafka_error
from koff.client.librdkafka import ONE_IN_FLIGHT, close_producer, has_no_broker, new_client
from koff.client.message import Message
from koff.client.message_check import Columns, read_columns
from koff.errors import Closed

_CHUNK_MESSAGES = 10_000  # of one `produce_batch`
_MAX_QUEUED = 1_000_000  # messages in librdkafka's queue
_FLUSH_S = 0.01
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
"""After these errors a message is certainly not in the log. After any other error it may be there."""


class PartitionProducer(Closing):
    """Writes messages to the partition that the caller names. A `Producer`. Threads may share it.

    `check` raises `UnknownTopic` when the partition does not exist. The messages of a call are one record
    batch up to about a megabyte, and above that several record batches next to each other.
    """

    def __init__(
        self,
        cluster: ClusterConf,
        conf: ProducerConf,
        check: Callable[[str, int], None],
        *,
        creates_topics: bool = False,
    ) -> None:
        self.conf = conf
        self._creates_topics = creates_topics
        self._cluster = cluster
        self._check_partition = check
        self._queue_lock = threading.Lock()
        """Held while a call queues its messages: messages of different calls never mix."""
        self._producer: Any = None
        self._closed = False
        self._partition_counts: dict[str, int] = {}
        self._async_calls = AsyncCalls(self._finish_call)
        self._replace_client(None)

    def close(self) -> None:
        """Closes the producer and drops messages that were not written yet. Safe to call twice.

        A `produce` call in progress raises `ProduceError`. The futures of `produce_async` are done when this
        returns, with `ProduceError` for such messages: to have all messages written, wait for the futures.
        """
        with self._queue_lock:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is not None:
            close_producer(producer)
            self._async_calls.close()

    def produce(self, topic: str, partition: int, *messages: Message) -> int | None:
        """Writes the messages and returns the offset of the first.

        Sets topic, partition and offset of each message. Returns None with required acks NONE; then no offset
        is set. When a broker recognises a retry of a message that it has written already, it may leave out
        the offset: this message's offset is not set, and the result is None if the message is the first.
        A message that is passed twice is written twice; it has the offset of its last copy then. Raises
        `ProduceError` unless all messages were written, `InvalidMessage` (then nothing was written),
        `UnknownTopic`, `ConnectError` and `Closed`.
        """
        producer, call = self._queue_call(topic, partition, messages)
        # `flush` sends without waiting for the linger time, and runs the delivery callbacks of all calls,
        # also of other threads. So one thread may complete the call of another.
        call.wait_for_reports(producer)
        return self._finish_call(producer, call)

    def produce_async(
        self, topic: str, partition: int, *messages: Message, on_done: OnDone | None = None
    ) -> Future[int | None]:
        """The future result of `produce`, which does not wait until the messages are written.

        The messages of different calls are written in the order of the calls. Raises at once `InvalidMessage`
        (then nothing is written), `UnknownTopic`, `ConnectError` and `Closed`; the future raises
        `ProduceError`. It cannot be cancelled. Waits while a million messages of this producer are on their
        way. `on_done` is called with the future when it is done, by a thread of the producer, which it must
        not block; an error that it raises is logged.
        """
        producer, call = self._queue_call(topic, partition, messages)
        return self._async_calls.add(producer, call, on_done)

    def _queue_call(
        self, topic: str, partition: int, messages: Sequence[Message]
    ) -> tuple[Any, _ProduceCall]:
        """Checks the messages, and gives them to the librdkafka client that is returned."""
        columns = read_columns(messages)
        # After `close` the check is skipped: it would raise its own error instead of the `Closed` below.
        if not self._closed:
            self._check_partition(topic, partition)
        call = _ProduceCall(topic, partition, messages, columns)
        with self._queue_lock:
            if self._producer is None:
                raise Closed("the producer is closed")
            producer = self._producer
            self._refresh_partition_count(topic, partition)
            call.queue_messages(producer)
        return producer, call

    def _finish_call(self, producer: Any, call: _ProduceCall) -> int | None:
        """The result of a call that is done. Replaces a client that cannot be used any more."""
        call.match_reports()
        if call.fatal or (call.failed and has_no_broker(producer, call.topic)):
            self._replace_client(producer)
        return call.settle(acknowledged=self.conf.required_acks is not RequiredAcks.NONE)

    def _refresh_partition_count(self, topic: str, partition: int) -> None:
        """Makes librdkafka fetch the metadata again when the topic has more partitions than it knew.

        Otherwise librdkafka would refuse the new partition.
        """
        last_count = self._partition_counts.setdefault(topic, partition + 1)
        if partition >= last_count:
            try:
                listed = self._producer.list_topics(topic, timeout=self.conf.request_timeout_s)
                count = len(listed.topics[topic].partitions)
            except Exception:
                return  # the delivery reports will have the error
            self._partition_counts[topic] = max(last_count, count)

    def _replace_client(self, broken: Any) -> None:
        """A new librdkafka client for one that cannot be used any more.

        Does nothing if another thread has replaced it already.
        """
        with self._queue_lock:
            if self._producer is broken and not self._closed:
                properties = _build_properties(self._cluster, self.conf, creates_topics=self._creates_topics)
                self._producer = new_client(confluent_kafka.Producer, properties, error_cb=_ignore_error)


class _ProduceCall:
    """The messages of one `produce` call, and the delivery reports that came for them.

    Without errors the reports need no matching: the partition keeps the order, so the sorted offsets belong
    to the messages in turn. Therefore all messages can share one callback, which makes a report cheap.
    """

    def __init__(
        self, topic: str, partition: int, messages: Sequence[Message], columns: Columns | None
    ) -> None:
        self._columns = columns  # None: some message has headers or a timestamp
        self.failed = self.fatal = False
        self.topic = topic
        self._partition = partition
        self._messages = messages
        self._offsets: list[int] = []
        self._errors: dict[int, KafkaError] = {}  # by index of the message
        self._unmatched: list[tuple[KafkaError | None, Any]] = []  # reports of the shared callback
        self._without_offset: set[int] = set()  # indices of messages that were written at an unknown offset
        self._is_given_up = False

    @property
    def done(self) -> bool:
        """Whether each message has its delivery report."""
        reports = len(self._offsets) + len(self._errors) + len(self._without_offset) + len(self._unmatched)
        return reports >= len(self._messages)

    def queue_messages(self, producer: Any) -> None:
        """Gives all messages to librdkafka, in order. Waits while its queue is full."""
        try:
            self._queue_all(producer)
        except Exception as error:
            self.give_up(error)

    def wait_for_reports(self, producer: Any, *, once: bool = False) -> None:
        """Waits until the call is done, or `once` for a moment."""
        try:
            while not self.done:
                producer.flush(_FLUSH_S)
                if once:
                    return
        except Exception as error:
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Waits for no more reports after an error of librdkafka: the messages may have been written."""
        self._is_given_up = True
        # New lists: the callbacks of later reports hold the old ones.
        self._offsets, self._unmatched, self._without_offset = [], [], set()
        failure = KafkaError(KafkaError._FAIL, describe_error(error))
        self._errors = {index: self._errors.get(index, failure) for index in range(len(self._messages))}

    def _queue_all(self, producer: Any) -> None:
        # `produce_batch` takes neither headers nor timestamps (confluent-kafka 2.16.1); older versions lack
        # it.
        singly = self._columns is None or not hasattr(producer, "produce_batch")
        start, count = 0, len(self._messages)
        while start < count:
            while len(producer) > _MAX_QUEUED - _CHUNK_MESSAGES:
                producer.flush(_FLUSH_S)
            taken = self._queue_one(producer, start) if singly else self._queue_chunk(producer, start)
            if not taken:
                producer.flush(_FLUSH_S)
            start += taken

    def _queue_one(self, producer: Any, index: int) -> int:
        """Returns 1 if the message was queued or refused for good, 0 if the queue is full."""
        message = self._messages[index]
        try:
            producer.produce(
                self.topic,
                message.value,
                message.key,
                self._partition,
                on_delivery=partial(self._note_report, index),
                timestamp=message.timestamp_ms or 0,
                headers=list(message.headers),
            )
        except BufferError:
            return 0
        except Exception as error:
            # Raised here, the caller would not learn what became of the messages before it.
            failure = extract_kafka_error(error)
            self._errors[index] = failure or KafkaError(KafkaError._INVALID_ARG, describe_error(error))
        return 1

    def _queue_chunk(self, producer: Any, start: int) -> int:
        """How many messages from `start` on were queued, or refused for good.

        Messages at the end of the chunk that did not fit into the queue are not counted: the caller queues
        them again.
        """
        assert self._columns is not None
        chunk = self._columns.build_dicts(start, start + _CHUNK_MESSAGES)
        queued: int = producer.produce_batch(
            self.topic, chunk, partition=self._partition, on_delivery=self.make_delivery_callback()
        )
        if queued == len(chunk):
            return queued
        # `produce_batch` adds the error of a refused message to the message's dictionary.
        refused = {index: fields["_error"] for index, fields in enumerate(chunk) if "_error" in fields}
        taken = len(chunk)
        while refused.get(taken - 1) is not None and refused[taken - 1].code() == KafkaError._QUEUE_FULL:
            taken -= 1
        self._errors |= {start + index: error for index, error in refused.items() if index < taken}
        return taken

    def make_delivery_callback(self) -> Callable[[KafkaError | None, Any], None]:
        """A callback for the delivery reports of a chunk.

        It runs once a message, so it is a closure over two bound methods: a method would be slower.
        """
        add_offset, add_unmatched = self._offsets.append, self._unmatched.append

        def note_report(error: KafkaError | None, message: Any) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                add_offset(offset)
            else:
                add_unmatched((error, message))

        return note_report

    def _note_report(self, index: int, error: KafkaError | None, message: Any) -> None:
        if self._is_given_up:
            return
        if error is not None:
            self._errors[index] = error
        elif message.offset() is not None:
            self._offsets.append(message.offset())
        else:
            self._without_offset.add(index)

    def settle(self, *, acknowledged: bool) -> int | None:
        """Sets topic, partition and offset of the messages, and returns the first offset.

        Call `match_reports` before. Offsets are set only if the broker `acknowledged` messages. Raises
        `ProduceError`.
        """
        topic, partition = self.topic, self._partition
        first: int | None = None
        # Only written messages have an offset: leave out the others before offsets and messages are paired.
        written: Sequence[Message] = self._messages if acknowledged else ()
        if len(written) != len(self._offsets) or not acknowledged:
            for message in self._messages:
                message.topic, message.partition = topic, partition
            missing = self._without_offset.union(self._errors)
            written = [message for index, message in enumerate(written) if index not in missing]
        if acknowledged:
            self._offsets.sort()
            for message, offset in zip(written, self._offsets, strict=True):
                message.topic, message.partition, message.offset = topic, partition, offset
            # Not read from the message: it has another offset if it was passed twice.
            first = self._offsets[0] if self._offsets and 0 not in self._without_offset else None
        if self._errors:
            unknown = [i for i, error in self._errors.items() if error.code() not in _NOT_WRITTEN]
            reasons = {i: error.str() for i, error in self._errors.items()}
            raise ProduceError(f"{self.topic}/{self._partition}", len(self._messages), reasons, unknown)
        return first

    def match_reports(self) -> None:
        """Finds the messages of the reports in `_unmatched`, and sets `failed` and `fatal`.

        Messages are found by key and value: two messages with the same content are interchangeable.
        """
        errors = [*self._errors.values(), *(error for error, _ in self._unmatched if error)]
        self.failed, self.fatal = bool(errors), any(error.fatal() for error in errors)
        if not self._unmatched:
            return
        # The shared callback does not know a message's index: librdkafka returns only its content.
        by_content: dict[tuple[Any, Any], list[int]] = {}
        for index, message in enumerate(self._messages):
            if index not in self._errors:
                by_content.setdefault((message.key, message.value), []).append(index)
        for error, message in self._unmatched:
            index = by_content[message.key(), message.value()].pop()
            if error is None:
                self._without_offset.add(index)
            else:
                self._errors[index] = error
        self._unmatched.clear()


def _build_properties(
    cluster: ClusterConf, conf: ProducerConf, *, creates_topics: bool = False
) -> dict[str, Any]:
    """librdkafka's properties for the configuration.

    `ONE_IN_FLIGHT` overrides the user's properties. It also keeps the order where there is no idempotence.
    """
    wait_ms, timeout_ms = int(conf.retry_wait_s * 1000), int(conf.request_timeout_s * 1000)
    idempotent = conf.required_acks is RequiredAcks.ALL and conf.retry_limit > 0
    message_timeout_ms = (conf.retry_limit + 1) * (timeout_ms + wait_ms)
    properties = cluster.librdkafka_properties(
        **{
            "acks": int(conf.required_acks),
            "compression.type": conf.compression.value,
            "request.timeout.ms": timeout_ms,
            "retries": conf.retry_limit,
            "retry.backoff.ms": max(wait_ms, 1),
            "retry.backoff.max.ms": max(wait_ms, 1),
            "message.timeout.ms": message_timeout_ms,
            # `flush` ends it early, so the messages of a call are sent together. It may not be longer than
            # the timeout of a message.
            "linger.ms": min(1000, message_timeout_ms // 2),
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": _MAX_QUEUED,
            "topic.metadata.propagation.max.ms": 5000,
            "enable.idempotence": idempotent,
            "allow.auto.create.topics": creates_topics,
        }
    )
    return {**properties, **ONE_IN_FLIGHT}


def _ignore_error(error: KafkaError) -> None:
    """Ignores librdkafka's errors: the delivery reports have the result of each message."""

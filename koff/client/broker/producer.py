"""`PartitionProducer` writes messages to partitions, and sets the offset of each message."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError

from koff.client.broker.async_calls import AsyncCalls, OnDone
from koff.client.broker.conf import ProducerConf, RequiredAcks
from koff.client.broker.produce_call import MAX_QUEUED, ProduceCall
from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.librdkafka import ONE_IN_FLIGHT, close_producer, has_no_broker, new_client
from koff.client.message import Message
from koff.client.message_check import read_columns
from koff.errors import Closed

_MAX_RETRIES = (1 << 31) - 1


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
        return self._finish_call(*self._queue_call(topic, partition, messages))

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

    def _queue_call(self, topic: str, partition: int, messages: Sequence[Message]) -> tuple[Any, ProduceCall]:
        """Checks the messages, and gives them to the librdkafka client that is returned."""
        self.check_process()
        columns = read_columns(messages)
        # After `close` the check is skipped: it would raise its own error instead of the `Closed` below.
        if not self._closed:
            self._check_partition(topic, partition)
        call = ProduceCall(topic, partition, messages, columns)
        with self._queue_lock:
            if self._producer is None:
                raise Closed("the producer is closed")
            producer = self._producer
            self._refresh_partition_count(topic, partition)
            call.queue_messages(producer)
        return producer, call

    def _finish_call(self, producer: Any, call: ProduceCall) -> int | None:
        """The result of the call, once it is done. Replaces a client that cannot be used any more."""
        # `flush` sends without waiting for the linger time, and runs the delivery callbacks of all calls,
        # also of other threads. So one thread may complete the call of another.
        while not call.done:
            call.flush(producer)
        errors = call.match_reports()
        if any(error.fatal() for error in errors) or (errors and has_no_broker(producer, call.topic)):
            self._replace_client(producer)
        del producer  # a caller may keep the error, with a traceback that has the variables of this function
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


def _build_properties(
    cluster: ClusterConf, conf: ProducerConf, *, creates_topics: bool = False
) -> dict[str, Any]:
    """librdkafka's properties for the configuration.

    `ONE_IN_FLIGHT` overrides the user's properties. It also keeps the order where there is no idempotence.
    """
    wait_ms, timeout_ms = int(conf.retry_wait_s * 1000), int(conf.request_timeout_s * 1000)
    idempotent = conf.required_acks is RequiredAcks.ALL and conf.retry_limit != 0
    message_timeout_ms = (
        int(cluster.patience_s * 1000)
        if conf.retry_limit is None
        else (conf.retry_limit + 1) * (timeout_ms + wait_ms)
    )
    properties = cluster.librdkafka_properties(
        **{
            "acks": int(conf.required_acks),
            "compression.type": conf.compression.value,
            "request.timeout.ms": timeout_ms,
            "retries": _MAX_RETRIES if conf.retry_limit is None else conf.retry_limit,
            "retry.backoff.ms": max(wait_ms, 1),
            "retry.backoff.max.ms": max(wait_ms, 1),
            "message.timeout.ms": message_timeout_ms,
            # `flush` ends it early, so the messages of a call are sent together. It may not be longer than
            # the timeout of a message.
            "linger.ms": min(1000, message_timeout_ms // 2),
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": MAX_QUEUED,
            "topic.metadata.propagation.max.ms": 5000,
            "enable.idempotence": idempotent,
            "allow.auto.create.topics": creates_topics,
        }
    )
    return {**properties, **ONE_IN_FLIGHT}


def _ignore_error(error: KafkaError) -> None:
    """Ignores librdkafka's errors: the delivery reports have the result of each message."""

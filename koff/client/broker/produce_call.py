"""The messages of one `produce` call, on their way through librdkafka."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError

from koff.client.errors import ProduceError
from koff.client.foreign_errors import describe_error, extract_kafka_error
from koff.client.message import Message
from koff.client.message_check import Columns, choose_timestamp

_CHUNK_MESSAGES = 10_000  # of one `produce_batch`
MAX_QUEUED = 1_000_000  # messages in librdkafka's queue
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


class ProduceCall:
    """The messages of one `produce` call, and the delivery reports that came for them.

    Without errors the reports need no matching: the partition keeps the order, so the sorted offsets belong
    to the messages in turn. Therefore all messages can share one callback, which makes a report cheap.
    """

    def __init__(
        self, topic: str, partition: int, messages: Sequence[Message], columns: Columns | None
    ) -> None:
        self._columns = columns  # None: some message has headers or a timestamp
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

    def flush(self, producer: Any) -> None:
        """Sends for a moment, and takes the reports of all calls that come meanwhile."""
        try:
            producer.flush(_FLUSH_S)
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
            while len(producer) > MAX_QUEUED - _CHUNK_MESSAGES:
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
                timestamp=choose_timestamp(message),
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

    def match_reports(self) -> list[KafkaError]:
        """Finds the messages of the reports in `_unmatched`. Returns the errors of all messages.

        Messages are found by key and value: two messages with the same content are interchangeable.
        """
        if not self._unmatched:
            return list(self._errors.values())
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
        return list(self._errors.values())

"""`RecordTimes` reads the timestamps of the records at given offsets: many at once, without a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from statistics import median_low
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.feed.source import PARTITION_GONE_CODES
from koff.client.foreign_errors import describe_error
from koff.client.librdkafka import (
    SLOW_RECONNECT,
    close_consumer,
    consume_waiting,
    has_no_broker,
    new_client,
)
from koff.client.log_ins import check_log_in, note_error
from koff.errors import Closed

_MAX_ASSIGNED = 500  # partitions assigned together
MOST_LATER = 8
_POLL_S = 0.1  # how often `should_stop` is called
_SILENCE_S = 3.0
"""After a first answer, and then this time without another one, the other places of the round are given up:
most likely their topics do not exist any more."""


class Place(NamedTuple):
    """An offset of a partition."""

    topic: str
    partition: int
    offset: int


class FirstRecord(NamedTuple):
    """The first record at or after a place. It is later if compaction or retention removed the record there.

    `timestamp_ms` is CreateTime or LogAppendTime, as the topic is configured; None if the record has none.
    `later_ms` is the median of the timestamps of the records that came with it, `MOST_LATER` at most; None if
    there were none. A producer's clock that is wrong shows in the difference.
    """

    offset: int
    timestamp_ms: int | None
    later_ms: int | None = None


class EndReached(NamedTuple):
    """There is no record from the place to the end offset `offset`; there may be control records."""

    offset: int


class Unread(NamedTuple):
    """Why the place could not be read. `denied` is true when this user may not read the topic."""

    reason: str
    denied: bool = False


Answer = FirstRecord | EndReached | Unread


class RecordTimes(Closing):
    """Reads the first record at or after each of many places; a context manager.

    Records of aborted and of open transactions count (read_uncommitted): their offsets are part of the lag.
    """

    def __init__(self, cluster: ClusterConf) -> None:
        self._cluster = cluster
        self._consumer: Consumer | None = self._new_consumer()

    def _new_consumer(self) -> Consumer:
        check_log_in(self._cluster)
        consumer: Consumer = new_client(
            Consumer, self._properties(self._cluster), error_cb=partial(note_error, self._cluster)
        )
        return consumer

    @staticmethod
    def _properties(cluster: ClusterConf) -> dict[str, Any]:
        """Properties for small fetches. A broker returns one whole record batch even if it is larger."""
        properties = cluster.librdkafka_properties(
            **{
                **SLOW_RECONNECT,
                "queued.min.messages": 1,
                "queued.max.messages.kbytes": 1024,
                "max.partition.fetch.bytes": 16_384,  # with 1 KiB, most responses hold only one partition
                "fetch.wait.max.ms": 20,
                "fetch.queue.backoff.ms": 1,  # the default is 1 s, a pause before each new place
                "fetch.error.backoff.ms": 100,
                "topic.metadata.propagation.max.ms": 500,  # the topic existed before: no need to wait longer
                "check.crcs": "false",
            }
        )
        return {
            **properties,
            "group.id": properties.get("group.id", "koff"),  # librdkafka requires it; koff never joins
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest",  # retention removed the place: read from the log start
            "allow.auto.create.topics": "false",
            "isolation.level": "read_uncommitted",
        }

    def close(self) -> None:
        """Releases the connections. Safe to call twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            close_consumer(consumer)

    def read(
        self, places: Collection[Place], timeout_s: float, should_stop: Callable[[], bool] = lambda: False
    ) -> dict[Place, Answer]:
        """An answer for every place, within `timeout_s`, or once `should_stop` returns true.

        A place for which no record came in time is `Unread`.
        """
        until = time.monotonic() + timeout_s
        answers: dict[Place, Answer] = {}
        left = list(dict.fromkeys(places))  # without duplicates
        while left and time.monotonic() < until and not should_stop():
            # A round reads one place of each partition: a partition can be assigned at one offset only.
            chunk: dict[tuple[str, int], Place] = {}
            for place in left:
                if len(chunk) < _MAX_ASSIGNED:
                    chunk.setdefault((place.topic, place.partition), place)
            answers.update(self._read_chunk(chunk, until, should_stop))
            missing = {place for place in chunk.values() if place not in answers}
            answers.update(dict.fromkeys(missing, Unread("no response")))
            left = [place for place in left if place not in answers]
        return answers | dict.fromkeys(left, Unread("no response"))

    def _read_chunk(
        self, chunk: dict[tuple[str, int], Place], until: float, should_stop: Callable[[], bool]
    ) -> dict[Place, Answer]:
        """The answers that come until `until`, for at most one place in each partition."""
        if self._consumer is None:
            raise Closed(f"the connection to {self._cluster.brokers} is closed")
        check_log_in(self._cluster)
        consumer, answers, left = self._consumer, dict[Place, Answer](), set(chunk)
        silent_at = until
        try:
            consumer.assign([TopicPartition(*place) for place in chunk.values()])
            while left and (wait_s := min(until, silent_at) - time.monotonic()) > 0 and not should_stop():
                # What else is in the fetch of a partition comes with its first record.
                done = set()
                later: dict[tuple[str, int], list[int]] = {}
                for message in consume_waiting(
                    consumer, (1 + MOST_LATER) * len(left) + 1, min(wait_s, _POLL_S)
                ):
                    partition = (str(message.topic()), int(message.partition() or 0))
                    if partition in done and message.error() is None:
                        later.setdefault(partition, []).append(message.timestamp()[1])
                    answer = _to_answer(message, chunk[partition]) if partition in left else None
                    if answer is not None:
                        answers[chunk[partition]] = answer
                        left.discard(partition)
                        done.add(partition)
                for partition, times in later.items():
                    _add_later(answers, chunk[partition], times[:MOST_LATER])
                if done:
                    silent_at = time.monotonic() + _SILENCE_S
                if done and left:  # otherwise librdkafka would continue to fetch these partitions
                    consumer.incremental_unassign([TopicPartition(*partition) for partition in done])
        except Exception as error:
            unread = Unread(describe_error(error))
            return dict.fromkeys((chunk[partition] for partition in left), unread) | answers
        finally:
            with suppress(Exception):  # the next round assigns other partitions
                consumer.unassign()
        # Without any answer, the client may have forgotten all brokers for good (see `has_no_broker`).
        if not answers and not should_stop() and has_no_broker(consumer, next(iter(chunk))[0]):
            close_consumer(consumer)
            self._consumer = self._new_consumer()
        return answers


def _add_later(answers: dict[Place, Answer], place: Place, times: list[int]) -> None:
    first = answers[place]
    if isinstance(first, FirstRecord) and (known := [at_ms for at_ms in times if at_ms >= 0]):
        answers[place] = first._replace(later_ms=median_low(known))


def _to_answer(message: Message, place: Place) -> Answer | None:
    """The answer that a record or event gives for the place; None for an error that librdkafka retries."""
    error, offset = message.error(), message.offset()
    if error is None and offset is not None:
        kind, timestamp_ms = message.timestamp()
        if offset < place.offset:  # out of range: `auto.offset.reset` went to the log start
            return Unread("beyond the end of the log")
        return FirstRecord(offset, timestamp_ms if kind and timestamp_ms >= 0 else None)
    code = error.code() if error else None
    if code == KafkaError._PARTITION_EOF and offset is not None:
        return EndReached(offset)
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return Unread(f"no permission to read {place.topic}", denied=True)
    if code in PARTITION_GONE_CODES:
        return Unread("the partition does not exist")
    return None

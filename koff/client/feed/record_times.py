"""When the records at given offsets were written, in bulk, over one librdkafka client and without a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf
from koff.client.librdkafka import consume_waiting, cut_off, new_client
from koff.errors import Closed

_AT_ONCE = 500  # partitions assigned together
_PATIENCE_S = 0.1
_SILENCE_S = 3.0
"""Once there are answers, those that are still missing after so long will not come: their topic is gone."""


class Place(NamedTuple):
    """An offset of a partition."""

    topic: str
    partition: int
    offset: int


class FirstRecord(NamedTuple):
    """The first record at or after a place: further on where compaction or retention took what was there.

    `timestamp_ms` is CreateTime or LogAppendTime, as the topic has it; None where the record bears none.
    """

    offset: int
    timestamp_ms: int | None


class EndReached(NamedTuple):
    """No record is left at or after a place, up to the end `offset`: all there is are control records."""

    offset: int


class Unread(NamedTuple):
    """Why nothing could be read; `denied` when this user may not read the topic."""

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
        consumer: Consumer = new_client(Consumer, self._properties(self._cluster), error_cb=_ignore)
        return consumer

    @staticmethod
    def _properties(cluster: ClusterConf) -> dict[str, Any]:
        """Asks for little; a broker answers with the one batch that holds a record, whatever its size."""
        properties = cluster.librdkafka(
            **{
                "queued.min.messages": 1,
                "queued.max.messages.kbytes": 1024,
                "max.partition.fetch.bytes": 16_384,  # with 1 KiB, most answers have room for one partition
                "fetch.wait.max.ms": 20,
                "fetch.queue.backoff.ms": 1,  # by default a second passes between places
                "fetch.error.backoff.ms": 100,
                "topic.metadata.propagation.max.ms": 500,  # a topic is known to have been there: no patience
                "check.crcs": "false",
            }
        )
        return {
            **properties,
            "group.id": properties.get("group.id", "koff"),  # librdkafka insists on one; never joined
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest",  # what retention took: the log start's record
            "allow.auto.create.topics": "false",
            "isolation.level": "read_uncommitted",
        }

    def close(self) -> None:
        """Lets go of the connection. Safe to call twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def read(
        self, places: Collection[Place], timeout_s: float, given_up: Callable[[], bool] = lambda: False
    ) -> dict[Place, Answer]:
        """An answer for every place, within `timeout_s`, or once `given_up` says true."""
        until = time.monotonic() + timeout_s
        answers: dict[Place, Answer] = {}
        left = list(dict.fromkeys(places))
        while left and time.monotonic() < until and not given_up():
            now: dict[tuple[str, int], Place] = {}  # one place a partition at a time
            for place in left:
                if len(now) < _AT_ONCE:
                    now.setdefault((place.topic, place.partition), place)
            answers.update(self._read(now, until, given_up))
            missing = {place for place in now.values() if place not in answers}
            answers.update(dict.fromkeys(missing, Unread("no answer")))
            left = [place for place in left if place not in answers]
        return answers | dict.fromkeys(left, Unread("no answer"))

    def _read(
        self, wanted: dict[tuple[str, int], Place], until: float, given_up: Callable[[], bool]
    ) -> dict[Place, Answer]:
        if self._consumer is None:
            raise Closed(f"the connection to {self._cluster.brokers} is closed")
        consumer, answers, left = self._consumer, dict[Place, Answer](), set(wanted)
        silent_at = until
        try:
            consumer.assign([TopicPartition(*place) for place in wanted.values()])
            while left and (patience := min(until, silent_at) - time.monotonic()) > 0 and not given_up():
                got = consume_waiting(consumer, len(left) + 1, min(patience, _PATIENCE_S))
                done = set()
                for message in got:
                    at = (str(message.topic()), int(message.partition() or 0))
                    answer = _answer(message, wanted[at]) if at in left else None
                    if answer is not None:
                        answers[wanted[at]] = answer
                        left.discard(at)
                        done.add(at)
                if done:
                    silent_at = time.monotonic() + _SILENCE_S
                if done and left:  # what follows in their batches is not asked for
                    consumer.incremental_unassign([TopicPartition(*at) for at in done])
        except KafkaException as failure:
            reason = Unread(str(failure))
            return dict.fromkeys((wanted[at] for at in left), reason) | answers
        finally:
            consumer.unassign()
        if not answers and not given_up() and cut_off(consumer, next(iter(wanted))[0]):
            consumer.close()
            self._consumer = self._new_consumer()
        return answers


def _answer(message: Message, place: Place) -> Answer | None:
    """None: not yet."""
    error, offset = message.error(), message.offset()
    if error is None and offset is not None:
        kind, timestamp_ms = message.timestamp()
        if offset < place.offset:  # out of range, so librdkafka went to the log start
            return Unread("beyond the end of the log")
        return FirstRecord(offset, timestamp_ms if kind and timestamp_ms >= 0 else None)
    code = error.code() if error else None
    if code == KafkaError._PARTITION_EOF and offset is not None:
        return EndReached(offset)
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return Unread(f"no permission to read {place.topic}", denied=True)
    if code in _GONE:
        return Unread("gone")
    return None


_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


def _ignore(error: KafkaError) -> None:
    """Brokers that are away show as timeouts; who keeps up with the cluster says so."""

"""The decoded messages of `__consumer_offsets`, for people and programs."""

import math
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Literal

from koff.client.batches import RawRecord, RecordRun
from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf
from koff.errors import Closed, ConfigError
from koff.records import DecodedMessage, decode, decode_share_state
from koff.records.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from koff.tail.reader import TailReader, TailReaderConf


class OffsetsConsumer(Closing):
    """Reads `__consumer_offsets` and returns its decoded messages: an iterator and a context manager.

    With `watch` the iterator waits for new records and does not end. Without it, the iterator ends at the
    last stable offsets that the partitions had when reading began. Only committed records are read.

    `properties` are librdkafka's. `topic` and `partitions` choose what is read; None means
    `__consumer_offsets` and all its partitions. `start` is "earliest", "latest" or a time in ms since the
    epoch. With `until_ms`, records of that time and later are left out, and the iterator ends when that time
    has passed. With `share_state`, `__share_group_state` is read instead.

    Raises `ConnectError` if the brokers cannot be reached or refuse this user, `ConfigError` if the topic
    does not have one of `partitions`, or, without `watch`, if there is no `topic`, and `Closed` from an
    iterator after `close`.

        with koff.Consumer("localhost:9092", watch=False) as messages:
            for message in messages:
                print(message.consumer, message.offset_message)
    """

    def __init__(
        self,
        brokers: str | list[str],
        watch: bool = True,
        *,
        properties: Mapping[str, str] | None = None,
        topic: str | None = None,
        partitions: Collection[int] | None = None,
        start: Literal["earliest", "latest"] | int = "earliest",
        until_ms: int | None = None,
        share_state: bool = False,
    ) -> None:
        addresses = brokers if isinstance(brokers, str) else ",".join(brokers)
        self._closed = False
        self._until_ms = until_ms
        # A time that has passed needs no watching: the reader ends at the offsets of that time, however late
        # these come. One that is to come ends the reading, also of a partition without a leader.
        is_over = until_ms is not None and until_ms <= _now_ms()
        self._watch = watch and not is_over
        self._ends_at_ms = math.inf if until_ms is None or is_over else until_ms
        self._decode = decode_share_state if share_state else decode
        self._named_topic = topic
        conf = TailReaderConf(
            topic=topic or (SHARE_STATE_TOPIC if share_state else OFFSETS_TOPIC),
            partitions=None if partitions is None else frozenset(partitions),
            start=start,
            until_ms=None if self._watch else until_ms,
        )
        self._cluster = Cluster(ClusterConf(addresses, dict(properties or {}))).connect()
        self._reader = TailReader(self._cluster, conf)
        self._messages = (message for batch in self.batches() for _, message in batch)

    def __iter__(self) -> Iterator[DecodedMessage]:
        """The messages. Ends when the consumer is closed, unlike `next`, which raises `Closed` then."""
        with suppress(Closed, StopIteration):
            while True:
                yield next(self)

    def __next__(self) -> DecodedMessage:
        self._check_open()  # there may be more messages of the last batch
        return next(self._messages)

    def batches(self) -> Iterator[list[tuple[RawRecord, DecodedMessage]]]:
        """The same messages in lists, as they arrive, each with the record that it was decoded from.

        No list is empty.
        """
        while True:
            self._check_open()
            polled = self._reader.poll(0.5)
            batch = [
                (record, self._decode(record.key, record.value))
                for run in polled.runs
                for record in self._select_records(run)
            ]
            if batch:
                yield batch
            if not self._watch and self._reader.caught_up:
                if self._named_topic and not self._reader.topic_exists:
                    raise ConfigError(f"there is no topic {self._named_topic}, or koff may not DESCRIBE it")
                return
            # Only after an empty poll: records from before `until_ms` may still be on their way here.
            if not polled.runs and _now_ms() >= self._ends_at_ms:
                return

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the consumer is closed: create another one to read again")

    def close(self) -> None:
        """Closes the consumer and its connections. Safe to call twice."""
        self._closed = True
        self._reader.close()
        self._cluster.close()

    def _select_records(self, run: RecordRun) -> Iterator[RawRecord]:
        """The records of `run` before the end that the caller asked for."""
        # The reader does not stop at its targets: a batch may go beyond them.
        end = math.inf if self._watch else self._reader.targets.get(run.partition, 0)
        until_ms = math.inf if self._until_ms is None else self._until_ms
        return (record for record in run if record.offset < end and record.timestamp_ms < until_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

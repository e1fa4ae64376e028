"""The decoded messages of `__consumer_offsets`, for people and programs."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from koff.client import Closing, Cluster, ClusterConf, RawRecord, Run
from koff.errors import Closed
from koff.records import Message, decode, decode_share_state
from koff.records.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from koff.tail.reader import TailReader, TailReaderConf


class Consumer(Closing):
    """Reads `__consumer_offsets` and yields what its records mean: an iterator and a context manager.

    With `watch` it follows the topic for ever; without, it ends at the last stable offsets that the
    topic had when it began. `start` is earliest, latest or a time in ms; records of `until_ms` and later
    are left out, and it ends then. With `share_state` it reads `__share_group_state` instead.

    Raises `ConnectError` when the brokers cannot be reached or refuse, and `Closed` from an iterator
    whose consumer was closed.

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
        self._watch = watch and not (until_ms is not None and until_ms <= _now_ms())
        self._decode = decode_share_state if share_state else decode
        conf = TailReaderConf(
            topic=topic or (SHARE_STATE_TOPIC if share_state else OFFSETS_TOPIC),
            partitions=None if partitions is None else frozenset(partitions),
            start=start,
            until_ms=None if self._watch else until_ms,
        )
        self._cluster = Cluster(ClusterConf(addresses, dict(properties or {}))).connect()
        self._reader = TailReader(self._cluster, conf)
        self._messages = (message for batch in self.batches() for _, message in batch)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        return next(self._messages)

    def batches(self) -> Iterator[list[tuple[RawRecord, Message]]]:
        """The same messages in lists as they came in, each with the record that it was decoded from."""
        while True:
            if self._closed:
                raise Closed("the consumer is closed")
            polled = self._reader.poll(0.5)
            batch = [
                (record, self._decode(record.key, record.value))
                for run in polled.runs
                for record in self._due(run)
            ]
            if batch:
                yield batch
            if not self._watch and self._reader.caught_up:
                return
            if self._until_ms is not None and not polled.runs and _now_ms() >= self._until_ms:
                return

    def close(self) -> None:
        """Shuts the consumer down. Safe to call twice."""
        self._closed = True
        self._reader.close()
        self._cluster.close()

    def _due(self, run: Run) -> Iterator[RawRecord]:
        """Those of the records that are asked for."""
        last = math.inf if self._watch else self._reader.targets.get(run.partition, 0)
        until_ms = math.inf if self._until_ms is None else self._until_ms
        return (record for record in run if record.offset < last and record.timestamp_ms < until_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

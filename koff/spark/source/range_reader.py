"""Ranges of offsets in, Arrow batches of records out, over one librdkafka client. Nothing of Spark."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import structlog

from koff.client import Cluster, ClusterConf, Feed, FeedConf, OffsetSpec, PartitionLost, Run, TopicPartition
from koff.errors import ConnectError
from koff.spark.rows.decoding import RAW, DataLost
from koff.spark.source.ranges import Range

log = structlog.get_logger(component="spark.source.range_reader")
BATCH_RECORDS = 20_000
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class ReadOrigin:
    """Where records are read. `cluster` is the name that rows carry; without `fail_on_data_loss` records that
    are gone are told of in the log, and reading goes on behind them."""

    conf: ClusterConf
    topic: str
    cluster: str
    fail_on_data_loss: bool = True
    patience_s: float = 60.0
    """How long brokers may be silent."""


def read(origin: ReadOrigin, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
    """The records of those ranges in `RAW` columns, each once and in log order within its partition.

    Raises `ConnectError` when brokers are silent for too long, `DataLost` when records are gone.
    """
    with Feed(origin.conf, origin.topic, _sized(max(map(len, ranges), default=0))) as feed:
        todo = _Todo(origin, feed, ranges)
        heard_at = time.monotonic()
        while todo.open:
            fetched = feed.fetch(BATCH_RECORDS, _POLL_S)
            for lost in fetched.lost:
                todo.lost(lost)
            runs = [run for each in fetched.runs if len(run := todo.take(each))]
            for partition, offset in fetched.ends.items():
                todo.reached(partition, offset)
            if fetched.runs or fetched.ends:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > origin.patience_s:
                raise todo.silent(feed.trouble)
            if runs:
                yield raw(runs)


def _sized(longest: int) -> FeedConf:
    """How to read ranges of up to so many offsets: what is fetched behind their ends is thrown away."""
    usual = FeedConf()
    fetched = min(usual.fetch_bytes, max(_LEAST_FETCH, longest * _RECORD_BYTES))
    return FeedConf(
        queue_messages=min(usual.queue_messages, max(longest, 1)),
        queue_kib=usual.queue_kib,
        fetch_bytes=fetched,
    )


_LEAST_FETCH, _RECORD_BYTES = 16 << 10, 160


class _Todo:
    """The ranges yet to be read: of a partition one after the other."""

    def __init__(self, origin: ReadOrigin, feed: Feed, ranges: Sequence[Range]) -> None:
        self._origin, self._feed = origin, feed
        self._waiting: dict[int, deque[Range]] = {}
        for each in sorted(ranges):
            self._waiting.setdefault(each.partition, deque()).append(each)
        self.open: dict[int, Range] = {}
        for partition in list(self._waiting):
            self._next(partition)

    def _next(self, partition: int) -> None:
        waiting = self._waiting[partition]
        if waiting:
            self.open[partition] = waiting.popleft()
            self._feed.add({partition: self.open[partition].start})

    def take(self, run: Run) -> Run:
        """What of a run is asked for. The last of a range makes room for the next."""
        range_ = self.open.get(run.partition)
        if range_ is None:
            return Run(run.partition, [])
        inside = run
        if run.next_offset > range_.end:
            inside = run.split(range_.end)[0]
        self.reached(run.partition, run.next_offset)
        return inside

    def reached(self, partition: int, offset: int) -> None:
        """All before that offset has been read, or is not there."""
        range_ = self.open.get(partition)
        if range_ is not None and offset >= range_.end:
            self._feed.remove([partition])
            del self.open[partition]
            self._next(partition)

    def lost(self, lost: PartitionLost) -> None:
        """Raises `DataLost`, or goes on behind what is gone."""
        range_ = self.open.get(lost.partition)
        if range_ is None:
            return
        name = f"cluster {self._origin.cluster}: partition {lost.partition} of {self._origin.topic}"
        first = None if lost.gone else self._first(lost.partition)
        if first is None:
            what = f"is gone ({lost.reason}), and with it offsets {range_.start} to {range_.end - 1}"
        elif first > range_.start:
            what = (
                f"begins at {first} now: offsets {range_.start} to {min(first, range_.end) - 1} are deleted"
            )
        else:
            what = f"was cut: offset {range_.start} is not in it ({lost.reason})"
            first = None
        if self._origin.fail_on_data_loss:
            raise DataLost(
                f"{name} {what}; read from earliest with a new checkpoint, or set failOnDataLoss=false "
                "to go on with what is there"
            )
        log.warning("records are lost", what=f"{name} {what}")
        self._feed.remove([lost.partition])
        if first is None or first >= range_.end:
            self.reached(lost.partition, range_.end)
            return
        self.open[lost.partition] = Range(lost.partition, first, range_.end)
        self._feed.add({lost.partition: first})

    def _first(self, partition: int) -> int | None:
        at = TopicPartition(self._origin.topic, partition)
        with Cluster(self._origin.conf) as cluster:
            found = cluster.offsets([at], OffsetSpec.EARLIEST)[at]
        return found if isinstance(found, int) else None

    def silent(self, trouble: ConnectError | None) -> ConnectError:
        """What to say when nothing came for too long."""
        partitions = ", ".join(map(str, sorted(self.open)))
        why = str(trouble) if trouble else "no leader, or its last stable offset went back"
        return ConnectError(
            f"cluster {self._origin.cluster}: no records of {self._origin.topic} partitions {partitions} "
            f"for {self._origin.patience_s:g} s: {why}"
        )


def raw(runs: Sequence[Run]) -> pa.RecordBatch:
    """Runs as one batch of `RAW` columns."""
    counts = np.array([len(run) for run in runs])
    total = int(counts.sum())
    offsets: Any = np.fromiter(chain.from_iterable(map(Run.offsets, runs)), np.int64, total)
    times: Any = np.fromiter(chain.from_iterable(map(Run.timestamps_ms, runs)), np.int64, total)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.repeat(np.array([run.partition for run in runs], np.int32), counts)),
            pa.array(offsets),
            pa.array(times),
            pa.array(list(chain.from_iterable(map(Run.keys, runs))), pa.binary()),
            pa.array(list(chain.from_iterable(map(Run.values, runs))), pa.binary()),
        ],
        schema=RAW,
    )

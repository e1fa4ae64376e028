"""Reads ranges of offsets as Arrow batches of records, with one librdkafka client. Imports no Spark."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import structlog

from koff.client import ClusterConf, FeedConf, OffsetSpec, TopicPartition
from koff.client.cluster import Cluster
from koff.client.feed.feed import Feed, PartitionLost, Run
from koff.errors import ConnectError
from koff.spark.rows.decoding import RAW, DataLost
from koff.spark.source.ranges import Range

log = structlog.get_logger(component="spark.source.range_reader")
BATCH_RECORDS = 20_000
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class ReadOrigin:
    """Where to read records. `cluster` is the name of the cluster in rows, errors and logs.

    Without `fail_on_data_loss`, records that are no longer in the log cause a warning, and the reader resumes
    after them.
    """

    conf: ClusterConf
    topic: str
    cluster: str
    fail_on_data_loss: bool = True
    patience_s: float = 60.0
    """How long no record and no end of a partition may come before the reader gives up."""


def read_ranges(
    origin: ReadOrigin,
    ranges: Sequence[Range],
    leader_epochs: Mapping[tuple[int, int], int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the records of those ranges in the columns `RAW`, each once, in log order within a partition.

    `leader_epochs` may give, by partition and offset, the epoch of a leader that had the log up to there.
    With it, a range that starts there is lost if the log was truncated below that offset since then.
    Raises `ConnectError` if nothing comes for `patience_s`, `DataLost` if records are no longer in the log.
    """
    with Feed(origin.conf, origin.topic, _size_feed(max(map(len, ranges), default=0))) as feed:
        pending = _PendingRanges(origin, feed, ranges, leader_epochs or {})
        last_fetch_at = time.monotonic()
        while pending.open:
            fetched = feed.fetch(BATCH_RECORDS, _POLL_S)
            for lost in fetched.lost:
                pending.handle_lost(lost)
            runs = [part for run in fetched.runs if len(part := pending.take_run(run))]
            # Records of aborted transactions never come. At the end of a log, only the end that the feed
            # reports shows that they were passed; elsewhere the next record shows it.
            for partition, offset in fetched.ends.items():
                pending.advance(partition, offset)
            if fetched.runs or fetched.ends:
                last_fetch_at = time.monotonic()
            elif time.monotonic() - last_fetch_at > origin.patience_s:
                raise pending.make_silence_error(feed.unreachable)
            if runs:
                yield build_raw_batch(runs)


def _size_feed(longest: int) -> FeedConf:
    """Buffer sizes for ranges of up to `longest` offsets: records fetched beyond a range are dropped."""
    usual = FeedConf()
    return FeedConf(
        queue_messages=min(usual.queue_messages, max(longest, 1)),
        queue_kib=usual.queue_kib,
        fetch_bytes=min(usual.fetch_bytes, max(_LEAST_FETCH, longest * _RECORD_BYTES)),
    )


_LEAST_FETCH, _RECORD_BYTES = 16 << 10, 160
"""The smallest `fetch_bytes`, and the assumed size of a record."""


class _PendingRanges:
    """The ranges that have yet to be read. The feed reads one range of a partition at a time: `open`."""

    def __init__(
        self,
        origin: ReadOrigin,
        feed: Feed,
        ranges: Sequence[Range],
        leader_epochs: Mapping[tuple[int, int], int],
    ) -> None:
        self._origin, self._feed, self._leader_epochs = origin, feed, leader_epochs
        self._waiting: dict[int, deque[Range]] = {}
        for range_ in sorted(ranges):
            self._waiting.setdefault(range_.partition, deque()).append(range_)
        self.open: dict[int, Range] = {}
        for partition in list(self._waiting):
            self._open_next(partition)

    def _open_next(self, partition: int) -> None:
        waiting = self._waiting[partition]
        if waiting:
            self.open[partition] = waiting.popleft()
            start = self.open[partition].start
            self._feed.add({partition: start}, {partition: self._leader_epochs.get((partition, start), -1)})

    def take_run(self, run: Run) -> Run:
        """The records of the run that are in the open range. Opens the next range if this one is complete."""
        range_ = self.open.get(run.partition)
        if range_ is None:
            return Run(run.partition, [])  # librdkafka may still return records of a removed partition
        inside = run
        if run.next_offset > range_.end:
            inside = run.split(range_.end)[0]
        self.advance(run.partition, run.next_offset)
        return inside

    def advance(self, partition: int, offset: int) -> None:
        """Notes that all records before `offset` have been read, or do not exist."""
        range_ = self.open.get(partition)
        if range_ is not None and offset >= range_.end:
            self._feed.remove([partition])
            del self.open[partition]
            self._open_next(partition)

    def handle_lost(self, lost: PartitionLost) -> None:
        """Raises `DataLost`, or resumes after the records that are no longer in the log."""
        range_ = self.open.get(lost.partition)
        if range_ is None:
            return
        origin = self._origin
        log_start = None if lost.gone else self._fetch_log_start(lost.partition)
        loss = _describe_loss(range_, lost, log_start)
        if origin.fail_on_data_loss:
            # After a truncation, tables with rows of the old log would count them for the new one.
            truncated = log_start is not None and log_start <= range_.start
            cure = (
                "read it under another name of the cluster, or into new tables"
                if truncated
                else "read from earliest with a new checkpoint, or continue without them: --ignore-data-loss "
                "(the source: failOnDataLoss=false)"
            )
            raise DataLost(
                f"cluster {origin.cluster}: partition {lost.partition} of {origin.topic} {loss}; {cure}"
            )
        log.warning(
            "records are lost: continuing without them",
            cluster=origin.cluster,
            topic=origin.topic,
            partition=lost.partition,
            why=f"the partition {loss}",
        )

        # Resume at the log start offset if it is in the range. After a truncation it is before the range, and
        # the rest of the range is given up.
        if log_start is None or not range_.start < log_start < range_.end:
            self.advance(lost.partition, range_.end)
            return
        self._feed.remove([lost.partition])
        self.open[lost.partition] = Range(lost.partition, log_start, range_.end)
        self._feed.add({lost.partition: log_start})

    def _fetch_log_start(self, partition: int) -> int | None:
        """The log start offset; None if the broker reports an error."""
        at = TopicPartition(self._origin.topic, partition)
        with Cluster(self._origin.conf) as cluster:
            offset = cluster.fetch_offsets([at], OffsetSpec.EARLIEST)[at]
        return offset if isinstance(offset, int) else None

    def make_silence_error(self, unreachable: ConnectError | None) -> ConnectError:
        """The error for the caller when nothing came for `patience_s`."""
        partitions = ", ".join(map(str, sorted(self.open)))
        why = str(unreachable) if unreachable else "no leader, or its last stable offset went back"
        return ConnectError(
            f"cluster {self._origin.cluster}: no records of {self._origin.topic} partitions {partitions} "
            f"for {self._origin.patience_s:g} s: {why}"
        )


def _describe_loss(range_: Range, lost: PartitionLost, log_start: int | None) -> str:
    """What happened to the partition, as the end of a sentence about it."""
    offsets = f"offsets {range_.start} to {range_.end - 1} are lost"
    if lost.gone:
        return f"no longer exists ({lost.reason}): {offsets}"
    if log_start is None:
        return f"cannot be read ({lost.reason}), and its log start offset is unknown: {offsets}"
    if log_start > range_.start:
        last = min(log_start, range_.end) - 1
        return f"now starts at {log_start}: offsets {range_.start} to {last} are deleted"
    return f"was truncated: offset {range_.start} is no longer in it ({lost.reason})"


def build_raw_batch(runs: Sequence[Run]) -> pa.RecordBatch:
    """The records of the runs as one batch with the columns `RAW`."""
    counts = np.array([len(run) for run in runs])
    total = int(counts.sum())
    # Whole columns of all runs: a loop over the records in Python would take longer than the read itself.
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

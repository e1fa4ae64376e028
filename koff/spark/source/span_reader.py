"""Reads spans of offsets, and gives their records as columns. Imports no Spark."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from koff.client.batches import RecordRun
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf, OffsetSpec, TopicPartition
from koff.client.log_reader import LogReader, LogStart, PartitionLost
from koff.errors import ConnectError
from koff.spark.rows.decoding import DataLost
from koff.spark.rows.spans import Span

log = structlog.get_logger(component="spark.source.span_reader")
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


def read_spans(
    origin: ReadOrigin,
    spans: Sequence[Span],
    leader_epochs: Mapping[tuple[int, int], int] | None = None,
) -> Iterator[RecordRun]:
    """Yields the records of those spans, each once, in log order within a partition.

    `leader_epochs` may give, by partition and offset, the epoch of a leader that had the log up to there.
    With it, a range that starts there is lost if the log was truncated below that offset since then.
    Raises `ConnectError` if nothing comes for `patience_s`, `DataLost` if records are no longer in the log.
    """
    with (
        Cluster(origin.conf) as cluster,
        LogReader(cluster.lister, origin.topic) as reader,
    ):
        pending = _PendingSpans(origin, cluster, reader, spans, leader_epochs or {})
        progress_s, positions = time.monotonic(), dict[int, int]()
        while pending.open:
            read = reader.fetch(_POLL_S)
            for lost in read.lost:
                pending.handle_lost(lost)
            yield from (part for run in read.runs if len(part := pending.take(run)))
            for partition, position in read.positions.items():
                pending.advance(partition, position)
            if not read.positions.items() <= positions.items() or read.lost:
                progress_s = time.monotonic()
            elif time.monotonic() - progress_s > origin.patience_s:
                raise pending.make_silence_error(reader.unreachable)
            positions |= read.positions


class _PendingSpans:
    """The spans that have yet to be read. One span of a partition is read at a time: `open`."""

    def __init__(
        self,
        origin: ReadOrigin,
        cluster: Cluster,
        reader: LogReader,
        spans: Sequence[Span],
        leader_epochs: Mapping[tuple[int, int], int],
    ) -> None:
        self._origin, self._leader_epochs = origin, leader_epochs
        self._cluster, self._reader = cluster, reader
        self._waiting: dict[int, deque[Span]] = {}
        for span in sorted(spans):
            self._waiting.setdefault(span.partition, deque()).append(span)
        self.open: dict[int, Span] = {}
        for partition in list(self._waiting):
            self._open_next(partition)

    def _open_next(self, partition: int) -> None:
        waiting = self._waiting[partition]
        if waiting:
            span = self.open[partition] = waiting.popleft()
            epoch = self._leader_epochs.get((partition, span.start), -1)
            self._reader.add({partition: LogStart(span.start, epoch, span.end)})

    def take(self, run: RecordRun) -> RecordRun:
        """The records of the run that are in the open range."""
        return run.before(self.open[run.partition].end)

    def advance(self, partition: int, offset: int) -> None:
        """Notes that all records before `offset` have been read, or do not exist."""
        if offset >= self.open[partition].end:
            self._reader.remove([partition])
            del self.open[partition]
            self._open_next(partition)

    def handle_lost(self, lost: PartitionLost) -> None:
        """Raises `DataLost`, or resumes after the records that are no longer in the log."""
        span, origin = self.open[lost.partition], self._origin
        log_start = None if lost.gone else self._fetch_log_start(lost.partition)
        loss = _describe_loss(span, lost, log_start)
        if origin.fail_on_data_loss:
            # After a truncation, tables with rows of the old log would count them for the new one.
            truncated = log_start is not None and log_start <= span.start
            cure = "read it under another name of the cluster, or into new tables"
            if not truncated:
                cure += ", or continue without them: --ignore-data-loss (the source: failOnDataLoss=false)"
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
        if log_start is None or not span.start < log_start < span.end:
            self.advance(lost.partition, span.end)
            return
        self.open[lost.partition] = Span(lost.partition, log_start, span.end)
        self._reader.add({lost.partition: LogStart(log_start, until=span.end)})

    def _fetch_log_start(self, partition: int) -> int | None:
        """The log start offset; None if the broker reports an error."""
        at = TopicPartition(self._origin.topic, partition)
        offset = self._cluster.fetch_offsets([at], OffsetSpec.EARLIEST)[at]
        return offset if isinstance(offset, int) else None

    def make_silence_error(self, unreachable: ConnectError | None) -> ConnectError:
        """The error for the caller when nothing came for `patience_s`."""
        partitions = ", ".join(map(str, sorted(self.open)))
        why = str(unreachable) if unreachable else "no leader, or its last stable offset went back"
        return ConnectError(
            f"cluster {self._origin.cluster}: no records of {self._origin.topic} partitions {partitions} "
            f"for {self._origin.patience_s:g} s: {why}"
        )


def _describe_loss(span: Span, lost: PartitionLost, log_start: int | None) -> str:
    """What happened to the partition, as the end of a sentence about it."""
    offsets = f"offsets {span.start} to {span.end - 1} are lost"
    if lost.gone:
        return f"no longer exists ({lost.reason}): {offsets}"
    if log_start is None:
        return f"cannot be read ({lost.reason}), and its log start offset is unknown: {offsets}"
    if log_start > span.start:
        last = min(log_start, span.end) - 1
        return f"now starts at {log_start}: offsets {span.start} to {last} are deleted"
    return f"was truncated: offset {span.start} is no longer in it ({lost.reason})"

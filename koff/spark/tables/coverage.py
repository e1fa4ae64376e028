"""Which offsets of a cluster's offsets topic the tables have: the table `coverage`, and intervals of offsets.

Before a batch is written, its spans are recorded as begun; when all tables have it, as complete. So after any
interruption the tables may have rows of the spans that are begun and not complete, certainly have all rows of
complete spans, and have no rows of other offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from koff.spark.tables.leases import Lease
from koff.spark.tables.schemas import Tables, quote_sql

if TYPE_CHECKING:
    from pyspark.sql import Column

Interval = tuple[int, int]
"""Offsets from the first up to the second, without the second."""
Intervals = Mapping[int, Sequence[Interval]]
"""Intervals by partition of the offsets topic."""
MOST_ROWS = 1000
"""With more rows than this of a cluster, the table is rewritten with merged spans."""


class Span(NamedTuple):
    """The offsets of a partition from `start` up to `end`, without `end`."""

    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end - self.start


def make_spans(starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Span]:
    """The span of each partition from its start (0 if not given) to its end; empty spans are left out."""
    return [Span(p, starts.get(p, 0), end) for p, end in sorted(ends.items()) if end > starts.get(p, 0)]


def count_offsets(spans: Iterable[Span]) -> int:
    """How many offsets the spans have."""
    return sum(span.size for span in spans)


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """The same offsets in as few intervals as possible, in order; empty intervals are left out."""
    merged: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def subtract_intervals(intervals: Iterable[Interval], removed: Iterable[Interval]) -> list[Interval]:
    """The offsets of `intervals` that are not in `removed`, in order."""
    left = merge_intervals(intervals)
    for first, last in merge_intervals(removed):
        left = [
            part
            for start, end in left
            for part in ((start, min(end, first)), (max(start, last), end))
            if part[0] < part[1]
        ]
    return left


def intersect_spans(intervals: Intervals, spans: Iterable[Span]) -> dict[int, list[Interval]]:
    """The offsets of `intervals` that are in one of the spans."""
    found: dict[int, list[Interval]] = {}
    for partition, start, end in spans:
        outside = subtract_intervals([(start, end)], intervals.get(partition, ()))
        if inside := subtract_intervals([(start, end)], outside):
            found.setdefault(partition, []).extend(inside)
    return found


def drop_covered(spans: Iterable[Span], covered: Intervals) -> list[Span]:
    """The offsets of the spans that are not in `covered`."""
    return [
        Span(partition, *left)
        for partition, start, end in spans
        for left in subtract_intervals([(start, end)], covered.get(partition, ()))
    ]


def select_offsets(intervals: Intervals) -> Column:
    """The condition that a row (`offsets_partition`, `log_offset`) is in one of the intervals."""
    from pyspark.sql import functions as f

    offset, selected = f.col("log_offset"), f.lit(False)
    for partition, parts in intervals.items():
        for start, end in parts:
            is_inside = (offset >= start) & (offset < end)
            selected |= (f.col("offsets_partition") == partition) & is_inside
    return selected


class CoverageRow(NamedTuple):
    """A row of the table, without the cluster. `topic_id` and `filter` as in `Coverage`."""

    topic_id: str | None
    offsets_partition: int
    from_offset: int
    to_offset: int
    complete: bool
    filter: str
    at: datetime

    @property
    def interval(self) -> Interval:
        """The offsets of the row."""
        return self.from_offset, self.to_offset


class Coverage:
    """The coverage of one cluster. The caller has the cluster's lease, so that nobody else changes it.

    `topic_id` is the id of the offsets topic (None: unknown, matches every id). `filter` says which records
    the caller writes ("": all). Complete spans with another filter may lack records of the caller's: they
    count as begun. Each write is a new transaction of `lease`. Raises `LeaseLost` if Delta ignored a write.
    """

    def __init__(
        self,
        tables: Tables,
        cluster: str,
        lease: Lease,
        *,
        topic_id: str | None = None,
        filter_text: str = "",
    ) -> None:
        self._tables, self._cluster, self._lease = tables, cluster, lease
        self.topic_id, self._filter = topic_id or None, filter_text
        self._pending: list[Span] = []
        """The spans that were begun last: complete when the caller says so, recorded with the next write."""
        self._rows: list[CoverageRow] = []

    def load(self, *, fresh: bool = False) -> None:
        """Reads the table. `fresh`: the table is new and has no rows."""
        self._rows = []
        if fresh:
            return
        frame = self._tables.cluster_frame("coverage", self._cluster).select(*CoverageRow._fields)
        self._rows = [CoverageRow(*row) for row in frame.collect()]
        if len(self._rows) > MOST_ROWS:
            self._rewrite()

    def list_complete(self) -> dict[int, list[Interval]]:
        """The offsets whose records need not be read again."""
        return self._list_intervals(complete=True)

    def list_begun(self) -> dict[int, list[Interval]]:
        """The offsets of which the tables may have some rows, without the complete ones."""
        complete, every = self.list_complete(), self._list_intervals(complete=False)
        begun = {p: subtract_intervals(every[p], complete.get(p, ())) for p in every}
        return {p: intervals for p, intervals in begun.items() if intervals}

    def find_lacking(self, ends: Mapping[int, int]) -> list[Span]:
        """The offsets up to these ends, by partition, that come after all offsets in the table."""
        known = self._list_intervals(complete=False)
        return make_spans({p: parts[-1][1] for p, parts in known.items() if parts}, ends)

    def find_other_topic(self) -> str | None:
        """The id of an offsets topic of which the tables have rows, and which is not the present one."""
        known = {row.topic_id for row in self._rows if row.topic_id}
        return next(iter(known - {self.topic_id}), None) if self.topic_id else None

    def begin(self, spans: Iterable[Span]) -> None:
        """Records that rows of these spans are about to be written, and what `complete` has noted."""
        begun = [span for span in spans if span.start < span.end]
        if not begun:
            self.flush()
            return
        completed, self._pending = self._pending, []
        self._append([(span, True) for span in completed] + [(span, False) for span in begun])
        if len(self._rows) > MOST_ROWS:
            self._rewrite()

    def complete(self, spans: Iterable[Span]) -> None:
        """Notes that all tables have these spans. The note is recorded by the next `begin` or `flush`."""
        self._pending += [span for span in spans if span.start < span.end]

    def complete_begun(self, spans: Iterable[Span]) -> None:
        """Records those of these spans as complete that the table has as begun, and not as complete.

        The caller knows that all tables have their rows: a process that was killed did not record it.
        """
        own = [row for row in self._rows if row.filter == self._filter and row.topic_id == self.topic_id]
        known = {(Span(row.offsets_partition, *row.interval), row.complete) for row in own}
        self.complete(span for span in spans if (span, False) in known and (span, True) not in known)
        self.flush()

    def flush(self) -> None:
        """Records what `complete` has noted."""
        completed, self._pending = self._pending, []
        self._append([(span, True) for span in completed])

    def _list_intervals(self, *, complete: bool) -> dict[int, list[Interval]]:
        found: dict[int, list[Interval]] = {}
        for row in self._rows:
            if self.topic_id and row.topic_id and row.topic_id != self.topic_id:
                continue
            if not complete or (row.complete and row.filter in ("", self._filter)):
                found.setdefault(row.offsets_partition, []).append(row.interval)
        return {partition: merge_intervals(intervals) for partition, intervals in found.items()}

    def _append(self, spans: Iterable[tuple[Span, bool]]) -> None:
        now = datetime.now(UTC)
        rows = [CoverageRow(self.topic_id, *span, complete, self._filter, now) for span, complete in spans]
        if rows:
            frame = self._tables.make_frame("coverage", self._cluster, rows)
            self._tables.append_rows("coverage", frame, self._lease.next_transaction())
            # Delta ignores a process that lost the lease, without an error. Rows of offsets that are not
            # recorded as begun must not be written.
            self._lease.check()
            self._rows += rows

    def _rewrite(self) -> None:
        """Replaces the cluster's rows by rows with merged spans, in one transaction."""
        merged: dict[tuple[str | None, int, bool, str], list[Interval]] = {}
        for row in self._rows:
            kind = (row.topic_id, row.offsets_partition, row.complete, row.filter)
            merged.setdefault(kind, []).append(row.interval)
        now = datetime.now(UTC)
        rows = [
            CoverageRow(topic_id, partition, *interval, complete, kept, now)
            for (topic_id, partition, complete, kept), intervals in merged.items()
            for interval in merge_intervals(intervals)
        ]
        frame = self._tables.make_frame("coverage", self._cluster, rows)
        of_cluster = f"cluster = {quote_sql(self._cluster)}"
        self._tables.replace_rows("coverage", frame, of_cluster, self._lease.next_transaction())
        self._rows = rows

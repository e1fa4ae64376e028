"""The table `end_curves`: the end offsets of each partition over time, in few points.

A curve stands for all samples of its partition up to a time. So a sample reads the curves and the samples
after that time, and not all samples of a day. Curves follow from `end_offsets` alone. If the table is lost,
or behind because a job was killed, more samples are read, and the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from koff.lag import Curves, EndHistory
from koff.lag.end_history import TICK_MS
from koff.spark.tables.conflicts import retry_conflicts
from koff.spark.tables.schemas import NextTransaction, Tables, quote_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECENT_S = 900.0
"""The age of the oldest sample that rates and the status are computed from."""
FOLD_S = 900.0
"""How old the newest samples get before they are folded into the curves."""
POINTS = 120
"""The points of a curve. A curve of more samples loses those that matter least, as in `koff monitor`."""
_SPAN_MS = 2 * 3_600_000  # so much is folded at once: all samples of the time are in memory
_POINTS_DDL = "ARRAY<STRUCT<at_ms: BIGINT, end: BIGINT>>"
_CURVE_DDL = f"topic STRING, partition INT, id STRING, points {_POINTS_DDL}"
_NO_GAPS_MS = 2**40  # a pause between samples is no gap here: nothing could fill it
_POINT = pa.struct([("at_ms", pa.int64()), ("end", pa.int64())])

Ints = NDArray[np.int64]


class EndCurves:
    """The curves of one cluster. Call `note_sample` after each sample, and then `fold_if_due`.

    Only the process that has the lease of the cluster may fold: `next_transaction` is that of the lease.
    `reach_s` is the age of the oldest sample that counts.
    """

    def __init__(
        self,
        cluster: str,
        next_transaction: NextTransaction,
        *,
        reach_s: float,
        fold_s: float = FOLD_S,
        points: int = POINTS,
    ) -> None:
        self._next_transaction = next_transaction
        self._cluster, self._reach_ms = cluster, int(reach_s * 1000)
        self._fold_ms, self._points = int(fold_s * 1000), points
        self._is_loaded = False
        self._until_ms: int | None = None
        """The curves have all samples up to this time; None without curves."""
        self._first_ms: int | None = None
        self._newest_ms: int | None = None
        """The first and the newest sample of this process."""

    @property
    def newest(self) -> datetime | None:
        """The time of the newest sample of this process."""
        return None if self._newest_ms is None else datetime.fromtimestamp(self._newest_ms / 1000, UTC)

    def read(self, tables: Tables, now: datetime) -> tuple[DataFrame, DataFrame]:
        """What a sample at `now` needs: the later rows of `end_offsets`, and the rows of `end_curves`."""
        from pyspark.sql import functions as f

        now_ms = _to_ms(now)
        until_ms = self._load_until(tables, now_ms)
        since_ms = now_ms - self._reach_ms
        if until_ms is not None:
            since_ms = max(since_ms, min(until_ms, now_ms - int(RECENT_S * 1000)))
        curves = tables.cluster_frame("end_curves", self._cluster)
        if until_ms is None:
            curves = curves.where(f.lit(False))
        return _select_samples(tables, self._cluster, since_ms - 1, None), curves

    def note_sample(self, at: datetime) -> None:
        """Notes that a sample of this time is in the table."""
        self._newest_ms = _to_ms(at)
        self._first_ms = min(self._newest_ms, self._first_ms or self._newest_ms)

    def fold_if_due(self, tables: Tables) -> bool:
        """Folds the samples of `end_offsets` into the curves, if the curves are `fold_s` old.

        Returns whether it did. A fold that is killed leaves the curves as they were.
        """
        newest_ms, first_ms = self._newest_ms, self._first_ms
        if newest_ms is None or first_ms is None:
            return False
        until_ms = self._load_until(tables, newest_ms)
        if newest_ms - (first_ms if until_ms is None else until_ms) < self._fold_ms:
            return False
        after_ms = newest_ms - self._reach_ms - 1
        is_new = until_ms is None
        if until_ms is not None:
            after_ms = max(after_ms, until_ms)
        while after_ms < newest_ms:
            to_ms = min(after_ms + _SPAN_MS, newest_ms)
            self._fold(tables, after_ms, to_ms, is_new=is_new)
            self._until_ms = after_ms = to_ms
            is_new = False
        return True

    def _load_until(self, tables: Tables, now_ms: int) -> int | None:
        """Up to when there are curves; None without curves, and if the clock was set back since then."""
        if not self._is_loaded:
            newest = tables.cluster_frame("end_curves", self._cluster).selectExpr("max(unix_millis(until))")
            self._until_ms = newest.collect()[0][0]
            self._is_loaded = True
        if self._until_ms is not None and self._until_ms > now_ms:
            return None
        return self._until_ms

    def _fold(self, tables: Tables, after_ms: int, to_ms: int, *, is_new: bool) -> None:
        """Replaces the cluster's curves by those that also have the samples after one time up to another."""
        from pyspark.sql import functions as f

        until = f.timestamp_millis(f.lit(to_ms))
        samples = _select_samples(tables, self._cluster, after_ms, to_ms)
        curves = tables.cluster_frame("end_curves", self._cluster)
        if is_new:
            curves = curves.where(f.lit(False))
        rows = fold_samples(curves, samples, since_ms=to_ms - self._reach_ms, points=self._points)
        rows = rows.select(
            f.lit(self._cluster).alias("cluster"),
            "topic",
            "partition",
            f.nullif(f.col("id"), f.lit("")).alias("topic_id"),
            "points",
            until.alias("until"),
        )
        of_cluster, transaction = f"cluster = {quote_sql(self._cluster)}", self._next_transaction()
        retry_conflicts(lambda: tables.replace_rows("end_curves", rows, of_cluster, transaction))


def fold_samples(curves: DataFrame, samples: DataFrame, *, since_ms: int, points: int) -> DataFrame:
    """Curves of at most `points` points since `since_ms`, from curves and later rows of `end_offsets`.

    Topics of another id are other topics. No id (null) is "" in the column `id` of the result.
    """
    from pyspark.sql import functions as f

    key = ["topic", "partition", "id"]
    point = f.struct(f.unix_millis("at").alias("at_ms"), f.col("end_offset").alias("end"))
    newer = samples.where("end_offset IS NOT NULL").withColumn("id", f.coalesce("topic_id", f.lit("")))
    newer = newer.groupBy(*key).agg(f.array_sort(f.collect_list(point)).alias("newer"))
    older = curves.select("topic", "partition", f.coalesce("topic_id", f.lit("")).alias("id"), "points")
    rows = older.join(newer, key, "full_outer")
    extend = partial(_extend_curves, since_ms=since_ms, points=points)
    return rows.mapInArrow(extend, _CURVE_DDL)


def _extend_curves(
    batches: Iterable[pa.RecordBatch], *, since_ms: int, points: int
) -> Iterator[pa.RecordBatch]:
    """Rows of curves. The points of a row are in the order of time."""
    for batch in batches:
        if not batch.num_rows:
            continue
        history = EndHistory(batch.num_rows, points=points, gap_ms=_NO_GAPS_MS)
        restore_points(history, read_points(batch.column("points")))

        # The samples, one time after the other, as the daemon gets them.
        newer = read_points(batch.column("newer"))
        order = np.argsort(newer.at_ms, kind="stable")
        times, first = np.unique(newer.at_ms[order], return_index=True)
        for time_ms, places in zip(times.tolist(), np.split(order, first[1:]), strict=True):
            history.add_samples(newer.row[places], newer.end[places], time_ms)
        yield _make_curves(batch, history, since_ms)


def _make_curves(batch: pa.RecordBatch, history: EndHistory, since_ms: int) -> pa.RecordBatch:
    """The rows of a batch that have points since `since_ms`, with these points."""
    saved = history.save(np.arange(batch.num_rows))
    assert saved is not None  # each row has a point or a sample
    count = saved.count.astype(np.int64)
    slot, row = np.nonzero(np.arange(int(count.max(initial=0)))[:, None] < count)
    at_ms = saved.epoch_ms + saved.ticks.astype(np.int64) * TICK_MS
    kept = np.flatnonzero(at_ms >= since_ms)
    kept = kept[np.lexsort((slot[kept], row[kept]))]
    count = np.bincount(row[kept], minlength=batch.num_rows)
    offsets = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
    items = pa.StructArray.from_arrays([at_ms[kept], saved.offsets[kept]], fields=list(_POINT))
    columns = [batch.column(name) for name in ("topic", "partition", "id")]
    lists = pa.ListArray.from_arrays(offsets, items)
    curves = pa.RecordBatch.from_arrays([*columns, lists], ["topic", "partition", "id", "points"])
    return curves.filter(pa.array(count > 0))


class Points(NamedTuple):
    """Points of several rows: how many each row has (N,); and of each point (P,) its row, its place among the
    points of the row, its time and its end offset. The points of a row are in the order of time."""

    counts: Ints
    row: Ints
    place: Ints
    at_ms: Ints
    end: Ints


def read_points(column: pa.Array) -> Points:
    """The points of a column of lists of (at_ms, end)."""
    counts, row, place, items = split_lists(column)
    at_ms, end = (items.field(name).to_numpy(zero_copy_only=False) for name in ("at_ms", "end"))
    return Points(counts, row, place, at_ms, end)


def restore_points(history: EndHistory, points: Points) -> None:
    """Gives an empty history the points of all its rows."""
    if not len(points.row):
        return
    # `Curves` has the first point of every row, then the second of every row, and so on.
    order = np.lexsort((points.row, points.place))
    epoch_ms = int(points.at_ms.min())
    ticks = (points.at_ms[order] - epoch_ms) // TICK_MS
    count, end = points.counts.astype(np.uint8), points.end[order]
    curves = Curves(epoch_ms, int(ticks.max()), count, end, ticks.astype(np.uint32))
    history.restore(np.arange(len(count)), curves)


def split_lists(column: pa.Array) -> tuple[Ints, Ints, Ints, Any]:
    """The length of each list of a column; of each item its row and its place in the list; the items."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    row = np.repeat(np.arange(len(lengths)), lengths)
    index = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return lengths, row, index, column.flatten()


def _select_samples(tables: Tables, cluster: str, after_ms: int, to_ms: int | None) -> DataFrame:
    """The rows of `end_offsets` after one time up to another. The conditions on `day` skip whole files."""
    from pyspark.sql import functions as f

    at_ms = f.unix_millis("at")
    rows = tables.cluster_frame("end_offsets", cluster)
    rows = rows.where((f.col("day") >= f.lit(_to_day(after_ms))) & (at_ms > after_ms))
    if to_ms is not None:
        rows = rows.where((f.col("day") <= f.lit(_to_day(to_ms))) & (at_ms <= to_ms))
    return rows


def _to_ms(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) // 1000  # as Spark's unix_millis: rounded down


def _to_day(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()

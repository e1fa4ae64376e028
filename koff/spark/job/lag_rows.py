"""Rows of lag from commits and samples of ends: joins by Spark, every rule by `koff.lag` over arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from koff.lag import (
    ENDS_SPAN_MS,
    UNKNOWN,
    Curves,
    EndHistory,
    Features,
    Reason,
    Status,
    consume_rates,
    lag_to_stable,
    lags,
    lost,
    produce_rates,
    readable,
    reasons,
    recreated,
    status,
    time_lag_s,
    window_features,
)
from koff.lag.end_history import TICK_MS
from koff.lag.window import WINDOW
from koff.spark.tables.schemas import TABLES
from koff.tracker.topic_partitions import fold_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Ints = NDArray[np.int64]
_MOST_POINTS = 255
RECENT_S = 900.0
"""For how long samples are looked at for the rates and the status."""
_STATUS = np.array([each.name for each in Status], object)
_REASONS = np.array([",".join(Reason(bits).names) for bits in range(256)], object)
POINTS = "ARRAY<STRUCT<at_ms: BIGINT, end: BIGINT>>"
_ARROW = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATE": pa.date32(),
}
_SCHEMA = pa.schema(
    [
        (name.strip("`"), _ARROW[kind])
        for name, kind in (column.split(" ") for column in TABLES["lag"].ddl.split(", "))
    ]
)
"""The table `lag`; workers have no Spark to ask."""
_KEPT = ("cluster", "at", "group", "type", "state", "topic", "partition", "client_id", "client_host", "batch")


def lag_rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Rows of the table `lag` from rows as `joined` makes them."""
    for batch in batches:
        if batch.num_rows:
            yield pa.RecordBatch.from_pydict(_lag_columns(batch), schema=_SCHEMA)


def _lag_columns(batch: pa.RecordBatch) -> dict[str, Any]:
    """One sample's rows of one cluster: they have one time."""
    ints = {name: _ints(batch, name) for name in ("committed", "start_offset", "end_offset", "stable_offset")}
    committed, start, end = ints["committed"], ints["start_offset"], ints["end_offset"]
    now_ms = int(_ints(batch, "at_ms")[0])
    committed_id, topic_id = _folded(batch, "committed_topic_id"), _folded(batch, "topic_id")
    gone = batch.column("gone").fill_null(False).to_numpy(zero_copy_only=False)
    old = recreated(committed_topic_id=committed_id, topic_id=topic_id)
    lag = lags(end=np.where(old, UNKNOWN, end), committed=committed)
    history, rows = _history(batch)
    features = _features(batch)
    verdicts = status(
        features,
        current_lag=lag.published,
        current_lag_known=lag.known,
        committed=committed,
        oldest_end=history.ends_at(rows, now_ms - ENDS_SPAN_MS),
        now_ms=now_ms,
    )
    why = reasons(
        end=end,
        committed=committed,
        start=start,
        topic_gone=gone,
        committed_topic_id=committed_id,
        topic_id=topic_id,
        end_sampled_at_ms=now_ms,
        commit_seen_at_ms=_ints(batch, "timestamp_ms"),
    )
    seconds = time_lag_s(history, rows, committed, now_ms, start=start)
    timed = seconds.known & ~seconds.at_least & lag.known
    consumed, produced = consume_rates(features, now_ms), produce_rates(history, rows)
    left = readable(end=end, committed=committed, start=start)
    missed, stable = lost(start=start, committed=committed), ints["stable_offset"]
    to_stable = lag_to_stable(stable=stable, committed=committed)
    return {name: batch.column(name) for name in (*_KEPT, "day")} | {
        **{
            name: _nullable(ints[name], ints[name] >= 0)
            for name in ("committed", "end_offset", "start_offset")
        },
        "lag": _nullable(lag.signed, lag.known),
        "readable": _nullable(left, lag.known & (left >= 0)),
        "lost": _nullable(missed, missed >= 0),
        "lag_to_stable": _nullable(to_stable, lag.known & (to_stable >= 0)),
        "time_lag_s": _nullable(seconds.seconds, timed),
        "status": pa.array(_STATUS[verdicts], pa.string()),
        "reasons": pa.array(_REASONS[why], pa.string()),
        "consume_per_s": _nullable(consumed.per_s, consumed.known),
        "produce_per_s": _nullable(produced.per_s, produced.known),
    }


def _features(batch: pa.RecordBatch) -> Features:
    """What the last commits say, as they stand in `current`."""
    size, count, place, values = _lists(batch.column("recent"))
    columns = {name: np.full((size, WINDOW), UNKNOWN, np.int64) for name in ("at_ms", "committed", "lag")}
    row, slot = place
    kept = slot < WINDOW
    at = (row[kept], WINDOW - 1 - slot[kept])  # the newest comes first, and stands last
    for name, column in columns.items():
        column[at] = values.field(name).fill_null(UNKNOWN).to_numpy(zero_copy_only=False)[kept]
    filled = np.minimum(count, WINDOW)
    return window_features(columns["committed"], columns["at_ms"], columns["lag"], filled)


def _history(batch: pa.RecordBatch) -> tuple[EndHistory, Ints]:
    """The ends of each row's partition as far as the row needs them, and the rows of that history."""
    size, count, (row, slot), values = _lists(batch.column("ends"))
    rows = np.arange(size)
    if not len(row):
        return EndHistory(size), rows
    at_ms, end = (values.field(name).to_numpy(zero_copy_only=False) for name in ("at_ms", "end"))
    first = np.maximum(count - _MOST_POINTS, 0)
    fell = np.flatnonzero((row[1:] == row[:-1]) & (end[1:] < end[:-1])) + 1
    np.maximum.at(first, row[fell], slot[fell])  # what was before an end went back says nothing
    kept = slot >= first[row]
    row, slot, at_ms, end = row[kept], (slot - first[row])[kept], at_ms[kept], end[kept]
    count = count - first
    history = EndHistory(size, points=max(int(count.max()), 8))
    order = np.lexsort((row, slot))
    epoch_ms = int(at_ms.min())
    ticks = (at_ms[order] - epoch_ms) // TICK_MS
    history.restore(
        rows,
        Curves(epoch_ms, int(ticks.max()), count.astype(np.uint8), end[order], ticks.astype(np.uint32)),
    )
    return history, rows


def _lists(column: pa.Array) -> tuple[int, Ints, tuple[Ints, Ints], Any]:
    """Of a column of lists: how many, how long each, row and slot of every item, and the items."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    row = np.repeat(np.arange(len(lengths)), lengths)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return len(lengths), lengths, (row, slot), column.flatten()


def _ints(batch: pa.RecordBatch, name: str) -> Ints:
    found: Ints = batch.column(name).fill_null(UNKNOWN).to_numpy(zero_copy_only=False)
    return found


def _folded(batch: pa.RecordBatch, name: str) -> Ints:
    return np.array([fold_text(each or "") for each in batch.column(name).to_pylist()], np.int64)


def _nullable(column: NDArray[Any], known: NDArray[np.bool_]) -> pa.Array:
    return pa.array(column, mask=~known)


def joined(
    sample: DataFrame, current: DataFrame, states: DataFrame, ends: DataFrame, *, reach_s: float
) -> DataFrame:
    """What `lag_rows` needs, a row for every slot of one cluster.

    `sample` are the rows of `end_offsets` of one batch, `ends` all of the cluster's up to it; commits behind
    records older than `reach_s` get no time lag.
    """
    from pyspark.sql import functions as f

    at = f.col("at")
    here = ["topic", "partition"]
    now = sample.agg(*(f.max(name).alias(name) for name in ("cluster", "at", "batch", "day")))
    slots = _slots(current, states, sample)
    rows = slots.crossJoin(f.broadcast(now)).join(sample.drop("at", "day", "batch", "cluster"), here, "left")
    rows = rows.withColumn("wanted", f.greatest("committed", f.coalesce("start_offset", f.lit(0))))
    known = ends.where(f.col("end_offset").isNotNull()).select(
        *here,
        f.col("topic_id").alias("of"),
        f.expr("unix_millis(at)").alias("at_ms"),
        f.col("end_offset").alias("end"),
    )
    newest = f.broadcast(now.select(f.expr("unix_millis(at)").alias("now_ms")))
    known = known.crossJoin(newest).where(
        f.col("at_ms").between(f.col("now_ms") - int(reach_s * 1000), f.col("now_ms"))
    )
    recent = known.where(f.col("at_ms") >= f.col("now_ms") - int(RECENT_S * 1000))
    same = f.col("of").eqNullSafe(f.col("topic_id"))
    points = recent.join(sample.select(*here, "topic_id"), here).where(same)
    points = points.groupBy(*here).agg(f.array_sort(f.collect_list(f.struct("at_ms", "end"))).alias("lately"))
    behind = rows.where(f.col("end_offset") > f.col("wanted")).select(*here, "topic_id", "wanted").distinct()
    passed = behind.join(known, here).where(same)
    below = f.when(f.col("end") <= f.col("wanted"), f.struct("at_ms", "end"))
    above = f.when(f.col("end") > f.col("wanted"), f.struct("at_ms", "end"))
    brackets = passed.groupBy(*here, "wanted").agg(f.max(below).alias("below"), f.min(above).alias("above"))
    rows = rows.join(points, here, "left").join(brackets, [*here, "wanted"], "left")
    return _arranged(rows.withColumn("at_ms", f.unix_millis(at)).withColumn("ends", f.expr(_ENDS)))


_ENDS = (
    "concat(filter(array(below, above), p -> below.at_ms < above.at_ms AND p IS NOT NULL"
    " AND (lately IS NULL OR p.at_ms < lately[0].at_ms)), coalesce(lately, array()))"
)
"""The ends around the arrival of the oldest record that was not committed, then those of late."""


def _slots(current: DataFrame, states: DataFrame, sample: DataFrame) -> DataFrame:
    """Every (group, topic, partition) that is committed or assigned, and what is known of it."""
    from pyspark.sql import functions as f

    commits = current.where(~f.col("deleted")).select(
        "group",
        "topic",
        "partition",
        "committed",
        f.col("topic_id").alias("committed_topic_id"),
        f.unix_millis("timestamp").alias("timestamp_ms"),
        "recent",
    )
    assigned = _assigned(states, sample)
    slots = commits.join(assigned, ["group", "topic", "partition"], "full_outer")
    told = states.where(f.col("type").isNotNull()).select("group", "type", "state")
    return slots.join(told, "group", "left").fillna({"type": "simple", "state": "Empty"})


def _assigned(states: DataFrame, sample: DataFrame) -> DataFrame:
    """Which client has what: of several the last, as the tracker has it. Topics go by the names that they
    have now: when the assignment was written, that of a new one may not have been known."""
    from pyspark.sql import functions as f

    names = sample.where("topic_id IS NOT NULL").select(f.col("topic").alias("name"), "topic_id").distinct()
    each = states.select("group", f.posexplode("assigned").alias("place", "a"))
    same = f.col("topic") == f.col("topic_id")
    each = each.select("group", "place", "a.*").join(f.broadcast(names), same, "left")
    each = each.withColumn("topic", f.coalesce("name", "topic"))
    last = f.max_by(f.struct("client_id", "client_host"), "place").alias("member")
    slots = each.groupBy("group", "topic", "partition").agg(last)
    return slots.select("group", "topic", "partition", "member.*")


def _arranged(rows: DataFrame) -> DataFrame:
    inputs = ("committed_topic_id", "topic_id", "timestamp_ms", "recent", "ends", "at_ms", "gone")
    offsets = ("committed", "start_offset", "end_offset", "stable_offset")
    return rows.select(*_KEPT, "day", *offsets, *inputs)

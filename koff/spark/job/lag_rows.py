"""Rows of lag from commits and samples of end offsets: Spark joins them, and `koff.lag` has every rule.

A slot is a (group, topic, partition).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from koff.lag import (
    UNKNOWN,
    EndHistory,
    Features,
    Reason,
    TimeLags,
    consume_rates,
    is_topic_recreated,
    lag_to_stable,
    lags,
    lost,
    produce_rates,
    readable,
    reasons,
    time_lag_s,
    window_features,
)
from koff.lag.one_look import judge_rows
from koff.lag.verdict import Verdict
from koff.lag.window import WINDOW
from koff.spark.job.end_curves import RECENT_S, Points, read_points, restore_points, split_lists
from koff.spark.tables.schemas import TABLES
from koff.tracker.topic_ids import fold_topic_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Ints = NDArray[np.int64]
_MOST_POINTS = 255  # of one partition: `Curves` counts points in 8 bits
_VERDICTS = np.array([verdict.name for verdict in Verdict], object)
_REASONS = pa.array([Reason(bits).names for bits in range(256)], pa.list_(pa.string()))
_COLUMNS = [column.split(" ")[0].strip("`") for column in TABLES["lag"].ddl.split(", ")]
_KEPT = ("cluster", "at", "group", "type", "state", "topic", "partition", "client_id", "client_host", "batch")


def lag_rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Rows of the table `lag`, from rows of `join_lag_inputs`. For `DataFrame.mapInArrow`."""
    for batch in batches:
        if batch.num_rows:
            yield pa.RecordBatch.from_pydict(_lag_columns(batch)).select(_COLUMNS)


def _lag_columns(batch: pa.RecordBatch) -> dict[str, Any]:
    """The columns of `lag` for rows of one sample of one cluster, which all have the same time."""
    # Arrays of the inputs, with UNKNOWN for null.
    ints = {
        name: _read_ints(batch, name)
        for name in ("committed", "start_offset", "end_offset", "stable_offset", "share_lag")
    }
    committed, start, end = ints["committed"], ints["start_offset"], ints["end_offset"]
    now_ms = int(_read_ints(batch, "at_ms")[0])
    committed_id, topic_id = _fold_ids(batch, "committed_topic_id"), _fold_ids(batch, "topic_id")
    gone, not_current = (_read_flags(batch, name) for name in ("gone", "not_current"))

    # Lag and reasons. A commit to a deleted topic of the same name says nothing about the new topic.
    recreated = is_topic_recreated(committed_topic_id=committed_id, topic_id=topic_id)
    has_no_end = gone | (end < 0)
    lag = lags(end=end, committed=committed, hidden=recreated, returned=ints["share_lag"], gone=has_no_end)
    # A coordinator returned the lag of a share group, and not the offset that it is computed from.
    has_lag_only = lag.known & (committed < 0)
    judged = np.where(has_lag_only, 0, committed)
    history, rows = _read_end_history(batch)
    features, moved_ms = _read_features(batch)
    why = reasons(
        end=end,
        committed=judged,
        start=np.where(has_lag_only, UNKNOWN, start),
        topic_gone=gone,
        committed_topic_id=committed_id,
        topic_id=topic_id,
        end_sampled_at_ms=now_ms,
        commit_seen_at_ms=_read_ints(batch, "timestamp_ms"),
        withheld=np.where(not_current & ~gone, np.uint8(Reason.COMMITS_NOT_CURRENT), np.uint8(0)),
    )

    # Time lag, rates and the other counts. A time lag that is only a lower bound is not written.
    seconds = time_lag_s(history, rows, committed, now_ms, start=start)
    timed = seconds.known & ~seconds.at_least & lag.known
    consumed, produced = consume_rates(features, now_ms), produce_rates(history, rows)
    # A lag of 0 is no time, also if only the coordinator of a share group knows it.
    nothing = lag.known & (lag.signed <= 0)
    late = TimeLags(np.where(nothing, 0, seconds.seconds), seconds.known | nothing, seconds.at_least)
    verdicts = judge_rows(
        at_s=now_ms / 1000,
        counts=lag.known & ~not_current,
        committed=judged,
        start=start,
        end=end,
        times=late,
        moved_at_s=np.where(moved_ms < 0, np.nan, moved_ms / 1000),
        consume=consumed,
        produce=produced,
        is_empty=_is_empty(batch),
    )
    left = readable(end=end, committed=committed, start=start)
    missed, stable = lost(start=start, committed=committed), ints["stable_offset"]
    to_stable = lag_to_stable(stable=stable, committed=committed)

    # Null where a value is unknown.
    return {name: batch.column(name) for name in (*_KEPT, "day")} | {
        **{
            name: _hide_unknown(ints[name], ints[name] >= 0)
            for name in ("committed", "end_offset", "start_offset")
        },
        "lag": _hide_unknown(lag.signed, lag.known),
        "readable": _hide_unknown(left, lag.known & (left >= 0)),
        "lost": _hide_unknown(missed, missed >= 0),
        "lag_to_stable": _hide_unknown(to_stable, lag.known & (to_stable >= 0)),
        "time_lag_s": _hide_unknown(seconds.seconds, timed),
        "status": pa.array(_VERDICTS[verdicts], pa.string()),
        "reasons": _REASONS.take(pa.array(why)),
        "consume_per_s": _hide_unknown(consumed.per_s, consumed.known),
        "produce_per_s": _hide_unknown(produced.per_s, produced.known),
        "full_at": batch.column("at"),  # as in a full sample
        "ended": np.zeros(batch.num_rows, np.bool_),
    }


def _is_empty(batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """Whether the group of each row has lost its members. A simple group never has any."""
    is_empty = pc.and_(pc.equal(batch.column("state"), "Empty"), pc.not_equal(batch.column("type"), "simple"))
    flags: NDArray[np.bool_] = is_empty.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


def _read_features(batch: pa.RecordBatch) -> tuple[Features, Ints]:
    """The features of each slot's last commits, from the column `recent` of the table `current`; and when the
    first of the commits was made that have the newest offset, UNKNOWN without one.
    """
    count, row, index, commits = split_lists(batch.column("recent"))
    columns = {
        name: np.full((len(count), WINDOW), UNKNOWN, np.int64) for name in ("at_ms", "committed", "lag")
    }
    kept = index < WINDOW
    # `recent` has the newest commit first; `window_features` wants it last.
    at = (row[kept], WINDOW - 1 - index[kept])
    for name, column in columns.items():
        column[at] = commits.field(name).fill_null(UNKNOWN).to_numpy(zero_copy_only=False)[kept]
    filled = np.minimum(count, WINDOW)
    is_newest = columns["committed"] == columns["committed"][:, -1:]
    equal = np.logical_and.accumulate(is_newest[:, ::-1], axis=1).sum(axis=1)
    moved_ms = columns["at_ms"][np.arange(len(count)), WINDOW - np.minimum(equal, np.maximum(filled, 1))]
    return window_features(columns["committed"], columns["at_ms"], columns["lag"], filled), moved_ms


def _read_end_history(batch: pa.RecordBatch) -> tuple[EndHistory, Ints]:
    """A history of the sampled end offsets of each row's partition, and the number of each row in it."""
    count, row, index, at_ms, end = read_points(batch.column("ends"))
    rows = np.arange(len(count))

    # Keep the newest points of each row, from the last end that is below the one before it: the log was
    # truncated there, and older points say nothing about the new records.
    first = np.maximum(count - _MOST_POINTS, 0)
    fell = np.flatnonzero((row[1:] == row[:-1]) & (end[1:] < end[:-1])) + 1
    np.maximum.at(first, row[fell], index[fell])  # `.at`: a row may occur several times in `fell`
    kept = index >= first[row]
    points = Points(count - first, row[kept], (index - first[row])[kept], at_ms[kept], end[kept])

    history = EndHistory(len(rows), points=max(int(points.counts.max(initial=0)), 8))
    restore_points(history, points)
    return history, rows


def _read_ints(batch: pa.RecordBatch, name: str) -> Ints:
    column: Ints = batch.column(name).fill_null(UNKNOWN).to_numpy(zero_copy_only=False)
    return column


def _read_flags(batch: pa.RecordBatch, name: str) -> NDArray[np.bool_]:
    column: NDArray[np.bool_] = batch.column(name).fill_null(False).to_numpy(zero_copy_only=False)
    return column


def _fold_ids(batch: pa.RecordBatch, name: str) -> Ints:
    """Topic ids as numbers, which the rules of `koff.lag` compare."""
    return np.array([fold_topic_id(topic_id or "") for topic_id in batch.column(name).to_pylist()], np.int64)


def _hide_unknown(column: NDArray[Any], known: NDArray[np.bool_]) -> pa.Array:
    return pa.array(column, mask=~known)


def join_lag_inputs(
    sample: DataFrame,
    current: DataFrame,
    states: DataFrame,
    ends: DataFrame,
    curves: DataFrame | None = None,
    *,
    reach_s: float,
    shares: DataFrame | None = None,
) -> DataFrame:
    """The inputs of `lag_rows`: one row for each slot of one cluster.

    `sample` has the rows of `end_offsets` of one batch; `current` and `states` have the cluster's rows of
    `current` and `group_states`. The end offsets before come from `curves`, the cluster's rows of
    `end_curves`, and `ends`: all rows of `end_offsets` after the time of the curves, and all of the last
    `RECENT_S`. Without `curves`, `ends` has all rows. Samples older than `reach_s` are left out: if the
    oldest uncommitted record arrived before, there is no time lag. `shares` is what `ShareLags.to_frame`
    returns.
    """
    from pyspark.sql import functions as f

    at = f.col("at")
    here = ["topic", "partition"]

    # All slots with the offsets of their partition in this sample. `oldest_offset` is the offset of the
    # oldest record that is in the log and not committed.
    now = sample.agg(*(f.max(name).alias(name) for name in ("cluster", "at", "batch", "day")))
    slots = _join_slots(current, states, sample, shares)
    rows = slots.crossJoin(f.broadcast(now)).join(sample.drop("at", "day", "batch", "cluster"), here, "left")
    rows = rows.withColumn("committed", f.expr(_COMMITTED))
    rows = rows.withColumn("oldest_offset", f.greatest("committed", f.coalesce("start_offset", f.lit(0))))

    # The known end offsets of each partition, in the order of time. Samples of another topic id do not count:
    # the topic was deleted and created again since.
    known = ends.where(f.col("end_offset").isNotNull()).select(
        *here,
        f.col("topic_id").alias("end_topic_id"),
        f.struct(f.unix_millis(at).alias("at_ms"), f.col("end_offset").alias("end")).alias("point"),
    )
    topics = sample.select(*here, "topic_id")
    same = f.col("end_topic_id").eqNullSafe(f.col("topic_id"))
    in_order = f.array_sort(f.collect_list("point")).alias("points")
    points = known.join(topics, here).where(same).groupBy(*here).agg(in_order)
    history = "points"
    if curves is not None:
        curves = curves.withColumnsRenamed({"topic_id": "end_topic_id", "points": "older"})
        curves = curves.join(topics, here).where(same).select(*here, "older", "until")
        points, history = points.join(curves, here, "full_outer"), _CURVE_AND_POINTS
    newest = f.broadcast(now.select(f.unix_millis(at).alias("now_ms")))
    since = "p -> p.at_ms BETWEEN now_ms - {} AND now_ms"
    points = points.crossJoin(newest).select(
        *here,
        f.expr(f"filter(points, {since.format(int(RECENT_S * 1000))})").alias("recent_ends"),
        f.expr(f"filter({history}, {since.format(int(reach_s * 1000))})").alias("history"),
    )
    points = points.withColumn("history", f.expr(_SINCE_FALL))

    # The two samples between which the record at `oldest_offset` arrived: the last sample with an end offset
    # at or below it, and the next one.
    behind = rows.where(f.col("end_offset") > f.col("oldest_offset"))
    behind = behind.select(*here, "oldest_offset").distinct()
    brackets = behind.join(points.select(*here, "history"), here)
    brackets = brackets.withColumn(
        "below", f.expr("array_max(filter(history, p -> p.end <= oldest_offset))")
    ).withColumn("above", f.expr("array_min(filter(history, p -> p.at_ms > below.at_ms))"))
    brackets = brackets.select(*here, "oldest_offset", "below", "above")

    rows = rows.join(points.select(*here, "recent_ends"), here, "left")
    rows = rows.join(brackets, [*here, "oldest_offset"], "left")
    return _select_inputs(rows.withColumn("at_ms", f.unix_millis(at)).withColumn("ends", f.expr(_ENDS)))


_COMMITTED = (
    "coalesce(committed,"
    " CASE WHEN share_end = end_offset AND share_lag <= end_offset THEN end_offset - share_lag END)"
)
"""Of a share group: known if the end offset was the same before and after its coordinator returned a lag."""
_CURVE_AND_POINTS = (
    "concat(coalesce(older, array()),"
    " coalesce(filter(points, p -> until IS NULL OR p.at_ms > unix_millis(until)), array()))"
)
"""The points of a curve, then the samples after it."""
_SINCE_FALL = (
    "slice(history, 1 + coalesce(array_max(filter(sequence(1, greatest(size(history) - 1, 1)), "
    "i -> get(history, i).end < get(history, i - 1).end)), 0), size(history))"
)
"""The points since the log was truncated last: the end offset fell."""
_ENDS = (
    "concat(filter(array(below, above), p -> above IS NOT NULL AND p IS NOT NULL"
    " AND (recent_ends IS NULL OR size(recent_ends) = 0"
    " OR p.at_ms < get(recent_ends, 0).at_ms)),"
    " coalesce(recent_ends, array()))"
)
"""The two end offsets around the arrival of the oldest uncommitted record, then the recent end offsets."""


def _join_slots(
    current: DataFrame, states: DataFrame, sample: DataFrame, shares: DataFrame | None
) -> DataFrame:
    """Every slot that is committed to or assigned, with its commit, member, and its group's type and state.

    A group without records of its own is a simple group: it commits without members. In place of its commits,
    a share group has the rows of `shares`. It has commits if a group of another type had the name before.
    """
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
    if shares is not None:
        sharing = states.where("type = 'share'").select("group")
        commits = commits.join(f.broadcast(sharing), "group", "left_anti")
        commits = commits.unionByName(shares, allowMissingColumns=True)
    else:
        nothing = {"share_lag": "bigint", "share_end": "bigint", "not_current": "boolean"}
        commits = commits.withColumns({name: f.lit(None).cast(kind) for name, kind in nothing.items()})
    owners = _find_owners(states, sample)
    slots = commits.join(owners, ["group", "topic", "partition"], "full_outer")
    groups = states.where(f.col("type").isNotNull()).select("group", "type", "state")
    return slots.join(groups, "group", "left").fillna({"type": "simple", "state": "Empty"})


def _find_owners(states: DataFrame, sample: DataFrame) -> DataFrame:
    """The client that has each assigned slot. If several clients have it: the last, as in the tracker.

    An assignment may name a new topic by its id: the name comes from the sample.
    """
    from pyspark.sql import functions as f

    names = sample.where("topic_id IS NOT NULL").select(f.col("topic").alias("name"), "topic_id").distinct()
    assigned = states.select("group", f.posexplode("assigned").alias("place", "a"))
    same = f.col("topic") == f.col("topic_id")
    assigned = assigned.select("group", "place", "a.*").join(f.broadcast(names), same, "left")
    assigned = assigned.withColumn("topic", f.coalesce("name", "topic"))
    last = f.max_by(f.struct("client_id", "client_host"), "place").alias("member")
    slots = assigned.groupBy("group", "topic", "partition").agg(last)
    return slots.select("group", "topic", "partition", "member.*")


def _select_inputs(rows: DataFrame) -> DataFrame:
    """Only the columns that `lag_rows` reads."""
    inputs = ("committed_topic_id", "topic_id", "timestamp_ms", "recent", "ends", "at_ms", "gone")
    offsets = ("committed", "start_offset", "end_offset", "stable_offset", "share_lag", "not_current")
    return rows.select(*_KEPT, "day", *offsets, *inputs)

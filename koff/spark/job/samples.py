"""Writes one sample of end offsets of a cluster, and the rows of lag that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from koff.spark.job.batch_writer import BatchWriter
from koff.spark.job.end_curves import EndCurves
from koff.spark.job.end_offsets import Sample
from koff.spark.job.lag_changes import FullSamples, select_changed
from koff.spark.job.lag_rows import join_lag_inputs, lag_rows
from koff.spark.job.share_lags import ShareLags
from koff.spark.spark_session import persist_frame
from koff.spark.tables.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


TakeSample = Callable[["DataFrame", "DataFrame"], list[Sample] | None]
"""Returns a sample, given the cluster's rows of `current` and of `group_states`."""


def write_sample_and_lag(
    writer: BatchWriter,
    take_sample: TakeSample,
    batch: int | None,
    curves: EndCurves,
    full: FullSamples,
    *,
    reach_s: float,
    shares: ShareLags | None = None,
    small: bool = False,
) -> int | None:
    """Writes a sample, and then the lag.

    The rows of the sample have one time. `curves` are those of the cluster, and `full` knows its last full
    sample. `shares` are those of the sample's time. Returns the number of sampled partitions; None if
    `take_sample` returns None.
    """
    from pyspark.sql import functions as f

    tables, cluster = writer.tables, writer.cluster
    current, states = (tables.cluster_frame(name, cluster) for name in ("current", "group_states"))
    with ExitStack() as persisted:

        def persist_small(frame: DataFrame) -> DataFrame:
            # Spark reads a frame again wherever a query names it. If it is small, most of the time goes into
            # finding its files.
            if small:
                persisted.enter_context(persist_frame(frame))
            return frame

        persist_small(current)
        persist_small(states)

        rows = take_sample(current, states)
        if not rows:
            return None if rows is None else 0
        writer.write_sample(rows, batch)
        now = rows[0].at

        ends, older = curves.read(tables, now)
        at_now = (f.col("at") == f.lit(now)) & (f.col("day") == f.lit(now.date()))
        sample = persist_small(ends.where(at_now))
        of_shares = shares.to_frame(tables.spark) if shares is not None else None
        frame = join_lag_inputs(sample, current, states, ends, older, reach_s=reach_s, shares=of_shares)
        frame = frame.mapInArrow(lag_rows, TABLES["lag"].ddl)
        full_at = now if full.is_due(now) else full.newest or now
        writer.write_lag(frame if full_at == now else select_changed(tables, cluster, frame, now, full_at))
    # Last: a sample is in `samples` when all of its rows are written.
    writer.note_sample(now, full_at, batch, len(rows))
    full.newest = full_at
    curves.note_sample(now)
    return len(rows)

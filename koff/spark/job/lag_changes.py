"""Which rows of lag a sample writes: all rows in a full sample, and otherwise those that have changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from koff.spark.tables.held_rows import SLOT
from koff.spark.tables.schemas import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMPARED = (
    *("type", "state", "committed", "end_offset", "start_offset", "lag", "readable", "lost", "lag_to_stable"),
    *("status", "reasons", "client_id", "client_host"),
)
"""A slot has changed if one of these is different."""
_TIMES_DIFFER = "abs(n.time_lag_s - o.time_lag_s - IF(o.time_lag_s > 0, {elapsed_s}, 0)) > 0.2"
_ELAPSED_S = "(unix_millis(n.at) - unix_millis(o.at)) / 1000"
_RATES_DIFFER = "abs(n.{rate} - o.{rate}) > 0.1 * greatest(abs(n.{rate}), abs(o.{rate}))"
_CHANGED = " OR ".join(
    [
        *(f"NOT n.`{name}` <=> o.`{name}`" for name in _COMPARED),
        *(
            f"(n.{name} IS NULL) <> (o.{name} IS NULL)"
            for name in ("time_lag_s", "consume_per_s", "produce_per_s")
        ),
        f"coalesce({_TIMES_DIFFER.format(elapsed_s=_ELAPSED_S)}, false)",
        *(
            f"coalesce({_RATES_DIFFER.format(rate=rate)}, false)"
            for rate in ("consume_per_s", "produce_per_s")
        ),
    ]
)
"""SQL for new rows `n` and the slot's newest rows before, `o`. A time lag that grows with time has not
changed. A rate has changed if it differs by a tenth."""


@dataclass(slots=True)
class FullSamples:
    """When the last full sample of a cluster was. The first sample of a process is full.

    `every_s` is the longest time from one full sample to the next; with 0, each sample is full. The first
    sample of each day (UTC) is full, too: rows expire by day, and so no row of a day depends on another day.
    """

    every_s: float
    newest: datetime | None = None

    def is_due(self, at: datetime) -> bool:
        """Whether a sample at this time is a full one: also if the clock was set back."""
        if self.newest is None or at.astimezone(UTC).date() != self.newest.astimezone(UTC).date():
            return True
        return not 0 <= (at - self.newest).total_seconds() < self.every_s


def select_changed(
    tables: Tables, cluster: str, rows: DataFrame, at: datetime, full_at: datetime
) -> DataFrame:
    """The rows of a sample at `at` that the table needs, after the full sample at `full_at`.

    `rows` has a row for each slot. A slot that has none any more gets a row with `ended`.
    """
    from pyspark.sql import functions as f

    before = tables.cluster_frame("lag", cluster).where(
        (f.col("day") >= f.lit(full_at.date()))
        & (f.col("full_at") == f.lit(full_at))
        & (f.col("at") < f.lit(at))
    )
    columns = [f.col(name) for name in before.columns]
    newest = before.groupBy(*SLOT).agg(f.max_by(f.struct(*columns), "at").alias("row"))
    newest = newest.select("row.*").where("NOT ended").alias("o")
    both = (
        rows.withColumn("full_at", f.lit(full_at))
        .alias("n")
        .join(newest, f.expr(" AND ".join(f"n.`{name}` = o.`{name}`" for name in SLOT)), "full_outer")
    )
    needed = both.where(f"n.`group` IS NULL OR o.`group` IS NULL OR {_CHANGED}")

    # A row with `ended` has the names of the slot, and no values.
    is_end = f.expr("n.`group` IS NULL")
    values = {name: f.col(f"n.`{name}`") for name in before.columns}
    values |= {name: f.coalesce(f.col(f"n.`{name}`"), f.col(f"o.`{name}`")) for name in ("cluster", *SLOT)}
    fixed = {"at": f.lit(at), "full_at": f.lit(full_at), "day": f.lit(at.date()), "ended": is_end}
    return needed.select(*((values | fixed)[name].alias(name) for name in before.columns))

"""koff's tables, limited to the groups and the period of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from koff.errors import ConfigError, KoffError
from koff.spark.report.period import HOUR_MS, Period, to_datetime
from koff.spark.tables.held_rows import hold_rows
from koff.spark.tables.hours import compute_hours
from koff.spark.worker_errors import summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DAY_MS = 86_400_000
Row = dict[str, Any]
Rows = list[Row]
"""A small table, from which a picture is drawn. Times are milliseconds, in columns that end in `_ms`."""


@dataclass(frozen=True, slots=True)
class History:
    """The tables below `folder`, limited to `period` and to `groups` (a regular expression; None: all).

    Raises ConfigError if `groups` is not a regular expression of both Python and Java.
    """

    spark: SparkSession
    folder: str
    period: Period
    groups: str | None = None

    def __post_init__(self) -> None:
        from pyspark.errors import IllegalArgumentException

        # Spark matches with Java's regular expressions. docs/pipeline.md promises that Python accepts --group
        # too.
        jvm: Any = self.spark.sparkContext._jvm
        try:
            re.compile(self.groups or "")
            jvm.java.util.regex.Pattern.compile(self.groups or "")
        except re.error as error:
            raise ConfigError(f"--group {self.groups!r} is not a regular expression: {error}") from error
        except IllegalArgumentException as error:
            raise ConfigError(
                f"--group {self.groups!r} is not a regular expression of Java, which Spark matches with: "
                f"{summarize_error(error)}"
            ) from error

    def read_table(self, table: str) -> DataFrame:
        """All rows of the groups, of any time. Raises KoffError if there is no such table."""
        rows = self._load_table(table)
        if self.groups is not None and "group" in rows.columns:
            rows = rows.where(rows["group"].rlike(self.groups))
        return rows

    def _load_table(self, table: str) -> DataFrame:
        from pyspark.errors import AnalysisException

        path = f"{self.folder.rstrip('/')}/{table}"
        try:
            return self.spark.read.format("delta").load(path)
        except AnalysisException as error:
            raise KoffError(
                f"no table {table!r} in {self.folder}: give a folder that `koff pipeline run --tables` fills"
            ) from error

    def read_until_end(self, table: str, *, time: str = "timestamp") -> DataFrame:
        """The rows before the period's end, with their time as `at_ms` and its step's begin as `step_ms`."""
        from pyspark.sql import functions as f

        rows = self.read_table(table).withColumn("at_ms", f.unix_millis(time))
        # `day` is a partition column: with it, Delta reads only the files of these days.
        rows = rows.where(f.col("day") <= f.lit(self.period.until_day))
        return self._add_steps(rows.where(f.col("at_ms") < self.period.until_ms))

    def read_period(self, table: str, *, time: str = "at") -> DataFrame:
        """The rows of the period, as `read_until_end` gives them."""
        from pyspark.sql import functions as f

        rows = self.read_until_end(table, time=time).where(f.col("day") >= f.lit(self.period.since_day))
        return rows.where(f.col("at_ms") >= self.period.since_ms)

    def _add_steps(self, rows: DataFrame, *, time: str = "at_ms") -> DataFrame:
        """The rows, with the begin of the step of a time in milliseconds as `step_ms`."""
        from pyspark.sql import functions as f

        return rows.withColumn("step_ms", f.expr(f"{time} - pmod({time}, {self.period.step_ms}L)"))

    def read_lag(self) -> DataFrame:
        """The rows of `lag` in the period, one for each slot and sample, as `read_period` gives rows.

        Of a period with `hourly` steps it has only the last day: `read_hours` has the period.
        """
        from pyspark.sql import functions as f

        period = self.period
        if period.hourly:
            period = Period(max(period.since_ms, period.until_ms - _DAY_MS), period.until_ms)
        # A row may hold for hours: rows of the day before the period say what was so at its begin.
        first = f.date_sub(f.lit(period.since_day), 1)
        lag, samples = (
            self.read_table(name).where(f.col("day").between(first, f.lit(period.until_day)))
            for name in ("lag", "samples")
        )
        held = hold_rows(lag, samples).withColumn("at_ms", f.unix_millis("at"))
        return self._add_steps(held.where(f.col("at_ms").between(period.since_ms, period.until_ms - 1)))

    def read_hours(self) -> DataFrame:
        """The rows of groups in `lag_hourly` in the period, with the begin of their step as `step_ms`.

        Hours that the table does not have, or that are only in part in the period, are computed from `lag`.
        """
        from pyspark.sql import functions as f

        period = self.period
        hour_ms = f.unix_millis(f.date_trunc("HOUR", "at"))
        lag, samples = self.read_table("lag"), self.read_table("samples")
        days = f.col("day").between(f.lit(period.since_day), f.lit(period.until_day))
        within = f.unix_millis("at").between(period.since_ms, period.until_ms - 1)
        whole = f.unix_millis("hour").between(period.since_ms, period.until_ms - HOUR_MS)

        # The hours that have samples, and those of them that are written.
        times = samples.where(days & within).select("cluster", hour_ms.alias("hour_ms"))
        sampled = {tuple(row) for row in times.distinct().collect()}
        written = self._load_table("lag_hourly").where(days & whole)
        known = {
            tuple(row) for row in written.selectExpr("cluster", "unix_millis(hour)").distinct().collect()
        }

        hours = self.read_table("lag_hourly").where(days & whole & f.col("topic").isNull()).drop("day")
        for cluster, begin_ms, end_ms in _find_runs(sampled - known):
            earlier = [hour for of, hour in sampled if of == cluster and hour < begin_ms]
            since, begin, end = map(to_datetime, (max(earlier, default=begin_ms), begin_ms, end_ms))
            mine = f.col("cluster") == cluster
            rows = compute_hours(lag.where(mine), samples.where(within & mine), since, begin, end)
            hours = hours.union(rows.where(f.col("topic").isNull()).select(*hours.columns))
        return self._add_steps(hours.withColumn("hour_ms", f.unix_millis("hour")), time="hour_ms")

    def run_sql(self, query: str, args: Mapping[str, Any] | None = None, /, **frames: DataFrame) -> DataFrame:
        """The result of a Spark SQL query. The query names `frames` in braces, and `args` after a colon."""
        return self.spark.sql(query, dict(args or {}), **frames)


def _find_runs(hours: set[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Hours as runs without a gap: cluster, begin of the first hour and end of the last one."""
    runs: list[tuple[str, int, int]] = []
    for cluster, hour_ms in sorted(hours):
        if runs and runs[-1][0] == cluster and runs[-1][2] == hour_ms:
            runs[-1] = (cluster, runs[-1][1], hour_ms + HOUR_MS)
        else:
            runs.append((cluster, hour_ms, hour_ms + HOUR_MS))
    return runs


def collect_rows(frame: DataFrame) -> Rows:
    """The rows of a frame, as dictionaries on the driver. Only for a frame that is known to be small."""
    return [row.asDict() for row in frame.collect()]


def select_top(frame: DataFrame, column: str, size: int) -> DataFrame:
    """The `size` groups with the largest values of `column` above 0. The order is the same each time."""
    from pyspark.sql import functions as f

    return frame.where(f.col(column) > 0).orderBy(f.desc(column), "cluster", "group").limit(size)

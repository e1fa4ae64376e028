"""koff's tables, limited to the groups and the period of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from koff.errors import ConfigError, KoffError
from koff.spark.report.period import Period, to_datetime
from koff.spark.tables.hours import HOUR, begin_hour, compute_hours
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
        """The rows of `lag` in the period, as `read_period` gives rows.

        Of a period with `hourly` steps it has only the last day: `read_hours` has the period.
        """
        from pyspark.sql import functions as f

        rows = self.read_period("lag")
        return rows.where(f.col("at_ms") >= self.period.until_ms - _DAY_MS) if self.period.hourly else rows

    def read_hours(self) -> DataFrame:
        """The rows of groups in `lag_hourly` in the period, with the begin of their step as `step_ms`.

        Hours that the table does not have yet are computed from `lag`. The first and the last hour count
        whole.
        """
        from pyspark.sql import functions as f

        period = self.period
        days = f.col("day").between(f.lit(period.since_day), f.lit(period.until_day))
        since = begin_hour(to_datetime(period.since_ms))
        within = (f.col("hour") >= f.lit(since)) & (f.unix_millis("hour") < period.until_ms)
        written = self.read_table("lag_hourly").where(days & within & f.col("topic").isNull())
        newest = (
            self._load_table("lag_hourly")
            .where(days & within)
            .groupBy("cluster")
            .agg(f.max("hour").alias("hour"))
        )
        lag = self.read_table("lag").where(days & (f.unix_millis("at") < period.until_ms))
        sampled = lag.join(newest, "cluster", "left").where("hour IS NULL OR at >= hour + INTERVAL 1 HOUR")
        hour_ms = f.unix_millis(f.date_trunc("HOUR", "at"))
        begins = sampled.where(f.col("at") >= f.lit(since)).groupBy("cluster")

        hours = written.drop("day", "number")
        for cluster, begin_ms, end_ms in begins.agg(f.min(hour_ms), f.max(hour_ms)).collect():
            begin, end = to_datetime(begin_ms), to_datetime(end_ms) + HOUR
            rows = compute_hours(lag.where(f.col("cluster") == cluster), begin, end)
            hours = hours.union(rows.where(f.col("topic").isNull()).select(*hours.columns))
        return self._add_steps(hours.withColumn("hour_ms", f.unix_millis("hour")), time="hour_ms")

    def run_sql(self, query: str, args: Mapping[str, Any] | None = None, /, **frames: DataFrame) -> DataFrame:
        """The result of a Spark SQL query. The query names `frames` in braces, and `args` after a colon."""
        return self.spark.sql(query, dict(args or {}), **frames)


def collect_rows(frame: DataFrame) -> Rows:
    """The rows of a frame, as dictionaries on the driver. Only for a frame that is known to be small."""
    return [row.asDict() for row in frame.collect()]


def select_top(frame: DataFrame, column: str, size: int) -> DataFrame:
    """The `size` groups with the largest values of `column` above 0. The order is the same each time."""
    from pyspark.sql import functions as f

    return frame.where(f.col(column) > 0).orderBy(f.desc(column), "cluster", "group").limit(size)

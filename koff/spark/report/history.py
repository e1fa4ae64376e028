"""koff's tables, limited to the groups and the period of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from koff.errors import ConfigError, KoffError
from koff.spark.report.period import Period
from koff.spark.worker_errors import summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        from pyspark.errors import AnalysisException

        path = f"{self.folder.rstrip('/')}/{table}"
        try:
            rows = self.spark.read.format("delta").load(path)
        except AnalysisException as error:
            raise KoffError(
                f"no table {table!r} in {self.folder}: give a folder that `koff pipeline run --tables` fills"
            ) from error
        if self.groups is not None and "group" in rows.columns:
            rows = rows.where(rows["group"].rlike(self.groups))
        return rows

    def read_until_end(self, table: str, *, time: str = "timestamp") -> DataFrame:
        """The rows before the period's end, with their time as `at_ms`."""
        from pyspark.sql import functions as f

        rows = self.read_table(table).withColumn("at_ms", f.unix_millis(time))
        # `day` is a partition column: with it, Delta reads only the files of these days.
        return rows.where(f.col("day") <= f.lit(self.period.until_day)).where(
            f.col("at_ms") < self.period.until_ms
        )

    def read_period(self, table: str, *, time: str = "at") -> DataFrame:
        """The rows of the period, with their time as `at_ms` and the begin of their step as `step_ms`."""
        from pyspark.sql import functions as f

        step = self.period.step_ms
        rows = self.read_until_end(table, time=time).where(f.col("day") >= f.lit(self.period.since_day))
        rows = rows.where(f.col("at_ms") >= self.period.since_ms)
        return rows.withColumn("step_ms", f.expr(f"at_ms - pmod(at_ms, {step}L)"))

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

"""koff's tables cut to the groups and the time of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from koff.errors import ConfigError, KoffError
from koff.spark.report.period import Period
from koff.spark.worker_errors import line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
Rows = list[Row]
"""A small table: what a picture is drawn of. Moments are milliseconds in columns named `_ms`."""


@dataclass(frozen=True, slots=True)
class History:
    """The tables below `folder`: what lies in `period`, of `groups` (a regex; None: all)."""

    spark: SparkSession
    folder: str
    period: Period
    groups: str | None = None

    def __post_init__(self) -> None:
        from pyspark.errors import IllegalArgumentException

        jvm: Any = self.spark.sparkContext._jvm
        try:
            re.compile(self.groups or "")
            jvm.java.util.regex.Pattern.compile(self.groups or "")
        except re.error as failure:
            raise ConfigError(f"--group {self.groups!r} is no regular expression: {failure}") from failure
        except IllegalArgumentException as failure:
            raise ConfigError(
                f"--group {self.groups!r} is no regular expression of Java's, by which Spark matches: "
                f"{line(failure)}"
            ) from failure

    def whole(self, table: str) -> DataFrame:
        """All rows of the groups, whenever."""
        from pyspark.errors import AnalysisException

        path = f"{self.folder.rstrip('/')}/{table}"
        try:
            rows = self.spark.read.format("delta").load(path)
        except AnalysisException as failure:
            raise KoffError(
                f"no table {table!r} in {self.folder}: give the one that `koff pipeline run --tables` fills"
            ) from failure
        if self.groups is not None and "group" in rows.columns:
            rows = rows.where(rows["group"].rlike(self.groups))
        return rows

    def before_end(self, table: str, *, time: str = "timestamp") -> DataFrame:
        """The rows up to the period's end, with `at_ms`."""
        from pyspark.sql import functions as f

        rows = self.whole(table).withColumn("at_ms", f.unix_millis(time))
        return rows.where(f.col("day") <= f.lit(self.period.until_day)).where(
            f.col("at_ms") < self.period.until_ms
        )

    def within(self, table: str, *, time: str = "at") -> DataFrame:
        """The rows of the period, with `at_ms` and `step_ms`, the beginning of their step."""
        from pyspark.sql import functions as f

        step = self.period.step_ms
        rows = self.before_end(table, time=time).where(f.col("day") >= f.lit(self.period.since_day))
        rows = rows.where(f.col("at_ms") >= self.period.since_ms)
        return rows.withColumn("step_ms", f.expr(f"at_ms - pmod(at_ms, {step}L)"))

    def sql(self, query: str, args: Mapping[str, Any] | None = None, /, **frames: DataFrame) -> DataFrame:
        """Spark SQL over frames in braces."""
        return self.spark.sql(query, dict(args or {}), **frames)


def collected(frame: DataFrame) -> Rows:
    """The rows of a frame that is known to be small."""
    return [row.asDict() for row in frame.collect()]


def top(frame: DataFrame, column: str, size: int) -> DataFrame:
    """The groups with the largest values above 0, in the same order each time."""
    from pyspark.sql import functions as f

    return frame.where(f.col(column) > 0).orderBy(f.desc(column), "cluster", "group").limit(size)

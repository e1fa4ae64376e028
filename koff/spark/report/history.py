"""koff's tables as temporary views, limited to the groups and the period of a report."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from koff.errors import ConfigError, KoffError
from koff.spark.report.period import HOUR_MS, Period, to_datetime
from koff.spark.tables.delta_tables import quote_sql
from koff.spark.tables.hours import begin_step, compute_hours
from koff.spark.tables.views import VIEWS, render_query
from koff.spark.worker_errors import summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY_MS = 86_400_000
Row = dict[str, Any]
Rows = list[Row]
"""A small table. Times are milliseconds, in columns that end in `_ms`."""


_LAG_COLUMNS = (
    *("cluster", "day", "group", "type", "topic", "partition", "at_ms", "lag"),
    *("committed", "committed_at", "start_offset", "end_offset"),
)
"""What the tables of a report need of `lag`."""


class History:
    """The tables below `folder`, limited to `period` and to `groups` (a regular expression; None: all).

    They are views of a session of its own: `lag` (some samples; of a long period, only of its last
    day), `lag_hourly`, `groups`, `commits`, `incidents` and `slo`. `at_ms` is the time of a row, and
    `step_ms` the begin of its step. Raises ConfigError if `groups` is not a regular expression of both Python
    and Java, and KoffError if there are no tables.
    """

    def __init__(self, spark: SparkSession, folder: str, period: Period, groups: str | None = None) -> None:
        _check_expression(spark, groups or "")
        self._spark = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
        self._folder, self.period, self._groups = folder, period, groups
        # Rows from before the period are needed, too: a change is a difference from the row before.
        self._add("groups", self._read_until_end("groups", "timestamp"))
        commits = self._read_period("records", "timestamp").where("committed IS NOT NULL")
        self._add("commits", commits)
        lag = self._read_period("lag", "at")
        if period.hourly:
            recent_ms = period.until_ms - DAY_MS
            lag = lag.where(f"day >= DATE'{to_datetime(recent_ms).date()}' AND at_ms >= {recent_ms}")
        self._add("lag", lag)
        self.add_view("incidents", VIEWS["incidents"][1])  # of all samples
        self._add("lag", self._select_some_samples(lag), keep=True)
        self._add("lag_hourly", self._read_hours(), keep=True)
        self.add_view("slo", VIEWS["slo"][1])

    def add_view(self, name: str, query: str, *, keep: bool = False, **values: object) -> None:
        """Adds a view of the others. `keep`: Spark keeps its rows, because several tables come from them."""
        self._add(name, self._run(query, values), keep=keep)

    def collect(self, query: str, **values: object) -> Rows:
        """The rows of a small result."""
        return [_convert_times(row.asDict()) for row in self._run(query, values).collect()]

    def _run(self, query: str, values: dict[str, object]) -> DataFrame:
        return self._spark.sql(render_query(query, "`", **values))

    def _add(self, name: str, frame: DataFrame, *, keep: bool = False) -> None:
        # A checkpoint and not `persist`: with that, Spark would compare whole plans for each query.
        (frame.localCheckpoint(eager=False) if keep else frame).createOrReplaceTempView(name)

    # --- The tables --------------------------------------------------------------------------------------

    def _read_table(self, table: str) -> DataFrame:
        """All rows of the groups, of any time."""
        from pyspark.errors import AnalysisException

        try:
            rows = self._spark.read.format("delta").load(f"{self._folder.rstrip('/')}/{table}")
        except AnalysisException as error:
            raise KoffError(
                f"no table {table!r} in {self._folder}: give a folder that `koff pipeline run --tables` fills"
            ) from error
        return rows if self._groups is None else rows.where(rows["group"].rlike(self._groups))

    def _read_until_end(self, table: str, time: str) -> DataFrame:
        """The rows before the end of the period."""
        step_ms, period = self.period.step_ms, self.period
        # `day` is a partition column: with it, Delta reads only the files of these days.
        rows = self._read_table(table).where(f"day <= DATE'{period.until_day}'")
        rows = rows.selectExpr("*", f"unix_millis({time}) at_ms")
        return rows.selectExpr("*", f"at_ms - pmod(at_ms, {step_ms}L) step_ms").where(
            f"at_ms < {period.until_ms}"
        )

    def _read_period(self, table: str, time: str) -> DataFrame:
        rows = self._read_until_end(table, time).where(f"day >= DATE'{self.period.since_day}'")
        return rows.where(f"at_ms >= {self.period.since_ms}")

    def _select_some_samples(self, lag: DataFrame) -> DataFrame:
        """The rows of the first and of the last sample of each step; in a long period, of six hours."""
        from pyspark.sql import functions as f

        step_ms = 6 * HOUR_MS if self.period.hourly else self.period.step_ms
        steps = lag.selectExpr("cluster", "number", f"at_ms div {step_ms} step").groupBy("cluster", "step")
        numbers = defaultdict[str, set[int]](set)
        for row in steps.agg(f.min("number").alias("first"), f.max("number").alias("last")).collect():
            numbers[row["cluster"]] |= {row["first"], row["last"]}
        chosen = (
            f"(cluster = {quote_sql(cluster)} AND number IN ({', '.join(map(str, own))}))"
            for cluster, own in numbers.items()
        )
        return lag.where(" OR ".join(chosen) or "false").select(*_LAG_COLUMNS)

    def _read_hours(self) -> DataFrame:
        """The rows of groups in `lag_hourly`. Hours that the table does not have yet are computed from `lag`.

        In a short period, all rows are computed, and stand for a step. The first and the last step count
        whole.
        """
        from pyspark.sql import functions as f

        period, step_ms = self.period, self.period.step_ms
        step, until = timedelta(milliseconds=min(step_ms, HOUR_MS)), to_datetime(period.until_ms)
        since = begin_step(to_datetime(period.since_ms), step)
        days = f"day BETWEEN DATE'{period.since_day}' AND DATE'{period.until_day}'"
        written = self._read_table("lag_hourly").where(f"{days} AND topic IS NULL")
        written = written.where((f.col("hour") >= f.lit(since)) & (f.unix_millis("hour") < period.until_ms))
        written = written.where("true" if period.hourly else "false")
        computed = compute_hours(self._read_lag_after(written), since, until, step=step)
        computed = computed.where("topic IS NULL").join(written, ["cluster", "hour", "group"], "anti")
        rows = written.drop("number", "day").unionByName(computed).withColumn("day", f.to_date("hour"))
        hour_ms = f.unix_millis("hour")
        return rows.withColumn("step_ms", hour_ms - f.pmod(hour_ms, f.lit(step_ms)))

    def _read_lag_after(self, written: DataFrame) -> DataFrame:
        """The samples of each cluster since its newest hour in `written`, if there are any after it."""
        from pyspark.sql import functions as f

        lag, is_needed = self._read_until_end("lag", "at"), f.lit(True)
        newest = written.groupBy("cluster").agg(f.max("number"), f.max("hour")).collect()
        for cluster, first, hour in newest:
            # The hour itself is needed again, too: offsets moved since its samples.
            is_since = (f.col("day") >= f.lit(hour.astimezone(UTC).date())) & (f.col("at") >= f.lit(hour))
            # The number of an hour is that of the first sample after it.
            later = lag.where((f.col("cluster") == cluster) & is_since & (f.col("number") >= first))
            is_needed &= (f.col("cluster") != cluster) | (is_since if later.take(1) else f.lit(False))
        return lag.where(is_needed)


def _check_expression(spark: SparkSession, groups: str) -> None:
    """Raises ConfigError for an expression that Python or Java refuses. Spark matches with Java's."""
    from pyspark.errors import IllegalArgumentException

    jvm: Any = spark.sparkContext._jvm
    try:
        re.compile(groups)
        jvm.java.util.regex.Pattern.compile(groups)
    except re.error as error:
        raise ConfigError(f"--group {groups!r} is not a regular expression: {error}") from error
    except IllegalArgumentException as error:
        raise ConfigError(
            f"--group {groups!r} is not a regular expression of Java, which Spark matches with: "
            f"{summarize_error(error)}"
        ) from error


def _convert_times(row: Row) -> Row:
    """The row with milliseconds for times and days, in columns that end in `_ms`."""
    return {
        name + "_ms" * isinstance(value, datetime): round(value.astimezone(UTC).timestamp() * 1000)
        if isinstance(value, datetime)
        else value
        for name, value in row.items()
    }

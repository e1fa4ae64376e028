"""The table `lag_hourly`: what each group's lag was in each hour, from all samples of the hour.

Hours are written when they have ended, each in one commit of Delta that replaces what was there. So an hour
that is written again, or only after a restart, has the same rows.
"""

from __future__ import annotations

from datetime import UTC, datetime

from koff.spark.tables.conflicts import retry_conflicts
from koff.spark.tables.hours import HOUR, begin_hour, compute_hours
from koff.spark.tables.schemas import NextTransaction, Tables, quote_sql

MOST_HOURS = 24
"""So many hours are written at once. There may be months to write after a pause, and the stream waits."""


class HourlyLag:
    """Writes the hours of one cluster.

    Only the process that has the lease of the cluster may: `next_transaction` is that of the lease.
    """

    def __init__(self, cluster: str, next_transaction: NextTransaction) -> None:
        self._cluster, self._next_transaction = cluster, next_transaction
        self._next: datetime | None = None
        """The first hour that may not be written yet; None before the first call."""

    def write_ended(self, tables: Tables, now: datetime) -> int:
        """Writes the next hours that ended before `now`, the time of the newest sample.

        Returns how many hours were passed: at most `MOST_HOURS` with samples, the next ones with the next
        call. Hours without samples have no rows: after a long time without a job, they are left out at once.
        """
        until = begin_hour(now)
        first = self._next or self._find_next(tables) or until
        self._next = first
        if first < until:
            begin = self._find_sampled(tables, first) or until
            end = min(until, begin + MOST_HOURS * HOUR)
            if begin < end:
                self._write(tables, begin, end)
            self._next = end
        return max(0, (self._next - first) // HOUR)

    def _find_next(self, tables: Tables) -> datetime | None:
        """The hour after the last one in the table, else the hour of the first sample; None without one."""
        of_cluster = tables.cluster_frame("lag_hourly", self._cluster)
        last = of_cluster.selectExpr("unix_millis(max(hour))").collect()[0][0]
        return self._find_sampled(tables, _from_ms(0)) if last is None else _from_ms(last) + HOUR

    def _find_sampled(self, tables: Tables, since: datetime) -> datetime | None:
        """The hour of the first sample from `since` on; None without one."""
        from pyspark.sql import functions as f

        samples = tables.cluster_frame("samples", self._cluster)
        samples = samples.where((f.col("day") >= f.lit(since.date())) & (f.col("at") >= f.lit(since)))
        first = samples.selectExpr("unix_millis(min(at))").collect()[0][0]
        return None if first is None else begin_hour(_from_ms(first))

    def _write(self, tables: Tables, begin: datetime, end: datetime) -> None:
        from pyspark.sql import functions as f

        # Moves count from the last hour before that has samples.
        samples = tables.cluster_frame("samples", self._cluster)
        before = samples.where(f.col("at") < f.lit(begin)).selectExpr("unix_millis(max(at))").collect()[0][0]
        since = begin if before is None else begin_hour(_from_ms(before))
        lag = tables.cluster_frame("lag", self._cluster)
        rows = compute_hours(lag, samples, since, begin, end)
        rows = rows.withColumn("day", f.to_date("hour"))
        hours = f"hour >= {_literal(begin)} AND hour < {_literal(end)}"
        replaced, transaction = f"cluster = {quote_sql(self._cluster)} AND {hours}", self._next_transaction()
        retry_conflicts(lambda: tables.replace_rows("lag_hourly", rows, replaced, transaction))


def _from_ms(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _literal(at: datetime) -> str:
    return f"TIMESTAMP '{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z'"

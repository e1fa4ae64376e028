"""Keeps the tables small and quick to read: deletes old rows, sorts past days by group, merges small files,
and deletes files that no version needs. It may run beside a job: appends conflict with none of this."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from koff.errors import ConfigError
from koff.spark.tables.conflicts import retry_conflicts
from koff.spark.tables.delta_tables import Tables, quote_sql
from koff.spark.tables.schemas import TABLES

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import SparkSession

Retention = Mapping[str, int]
"""Days by table. A table that is not in it keeps all rows."""
_UNITS_DAYS = {"": 1, "d": 1, "w": 7, "y": 365}
_PART = re.compile(r"(?:(\w+)=)?(\d+)([dwy]?)")
EXPIRING = ("records", "groups", "lag", "lag_hourly")
"""The tables whose rows can become too old."""
_PLANS_DAYS = 2
"""The plans of earlier days are deleted, but for those that a process needs which begins."""
_SMALL_BYTES = 16 << 20
_SETTINGS = {
    # Several files a day, so that sorting lets a query skip some. Compaction leaves sorted files as they are,
    # because they are larger than its limit.
    "spark.databricks.delta.optimize.maxFileSize": str(64 << 20),
    "spark.databricks.delta.optimize.minFileSize": str(_SMALL_BYTES),
    # A small day is one file: then the pages of the file can be skipped.
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
}


@dataclass(frozen=True, slots=True)
class MaintainConf:
    """Deletes rows that are older than `keep` says. With `vacuum`, deletes files that were replaced longer
    ago than the table's property `delta.deletedFileRetentionDuration`."""

    keep: Retention = field(default_factory=dict)
    vacuum: bool = True


KEEP_ALL = MaintainConf()


@dataclass(frozen=True, slots=True)
class Maintained:
    """What maintenance did to a table: rows deleted, and its number of files before and after."""

    table: str
    deleted: int
    files_before: int
    files: int


def parse_retention(text: str) -> dict[str, int]:
    """Days by table, from a text such as `90d` or `records=30d,lag=90d,lag_hourly=2y`.

    A number without a table is for all tables that the text does not name; without a unit it is days. Raises
    `ConfigError`.
    """
    days: dict[str, int] = {}
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or not int(match[2]):
            raise ConfigError(
                f"--keep: {part.strip()!r} is no time: write for example 90d, or records=30d,lag=2y"
            )
        table = match[1] or ""
        if table and table not in EXPIRING:
            raise ConfigError(f"--keep: no rows of {table!r} can expire; tables: {', '.join(EXPIRING)}")
        if table in days:
            raise ConfigError(f"--keep: {table or 'the time for all tables'} is given twice")
        days[table] = int(match[2]) * _UNITS_DAYS[match[3]]
    rest = days.pop("", None)
    return days if rest is None else {**dict.fromkeys(EXPIRING, rest), **days}


def maintain_tables(
    tables: Tables, conf: MaintainConf = KEEP_ALL, now: datetime | None = None
) -> Iterator[Maintained]:
    """Maintains one table after the other, and yields the result of each."""
    maintenance = _Maintenance(tables, conf, now)
    for name in TABLES:
        yield maintenance.maintain_table(name)


def maintain_cluster(
    tables: Tables, cluster: str, conf: MaintainConf, now: datetime | None = None
) -> list[Maintained]:
    """Maintains the rows of one cluster in all tables."""
    maintenance = _Maintenance(tables, conf, now, f"cluster = {quote_sql(cluster)}")
    return [maintenance.maintain_table(name) for name in TABLES]


class _Maintenance:
    """One maintenance, of the rows for which `scope` is true (a condition of SQL)."""

    def __init__(self, tables: Tables, conf: MaintainConf, now: datetime | None, scope: str = "true") -> None:
        self._tables, self._conf, self._scope = Tables(_make_session(tables.spark), tables.root), conf, scope
        self._today = (now or datetime.now(UTC)).astimezone(UTC).date()

    def maintain_table(self, name: str) -> Maintained:
        delta = self._tables.delta_table(name)
        before = _count_files(delta)
        expired = self._select_expired(name)
        deleted = self._delete(delta, f"{self._scope} AND {expired}") if expired else 0
        if TABLES[name].sorted_by:
            self._sort_past_days(name, delta)
        if name != "state":  # its rows are replaced as a whole
            retry_conflicts(delta.optimize().where(self._scope).executeCompaction)
        if self._conf.vacuum:
            delta.vacuum()
        return Maintained(name, deleted, before, _count_files(delta))

    def _select_expired(self, name: str) -> str:
        """The condition of the rows that are too old; "" if none are."""
        if name == "progress":
            return self._select_old_plans()
        keep_days = self._conf.keep.get(name)
        return "" if keep_days is None else f"day < DATE'{self._today - timedelta(days=keep_days)}'"

    def _select_old_plans(self) -> str:
        """Plans of whole days before, of which all batches are in the saved state."""
        saved = self._tables.frame("state").groupBy("cluster").agg({"number": "min"}).collect()
        oldest = self._today - timedelta(days=_PLANS_DAYS)
        old = (f"(cluster = {quote_sql(cluster)} AND number < {number - 1})" for cluster, number in saved)
        return f"day < DATE'{oldest}' AND ({' OR '.join(old)})" if saved else ""

    @staticmethod
    def _delete(delta: DeltaTable, rows: str) -> int:
        """Deletes rows, and returns how many these were."""
        version = delta.history(1).select("version").collect()[0][0]
        retry_conflicts(lambda: delta.delete(rows))
        # A DELETE that matches nothing adds no version. Other processes may add versions at the same time.
        history = delta.history(20).select("version", "operation", "operationMetrics").collect()
        deletes = [row for row in history if row.version > version and row.operation == "DELETE"]
        return sum(int(row.operationMetrics.get("numDeletedRows") or 0) for row in deletes)

    def _sort_past_days(self, name: str, delta: DeltaTable) -> None:
        """Sorts the rows of each day that has ended and has small files: a sorted day has one at most."""
        from pyspark.sql import functions as f

        frame = self._tables.frame(name).where(self._scope).where(f.col("day") < f.lit(self._today))
        files = frame.select("cluster", "day", "_metadata.file_path", "_metadata.file_size").distinct()
        small = files.where(f.col("file_size") < _SMALL_BYTES).groupBy("cluster", "day").count()
        for cluster, day, _ in small.where("count > 1").collect():
            past = delta.optimize().where(f"cluster = {quote_sql(cluster)} AND day = DATE'{day}'")
            retry_conflicts(partial(past.executeZOrderBy, TABLES[name].sorted_by))


def _make_session(spark: SparkSession) -> SparkSession:
    """A session for maintenance alone: its settings are no other thread's."""
    session = spark.newSession()
    # VACUUM lists folders in as many tasks as this says: 10,000 by default.
    tasks = str(max(8, 2 * spark.sparkContext.defaultParallelism))
    for name in ("spark.sql.sources.parallelPartitionDiscovery.parallelism", "spark.sql.shuffle.partitions"):
        session.conf.set(name, tasks)
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session


def _count_files(delta: DeltaTable) -> int:
    return int(delta.detail().select("numFiles").collect()[0][0] or 0)

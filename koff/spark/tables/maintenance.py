"""Keeps the tables small and quick to read: deletes old rows, sorts past days by group, merges small files,
deletes files that no version needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from koff.spark.tables.conflicts import retry_conflicts
from koff.spark.tables.layout import LAYOUTS
from koff.spark.tables.leases import ALL, hold_leases
from koff.spark.tables.maintenance_notes import MaintenanceNotes, TableNotes
from koff.spark.tables.retention import Retention, select_expired
from koff.spark.tables.schemas import TABLES, NextTransaction, Tables, quote_sql
from koff.spark.tables.session_settings import write_once

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import SparkSession

_SETTINGS = {
    # Several files a day, so that sorting lets a query skip some. Compaction leaves sorted files as they are,
    # because they are larger than its limit.
    "spark.databricks.delta.optimize.maxFileSize": str(64 << 20),
    "spark.databricks.delta.optimize.minFileSize": str(16 << 20),
    # A small day is one file: then the pages of the file can be skipped.
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
}

_UNIMPORTANT_VERSIONS = {"leases": 20}
"""By table: after so many new versions, it counts as unchanged. (Maintenance itself takes a lease.)"""


@dataclass(frozen=True, slots=True)
class MaintainConf:
    """Deletes rows that are older than `keep` says. With `vacuum`, deletes files that were replaced longer
    ago than the table's property `delta.deletedFileRetentionDuration`."""

    keep: Retention = field(default_factory=dict)
    vacuum: bool = True


KEEP_ALL = MaintainConf()


@dataclass(frozen=True, slots=True)
class Maintained:
    """What maintenance did to a table: rows deleted, and its number of files before and after.

    `skipped`: nothing, because the table had not changed since the maintenance before.
    """

    table: str
    deleted: int
    files_before: int
    files: int
    skipped: bool = False


def maintain_tables(
    tables: Tables, conf: MaintainConf | None = None, now: datetime | None = None
) -> Iterator[Maintained]:
    """Maintains one table after the other, and yields the result of each. Raises `LeaseHeld` beside a job.

    Rows of `current` and `group_states` stay, however old, unless the slot or group was deleted that long
    ago.
    """
    with hold_leases(tables, [ALL], "maintenance"):
        clusters = [row[0] for row in tables.frame("leases").select("cluster").distinct().collect()]
        maintenance = _Maintenance(tables, conf or KEEP_ALL, now, ALL, sorted({*clusters} - {ALL}))
        for name in TABLES:
            yield maintenance.maintain_table(name)


def maintain_cluster(
    tables: Tables,
    cluster: str,
    conf: MaintainConf,
    now: datetime | None = None,
    *,
    next_transaction: NextTransaction | None = None,
) -> list[Maintained]:
    """Maintains the rows of one cluster in all tables. The caller holds the lease of the cluster.

    Rows are deleted in transactions of the lease, if there is `next_transaction`.
    """
    maintenance = _Maintenance(tables, conf, now, cluster, [cluster], next_transaction)
    return [maintenance.maintain_table(name) for name in TABLES]


class _Maintenance:
    """One maintenance, of the rows of `scope`: a cluster, or all `clusters`."""

    def __init__(
        self,
        tables: Tables,
        conf: MaintainConf,
        now: datetime | None,
        scope: str,
        clusters: Sequence[str],
        next_transaction: NextTransaction | None = None,
    ) -> None:
        self._next_transaction = next_transaction
        self._tables = Tables(_make_session(tables.spark), tables.root)
        self._conf, self._clusters = conf, clusters
        self._now = now or datetime.now(UTC)
        self._today = f"{self._now.astimezone(UTC):%Y-%m-%d}"
        self._of_scope = "" if scope == ALL else f"cluster = {quote_sql(scope)}"
        self._notes: Mapping[str, MaintenanceNotes] = {
            name: MaintenanceNotes(self._tables, name) for name in {scope, *clusters}
        }
        self._scope = scope

    def maintain_table(self, name: str) -> Maintained:
        delta, notes = self._tables.delta_table(name), self._notes[self._scope].get(name)
        keep_days = self._conf.keep.get(name)
        changed = _read_version(delta) - notes.version > _UNIMPORTANT_VERSIONS.get(name, 0)
        same_day = (notes.day, notes.keep_days) == (self._today, keep_days)
        if not changed and same_day and not self._is_vacuum_due(notes):
            return Maintained(name, 0, notes.files, notes.files, skipped=True)

        before = _count_files(delta)
        deleted = self._delete_expired(name, delta, keep_days) if keep_days is not None else 0
        if LAYOUTS[name].sorted_by:
            self._sort_past_days(name, delta)
        if changed or deleted:
            small = delta.optimize().where(self._of_scope) if self._of_scope else delta.optimize()
            retry_conflicts(small.executeCompaction)
        replaced = notes.version != (version := _read_version(delta))
        if self._conf.vacuum and (replaced or self._is_vacuum_due(notes)):
            delta.vacuum()
            kept = timedelta(days=LAYOUTS[name].replaced_files_days)
            notes.vacuum_ms = _to_ms(self._now + kept) if replaced else None
            version = _read_version(delta)

        notes.version, notes.day, notes.keep_days = version, self._today, keep_days
        notes.files = _count_files(delta)
        self._notes[self._scope].save()
        return Maintained(name, deleted, before, notes.files)

    def _is_vacuum_due(self, notes: TableNotes) -> bool:
        due = notes.vacuum_ms is not None and _to_ms(self._now) > notes.vacuum_ms
        return self._conf.vacuum and due

    def _delete_expired(self, name: str, delta: DeltaTable, keep_days: int) -> int:
        """Deletes the rows that are too old, and returns how many these were."""
        expired = select_expired(self._tables, name, keep_days, self._now, self._of_scope)
        rows = f"{self._of_scope} AND {expired}" if self._of_scope else expired
        version = _read_version(delta)
        spark, begin = self._tables.spark, self._next_transaction
        with write_once(spark, *begin()) if begin is not None else nullcontext():
            retry_conflicts(lambda: delta.delete(rows))
        # A DELETE that matches nothing adds no version. Other processes may add versions at the same time.
        history = delta.history(20).select("version", "operation", "operationMetrics").collect()
        deletes = [row for row in history if row.version > version and row.operation == "DELETE"]
        return sum(int(row.operationMetrics.get("numDeletedRows") or 0) for row in deletes)

    def _sort_past_days(self, name: str, delta: DeltaTable) -> None:
        """Sorts the rows of each day that has ended since the maintenance before, by cluster."""
        for cluster in self._clusters:
            notes = self._notes[cluster].get(name)
            if notes.sorted_to >= self._today:
                continue
            days = f"day < DATE'{self._today}'"
            if notes.sorted_to:
                days += f" AND day >= DATE'{notes.sorted_to}'"
            past = delta.optimize().where(f"cluster = {quote_sql(cluster)} AND {days}")
            by = LAYOUTS[name].sorted_by
            retry_conflicts(partial(past.executeZOrderBy, by))
            notes.sorted_to = self._today
            self._notes[cluster].save()


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


def _read_version(delta: DeltaTable) -> int:
    row = delta.history(1).select("version").first()
    return int(row[0]) if row else -1


def _count_files(delta: DeltaTable) -> int:
    row = delta.detail().select("numFiles").first()
    return int(row[0]) if row else 0


def _to_ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)

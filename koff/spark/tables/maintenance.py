"""Keeps the tables small: deletes old rows, compacts small files, deletes files that no version needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from koff.spark.tables.conflicts import retry_conflicts
from koff.spark.tables.leases import ALL, hold_leases
from koff.spark.tables.schemas import TABLES, Tables, quote_sql

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class MaintainConf:
    """Deletes rows older than `keep_days` days (None: keeps all), and files that were replaced more than
    `vacuum_h` hours ago (None: keeps them)."""

    keep_days: int | None = 90
    vacuum_h: float | None = 168.0


KEEP_ALL = MaintainConf(keep_days=None)


@dataclass(frozen=True, slots=True)
class Maintained:
    """What maintenance did to a table: rows deleted, and its number of files before and after."""

    table: str
    deleted: int
    files_before: int
    files: int


def maintain_tables(tables: Tables, conf: MaintainConf | None = None) -> Iterator[Maintained]:
    """Maintains one table after the other, and yields the result of each. Raises `LeaseHeld` beside a job.

    Rows of `current` stay, however old, unless the slot was deleted that long ago. Rows of `group_states`
    always stay.
    """
    conf = conf or MaintainConf()
    with hold_leases(tables, [ALL], "maintenance"):
        for name in TABLES:
            yield _maintain_table(tables, name, conf)


def maintain_cluster(tables: Tables, cluster: str, conf: MaintainConf) -> list[Maintained]:
    """Maintains the rows of one cluster in all tables. The caller holds the lease of the cluster."""
    of_cluster = f"cluster = {quote_sql(cluster)}"
    return [_maintain_table(tables, name, conf, of_cluster) for name in TABLES]


def _maintain_table(tables: Tables, name: str, conf: MaintainConf, of_cluster: str = "") -> Maintained:
    delta = tables.delta_table(name)
    before = _count_files(tables, name)
    deleted = 0
    if conf.keep_days is not None and (where := _select_old(name, TABLES[name].time, conf.keep_days)):
        rows = f"{of_cluster} AND {where}" if of_cluster else where
        retry_conflicts(lambda: delta.delete(rows))
        # A DELETE that matches nothing adds no version: the last operation is then not this DELETE.
        metrics = delta.history(1).select("operation", "operationMetrics").first()
        if metrics is not None and metrics[0] == "DELETE":
            deleted = int(metrics[1].get("numDeletedRows") or 0)
    small = delta.optimize().where(of_cluster) if of_cluster else delta.optimize()
    retry_conflicts(small.executeCompaction)
    if conf.vacuum_h is not None:
        delta.vacuum(conf.vacuum_h)
    return Maintained(name, deleted, before, _count_files(tables, name))


def _select_old(name: str, time: str, keep_days: int) -> str | None:
    """The SQL condition of the rows to delete; None if the table keeps all rows."""
    if time:
        return f"day < date_sub(current_date(), {keep_days})"
    if name == "current":
        return f"deleted AND timestamp < timestampadd(DAY, -{keep_days}, current_timestamp())"
    return None


def _count_files(tables: Tables, name: str) -> int:
    row = tables.delta_table(name).detail().select("numFiles").first()
    return int(row[0]) if row else 0

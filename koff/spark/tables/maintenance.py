"""Keeps the tables small: old rows go, small files are put together, what no version needs is deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from koff.spark.tables.schemas import TABLES, Tables

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class MaintainConf:
    """Rows of more than `keep_days` ago go (None: all stay), and files that were replaced `vacuum_h` ago."""

    keep_days: int | None = 90
    vacuum_h: float = 168.0


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done to a table."""

    table: str
    deleted: int
    files_before: int
    files: int


def maintain(tables: Tables, conf: MaintainConf | None = None) -> Iterator[Maintained]:
    """Does so, table by table. What is current stays, however old; deleted slots and groups do not."""
    conf = conf or MaintainConf()
    for name, table in TABLES.items():
        delta = tables.delta(name)
        before = _files(tables, name)
        deleted = 0
        if conf.keep_days is not None and (where := _old(name, table.time, conf.keep_days)):
            delta.delete(where)
            metrics = delta.history(1).select("operation", "operationMetrics").first()
            if metrics is not None and metrics[0] == "DELETE":
                deleted = int(metrics[1].get("numDeletedRows") or 0)
        delta.optimize().executeCompaction()
        delta.vacuum(conf.vacuum_h)
        yield Maintained(name, deleted, before, _files(tables, name))


def _old(name: str, time: str, keep_days: int) -> str | None:
    if time:
        return f"day < date_sub(current_date(), {keep_days})"
    if name == "current":
        return f"deleted AND timestamp < timestampadd(DAY, -{keep_days}, current_timestamp())"
    return None


def _files(tables: Tables, name: str) -> int:
    row = tables.delta(name).detail().select("numFiles").first()
    return int(row[0]) if row else 0

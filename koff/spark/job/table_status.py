"""What the tables hold and how fresh they are, for `koff pipeline status`. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from koff.spark.tables.leases import ALL, is_outdated
from koff.spark.tables.schemas import TABLES, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class TableSize:
    """How large the newest version of a table is."""

    table: str
    rows: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """How fresh the rows of a cluster are, and who writes them.

    `newest_commit_ms` is the time of the newest commit, `newest_sample_ms` that of the newest sample of lag;
    None without one. `writer` names the process that has the lease ("": none). `groups` and `slots` are in
    the newest state.
    """

    cluster: str
    newest_commit_ms: int | None
    newest_sample_ms: int | None
    groups: int
    slots: int
    writer: str


def read_sizes(tables: Tables) -> list[TableSize]:
    """The size of each table. Delta knows the numbers of rows of files, so few files are opened."""
    sizes = read_file_sizes(tables)
    return [TableSize(name, tables.frame(name).count(), *sizes[name]) for name in TABLES]


def read_file_sizes(tables: Tables) -> dict[str, tuple[int, int]]:
    """By table: how many files its newest version has, and their bytes. Opens no file with rows."""
    sizes = {}
    for name in TABLES:
        detail = tables.delta_table(name).detail().select("numFiles", "sizeInBytes").collect()[0]
        sizes[name] = int(detail[0] or 0), int(detail[1] or 0)
    return sizes


def read_clusters_status(tables: Tables) -> list[ClusterStatus]:
    """The status of each cluster that any table names, by name."""
    writers = read_writers(tables)
    commits = _collect(tables.frame("commits"), "unix_millis(max(timestamp))")
    samples = _collect(tables.frame("samples"), "unix_millis(max(at))")
    slots = _collect(tables.frame("current").where("NOT deleted"), "count(DISTINCT `group`)", "count(*)")
    names = sorted({*writers, *commits, *samples, *slots} - {ALL})
    statuses = []
    for name in names:
        groups, slot_count = slots.get(name, [0, 0])
        newest = [ages.get(name, [None])[0] for ages in (commits, samples)]
        writer = writers.get(name) or writers.get(ALL, "")
        statuses.append(ClusterStatus(name, newest[0], newest[1], groups, slot_count, writer))
    return statuses


def read_writers(tables: Tables) -> Mapping[str, str]:
    """By cluster that ever had a lease: the process that has the lease now; "" if none has."""
    newest = _collect(tables.frame("leases"), "max_by(struct(owner, host, process, released, at), sequence)")
    return {cluster: _name_writer(lease) for cluster, (lease,) in newest.items()}


def _name_writer(lease: Any) -> str:
    if lease.released or is_outdated(lease.at):
        return ""
    return f"{lease.owner} on {lease.host} (process {lease.process})"


def _collect(frame: DataFrame, *aggregates: str) -> dict[str, list[Any]]:
    """The aggregates of a frame, by cluster."""
    from pyspark.sql import functions as f

    rows = frame.groupBy("cluster").agg(*(f.expr(each) for each in aggregates)).collect()
    return {row[0]: list(row[1:]) for row in rows}

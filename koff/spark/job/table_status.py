"""What the tables hold and how fresh they are, for `koff pipeline status`. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.owners import Owner
from koff.spark.tables.schemas import TABLES

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

    `newest_commit_ms` is the time of the newest record, `newest_sample_ms` that of the newest sample of lag;
    None without one. `writer` names the process that writes the cluster ("": none, as far as is known).
    `groups` and `slots` are those of the newest sample.
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
    """The status of each cluster, by name."""
    newest = _collect(tables.frame("progress"), "max_by(struct(owner, nonce, ended), number)")
    sampled = "unix_millis(max(sampled_at))", "max_by(number, sampled_at)"
    samples = _collect(tables.frame("progress").where("sampled_at IS NOT NULL"), *sampled)
    commits = _collect(tables.frame("records"), "unix_millis(max(timestamp))")
    statuses = []
    for name, (owner,) in sorted(newest.items()):
        sampled_ms, number = samples.get(name, (None, -1))
        rows = tables.cluster_frame("lag", name).where(f"number = {number}")
        groups, slots = rows.selectExpr("count(DISTINCT `group`)", "count(*)").collect()[0]
        newest_ms = commits.get(name, (None,))[0]
        statuses.append(ClusterStatus(name, newest_ms, sampled_ms, groups, slots, _name_writer(owner)))
    return statuses


def _name_writer(row: Any) -> str:
    owner = Owner(row.owner, row.nonce)
    return "" if row.ended or (owner.is_here and not owner.is_alive()) else str(owner)


def _collect(frame: DataFrame, *aggregates: str) -> dict[str, list[Any]]:
    """The aggregates of a frame, by cluster."""
    from pyspark.sql import functions as f

    rows = frame.groupBy("cluster").agg(*(f.expr(each) for each in aggregates)).collect()
    return {row[0]: list(row[1:]) for row in rows}

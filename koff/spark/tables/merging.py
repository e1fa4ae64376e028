"""Merges rows into a table with a row for each slot or group, and compacts its files when there are many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from koff.spark.tables.conflicts import retry_conflicts
from koff.spark.tables.schemas import Tables, quote_sql
from koff.spark.tables.session_settings import change_settings

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder

COMPACT_FROM = 30
"""The number of files of a cluster from which on they are compacted. Each MERGE adds about one."""
_NO_COMPACTION = {"spark.databricks.delta.autoCompact.enabled": "false"}


def merge_rows(tables: Tables, name: str, cluster: str, merge: DeltaMergeBuilder) -> None:
    """Executes a MERGE into the rows of one cluster.

    Delta itself would compact after each MERGE into a table with deletion vectors: it would write all rows
    again, however few files there are.
    """
    with change_settings(tables.spark, _NO_COMPACTION):
        retry_conflicts(merge.execute)
        if len(tables.cluster_frame(name, cluster).inputFiles()) >= COMPACT_FROM:
            files = tables.delta_table(name).optimize().where(f"cluster = {quote_sql(cluster)}")
            retry_conflicts(files.executeCompaction)

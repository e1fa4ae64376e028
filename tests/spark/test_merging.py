"""What a MERGE writes, and when the files of a cluster are compacted."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from koff.spark.tables import merging
from koff.spark.tables.merging import merge_rows
from koff.spark.tables.schemas import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

GROUPS = 1000
MEET_S = 300.0


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    for cluster in ("a", "b"):
        tables.append_rows("group_states", tables.spark.sql(select_states(cluster, range(GROUPS), 0)))
    return tables


def select_states(cluster: str, groups: range, log_offset: int) -> str:
    owners = "ARRAY<STRUCT<topic: STRING, partition: INT, client_id: STRING, client_host: STRING>>"
    return (
        f"SELECT '{cluster}' cluster, 0 offsets_partition, concat('g', id) `group`, {log_offset}L log_offset,"
        f" 'consumer' type, 'Stable' state, '{{}}' saved, CAST(array() AS {owners}) assigned,"
        " CAST(NULL AS TIMESTAMP) timestamp"
        f" FROM range({groups.start}, {groups.stop}, {groups.step})"
    )


def merge(tables: Tables, cluster: str, groups: range, log_offset: int) -> None:
    rows = tables.spark.sql(select_states(cluster, groups, log_offset)).alias("s")
    into = tables.delta_table("group_states").alias("t")
    builder = into.merge(rows, f"t.cluster = '{cluster}' AND t.`group` = s.`group`")
    merge_rows(tables, "group_states", cluster, builder.whenMatchedUpdateAll().whenNotMatchedInsertAll())


def list_operations(tables: Tables, since: int) -> list[str]:
    history = tables.delta_table("group_states").history().where(f"version > {since}").orderBy("version")
    return [row.operation for row in history.collect()]


def version(tables: Tables) -> int:
    row = tables.delta_table("group_states").history(1).first()
    assert row is not None
    return int(row.version)


def count_files(tables: Tables, cluster: str) -> int:
    return len(tables.cluster_frame("group_states", cluster).inputFiles())


def test_the_files_of_a_cluster_are_compacted_when_there_are_many_and_not_before(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "COMPACT_FROM", 4)
    begin, others = version(tables), tables.cluster_frame("group_states", "b").inputFiles()
    files = []
    for batch in range(1, 6):
        merge(tables, "a", range(batch, GROUPS, 10), batch)  # some rows everywhere in the table
        files.append(count_files(tables, "a"))
    assert list_operations(tables, begin) == ["MERGE"] * 3 + ["OPTIMIZE"] + ["MERGE"] * 2
    assert files == [2, 3, 1, 2, 3]

    states = tables.cluster_frame("group_states", "a")
    assert {row[0]: row[1] for row in states.groupBy("log_offset").count().collect()} == {
        0: GROUPS // 2,
        **dict.fromkeys(range(1, 6), GROUPS // 10),
    }
    assert states.select("group").distinct().count() == states.count() == GROUPS
    assert tables.cluster_frame("group_states", "b").inputFiles() == others
    assert tables.cluster_frame("group_states", "b").where("log_offset = 0").count() == GROUPS


def test_two_clusters_are_merged_and_compacted_at_the_same_time(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "COMPACT_FROM", 2)
    monkeypatch.setattr(merging, "retry_conflicts", lambda change: change())
    both_merge = threading.Barrier(2)
    begin = version(tables)

    def merge_three_times(cluster: str) -> None:
        mine = Tables(tables.spark.newSession(), tables.root)  # a stream has a session of its own
        for batch in range(1, 4):
            both_merge.wait(MEET_S)
            merge(mine, cluster, range(batch, GROUPS, 10), batch)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(merge_three_times, cluster) for cluster in ("a", "b")]:
            done.result()
    assert sorted(list_operations(tables, begin)) == ["MERGE"] * 6 + ["OPTIMIZE"] * 6
    changed = tables.frame("group_states").where("log_offset > 0").groupBy("cluster").count().collect()
    assert {row[0]: row[1] for row in changed} == dict.fromkeys("ab", 3 * GROUPS // 10)


def test_a_merge_writes_only_the_rows_that_it_changes(tables: Tables) -> None:
    merge(tables, "a", range(0, GROUPS, 100), 1)
    last = tables.delta_table("group_states").history(1).select("operation", "operationMetrics").first()
    assert last is not None
    metrics = last.operationMetrics
    written = {name: metrics[name] for name in ("numTargetRowsUpdated", "numTargetRowsCopied")}
    assert (last.operation, written) == (
        "MERGE",
        {"numTargetRowsUpdated": "10", "numTargetRowsCopied": "0"},
    )

"""Two clusters merge into the same tables at the same time: neither loses a row or waits for the other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from koff.spark.job import batch_writer
from koff.spark.job.batch_writer import BatchWriter
from koff.spark.rows.packing import pack_batches
from koff.spark.tables import merging
from koff.spark.tables.current import merge_commits
from koff.spark.tables.schemas import Tables
from tests.spark.test_decoding import decode_batch, raw
from tests.unit.builders import assign, classic_group, commit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROUNDS, SLOTS = 6, 5
MEET_S = 300.0


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    return tables


def write_rounds(tables: Tables, cluster: str) -> None:
    """Batches of the cluster, one after the other. Each commits to every slot and changes the group."""
    tables = Tables(tables.spark.newSession(), tables.root)  # a stream has a session of its own
    for number in range(ROUNDS):
        commits = [commit("g", "t", slot, 10 * number + slot) for slot in range(SLOTS)]
        records: list[tuple[bytes | None, bytes | None]] = [
            *commits,
            classic_group("g", {"me": assign("t", 0)}, generation=number + 1),
        ]
        packed = pack_batches([decode_batch(shift(raw(records), number * len(records)), cluster)])
        frame = tables.spark.createDataFrame(pa.Table.from_batches(list(packed)))
        BatchWriter(tables, cluster, first=number == 0).write(frame, {})


def shift(records: pa.RecordBatch, by: int) -> pa.RecordBatch:
    """The records with log offsets that are larger by this number."""
    column = records.schema.get_field_index("log_offset")
    offsets = pa.array([offset + by for offset in records.column(column).to_pylist()], pa.int64())
    return records.set_column(column, records.schema.field(column), offsets)


def test_clusters_merge_at_the_same_time_and_all_rows_are_right(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_merge = threading.Barrier(2)
    merge_states = BatchWriter._merge_states

    def merge_commits_together(*given: Any, **options: Any) -> None:
        both_merge.wait(MEET_S)  # broken if one cluster waits until the other has merged
        merge_commits(*given, **options)

    def merge_states_together(self: BatchWriter, *given: Any) -> None:
        both_merge.wait(MEET_S)
        merge_states(self, *given)

    # Without retries: the partitions of two clusters do not conflict, so no work is done twice.
    monkeypatch.setattr(merging, "retry_conflicts", lambda change: change())
    monkeypatch.setattr(batch_writer, "merge_commits", merge_commits_together)
    monkeypatch.setattr(BatchWriter, "_merge_states", merge_states_together)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write_rounds, tables, cluster) for cluster in ("a", "b")]:
            done.result()

    last = 10 * (ROUNDS - 1)
    for cluster in ("a", "b"):
        commits = tables.cluster_frame("current", cluster).select("partition", "committed").collect()
        assert sorted(map(tuple, commits)) == [(slot, last + slot) for slot in range(SLOTS)]
        assert tables.cluster_frame("commits", cluster).count() == ROUNDS * SLOTS
        states = tables.cluster_frame("group_states", cluster).select("group", "log_offset").collect()
        assert [tuple(row) for row in states] == [("g", ROUNDS * (SLOTS + 1) - 1)]

"""`koff pipeline status` and `check`: each check can fail, and says why."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from koff.spark.job.batch_writer import BatchWriter
from koff.spark.tables.leases import hold_leases
from koff.spark.tables.maintenance_notes import MaintenanceNotes
from pyspark.sql import functions as f

from koff.cli.pipeline_checks import FAILED, format_status, print_checks, print_status, run_checks
from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster
from koff.client.cluster_conf import TopicInfo
from koff.config.clusters import WatchedCluster
from koff.errors import KoffError
from koff.spark.job.table_checks import (
    KEYS,
    check_against_log,
    check_freshness,
    check_groups,
    check_keys,
    check_offsets,
    fetch_log_ends,
)
from koff.spark.job.table_status import ClusterStatus, TableSize, read_clusters_status, read_sizes
from koff.spark.rows.spans import CoverageRow
from koff.spark.tables.schemas import TABLES, Tables
from tests.spark.test_decoding import raw
from tests.spark.test_leases import make_frame
from tests.unit.builders import ASSIGNED_T_0_1, classic_group

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def covered(
    start: int, end: int, *, complete: bool = True, partition: int = 0, topic_id: str | None = "id"
) -> CoverageRow:
    return CoverageRow(topic_id, partition, start, end, complete, "", NOW)


def test_offsets_between_others_that_were_never_read_fail() -> None:
    found = check_offsets("c", [covered(5, 10), covered(10, 20), covered(23, 30)], "a job")
    assert (found.ok, found.text.partition(":")[0]) == (False, "3 offsets between others were never read")
    assert check_offsets("c", [covered(5, 10), covered(9, 20), covered(0, 3, partition=1)], "").ok


def test_offsets_of_segments_close_a_gap_in_the_log_of_any_topic_id() -> None:
    rows = [covered(0, 10), covered(20, 30), covered(8, 22, topic_id=None)]
    assert check_offsets("c", rows, "").ok


def test_offsets_that_were_begun_fail_unless_a_process_is_writing_them() -> None:
    rows = [covered(0, 10), covered(10, 14, complete=False)]
    found = check_offsets("c", rows, "")
    assert not found.ok
    assert found.text.startswith("4 offsets were begun and are not complete: start the command")
    assert "delete the cluster's folder in _checkpoints" in found.text  # a job reads nothing before them
    found = check_offsets("c", rows, "a job on host (process 1)")
    assert (found.ok, found.text) == (True, "without a gap; a job on host (process 1) is writing 4 offsets")


def cluster_status(newest_sample_ms: int | None) -> ClusterStatus:
    return ClusterStatus("c", NOW_MS, newest_sample_ms, groups=1, slots=1, writer="")


@pytest.mark.parametrize(
    ("sample_ms", "ok", "text"),
    [
        (NOW_MS - 300_000, True, "the newest sample is 300 s old"),
        (NOW_MS - 301_000, False, "the newest sample is 301 s old, more than 300 s; no process writes"),
        (None, False, "lag was never sampled"),
        (NOW_MS + 300_000, True, "the newest sample is 0 s old"),
        (NOW_MS + 301_000, False, "the newest sample is 301 s in the future: a clock"),
    ],
    ids=["in time", "too old", "never", "a little ahead", "in the future"],
)
def test_a_sample_that_is_old_or_missing_fails(sample_ms: int | None, ok: bool, text: str) -> None:
    found = check_freshness(cluster_status(sample_ms), NOW_MS, 300)
    assert found.ok is ok
    assert found.text.startswith(text)


def test_tables_that_are_behind_or_ahead_of_the_brokers_fail() -> None:
    rows = [covered(0, 10), covered(0, 4, partition=1)]
    found = check_against_log("c", rows, {0: 12, 1: 5, 2: 1}, 4)
    assert (found.ok, found.text) == (True, "4 offsets behind the brokers")
    found = check_against_log("c", rows, {0: 12, 1: 5, 2: 1}, 3)
    assert (found.ok, found.text) == (False, "4 offsets behind the brokers, more than 3")
    found = check_against_log("c", rows, {0: 12, 1: 3}, 100)
    assert not found.ok
    assert found.text.startswith(
        "partition 1 ends at 3, and the tables have it up to 4: the offsets topic was"
    )


@pytest.mark.parametrize(
    ("topic", "offsets", "told"),
    [
        (None, {}, "cluster c: there is no topic o"),
        (TopicInfo("o", 2), {0: 7, 1: "LEADER_NOT_AVAILABLE"}, "no end offset of o/1: LEADER_NOT_AVAILABLE"),
    ],
)
def test_brokers_that_do_not_return_all_end_offsets_are_an_error(
    monkeypatch: pytest.MonkeyPatch, topic: TopicInfo | None, offsets: dict[int, Any], told: str
) -> None:
    monkeypatch.setattr(Cluster, "connect", lambda cluster: cluster)
    monkeypatch.setattr(Cluster, "fetch_topic", lambda cluster, name: topic)
    found = {TopicPartition("o", partition): offset for partition, offset in offsets.items()}
    monkeypatch.setattr(Cluster, "fetch_offsets", lambda *_: found)
    with pytest.raises(KoffError, match=re.escape(told)):
        fetch_log_ends(WatchedCluster("c", ClusterConf("127.0.0.1:1"), offsets_topic="o"))


def test_every_table_with_keys_has_these_columns() -> None:
    for name, key in KEYS.items():
        words = TABLES[name].ddl.replace("`", "").replace(",", " ").split()
        assert set(key) <= set(words), name
    assert TABLES.keys() - KEYS.keys() == {"coverage"}


def append(tables: Tables, name: str, *rows: dict[str, Any]) -> None:
    """Appends rows; columns that a row does not name are null, or 0, "" or false if they may not be null."""
    schema = tables.frame(name).schema
    fillers = {"string": "", "integer": 0, "long": 0, "boolean": False}
    unnamed = {
        field.name: None if field.nullable else fillers.get(field.dataType.typeName()) for field in schema
    }
    values = [tuple((unnamed | row)[column] for column in schema.names) for row in rows]
    tables.append_rows(name, tables.spark.createDataFrame(values, schema))


def test_rows_of_tables_that_are_right_pass_until_one_of_each_kind_is_wrong(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)  # not that of the import: runs may take more than an hour
    now_ms = int(now.timestamp() * 1000)
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    record = {"cluster": "c", "offsets_partition": 0, "timestamp": now, "group": "g", "day": now.date()}
    slot = {"cluster": "c", "group": "g", "topic": "t", "partition": 0}
    append(tables, "commits", *({**record, "log_offset": n} for n in range(3)))
    append(tables, "lag", {**slot, "at": now, "day": now.date(), "lag": 7})
    append(tables, "samples", {"cluster": "c", "at": now, "full_at": now, "day": now.date(), "partitions": 1})
    append(tables, "current", {**slot, "deleted": False}, {**slot, "partition": 1, "deleted": True})
    span = {
        "cluster": "c",
        "topic_id": "id",
        "offsets_partition": 0,
        "complete": True,
        "filter": "",
        "at": now,
    }
    append(tables, "coverage", {**span, "from_offset": 0, "to_offset": 3})

    # All is right.
    with hold_leases(tables, ["c"], "a job"):
        (status,) = read_clusters_status(tables)
        assert status.writer.startswith("a job on ")
    (status,) = read_clusters_status(tables)
    assert status == ClusterStatus("c", now_ms, now_ms, groups=1, slots=1, writer="")
    sizes = {size.table: size for size in read_sizes(tables)}
    assert (sizes["commits"].rows, sizes["quarantine"].rows) == (3, 0)
    assert sizes["commits"].size_bytes > 0
    results = run_checks(tables, [], max_age_s=3600, max_behind=0)
    assert all(each.ok for each in results), results
    assert {each.name for each in results} == {
        "unique keys",
        "continuous offsets",
        "groups and states",
        "freshness",
    }
    print_status(tables, "json")
    assert json.loads(capsys.readouterr().out)["clusters"][0]["newest_sample_ms"] == now_ms

    # A commit twice, a gap, and no sample that is fresh enough.
    append(tables, "commits", {**record, "log_offset": 1})
    append(tables, "coverage", {**span, "from_offset": 5, "to_offset": 6})
    failed = [each for each in check_keys(tables) if not each.ok]
    assert [(each.of, each.text) for each in failed] == [("commits", "1 rows too many, of 1 keys")]
    with pytest.raises(SystemExit) as ended:
        print_checks(tables, [], max_age_s=0, max_behind=0, form="json")
    assert ended.value.code == FAILED
    found = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in found if not each["ok"]} == {
        "unique keys",
        "continuous offsets",
        "freshness",
    }


def test_groups_whose_changes_do_not_lead_to_their_states_fail(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    groups = [classic_group(name, {"me": ASSIGNED_T_0_1}, generation=2) for name in ("a", "b")]
    frame = make_frame(tables, "c", raw([*groups, classic_group("deleted", None)]))
    BatchWriter(tables, "c").write(frame, {})

    def check(writer: str = "", now: datetime = NOW) -> tuple[bool, str]:
        found = check_groups(tables, "c", writer, now)
        return found.ok, found.text.partition(" do not lead")[0]

    right = (True, "the newest changes of all groups lead to their states")
    changes, states = tables.delta_table("groups"), tables.delta_table("group_states")
    assert tables.frame("group_states").count() == 3
    assert check() == right

    # A state of a rebalance that `groups` does not have: a process that lost the lease wrote it.
    changes.update("`group` = 'a'", {"epoch": f.lit(1)})
    assert check("a job") == (False, "the newest changes of 1 groups, such as a,")
    changes.update("`group` = 'a'", {"epoch": f.lit(2)})
    assert check() == right

    # No change of a group that has a state; its rows may have expired.
    changes.delete("`group` = 'b'")
    assert check("a job") == (False, "the newest changes of 1 groups, such as b,")
    notes = MaintenanceNotes(tables, "c")
    notes.get("groups").keep_days = 1
    notes.save()
    assert check(now=datetime(2036, 3, 2, tzinfo=UTC)) == right

    # A group without a state: a batch that is written now has it later.
    states.delete("`group` = 'a'")
    now = datetime(2036, 3, 2, tzinfo=UTC)
    assert check("a job", now) == right
    assert check("", now) == (False, "the newest changes of 1 groups, such as a,")


def test_the_status_names_what_is_not_known_with_a_dash() -> None:
    text = format_status([cluster_status(None)], [TableSize("lag", 1200, 2, 3_000_000)], NOW_MS + 5_000)
    assert "(5 s ago)" in text
    assert text.splitlines()[1].split()[-3:] == ["-", "no", "process"]
    assert text.splitlines()[-1].split()[:3] == ["lag", "1200", "2"]
    assert format_status([], [], NOW_MS).startswith("no cluster has rows yet\n")

"""Tables that older koffs wrote become those of today: same numbers, whole history, whatever happens."""

from __future__ import annotations

import json
import shutil
import socket
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.errors import KoffError
from koff.kafkatest import KafkaCluster
from koff.spark.job.cluster_stream import PipelineConf
from koff.spark.job.job import Job
from koff.spark.job.table_checks import check_keys
from koff.spark.job.table_status import read_clusters_status
from koff.spark.report import report
from koff.spark.tables.descriptions import TABLE_TEXTS
from koff.spark.tables.leases import LeaseHeld
from koff.spark.tables.migrations import prepare_tables
from koff.spark.tables.schemas import TABLES, Tables, WrongTables
from tests.koff_process import run_koff
from tests.spark.old_tables.life import create_topics, live, name_topics
from tests.spark.test_tables import changes, column_texts, properties, read_definition, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = Path(__file__).parent / "old_tables"
CHANGED = {1: {"silent_h", "longest_s", "last_s", "time_lag_s"}, 2: {"silent_h"}}
"""By version: columns of its report that are different today. Hours of silence end with the period, which
`report.json` has in whole seconds; an unknown time lag was 0."""
VERSIONS = (1, 2)


def unpack(version: int, folder: Path) -> Path:
    """The folder of tables of that version. Beside it is `report.json`, the report of that koff."""
    with tarfile.open(OLD / f"version-{version}.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "tables"


def read_old_rows(spark: SparkSession, root: Path) -> dict[str, list[str]]:
    """By table that the root has: its rows, without columns that are new or have another type today."""
    found = {}
    for name in TABLES:
        if (root / name).exists() and name != "leases":
            frame = spark.read.format("delta").load(str(root / name))
            frame = frame.drop("reasons", "full_at", "ended")
            frame = frame.drop("timestamp") if name == "group_states" else frame
            found[name] = sorted(map(str, frame.collect()))
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_tables_of_an_older_koff_keep_their_rows_and_their_report(
    spark: SparkSession, tmp_path: Path, version: int
) -> None:
    root = unpack(version, tmp_path)
    tables, before = Tables(spark, str(root)), read_old_rows(spark, root)
    assert {name for name, rows in before.items() if rows} >= {"commits", "groups", "assignments", "lag"}
    with pytest.raises(
        WrongTables, match=r"lacks the table .*: an older koff wrote .*; `koff pipeline run` completes them"
    ):
        tables.check_tables()
    prepare_tables(tables)
    tables.check_tables()

    # Definitions and rows.
    for name in TABLES:
        assert read_definition(tables, name) == (TABLE_TEXTS[name], column_texts(name), properties(name))
    after = read_old_rows(spark, root)
    assert {name: after[name] for name in before} == before
    reasons = {tuple(row.reasons) for row in tables.frame("lag").select("reasons").collect()}
    assert reasons >= {(), ("no_commit",)}

    # What commands say of them.
    newest = max(row.at for row in tables.frame("lag").select("at").collect())
    (status,) = read_clusters_status(tables)
    assert (status.cluster, status.slots) == ("c", 6)
    assert status.newest_sample_ms == newest.timestamp() * 1000 // 1
    assert all(result.ok for result in check_keys(tables))
    old = json.loads((tmp_path / "report.json").read_text())
    since, until = (int(datetime.fromisoformat(old[name]).timestamp() * 1000) for name in ("since", "until"))
    report(spark, tables.root, since_ms=since, until_ms=until, out=tmp_path / "new.json", form="json")
    new = json.loads((tmp_path / "new.json").read_text())
    for name, rows in old.items():
        if isinstance(rows, list):
            kept = [row.keys() - CHANGED[version] for row in rows]
            assert len(new[name]) == len(rows), name
            for row, before_row, columns in zip(new[name], rows, kept, strict=True):
                assert {c: row[c] for c in columns} == {c: before_row[c] for c in columns}, name

    # Nothing is left to do.
    done = changes(tables)
    prepare_tables(tables)
    assert changes(tables) == done


@pytest.mark.kafka
@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_continues_the_history_of_an_older_koff(
    spark: SparkSession, kafka: KafkaCluster, tmp_path: Path, version: int
) -> None:
    root = unpack(version, tmp_path)
    old, calm = Tables(spark, str(root)), Tables(spark, str(tmp_path / "calm"))
    prepare_tables(old)
    # The records have the day of the rows that the tables have of them. Each step has a time of its own: all
    # records of a group with one time are one change.
    (at_ms,) = old.frame("commits").selectExpr("unix_millis(max(timestamp))").collect()[0]
    create_topics(kafka, version)
    for step in range(3):
        live(kafka, version, step, at_ms=at_ms + step)
    samples = old.frame("samples").count()
    # The topic of this test has another id than that of the old tables, and of their checkpoint.
    spark.sql(f"UPDATE delta.`{old.path('coverage')}` SET topic_id = NULL")
    shutil.rmtree(old.checkpoint_path("c"))
    mine = WatchedCluster("c", ClusterConf(kafka.bootstrap), offsets_topic=name_topics(version)[0])
    for tables in (old, calm):
        with Job([mine], PipelineConf(once=True), lambda _: None) as job:
            prepare_tables(tables)
            job.run(tables)
    for name in ("commits", "groups", "assignments", "quarantine", "current", "group_states"):
        assert read_records(old, name) == read_records(calm, name), name
    assert old.frame("samples").count() == samples + 1


def read_records(tables: Tables, name: str) -> list[str]:
    """The rows of a table without their times: those of brokers differ from time to time."""
    timed = ("timestamp", "day", "recent", "commit_timestamp", "saved", "log_offset")
    return sorted(map(str, tables.frame(name).drop(*timed).collect()))


def test_a_migration_that_was_interrupted_continues(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(spark, str(unpack(2, tmp_path)))
    append, sql = Tables.append_rows, type(spark).sql
    before = spark.read.format("delta").load(tables.path("lag")).count()

    def fail_after_samples(self: Tables, name: str, *args: Any, **more: Any) -> None:
        append(self, name, *args, **more)
        if name == "samples":
            raise KoffError("the power is gone")

    def fail_after_lag(self: SparkSession, query: str, *args: Any, **more: Any) -> Any:
        if "/lag`" in query and "COMMENT" in query:
            raise KoffError("the power is gone")
        return sql(self, query, *args, **more)

    for owner, name, fail in (
        (Tables, "append_rows", fail_after_samples),
        (type(spark), "sql", fail_after_lag),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            with pytest.raises(KoffError, match="the power is gone"):
                prepare_tables(tables)
        assert versions(tables)["lag"] == "2"
    prepare_tables(tables)
    tables.check_tables()
    lag, samples = tables.frame("lag"), tables.frame("samples")
    assert lag.count() == before
    assert samples.count() == samples.select("at").distinct().count() == lag.select("at").distinct().count()


def test_tables_that_an_older_job_writes_are_not_migrated(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(unpack(2, tmp_path)))
    now = datetime.now(UTC)
    row = ("c", 1 << 40, "a job", "another", 1, "nonce", False, now)
    frame = spark.createDataFrame([row], tables.frame("leases").schema)
    tables.append_rows("leases", frame)
    assert socket.gethostname() != "another"
    with pytest.raises(LeaseHeld, match=r"a job on another \(process 1\) writes into .*: stop it first"):
        prepare_tables(tables)
    assert tables.frame("lag").schema["reasons"].dataType.typeName() == "string"


@pytest.mark.spark  # the commands check Java
@pytest.mark.parametrize("command", ["check", "report"])
def test_commands_that_do_not_migrate_say_in_one_line_which_command_does(
    tmp_path: Path, command: str
) -> None:
    root = unpack(2, tmp_path)
    more = ("--out", str(tmp_path / "r.html")) if command == "report" else ()
    done = run_koff("pipeline", command, "--tables", str(root), *more, timeout_s=240)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error")]
    told = (
        "lacks the table lag_hourly: an older koff wrote the tables, or their creation was interrupted; "
        "`koff pipeline run` completes them"
    )
    assert lines == [f"Error: {root} {told}"]

"""`koff pipeline` is killed at some moments and started again: the tables are those of a calm run."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from koff.kafkatest import LocalKafka, wait_until
from koff.spark.job.segments_backfill import backfill_segments
from koff.spark.job.table_checks import check_keys, check_offsets, read_coverage
from koff.spark.tables import maintenance
from koff.spark.tables.schemas import TABLES, Tables
from tests.koff_process import KOFF
from tests.spark.settings import QUICK_COMMAND
from tests.spark.test_exactly_once import DERIVED, rows
from tests.spark.test_source import write
from tests.unit.builders import commit, consumer_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def count_versions(root: Path, *names: str) -> int:
    """How many versions these tables have, in all."""
    return sum(len(list((root / name / "_delta_log").glob("*.json"))) for name in names)


def kill_when(condition: Callable[[], object], what: str, command: str, *args: str) -> None:
    """Starts `koff pipeline COMMAND`, and kills it as soon as the condition holds."""
    process = subprocess.Popen(
        [*KOFF, "pipeline", command, *args, *QUICK_COMMAND],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: condition() or process.poll() is not None, timeout_s=240, what=what, every_s=0.002)
    finally:
        process.kill()
        _, text = process.communicate()
    assert process.returncode == -signal.SIGKILL, f"ended before {what}: {text}"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_backfill_and_a_maintenance_that_are_killed_are_completed_by_the_next(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, path, root = kafka.create_topic(), str(tmp_path / "copy"), tmp_path / "t"
    write(kafka, topic, *(commit(f"g{number % 9}", "t", number % 7, number) for number in range(2_000)))
    write(kafka, topic, *consumer_group("k", epoch=1, assignment_epoch=1, members={"m": (1, 0)}))
    (log,) = Path(str(kafka.folder)).rglob(f"{topic}-0")
    shutil.copytree(log, Path(path) / "__consumer_offsets-0")
    told = ("--segments", path, "--cluster-name", "c", "--tables", str(root))
    kill_when(lambda: count_versions(root, "commits") > 1, "the commits", "backfill", *told)
    kill_when(lambda: count_versions(root, "group_states") > 1, "the states of groups", "backfill", *told)
    before = count_versions(root, "commits")
    kept = ("--tables", str(root), "--keep", "100000d")
    kill_when(lambda: count_versions(root, "commits") > before, "the merged files", "maintain", *kept)

    tables, calm = Tables(spark, str(root)), Tables(spark, str(tmp_path / "calm"))
    for each in (tables, calm):
        each.create_tables()
        backfill_segments(each, path, "c")
    few = {name: TABLES[name] for name in ("commits", "current", "coverage")}  # all would take a minute
    monkeypatch.setattr(maintenance, "TABLES", few)
    assert not any(done.deleted for done in maintenance.maintain_tables(tables))
    committed = [
        row[0] for row in tables.frame("commits").orderBy("log_offset").select("committed").collect()
    ]
    assert committed == [*range(2_000)]
    for name in DERIVED:
        assert rows(tables.frame(name)) == rows(calm.frame(name)), name
    assert all(result.ok for result in check_keys(tables))
    assert check_offsets("c", read_coverage(tables)["c"], "") == check_offsets(
        "c", read_coverage(calm)["c"], ""
    )

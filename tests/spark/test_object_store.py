"""The commands on a real S3 server: the tables there are those of a folder. And what is refused there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.kafkatest import KafkaCluster
from koff.spark.job.cluster_job import PipelineConf
from koff.spark.job.job import Job
from koff.spark.job.segments_backfill import backfill_segments
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.log_store import SINGLE_DRIVER, UnsafeLogStore
from tests.koff_process import run_koff
from tests.object_store import HADOOP_AWS, MISSING, VERSITYGW, ObjectStore, run_object_store
from tests.spark.settings import QUICK_COMMAND
from tests.spark.test_decoding import EVERY
from tests.spark.test_source import write
from tests.unit.builders import commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENTS = str(Path(__file__).parents[1] / "golden" / "segments" / "none.log")
COMPARED = ("records", "groups")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A running S3 server."""
    if VERSITYGW is None:
        pytest.skip(MISSING)
    with run_object_store(tmp_path) as store:
        yield store


def run_command(store: ObjectStore, command: str, *args: str) -> str:
    """Standard error of `koff pipeline COMMAND` with the settings of the server."""
    settings = {**store.settings, "spark.jars.packages": HADOOP_AWS}
    given = [part for name, value in settings.items() for part in ("--spark-conf", f"{name}={value}")]
    done = run_koff("pipeline", command, *args, *QUICK_COMMAND, *given, timeout_s=500)
    assert done.returncode == 0, done.stderr
    return done.stderr


def list_rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


@pytest.mark.timeout(1500)
def test_every_command_makes_on_s3_what_it_makes_in_a_folder(
    spark: SparkSession, kafka: KafkaCluster, store: ObjectStore, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=2)
    write(kafka, topic, *EVERY, *[commit(f"group-{n % 9}", "orders", n % 3, n) for n in range(500)])
    url, brokers = store.url("tables"), ("--brokers", kafka.bootstrap, "--offsets-topic", topic)

    # The folder, by the same functions in this process.
    here = Tables(spark, str(tmp_path / "here"))
    here.create_tables()
    watched = WatchedCluster("log", ClusterConf(kafka.bootstrap), offsets_topic=topic)
    for conf in (PipelineConf(once=True, sample=False), PipelineConf(once=True)):
        with Job([watched], conf) as job:
            job.run(here)
    backfill_segments(here, SEGMENTS, "segments")

    # The server, by the commands.
    run_command(store, "backfill", *brokers, "--cluster-name", "log", "--tables", url)
    run_command(store, "run", "--once", *brokers, "--cluster-name", "log", "--tables", url)
    run_command(store, "backfill", "--segments", SEGMENTS, "--cluster-name", "segments", "--tables", url)
    run_command(store, "maintain", "--tables", url, "--keep", "100000d")
    out = tmp_path / "report.json"
    run_command(store, "report", "--tables", url, "--from", "-1d", "--format", "json", "--out", str(out))

    # The server keeps objects as files, so this session reads them as a folder.
    there = Tables(spark, str(store.folder / "tables"))
    for name in COMPARED:
        assert list_rows(there.frame(name)) == list_rows(here.frame(name)), name
    lag = [t.frame("lag").drop("at", "day", "time_lag_s", "produce_per_s") for t in (there, here)]
    assert list_rows(lag[0]) == list_rows(lag[1])
    assert there.frame("lag").count() > 0
    assert json.loads(out.read_text())["changes_by_group"]


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "oss"])
def test_tables_that_two_processes_could_spoil_are_refused_with_the_cure(
    spark: SparkSession, scheme: str
) -> None:
    with pytest.raises(UnsafeLogStore) as refused:
        Tables(spark, f"{scheme}://bucket/tables").create_tables()
    assert f"set spark.delta.logStore.{scheme}.impl to {SINGLE_DRIVER}" in str(refused.value)

"""On a real Spark cluster: an executor is killed, then the driver, each in the midst of a batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from koff.spark.job.cluster_stream import PipelineConf

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.kafkatest import KafkaCluster, free_ports, reap, spawn, wait_until
from koff.spark.job.job import Job
from koff.spark.tables.schemas import Tables
from tests.koff_process import KOFF
from tests.spark.settings import JAVA, QUICK_COMMAND
from tests.spark.test_parity import busy, golden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DERIVED = ("commits", "groups", "assignments", "quarantine", "current", "group_states")
UNIQUE = {
    "commits": ("offsets_partition", "log_offset"),
    "quarantine": ("offsets_partition", "log_offset"),
    "groups": ("offsets_partition", "log_offset", "group"),
    "current": ("group", "topic", "partition"),
    "group_states": ("offsets_partition", "group"),
}
CAP = 250


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[int]]]:
    """The URL of a Spark master, and the process ids of its two workers, of one core each."""
    folder = tmp_path_factory.mktemp("standalone")
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    home = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_SCALA_VERSION": "2.13"}
    java = ("java", *JAVA.split(), "-Xmx256m", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", jars)
    port = free_ports(1)[0]
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as started:

        def start(name: str, *args: str) -> int:
            log = started.enter_context((folder / f"{args[0]}-{len(os.listdir(folder))}.log").open("wb"))
            process = spawn(
                [*java, name, *args[1:]], stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **home}
            )
            started.callback(reap, process)
            return process.pid

        where = ("--host", "127.0.0.1", "--webui-port", "0")
        start("org.apache.spark.deploy.master.Master", "master", *where, "--port", str(port))
        worker = ("worker", *where, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), url)
        workers = [start("org.apache.spark.deploy.worker.Worker", *worker) for _ in range(2)]
        registered = "Registering worker"
        wait_until(
            lambda: next(folder.glob("master-*.log")).read_text().count(registered) == 2,
            timeout_s=90,
            what="two workers",
        )
        yield url, workers


@pytest.fixture
def topic(kafka: KafkaCluster) -> str:
    """A copy of an offsets topic: groups of every kind, busy ones, and what does not decode."""
    name = kafka.create_topic(partitions=2)
    producer = kafka.producer()
    records = golden()
    records += [record for record, _ in busy(records[-1][2], minutes=2)]
    for number, (home, _, at_ms, key, value) in enumerate(records):
        producer.produce(name, key=key, value=value, partition=home % 2, timestamp=at_ms)
        if number % 100 == 0:
            producer.produce(name, key=b"\x00", value=b"no record", partition=0, timestamp=at_ms)
    assert producer.flush(60) == 0
    return name


@contextmanager
def pipeline(kafka: KafkaCluster, topic: str, tables: str, master: str) -> Iterator[subprocess.Popen[str]]:
    """`koff pipeline run --once`; killed at the end if it did not end."""
    command = [*KOFF, "pipeline", "run", "--brokers", kafka.bootstrap, "--cluster-name", "c"]
    command += ["--offsets-topic", topic, "--tables", tables, "--master", master, "--once"]
    command += ["--max-offsets-per-batch", str(CAP), *QUICK_COMMAND]
    for setting in (
        "spark.executor.memory=512m",
        "spark.sql.shuffle.partitions=2",  # so that both executors write
        "spark.databricks.delta.snapshotPartitions=2",
        "spark.ui.enabled=false",
        f"spark.executor.extraJavaOptions={JAVA}",
    ):
        command += ["--spark-conf", setting]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def in_the_midst(tables: str, process: subprocess.Popen[str], after: int = 0) -> int:
    """Waits until a batch after that one has written commits, and has not ended.

    Batches are counted from 1 here: 0 means none.
    """
    checkpoint, log = Path(tables) / "_checkpoints" / "c", Path(tables) / "commits" / "_delta_log"

    def running() -> int:
        assert process.poll() is None, process.stderr and process.stderr.read()
        begun = {int(each.name) for each in checkpoint.glob("offsets/[0-9]*")}
        ended = {int(each.name) for each in checkpoint.glob("commits/[0-9]*")}
        return max(begun - ended, default=-1) + 1

    while True:
        wait_until(lambda: running() > after, timeout_s=240, what="a batch that runs")  # noqa: B023  # called at once
        batch, before = running(), len(list(log.glob("*.json")))
        wait_until(
            lambda: len(list(log.glob("*.json"))) > before or running() != batch,  # noqa: B023  # called at once
            timeout_s=240,
            what="the first write of the batch",
        )
        if running() == batch:
            return batch
        after = batch  # it has ended already: the next one


def children(parent: int) -> list[int]:
    """The processes that it started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(folder.name))
    return found


def rows(frame: DataFrame) -> list[Any]:
    """What is in a table, in an order of its own; without what depends on samples of ends."""
    kept = [column for column in frame.columns if column != "recent"]
    return sorted(map(str, frame.select(*kept).collect()))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_tables_are_those_of_an_undisturbed_run_after_executor_and_driver_were_killed(
    spark: SparkSession, kafka: KafkaCluster, topic: str, standalone: tuple[str, list[int]], tmp_path: Path
) -> None:
    url, workers = standalone
    disturbed, calm = str(tmp_path / "disturbed"), str(tmp_path / "calm")
    with pipeline(kafka, topic, disturbed, url) as first:
        batch = in_the_midst(disturbed, first)
        executor = wait_until(lambda: children(workers[0]), what="an executor")[0]
        os.kill(executor, signal.SIGKILL)
        in_the_midst(disturbed, first, after=batch)
        first.kill()
    ours, theirs = Tables(spark, disturbed), Tables(spark, calm)
    mine = WatchedCluster("c", ClusterConf(kafka.bootstrap), offsets_topic=topic)
    for tables in (ours, theirs):  # another driver goes on with ours
        with Job([mine], PipelineConf(once=True, max_offsets_per_batch=CAP)) as job:
            tables.create_tables()
            job.run(tables)
    for name in DERIVED:
        assert rows(ours.frame(name)) == rows(theirs.frame(name)), name
    for name, key in UNIQUE.items():
        frame = ours.frame(name)
        assert frame.count() == frame.select(*key).distinct().count() > 0, name

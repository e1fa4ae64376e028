"""On a real Spark cluster with two workers: an executor is killed in the midst of a large batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.kafkatest import KafkaCluster, free_ports, reap, spawn, wait_until
from koff.spark.tables.delta_tables import Tables
from tests.koff_process import KOFF
from tests.spark.settings import JAVA, QUICK_COMMAND
from tests.spark.test_job import assert_sound, children, run_once
from tests.unit.builders import commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 60_000
"""More than the driver reads by itself."""


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
            timeout_s=240,
            what="two workers",
        )
        yield url, workers


@pytest.mark.timeout(900)
def test_a_large_batch_is_written_once_although_an_executor_was_killed(
    spark: SparkSession, kafka: KafkaCluster, standalone: tuple[str, list[int]], tmp_path: Path
) -> None:
    url, workers = standalone
    topic, root = kafka.create_topic(partitions=2), tmp_path / "t"
    producer = kafka.producer()
    for number in range(RECORDS):
        key, value = commit(f"g{number % 99}", "t", number % 7, number)
        producer.produce(topic, value, key, number % 99 % 2)
    assert producer.flush(60) == 0
    command = [*KOFF, "pipeline", "backfill", "--brokers", kafka.bootstrap, "--cluster-name", "c"]
    command += ["--offsets-topic", topic, "--tables", str(root), "--master", url, *QUICK_COMMAND]
    for setting in (
        "spark.executor.memory=512m",
        "spark.ui.enabled=false",
        f"spark.executor.extraJavaOptions={JAVA}",
    ):
        command += ["--spark-conf", setting]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        log = root / "progress" / "_delta_log"
        wait_until(
            lambda: len(list(log.glob("*.json"))) > 1 or process.poll() is not None,
            timeout_s=240,
            what="a plan",
        )
        os.kill(wait_until(lambda: children(workers[0]), timeout_s=60, what="an executor")[0], signal.SIGKILL)
        _, text = process.communicate(timeout=400)
    assert process.returncode == 0, text
    tables = Tables(spark, str(root))
    numbers = tables.frame("records").select("committed").distinct().count()
    assert (tables.frame("records").count(), numbers) == (RECORDS, RECORDS)
    mine = WatchedCluster("c", ClusterConf(kafka.bootstrap), offsets_topic=topic)
    (done,) = run_once(tables, mine)
    assert (done.records, done.sampled) == (0, 99 * 7)
    assert_sound(tables)

"""`koff pipeline run` is killed, paused and started twice: its tables are those of a calm run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.kafkatest import KafkaCluster, wait_until
from koff.spark.tables.delta_tables import Tables
from tests.koff_process import KOFF
from tests.spark.settings import QUICK_COMMAND
from tests.spark.test_job import assert_sound, run_once
from tests.spark.test_source import write
from tests.unit.builders import commit, consumer_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE = "import socket; socket.gethostname = lambda: 'elsewhere'; from koff.cli import main; main()"


class Process:
    """`koff pipeline run` in a group of processes of its own. `elsewhere`: as if on another host."""

    def __init__(self, *args: str, elsewhere: bool = False) -> None:
        command = [sys.executable, "-c", ELSEWHERE] if elsewhere else KOFF
        self._process = subprocess.Popen(
            [*command, "pipeline", "run", *args, "--interval", "1s", *QUICK_COMMAND],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.text = ""
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.text += line

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    def wait(self) -> int:
        code = self._process.wait(240)
        self._reading.join(60)
        return code

    def wait_for_batches(self, count: int) -> None:
        wait_until(
            lambda: self.text.count('"event": "batch"') >= count or self._process.poll() is not None,
            timeout_s=240,
            what="batches",
        )
        assert self._process.poll() is None, self.text

    def close(self) -> None:
        if self._process.poll() is None:
            for number in (signal.SIGCONT, signal.SIGKILL):
                self.signal(number)
        self.wait()
        print(self.text)  # for those who want to know why a test failed
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextmanager
def traffic(kafka: KafkaCluster, topic: str) -> Iterator[None]:
    """Groups commit and change until the end of the block."""
    ended = threading.Event()

    def produce() -> None:
        number = 0
        while not ended.wait(0.1):
            number += 1
            records = [commit(f"g{number % 9}", "t", number % 7, number)]
            if number % 20 == 0:
                name = f"k{number % 9}"
                records += consumer_group(name, epoch=number, assignment_epoch=number, members={"m": (1, 0)})
            write(kafka, topic, *records, partition=number % 9 % 2)  # a group is in one partition

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


def assert_calm(spark: SparkSession, kafka: KafkaCluster, topic: str, root: Path, folder: Path) -> None:
    """Fails unless the tables have what a process writes that nobody disturbs."""
    mine = WatchedCluster("c", ClusterConf(kafka.bootstrap), offsets_topic=topic)
    tables, calm = Tables(spark, str(root)), Tables(spark, str(folder / "calm"))
    run_once(tables, mine)
    run_once(calm, mine)
    for name in ("records", "groups"):
        rows = [sorted(map(repr, each.frame(name).drop("number").collect())) for each in (tables, calm)]
        assert rows[0] == rows[1] != [], name
    assert_sound(tables)


def list_options(kafka: KafkaCluster, topic: str, root: Path) -> list[str]:
    log = ["--brokers", kafka.bootstrap, "--offsets-topic", topic, "--cluster-name", "c"]
    return [*log, "--tables", str(root)]


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(3, marks=pytest.mark.timeout(900)),
        pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_a_job_that_is_killed_at_random_moments_is_completed_by_the_next(
    spark: SparkSession, kafka: KafkaCluster, tmp_path: Path, kills: int
) -> None:
    topic, root, chance = kafka.create_topic(partitions=2), tmp_path / "t", random.Random(kills)
    told = list_options(kafka, topic, root)
    with traffic(kafka, topic):
        for _ in range(kills):
            with closing(Process(*told)) as process:
                process.wait_for_batches(1)
                time.sleep(chance.random() * 3)  # at any moment of a batch
                process.signal(signal.SIGKILL)
    assert_calm(spark, kafka, topic, root, tmp_path)


@pytest.mark.timeout(900)
def test_a_job_that_was_paused_while_another_host_took_over_ends_and_has_written_nothing_more(
    spark: SparkSession, kafka: KafkaCluster, tmp_path: Path
) -> None:
    topic, root = kafka.create_topic(partitions=2), tmp_path / "t"
    told = list_options(kafka, topic, root)
    with traffic(kafka, topic), closing(Process(*told)) as paused:
        paused.wait_for_batches(2)
        paused.signal(signal.SIGSTOP)
        with closing(Process(*told, elsewhere=True)) as other:
            other.wait_for_batches(2)
            assert "another process was writing the cluster: waiting for a sign of it" in other.text
            paused.signal(signal.SIGCONT)
            assert paused.wait() == 1
            assert paused.text.splitlines()[-1].startswith("Error: cluster c: process ")
            assert "on elsewhere writes this cluster (batch " in paused.text
            other.wait_for_batches(other.text.count('"event": "batch"') + 1)
            other.signal(signal.SIGTERM)
            assert other.wait() == 0, other.text
    assert_calm(spark, kafka, topic, root, tmp_path)

"""End offsets and commits of a row of lag are of one moment, however long batches take."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from koff.kafkatest import KafkaCluster, LocalKafka, wait_until
from koff.spark.job.batch_writer import BatchWriter
from koff.spark.tables.schemas import Tables
from tests.clusters import lend_kafka
from tests.kafka_groups import is_committed
from tests.spark.test_job import run_once, running, watched

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STEP = 5
"""The group commits after each so many records: its true lag is never larger."""
SLOW = 20 * STEP
"""So many records are produced while a batch is written."""
LIMIT_S = 25.0


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with lend_kafka(config={"offsets.topic.num.partitions": "2"}) as kafka:
        yield kafka


class SteadyGroup:
    """Produces and commits, without a pause, until it is stopped. Knows when it committed what."""

    def __init__(self, kafka: KafkaCluster, name: str) -> None:
        self.name, self.topic = name, kafka.create_topic()
        self.produced = 0
        self._times_s, self._commits = [0.0], [0]
        self._producer, self._consumer = kafka.producer(), kafka.consumer(name)
        self._stopping = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                for _ in range(STEP):
                    self._producer.produce(self.topic, b"x", partition=0)
                assert self._producer.flush(60) == 0
                self.produced += STEP
                at = [TopicPartition(self.topic, 0, self.produced)]
                wait_until(lambda: is_committed(self._consumer, offsets=at), what="a commit")  # noqa: B023  # called at once
                self._commits.append(self.produced)
                self._times_s.append(time.time())
        except BaseException as error:
            self._error = error

    def wait_for_more(self, records: int) -> None:
        goal = self.produced + records
        wait_until(lambda: self.produced >= goal or self._error, timeout_s=120, what="more records")
        assert self._error is None, self._error

    def assert_true(self, row: Any) -> None:
        """The row's commit was the newest at some time from its sample up to the limit."""
        at_s = row.at.timestamp()
        assert row.committed >= self._commits[bisect_right(self._times_s, at_s) - 1]
        assert self._times_s[self._commits.index(row.committed)] <= at_s + LIMIT_S
        assert row.lag == row.end_offset - row.committed
        assert row.lag <= STEP

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            self.wait_for_more(STEP)
            yield
        finally:
            self._stopping.set()
            thread.join(120)
            self._consumer.close()
        assert self._error is None, self._error


@pytest.fixture
def group(broker: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SteadyGroup]:
    """A group that keeps up, while each batch is slow."""
    steady = SteadyGroup(broker, f"steady-{tmp_path.name}")
    write = BatchWriter.write

    def write_slowly(*given: Any) -> Any:
        written = write(*given)
        steady.wait_for_more(SLOW)
        return written

    monkeypatch.setattr(BatchWriter, "write", write_slowly)
    with steady.running():
        yield steady


def read_lags(tables: Tables, group: SteadyGroup) -> list[Any]:
    return tables.frame("lag").where(f"`group` = '{group.name}'").orderBy("at").collect()


def test_a_group_that_keeps_up_has_no_lag_of_a_batchs_length_also_after_a_batch_that_was_interrupted(
    spark: SparkSession,
    broker: LocalKafka,
    group: SteadyGroup,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    with running(tables, watched(broker)) as job:
        job.wait_until(lambda: len(read_lags(tables, group)) >= 2, "two samples")
        # A batch ends in an error after its records are in the tables. The sample before it is lost with the
        # process, and the batch is repeated when its end is long ago.
        with monkeypatch.context() as patch:
            patch.setattr("koff.spark.job.samples.BatchWriter.write_sample", lambda *_: 1 / 0)
            wait_until(lambda: job.job.errors, timeout_s=120, what="the error of a batch")
    before = len(read_lags(tables, group))
    group.wait_for_more(SLOW)
    with running(tables, watched(broker)) as job:
        job.wait_until(lambda: len(read_lags(tables, group)) >= before + 2, "two samples more")
    for row in read_lags(tables, group):
        group.assert_true(row)


def test_a_run_that_ends_has_a_sample_of_the_moment_when_the_log_was_read(
    spark: SparkSession, broker: LocalKafka, group: SteadyGroup, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    done = run_once(tables, broker)
    (row,) = read_lags(tables, group)
    group.assert_true(row)
    assert [each.sampled is None for each in done][-2:] == [True, False]

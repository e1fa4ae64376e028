"""A real Kafka loses records that the pipeline has read: the job says so, and no old lag looks current."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from koff.kafkatest import KafkaCluster, LocalKafka, wait_until
from koff.spark.rows.decoding import DataLost
from koff.spark.tables.delta_tables import Tables
from tests.clusters import lend_kafka
from tests.kafka_groups import produce
from tests.spark.test_job import commit, committed, lags, newest_lag, run_once, running, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]


class Broker:
    """A broker whose offsets topic can go back to an earlier state, as if an old disk had come back."""

    def __init__(self, kafka: LocalKafka, folder: Path) -> None:
        self.kafka = kafka
        (self._node,) = kafka.nodes
        self._log, self._copy = self._node.data / "__consumer_offsets-0", folder / "copy"

    def save(self) -> None:
        """Keeps a copy of the log as it is now."""
        self._node.stop()
        shutil.copytree(self._log, self._copy)
        self._start()

    def lose_newer_records(self) -> None:
        """Puts the copy in place of the log."""
        self._node.kill()
        shutil.rmtree(self._log)
        shutil.copytree(self._copy, self._log)
        self._start()

    def _start(self) -> None:
        self._node.start()
        self.kafka.wait_until_up()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with lend_kafka(config={"offsets.topic.num.partitions": "1"}) as kafka:
        yield Broker(kafka, tmp_path)


def test_a_cluster_that_lost_records_goes_down_with_unknown_lag_and_the_others_go_on(
    spark: SparkSession, kafka: KafkaCluster, broker: Broker, tmp_path: Path
) -> None:
    tables, mine = Tables(spark, str(tmp_path / "t")), broker.kafka
    topic, elsewhere = mine.create_topic(), kafka.create_topic()
    produce(mine, topic, 10)
    produce(kafka, elsewhere, 10)
    commit(mine, "g", topic, 0, 1)
    broker.save()
    for offset in (2, 3, 4):
        commit(mine, "g", topic, 0, offset)
    commit(kafka, "h", elsewhere, 0, 5)
    with running(tables, watched(mine, "c"), watched(kafka, "other")) as job:
        job.wait_until(lambda: ("c", 4) in lags(tables, topic), "the lag")
        broker.lose_newer_records()
        wait_until(lambda: "c" in job.job.errors, timeout_s=300, what="the error of the cluster")
        error = job.job.errors["c"]
        assert isinstance(error, DataLost)
        assert str(error).startswith("cluster c: partition 0 of __consumer_offsets ")
        assert "truncated" in str(error)
        assert "\n" not in str(error)

        # The stream of the other cluster goes on.
        commit(kafka, "h", elsewhere, 0, 6)
        job.wait_until(lambda: ("other", 6) in lags(tables, elsewhere), "the lag of the other cluster")
        assert list(job.job.errors) == ["c"]
    assert {(row.end_offset, row.lag) for row in newest_lag(tables).values()} == {(None, None)}
    assert committed(tables, "g") == [1, 2, 3, 4]


def test_a_log_that_lost_records_and_is_longer_again_is_not_read_from_its_middle(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    tables, mine = Tables(spark, str(tmp_path / "t")), broker.kafka
    topic = mine.create_topic()
    produce(mine, topic, 10)
    commit(mine, "g", topic, 0, 1)
    broker.save()
    for offset in (2, 3, 4):
        commit(mine, "g", topic, 0, offset)
    run_once(tables, watched(mine))
    broker.lose_newer_records()
    for offset in range(5, 10):
        commit(mine, "g", topic, 0, offset)
    samples = count_samples(tables)
    told = (
        "^cluster c: partition 0 of __consumer_offsets was truncated: .*; read it under another name of the"
    )
    for _ in range(2):
        with pytest.raises(DataLost, match=told):
            run_once(tables, watched(mine))
    assert committed(tables, "g") == [1, 2, 3, 4]
    assert {row.lag for row in newest_lag(tables).values()} == {None}
    assert count_samples(tables) == samples + 2


def count_samples(tables: Tables) -> int:
    return tables.frame("lag").select("number").distinct().count()

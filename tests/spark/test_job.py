"""The job on a real Kafka: what groups did stands in the tables, once, whatever happened on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from koff.client import ClusterConf
from koff.clusters import Watched
from koff.kafkatest import LocalKafka, wait_until
from koff.spark.job import Job
from koff.spark.stream import PipelineConf, Progress
from koff.spark.tables import Tables
from tests.kafka_groups import member, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with LocalKafka(config={"offsets.topic.num.partitions": "4"}) as kafka:
        yield kafka


def commit(kafka: LocalKafka, group: str, topic: str, partition: int, offset: int) -> None:
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])

    def committed() -> bool:
        answer = kafka.admin.alter_consumer_group_offsets([request], request_timeout=3)[group]
        try:
            return not any(at.error for at in answer.result(10).topic_partitions)
        except Exception:
            return False

    wait_until(committed, timeout_s=30, what=f"the commit of {group}")


def watched(kafka: LocalKafka, name: str = "c") -> Watched:
    return Watched(name, ClusterConf(kafka.bootstrap))


def run_once(tables: Tables, kafka: LocalKafka, **conf: object) -> list[Progress]:
    done: list[Progress] = []
    with Job([watched(kafka)], PipelineConf(once=True, interval_s=0.5, **conf), done.append) as job:
        tables.create()
        job.run(tables)
    return done


@contextmanager
def running(tables: Tables, kafka: LocalKafka) -> Iterator[list[Progress]]:
    done: list[Progress] = []
    with Job([watched(kafka)], PipelineConf(interval_s=0.5), done.append) as job:
        tables.create()
        thread = threading.Thread(target=job.run, args=(tables,))
        thread.start()
        try:
            yield done
        finally:
            job.stop()
            thread.join(60)
            assert not thread.is_alive()


def test_commits_members_and_lag_stand_in_the_tables(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    topic = broker.create_topic(partitions=2)
    produce(broker, topic, 10)
    commit(broker, "simple", topic, 0, 3)
    tables = Tables(spark, str(tmp_path / "t"))
    with member(broker, "classic", topic, client_id="me"):
        run_once(tables, broker)
    current = {(r["group"], r.partition): r.committed for r in tables.frame("current").collect()}
    assert current["simple", 0] == 3
    rows = {(r["group"], r.topic, r.partition): r for r in tables.frame("lag").collect()}
    print(*rows.values(), sep="\n")
    print(*tables.frame("groups").collect(), sep="\n")
    print(*tables.frame("assignments").collect(), sep="\n")
    row = rows["simple", topic, 0]
    assert row.lag == row.end_offset - 3
    assert rows["classic", topic, 0].client_id == "me"

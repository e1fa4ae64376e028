"""Share groups of a real Kafka in the tables: the numbers of `koff lag` and of Kafka's own tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.kafkatest import LocalKafka
from koff.spark.job.cluster_job import PipelineConf
from koff.spark.job.job import Job
from koff.spark.tables.delta_tables import Tables
from tests.clusters import lend_kafka
from tests.integration.test_share_groups import kafkas_lags, share_and_fall_behind
from tests.koff_process import run_koff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """A share group that is behind, in a cluster with few offsets partitions."""
    with lend_kafka(config={"offsets.topic.num.partitions": "4"}) as kafka:
        topic = kafka.create_topic("jobs", partitions=2)
        share_and_fall_behind(kafka, topic)
        yield kafka


def test_the_table_has_the_lag_of_a_share_group_at_rest(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    watched = WatchedCluster("c", ClusterConf(kafka.bootstrap))
    with Job([watched], PipelineConf(once=True, interval_s=0.5), lambda _: None) as job:
        tables.create_tables()
        job.run(tables)
    result = run_koff("lag", "--brokers", kafka.bootstrap, "--group", "^workers$", "--format", "json")
    served = {
        (row["topic"], row["partition"]): (row["lag"], row["committed"], row["end"], row["readable"])
        for row in json.loads(result.stdout)["partitions"]
    }
    rows = tables.frame("lag").where("`group` = 'workers'").orderBy("at").collect()
    written = {
        (row.topic, row.partition): (row.lag, row.committed, row.end_offset, row.readable) for row in rows
    }
    assert written == served
    assert {at: lag for at, (lag, *_) in written.items()} == kafkas_lags(kafka)
    assert {(row.type, *row.reasons) for row in rows} == {("share",)}

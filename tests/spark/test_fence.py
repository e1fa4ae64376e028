"""Every change of a table by a job is a transaction of its lease, so that a late job cannot make it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.kafkatest import KafkaCluster
from koff.spark.job import cluster_samples, cluster_stream
from koff.spark.job.cluster_stream import PipelineConf, Progress
from koff.spark.job.end_curves import EndCurves
from koff.spark.job.hourly_lag import HourlyLag
from koff.spark.job.job import Job
from koff.spark.tables import maintenance
from koff.spark.tables.hours import HOUR
from koff.spark.tables.maintenance import MaintainConf
from koff.spark.tables.schemas import TABLES, Tables
from tests.spark.test_parity import golden
from tests.unit.builders import commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FENCED = sorted(TABLES.keys() - {"leases"})


@pytest.fixture(scope="module")
def written(spark: SparkSession, kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Tables that a job has written in a few batches, with curves, an hour of lag, and expired rows."""
    tables = Tables(spark, str(tmp_path_factory.mktemp("fence") / "t"))
    topic = kafka.create_topic()
    producer = kafka.producer()
    for *_, at_ms, key, value in sorted(golden(), key=lambda record: record[2]):
        # Long ago, so that maintenance deletes rows.
        producer.produce(topic, key=key, value=value, timestamp=at_ms - 400 * 86_400_000)
    key, value = commit("g", topic, 0, 1)  # a topic that exists
    producer.produce(topic, key=key, value=value, timestamp=1_700_000_000_000)
    producer.produce(topic, key=b"\x00", value=b"no record")
    assert producer.flush(60) == 0
    samples = 0

    def stop_after_three_samples(done: Progress) -> None:
        nonlocal samples
        samples += done.sampled is not None
        if samples == 3:
            job.stop()

    write_ended = HourlyLag.write_ended
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_samples, "EndCurves", partial(EndCurves, fold_s=0))
        patch.setattr(HourlyLag, "write_ended", lambda hourly, of, now: write_ended(hourly, of, now + HOUR))
        patch.setattr(cluster_stream, "FIRST_MAINTENANCE_S", 0.0)
        patch.setattr(maintenance, "TABLES", {"commits": TABLES["commits"]})
        conf = PipelineConf(interval_s=0.5, maintain=MaintainConf({"commits": 1}, vacuum=False))
        mine = WatchedCluster("c", ClusterConf(kafka.bootstrap), offsets_topic=topic)
        with Job([mine], conf, stop_after_three_samples) as job:
            tables.create_tables()
            job.run(tables)
    return tables


def list_changes(tables: Tables, name: str) -> list[list[dict[str, Any]]]:
    """By commit of Delta: its actions, if it adds or removes rows."""
    log = sorted(Path(tables.path(name)).glob("_delta_log/*.json"))
    commits = [[json.loads(line) for line in each.read_text().splitlines()] for each in log]
    return [commit for commit in commits if any(_is_change(action) for action in commit)]


def _is_change(action: dict[str, Any]) -> bool:
    return any(action.get(kind, {}).get("dataChange") for kind in ("add", "remove"))


@pytest.mark.parametrize("name", FENCED)
def test_every_change_of_a_table_is_a_transaction_of_the_lease(written: Tables, name: str) -> None:
    changes = list_changes(written, name)
    assert changes, f"the job did not write {name}"
    for actions in changes:
        apps = {action["txn"]["appId"] for action in actions if "txn" in action}
        assert apps == {"koff c"}, [action["commitInfo"] for action in actions if "commitInfo" in action]


def test_rows_that_expired_were_deleted(written: Tables) -> None:
    assert written.frame("commits").isEmpty()

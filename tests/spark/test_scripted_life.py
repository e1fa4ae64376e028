"""Dozens of real groups of every kind live a life; of it the pipeline's tables say what the daemon says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from koff.client import ClusterConf
from koff.client.cluster import Cluster
from koff.kafkatest import LocalKafka
from koff.records.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from koff.spark.job import share_lags
from koff.spark.job.end_offsets import Sample
from koff.spark.tables.schemas import Tables
from koff.tail.reader import TailReader, TailReaderConf
from tests import scripted_changes as changes
from tests import scripted_life as life
from tests.kafka_groups import produce
from tests.kafka_tools import Workbench
from tests.spark.parity import (
    OF_STATE,
    Facts,
    Record,
    differences,
    logged_commits,
    sampled_ms,
    tracked,
    tracked_lags,
    written_commits,
    written_lags,
)
from tests.spark.test_job import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1200)]
Step = Callable[[life.Life], None]


def a_group_keeps_up(lived: life.Life) -> None:
    """And is not there when more comes: how old its lag is then, samples tell."""
    for offset in (9, 12, 15):
        lived.commit("kept-up", *(("orders", partition, offset) for partition in range(3)))


def more_is_produced(lived: life.Life) -> None:
    for topic in ("orders", "clicks"):
        produce(lived.kafka, topic, 6, partition=1)


def slow_groups_commit(lived: life.Life, offset: int) -> None:
    """From point to point, one the same all the time, one less than is produced."""
    lived.commit("stalled", ("orders", 1, 3))
    lived.commit("falls-behind", ("orders", 1, offset))


BESIDES: Mapping[Step, Step] = {
    life.members_commit_while_lag_grows: a_group_keeps_up,
    changes.offsets_are_reset: more_is_produced,
}
"""What happens after some steps besides, so that there are lags to time."""
CAPS: Mapping[Step, int] = {
    life.groups_rebalance: 10_000,
    changes.a_transaction_is_left_open: 100,
    changes.a_topic_is_deleted: 10_000,
    changes.STEPS[-1]: 10_000,
}
"""After which steps the pipeline reads on, and how many offsets a batch takes at most."""
SLOW: Mapping[Step, int] = {
    life.simple_groups_commit: 0,
    life.groups_rebalance: 1,
    changes.a_transaction_is_left_open: 1,
    changes.a_topic_is_deleted: 2,
}
"""After which steps slow groups commit, and what: some of it before the first sample, most behind one."""
POINTS = [step.__name__ for step in CAPS]
ASPECTS = [*OF_STATE, "records", "lag"]


class Comparison:
    """Lives the life, and keeps how the two differed at its points, and what the daemon said there."""

    def __init__(self, kafka: LocalKafka, workbench: Workbench, tables: Tables) -> None:
        self.found: dict[tuple[str, str], list[str]] = {}
        self.daemons: dict[tuple[str, str], Facts] = {}
        self.batches = 0
        self._kafka, self._tables = kafka, tables
        self._life = life.Life(kafka, workbench)

    def live(self) -> None:
        for step in changes.STEPS:
            step(self._life)
            if step in BESIDES:
                BESIDES[step](self._life)
            if step in CAPS:
                self._compare(step)
            if step in SLOW:
                slow_groups_commit(self._life, SLOW[step])

    def close(self) -> None:
        self._life.close()

    def _compare(self, step: Step) -> None:
        # A row that holds has the rates of its own sample: each sample is a full one here.
        done = run_once(self._tables, self._kafka, max_offsets_per_batch=CAPS[step], full_lag_s=0.0)
        assert done[-1].sampled, done
        self.batches += sum(each.records > 0 for each in done)
        records, samples = self._read(done[-1].batch), self._samples()
        at_ms = sampled_ms(samples[-1])
        shares = self._read_all(SHARE_STATE_TOPIC)
        tracker = tracked(records, samples, shares, life.OFFSETS_PARTITIONS)
        snapshot = tracker.take_snapshot(at_ms)
        said = {
            what: (daemons(snapshot), pipelines(self._tables))
            for what, (daemons, pipelines) in OF_STATE.items()
        }
        said["records"] = logged_commits(records), written_commits(self._tables)
        said["lag"] = tracked_lags(snapshot), written_lags(self._tables, at_ms)
        for what, (daemons, pipelines) in said.items():
            self.daemons[step.__name__, what] = daemons
            self.found[step.__name__, what] = differences(daemons, pipelines)

    def _read(self, batch: int) -> list[Record]:
        """The log, as the daemon reads it, up to where that batch ended by what Spark wrote down."""
        offsets = Path(self._tables.checkpoint_path("c")) / "offsets" / str(batch)
        ends = json.loads(offsets.read_text().splitlines()[2])
        records = self._read_all(OFFSETS_TOPIC)
        return [record for record in records if record[1] < ends[str(record[0])]]

    def _read_all(self, topic: str) -> list[Record]:
        records: list[Record] = []
        connection = Cluster(ClusterConf(self._kafka.bootstrap))
        with connection as cluster, TailReader(cluster.connect(), TailReaderConf(topic)) as reader:
            while not reader.caught_up:
                for run in reader.poll(0.2).runs:
                    records += run
        return records

    def _samples(self) -> list[Sample]:
        frame = self._tables.frame("end_offsets").withColumn("at", f.unix_millis("at")).orderBy("at")
        rows = frame.select(*Sample._fields).collect()
        return [Sample(datetime.fromtimestamp(at_ms / 1000, UTC), *values) for at_ms, *values in rows]


@pytest.fixture(scope="module")
def comparison(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    tables = Tables(spark, str(tmp_path_factory.mktemp("scripted-life") / "t"))
    with (
        LocalKafka(config=life.CONFIG) as kafka,
        Workbench(kafka) as workbench,
        pytest.MonkeyPatch.context() as patch,
    ):
        # On a busy machine, a coordinator may take longer than a sample waits for it.
        patch.setattr(share_lags, "DEADLINE_S", 120.0)
        patch.setattr(share_lags, "PATIENCE_S", 60.0)
        comparison = Comparison(kafka, workbench, tables)
        try:
            comparison.live()
            yield comparison
        finally:
            comparison.close()


@pytest.mark.parametrize("what", ASPECTS)
@pytest.mark.parametrize("point", POINTS)
def test_the_tables_say_what_the_daemon_says_after(comparison: Comparison, point: str, what: str) -> None:
    found = comparison.found[point, what]
    assert not found, "\n".join([f"{len(found)} differences", *found])


def test_these_are_dozens_of_groups_of_every_kind_with_every_sort_of_lag(comparison: Comparison) -> None:
    """So that what is compared is not nothing."""
    facts = [item for said in comparison.daemons.values() for item in said.items()]

    def told(what: str) -> set[object]:
        return {value for at, value in facts if at[-1] == what}

    assert told("type") == {"simple", "classic", "consumer", "share", "streams"}
    assert told("state") == {"Empty", "Stable"}
    assert told("status") >= {"OK", "UNKNOWN"}
    # Whether members still have partitions of a topic that was deleted is a matter of moments.
    assert told("reasons") >= {(), ("no_commit",), ("ahead_of_log",), ("below_log_start",)}
    groups = {at[0] for at in comparison.daemons[POINTS[0], "groups"]}
    assert len(groups) >= 36
    timed = [value for at, value in facts if at[-1] == "time_lag_s" and value is not None and value != 0]
    assert len(timed) >= 3
    assert comparison.batches > len(POINTS)
    shared = {at[:3] for at, value in facts if at[-1] == "type" and value == "share"}
    of_shares = {at[-1] for at, value in facts if at[:3] in shared and value is not None}
    assert of_shares >= {"lag", "committed", "end_offset", "readable"}

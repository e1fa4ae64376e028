"""The tables stay right after any sequence of commands: run, backfill, a kill, a checkpoint that is lost."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.errors import KoffError
from koff.kafkatest import KafkaCluster
from koff.spark.job import batch_writer
from koff.spark.job.batch_writer import BatchWriter
from koff.spark.job.cluster_stream import PipelineConf
from koff.spark.job.job import Job
from koff.spark.job.segments_backfill import backfill_segments
from koff.spark.job.table_checks import CheckResult, check_offsets, read_coverage
from koff.spark.tables.coverage import Coverage
from koff.spark.tables.schemas import Tables
from tests.kafka_groups import produce
from tests.spark.test_exactly_once import DERIVED, rows
from tests.spark.test_source import write
from tests.unit.builders import commit, consumer_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Life:
    """A copy of an offsets topic with one partition, the tables of its history, and the commands."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        self.topic = kafka.create_topic()
        self.orders = kafka.create_topic()
        produce(kafka, self.orders, 50)
        self.tables = Tables(spark, str(folder / "t"))
        self.committed = 0

    def commit(self, count: int = 5) -> None:
        """Writes so many commits, the next offset in each."""
        numbers = range(self.committed, self.committed + count)
        write(self.kafka, self.topic, *(commit(f"g{n % 3}", self.orders, 0, n) for n in numbers))
        # A group whose members are in records of their own: who reads only the last records sees no members.
        members = {"m1": (1, 0), "m2": (1, 0)}
        records = consumer_group("k", epoch=numbers.stop, assignment_epoch=numbers.stop, members=members)
        write(self.kafka, self.topic, *(records if self.committed == 0 else records[:2]))
        self.committed += count

    def run(self, tables: Tables | None = None, **conf: Any) -> None:
        """`run --once`."""
        tables = tables or self.tables
        mine = WatchedCluster("c", ClusterConf(self.kafka.bootstrap), offsets_topic=self.topic)
        with Job([mine], PipelineConf(once=True, **conf), lambda _: None) as job:
            tables.create_tables()
            job.run(tables)

    def backfill_segments(self) -> None:
        """`backfill --segments` of a copy of the log as it is now."""
        (log,) = Path(str(self.kafka.folder)).rglob(f"{self.topic}-0")  # type: ignore[attr-defined]  # LocalKafka has it
        copy = self.folder / f"copy-{self.committed}" / "__consumer_offsets-0"
        shutil.copytree(log, copy, dirs_exist_ok=True)
        self.tables.create_tables()
        backfill_segments(self.tables, str(copy.parent), "c")

    def lose_checkpoint(self) -> None:
        """Deletes how far the cluster was read."""
        shutil.rmtree(self.tables.checkpoint_path("c"))

    def interrupt(self, step: str, monkeypatch: pytest.MonkeyPatch, *, segments: bool = False) -> None:
        """A run, or a backfill of segments, that fails at this step of `BatchWriter`."""

        def fail(*_: object, **__: object) -> None:
            raise KoffError("the power is gone")

        command = self.backfill_segments if segments else self.run
        with monkeypatch.context() as patch:
            owner: object = batch_writer if step == "merge_commits" else BatchWriter
            patch.setattr(owner, step, fail)
            with pytest.raises(KoffError, match="the power is gone"):
                command()

    def check_all(self) -> None:
        """The tables have the same rows as those of one undisturbed run."""
        calm = Tables(self.tables.spark, str(self.folder / f"calm-{len(list(self.folder.iterdir()))}"))
        self.run(calm, sample=False)
        for name in DERIVED:
            assert rows(self.tables.frame(name)) == rows(calm.frame(name)), name

    def check_offsets(self) -> CheckResult:
        """The result of `koff pipeline check` for the offsets of the topic."""
        return check_offsets("c", read_coverage(self.tables)["c"], "")

    def check_commits(self) -> None:
        """Every commit is in the tables, once."""
        rows = self.tables.cluster_frame("commits", "c").select("committed").collect()
        assert Counter(row[0] for row in rows) == Counter(range(self.committed))


@pytest.fixture
def life(spark: SparkSession, kafka: KafkaCluster, tmp_path: Path) -> Life:
    return Life(spark, kafka, tmp_path)


def count_rows(tables: Tables, name: str, *key: str) -> tuple[int, int]:
    """How many rows a table has, and how many of them are distinct by that key."""
    frame = tables.cluster_frame(name, "c")
    return frame.count(), frame.select(*key).distinct().count()


def test_a_gap_that_segments_filled_is_not_read_from_kafka_again(life: Life) -> None:
    life.commit()
    life.run()
    life.commit()
    life.backfill_segments()
    life.commit()
    life.run(sample=False)
    life.check_commits()


def test_a_batch_that_was_interrupted_is_completed_also_without_its_checkpoint(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.commit()
    life.run(sample=False)
    life.commit()
    life.interrupt("merge_commits", monkeypatch)  # after the commits
    life.lose_checkpoint()
    life.interrupt("write_sample", monkeypatch)  # after all but the sample
    life.commit()
    life.run(sample=False)
    life.check_commits()
    life.check_all()


def test_a_batch_is_complete_also_if_the_process_was_killed_before_it_recorded_that(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.commit()
    with monkeypatch.context() as patch:
        patch.setattr(Coverage, "flush", lambda _: None)
        life.run(sample=False)
    assert not life.check_offsets().ok
    life.run(sample=False)
    assert life.check_offsets().ok
    life.check_commits()


def test_records_that_kafka_removed_after_an_interruption_count_all_the_same(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.commit()
    life.run(sample=False)
    write(life.kafka, life.topic, commit("g0", life.orders, 0, None), commit("g1", life.orders, 0, 40))
    life.interrupt("merge_commits", monkeypatch)  # after the commits
    (removed,) = life.kafka.admin.delete_records([TopicPartition(life.topic, 0, -1)]).values()
    removed.result(60)
    life.run(sample=False, fail_on_data_loss=False)
    current = life.tables.cluster_frame("current", "c").select("group", "committed", "deleted").collect()
    assert sorted(map(tuple, current)) == [("g0", None, True), ("g1", 40, False), ("g2", 2, False)]


def test_segments_that_were_interrupted_are_completed_from_kafka(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.commit()
    life.run(sample=False)
    life.commit()
    life.interrupt("_merge_states", monkeypatch, segments=True)
    life.commit()
    life.run(sample=False)
    life.check_all()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
def test_a_random_life_ends_with_the_tables_of_a_calm_one(
    life: Life, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    steps = ("_append_new", "merge_commits", "_write_groups", "_merge_states", "write_sample", "write_lag")
    commands: list[Callable[[], None]] = [
        life.run,
        partial(life.run, sample=False),
        life.backfill_segments,
        lambda: life.interrupt(chance.choice(steps), monkeypatch),
        lambda: life.interrupt(chance.choice(steps[1:4]), monkeypatch, segments=True),
        life.lose_checkpoint,
    ]
    life.commit()
    life.run()
    for _ in range(10):
        life.commit(chance.randint(1, 4))
        command = chance.choice(commands)
        if command != life.lose_checkpoint or Path(life.tables.checkpoint_path("c")).exists():
            command()
    life.run()
    life.check_commits()
    life.check_all()
    for name, key in (("lag", ("at", "group", "topic", "partition")), ("end_offsets", ("at", "topic"))):
        every, distinct = count_rows(life.tables, name, *key)
        assert every == distinct


def test_after_a_lost_checkpoint_a_sample_and_its_lag_are_taken_anew(life: Life) -> None:
    life.commit()
    life.run()
    life.lose_checkpoint()
    life.commit()
    life.run()
    life.check_commits()
    for name, key in (("end_offsets", ("topic", "partition")), ("lag", ("group", "topic", "partition"))):
        every, distinct = count_rows(life.tables, name, "at", *key)
        assert every == distinct > 0, name
        assert life.tables.cluster_frame(name, "c").select("at").distinct().count() == 2, name
    lag = life.tables.cluster_frame("lag", "c")
    newest = lag.where("committed IS NOT NULL").orderBy("at", ascending=False).limit(3).collect()
    assert sorted(row.committed for row in newest) == [7, 8, 9]

"""The job on a real Kafka: what groups did stands in the tables, once, whatever happened on the way."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from koff.spark.job.batch_progress import ProgressCounter
from koff.spark.job.cluster_stream import PipelineConf, Progress
from pyspark.sql import functions as f

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.errors import KoffError
from koff.kafkatest import KafkaCluster, LocalKafka, wait_until
from koff.spark.job import cluster_stream
from koff.spark.job.job import Job
from koff.spark.job.segments_backfill import backfill_segments
from koff.spark.job.table_server import serve_tables
from koff.spark.rows.decoding import DataLost
from koff.spark.tables import maintenance
from koff.spark.tables.schemas import TABLES, Tables
from tests.clusters import lend_kafka
from tests.kafka_groups import member, produce
from tests.spark.test_exactly_once import children
from tests.spark.test_source import write
from tests.unit.builders import commit as commit_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with lend_kafka(config={"offsets.topic.num.partitions": "4"}) as kafka:
        yield kafka


def commit(kafka: KafkaCluster, group: str, topic: str, partition: int, offset: int) -> None:
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])

    def committed() -> bool:
        answer = kafka.admin.alter_consumer_group_offsets([request], request_timeout=3)[group]
        try:
            return not any(at.error for at in answer.result(60).topic_partitions)
        except Exception:
            kafka.__dict__.pop("admin", None)  # it may have forgotten all brokers: librdkafka issue 5301
            return False

    wait_until(committed, what=f"the commit of {group}")


def watched(kafka: KafkaCluster, name: str = "c") -> WatchedCluster:
    return WatchedCluster(name, ClusterConf(kafka.bootstrap))


def run_once(tables: Tables, kafka: LocalKafka, **conf: Any) -> list[Progress]:
    done: list[Progress] = []
    with Job([watched(kafka)], PipelineConf(once=True, interval_s=0.5, **conf), done.append) as job:
        tables.create_tables()
        job.run(tables)
    return done


class RunningJob:
    """A job in a thread of its own, to be waited for batch by batch. `url` is where it serves, if it does."""

    def __init__(self, clusters: Sequence[WatchedCluster]) -> None:
        self.job = Job(clusters, PipelineConf(interval_s=0.5), self._note_batch)
        self.url = ""
        self._changed = threading.Condition()
        self._batches, self._ended = 0, False

    def run(self, tables: Tables) -> None:
        try:
            self.job.run(tables)
        finally:
            self._note_batch(ended=True)

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Returns when the condition holds. Looks once after each batch: to look takes as long as a batch."""
        deadline = time.monotonic() + 250
        while True:
            with self._changed:
                batches, ended = self._batches, self._ended
            if condition():
                return
            if ended or time.monotonic() > deadline:
                raise TimeoutError(f"waited for {what}: {batches} batches, the job has ended: {ended}")
            with self._changed:
                self._changed.wait_for(
                    partial(self._has_more, batches), max(0.0, deadline - time.monotonic())
                )

    def _has_more(self, batches: int) -> bool:
        return self._batches > batches

    def _note_batch(self, _: Progress | None = None, *, ended: bool = False) -> None:
        with self._changed:
            self._batches += 1
            self._ended = ended
            self._changed.notify_all()


@contextmanager
def running(tables: Tables, *clusters: WatchedCluster, listen: str = "") -> Iterator[RunningJob]:
    """A job until the end of the block."""
    waited = RunningJob(clusters)
    with waited.job as job:
        tables.create_tables()
        thread = threading.Thread(target=waited.run, args=(tables,))
        with serve_tables(listen, job, tables) as server:
            waited.url = server.url if server else ""
            thread.start()
            try:
                yield waited
            finally:
                job.stop()
                thread.join(60)
                assert not thread.is_alive()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def is_ready(url: str) -> bool:
    try:
        return get(f"{url}/readyz") == "ready\n"
    except urllib.error.HTTPError as failure:
        failure.close()
        return False


def committed(tables: Tables, group: str) -> list[int]:
    """What it committed, in the order of the log."""
    rows = tables.cluster_frame("commits", "c").where(f.col("group") == group).orderBy("log_offset")
    return [row.committed for row in rows.collect()]


def newest_lag(tables: Tables, group: str) -> int | None:
    rows = tables.cluster_frame("lag", "c").where(f.col("group") == group).orderBy(f.col("at").desc())
    row = rows.first()
    return None if row is None else int(row.lag)


def unique(tables: Tables, name: str, *key: str) -> bool:
    frame = tables.frame(name)
    return frame.count() == frame.select(*key).distinct().count() > 0


@pytest.mark.timeout(600)
def test_a_job_makes_tables_and_metrics_and_goes_on_where_it_was_stopped(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.create_topic(partitions=2)
    produce(broker, topic, 10)
    commit(broker, "simple", topic, 0, 3)
    tables = Tables(spark, str(tmp_path / "t"))
    serving = {"listen": "127.0.0.1:0"}
    with member(broker, "classic", topic, client_id="me"), running(tables, watched(broker), **serving) as job:
        job.wait_until(lambda: is_ready(job.url), "/readyz")
        line = f'koff_group_lag{{cluster="c",group="simple",topic="{topic}",partition="0"}} 7'
        assert line in get(f"{job.url}/metrics")
        commit(broker, "simple", topic, 0, 4)
        job.wait_until(lambda: committed(tables, "simple") == [3, 4], "the commit")
        job.wait_until(lambda: line.replace(" 7", " 6") in get(f"{job.url}/metrics"), "the changed row")
        served = get(f"{job.url}/metrics")
        assert 'koff_pipeline_stream_up{cluster="c"} 1\n' in served
        assert 'koff_pipeline_table_files{table="commits"} ' in served  # as of the start: none or some
        commit(broker, "simple", topic, 0, 5)  # in the batch that the stop cuts off, or in none
    rows = {
        (r["group"], r.topic, r.partition): r
        for r in tables.cluster_frame("lag", "c").orderBy("at").collect()
    }
    assert rows["simple", topic, 0].lag in (5, 6, 7)
    assert rows["simple", topic, 0].readable == rows["simple", topic, 0].lag
    assert rows["classic", topic, 0].client_id == "me"
    assert rows["classic", topic, 0].reasons == ["no_commit"]
    # A table with days and one without: all of them would take as long as the job.
    assert vars(maintenance)["TABLES"] is TABLES
    few = {name: TABLES[name] for name in ("lag", "current")}
    monkeypatch.setattr(maintenance, "TABLES", few)
    monkeypatch.setattr(cluster_stream, "FIRST_MAINTENANCE_S", 0.0)
    with running(tables, watched(broker), **serving) as job:
        job.wait_until(lambda: newest_lag(tables, "simple") == 5, "the lag after the commit")
        changes = tables.delta_table("lag").history
        job.wait_until(
            lambda: changes().where("operation = 'OPTIMIZE' AND operationParameters.auto = 'false'").count(),
            "the maintenance of the table",
        )
        assert committed(tables, "simple") == [3, 4, 5]
        job.wait_until(lambda: is_ready(job.url), "/readyz")
    assert unique(tables, "commits", "cluster", "offsets_partition", "log_offset")
    assert unique(tables, "lag", "cluster", "at", "group", "topic", "partition")
    assert unique(tables, "end_offsets", "cluster", "at", "topic", "partition")
    states = [
        row.state for row in tables.cluster_frame("groups", "c").where(f.col("group") == "classic").collect()
    ]
    assert states[-1] == "Empty"
    rows_before = tables.frame("lag").count()
    done = {each.table: each for each in maintenance.maintain_tables(tables)}
    assert done.keys() == few.keys()
    assert done["lag"].files <= done["lag"].files_before
    assert tables.frame("lag").count() == rows_before


def test_a_job_whose_checkpoint_is_lost_leaves_out_what_is_there(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    topic = broker.create_topic()
    tables = Tables(spark, str(tmp_path / "t"))
    for offset in (1, 2, 3):
        commit(broker, "lost", topic, 0, offset)
    run_once(tables, broker)
    shutil.rmtree(tables.checkpoint_path("c"))
    commit(broker, "lost", topic, 0, 4)
    run_once(tables, broker)
    assert committed(tables, "lost") == [1, 2, 3, 4]
    assert unique(tables, "commits", "cluster", "offsets_partition", "log_offset")


def test_a_checkpoint_of_other_tables_or_another_cluster_or_without_content_is_refused_with_the_cure(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    topics = broker.create_topic(), broker.create_topic()
    for topic in topics:
        write(broker, topic, *(commit_record("g", "t", 0, offset) for offset in range(4)))

    def run(tables: Tables, topic: str) -> None:
        mine = WatchedCluster("c", ClusterConf(broker.bootstrap), offsets_topic=topic)
        with Job([mine], PipelineConf(once=True, sample=False), lambda _: None) as job:
            tables.create_tables()
            job.run(tables)

    source, tables = Tables(spark, str(tmp_path / "source")), Tables(spark, str(tmp_path / "t"))
    run(source, topics[0])
    checkpoint = Path(tables.checkpoint_path("c"))
    for topic, told in ((topics[0], "these lack the offsets 0 to 4 of partition 0"), (topics[1], "the id")):
        shutil.copytree(source.checkpoint_path("c"), checkpoint)
        with pytest.raises(KoffError, match=rf"the checkpoint .*/c cannot be continued: .*{told}.*; delete"):
            run(tables, topic)
        shutil.rmtree(checkpoint)
    run(tables, topics[0])
    assert committed(tables, "g") == [*range(4)]

    # The machine lost its power: the newest file has no content. The message says what helps.
    for folder in ("commits", "offsets"):
        newest = max((checkpoint / folder).glob("[0-9]*"), key=lambda path: int(path.name))
        newest.write_text("")
        with pytest.raises(KoffError, match=rf"cannot be continued: the file {folder}/{newest.name} "):
            run(tables, topics[0])
        shutil.rmtree(checkpoint)
        run(tables, topics[0])
    assert committed(tables, "g") == [*range(4)]

    # Tables that are moved take their checkpoint with them.
    write(broker, topics[0], commit_record("g", "t", 0, 4))
    shutil.move(tables.root, tmp_path / "moved")
    moved = Tables(spark, str(tmp_path / "moved"))
    run(moved, topics[0])
    assert committed(moved, "g") == [*range(5)]


def kill_python(words: str) -> list[int]:
    """Kills the Python processes of this process's Java that have these words in their command line."""
    killed = []
    for java in children(os.getpid()):
        for process in children(java):
            if words in Path(f"/proc/{process}/cmdline").read_text():
                os.kill(process, signal.SIGKILL)
                killed.append(process)
    return killed


def test_a_stream_whose_python_process_is_killed_goes_on(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    tables, topic = Tables(spark, str(tmp_path / "t")), broker.create_topic()
    mine = WatchedCluster("c", ClusterConf(broker.bootstrap), offsets_topic=topic)
    write(broker, topic, commit_record("g", "t", 0, 0))
    with running(tables, mine) as job:
        job.wait_until(lambda: committed(tables, "g") == [0], "the first commit")
        assert kill_python("python_streaming_source_runner")
        wait_until(lambda: job.job.failures["c"] or job.job.errors, timeout_s=120, what="the failure")
        assert not job.job.errors, job.job.errors
        write(broker, topic, commit_record("g", "t", 0, 1))
        job.wait_until(lambda: committed(tables, "g") == [0, 1], "the next commit")


@pytest.mark.timeout(600)
def test_two_clusters_in_one_job_have_their_own_rows_and_one_that_is_down_holds_up_none(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    with lend_kafka(config={"offsets.topic.num.partitions": "3"}) as other:
        topic = broker.create_topic(partitions=2)
        assert other.create_topic(topic, partitions=2)
        for kafka, produced, offset in ((broker, 10, 4), (other, 20, 5)):
            produce(kafka, topic, produced)
            commit(kafka, "both", topic, 1, offset)
        both = watched(broker, "one"), watched(other, "two")
        with running(tables, *both, listen="127.0.0.1:0") as job:
            job.wait_until(lambda: lags(tables, topic) >= {("one", 4), ("two", 5)}, "the lags")
            line = 'koff_group_lag{{cluster="{}",group="both",topic="{}",partition="1"}} {}'.format
            served = [line(name, topic, 0) for name in ("one", "two")]  # nothing was produced there
            job.wait_until(lambda: all(x in get(f"{job.url}/metrics") for x in served), "both clusters")
            with other.paused():
                commit(broker, "both", topic, 1, 6)
                job.wait_until(lambda: ("one", 6) in lags(tables, topic), "the other cluster's lag")
            commit(other, "both", topic, 1, 7)
            job.wait_until(lambda: ("two", 7) in lags(tables, topic), "the lag of the cluster that is back")
    assert unique(tables, "commits", "cluster", "offsets_partition", "log_offset")
    assert unique(tables, "lag", "cluster", "at", "group", "topic", "partition")
    rows = tables.frame("current").where(f.col("topic") == topic).select("cluster", "committed").collect()
    assert sorted(map(tuple, rows)) == [("one", 6), ("two", 7)]


@pytest.mark.timeout(400)
def test_a_cluster_with_an_error_that_stays_does_not_end_the_others(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    topics = {name: broker.create_topic() for name in ("one", "two")}
    clusters = [
        WatchedCluster(name, ClusterConf(broker.bootstrap), offsets_topic=topic)
        for name, topic in topics.items()
    ]

    def list_committed(name: str) -> list[int]:
        return [
            row.committed for row in tables.cluster_frame("commits", name).orderBy("log_offset").collect()
        ]

    for topic in topics.values():
        write(broker, topic, commit_record("g", "t", 0, 1))
    with running(tables, *clusters) as job:
        job.wait_until(lambda: list_committed("one") == list_committed("two") == [1], "the first commits")
        broker.admin.delete_topics([topics["two"]])[topics["two"]].result(60)
        wait_until(lambda: topics["two"] not in broker.admin.list_topics().topics, what="the topic to go")
        broker.create_topic(topics["two"])
        wait_until(lambda: 1 in job.job.errors, timeout_s=120, what="the error of the second cluster")
        write(broker, topics["one"], commit_record("g", "t", 0, 2))
        job.wait_until(lambda: list_committed("one") == [1, 2], "the commit to the first cluster")
        assert list(job.job.errors) == [1]
        assert isinstance(job.job.errors[1], DataLost)
        assert str(job.job.errors[1]).startswith(f"cluster two: the topic {topics['two']} was created again")
    newest = tables.cluster_frame("lag", "two").orderBy(f.col("at").desc()).first()
    assert newest is not None
    assert (newest.committed, newest.end_offset, newest.lag) == (1, None, None)


def lags(tables: Tables, topic: str) -> set[tuple[str, int]]:
    """Which clusters had lag behind which commits."""
    rows = tables.frame("lag").where(f.col("topic") == topic).where("lag IS NOT NULL")
    return {(row.cluster, row.committed) for row in rows.select("cluster", "committed").distinct().collect()}


@pytest.mark.parametrize("records", [3, 12], ids=["shorter", "longer"])
def test_a_topic_that_was_created_again_is_an_error_and_not_caught_up(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path, records: int
) -> None:
    topic = broker.create_topic()
    tables = Tables(spark, str(tmp_path / "t"))
    mine = WatchedCluster("c", ClusterConf(broker.bootstrap), offsets_topic=topic)

    def run() -> None:
        with Job([mine], PipelineConf(once=True), lambda _: None) as job:
            tables.create_tables()
            job.run(tables)

    write(broker, topic, *(commit_record("g", "t", 0, number) for number in range(7)))
    run()
    samples = tables.frame("end_offsets").count()
    assert samples > 0
    broker.admin.delete_topics([topic])[topic].result(60)
    wait_until(lambda: topic not in broker.admin.list_topics().topics, what="the topic to go")
    broker.create_topic(topic)
    write(broker, topic, *(commit_record("g", "t", 0, 100 + number) for number in range(records)))
    with pytest.raises(DataLost, match=rf"^cluster c: the topic {topic} was created again \(its id was "):
        run()
    shutil.rmtree(tables.checkpoint_path("c"))
    with pytest.raises(DataLost, match=rf"^cluster c: the topic {topic} was created again"):
        run()
    assert committed(tables, "g") == [*range(7)]
    assert tables.frame("end_offsets").count() == samples


def test_topics_match_by_pythons_expressions_as_groups_do(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    wanted, other = broker.create_topic(), broker.create_topic()
    for topic in (wanted, other):
        commit(broker, "choosy", topic, 0, 1)
    only = WatchedCluster(
        "c", ClusterConf(broker.bootstrap), topics=f"(?P<name>^{wanted}$)", groups="(?P<g>choosy)"
    )
    tables = Tables(spark, str(tmp_path / "t"))
    with Job([only], PipelineConf(once=True, sample=False)) as job:
        tables.create_tables()
        job.run(tables)
    assert {(row["group"], row.topic) for row in tables.frame("commits").collect()} == {("choosy", wanted)}


def test_a_job_says_how_far_it_is_in_the_midst_of_a_batch_too(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    topic = broker.create_topic()
    for offset in range(1, 6):
        commit(broker, "far", topic, 0, offset)
    tables = Tables(spark, str(tmp_path / "t"))
    seen: list[tuple[int, int]] = []  # when a batch is read, and written but for Spark's own note of it
    conf = PipelineConf(once=True, sample=False, max_offsets_per_batch=3)
    with Job([watched(broker)], conf, lambda _: seen.append(job.count_progress())) as job:
        tables.create_tables()
        job.run(tables)
        done, todo = job.count_progress()
    assert done == todo >= 5
    assert len(seen) > 1
    assert [each for each, _ in seen] == sorted({each for each, _ in seen})
    assert 0 < seen[0][0] < seen[-1][0] < todo


@pytest.mark.timeout(120)
def test_log_segments_are_taken_in_once(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    segments = str(Path(__file__).parents[1] / "golden" / "segments" / "none.log")
    headway = ProgressCounter(spark)
    first = backfill_segments(tables, segments, "s", headway)
    assert headway.done == headway.todo == Path(segments).stat().st_size
    derived = TABLES.keys() - {"coverage", "leases"}
    before = {name: tables.frame(name).count() for name in derived}
    assert first.records > 0
    again = backfill_segments(tables, segments, "s")
    assert again.records < first.records  # not the complete offsets; those of the open transaction again
    assert {name: tables.frame(name).count() for name in derived} == before
    assert sum(before[name] for name in ("commits", "groups", "quarantine")) > 0

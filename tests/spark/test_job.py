"""The job on a real Kafka: what groups did stands in the tables, once, whatever happened on the way."""

from __future__ import annotations

import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark.sql import functions as f

from koff.cli.pipeline_checks import run_checks
from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.kafkatest import KafkaCluster, LocalKafka, wait_until
from koff.spark.job import cluster_job
from koff.spark.job.cluster_job import PipelineConf, Progress
from koff.spark.job.end_offsets import EndOffsetSampler
from koff.spark.job.job import Job
from koff.spark.job.table_server import serve_tables
from koff.spark.rows.decoding import DataLost
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.progress import TakenOver
from tests.clusters import lend_kafka
from tests.kafka_groups import member, produce
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


def run_once(tables: Tables, cluster: WatchedCluster, **conf: Any) -> list[Progress]:
    done: list[Progress] = []
    with Job([cluster], PipelineConf(once=True, interval_s=0.5, **conf), done.append) as job:
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


def committed(tables: Tables, group: str, cluster: str = "c") -> list[int]:
    """What it committed, in the order of the log."""
    rows = tables.cluster_frame("records", cluster).where(f.col("group") == group)
    rows = rows.where("kind = 'OffsetCommit'").orderBy("log_offset")
    return [row.committed for row in rows.collect()]


def lags(tables: Tables, topic: str) -> set[tuple[str, int]]:
    """Which clusters had lag behind which commits."""
    rows = tables.frame("lag").where(f.col("topic") == topic).where("lag IS NOT NULL")
    return {(row.cluster, row.committed) for row in rows.select("cluster", "committed").distinct().collect()}


def newest_lag(tables: Tables, cluster: str = "c") -> dict[tuple[str, str, int], Any]:
    rows = tables.cluster_frame("lag", cluster)
    number = rows.agg(f.max("number")).collect()[0][0]
    return {
        (row["group"], row.topic, row.partition): row for row in rows.where(f"number = {number}").collect()
    }


def assert_sound(tables: Tables) -> None:
    """What `koff pipeline check` says, but for the age of the sample."""
    for result in run_checks(tables, [], max_age_s=1e6, max_behind=0):
        assert result.ok, result


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
        job.wait_until(lambda: line.replace(" 7", " 6") in get(f"{job.url}/metrics"), "the changed row")
        assert 'koff_pipeline_stream_up{cluster="c"} 1\n' in get(f"{job.url}/metrics")
        size = 'koff_pipeline_table_files{table="records"} '  # as of the start: none or some
        job.wait_until(lambda: size in get(f"{job.url}/metrics"), "the sizes of the tables")
        job.wait_until(lambda: ("classic", topic, 0) in newest_lag(tables), "the member in its group")
        commit(broker, "simple", topic, 0, 5)  # in the batch that the stop cuts off, or in none
    rows = newest_lag(tables)
    assert rows["simple", topic, 0].lag in (5, 6)
    assert rows["simple", topic, 0].readable == rows["simple", topic, 0].lag
    assert rows["classic", topic, 0].client_id == "me"
    assert rows["classic", topic, 0].reasons == ["no_commit"]
    monkeypatch.setattr(cluster_job, "FIRST_MAINTENANCE_S", 0.0)
    with running(tables, watched(broker), **serving) as job:
        job.wait_until(lambda: ("c", 5) in lags(tables, topic), "the lag after the commit")
        job.wait_until(lambda: is_ready(job.url), "/readyz")
    assert committed(tables, "simple") == [3, 4, 5]
    states = [
        row.state
        for row in tables.frame("groups").where("`group` = 'classic'").orderBy("log_offset").collect()
    ]
    assert states[-1] == "Empty"
    assert_sound(tables)


@pytest.mark.timeout(600)
def test_lags_of_groups_that_keep_up_are_kafkas_own_at_the_same_moment(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, ended = broker.create_topic(), threading.Event()

    def keep_up() -> None:
        producer, offset = broker.producer(), 0
        while not ended.is_set():
            producer.produce(topic, b"x", partition=0)
            assert producer.flush(60) == 0
            offset += 1
            commit(broker, "quick", topic, 0, offset)

    def ask_kafka() -> tuple[int, int]:
        """Kafka's own committed offset and end offset."""
        at, spec = TopicPartition(topic, 0), {TopicPartition(topic, 0): OffsetSpec.latest()}
        request = [ConsumerGroupTopicPartitions("quick", [at])]
        group = broker.admin.list_consumer_group_offsets(request)["quick"].result(60)
        (end,) = (answer.result(60).offset for answer in broker.admin.list_offsets(spec).values())
        return group.topic_partitions[0].offset, end

    bounds: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
    fetch_rows = EndOffsetSampler.fetch_rows

    def fetch(self: EndOffsetSampler, *args: Any) -> Any:
        before = ask_kafka()
        at, rows = fetch_rows(self, *args)
        bounds[round(at.timestamp() * 1000)] = before, ask_kafka()
        return at, rows

    monkeypatch.setattr(EndOffsetSampler, "fetch_rows", fetch)
    tables = Tables(spark, str(tmp_path / "t"))
    commit(broker, "quick", topic, 0, 0)
    thread = threading.Thread(target=keep_up)
    thread.start()
    try:
        with running(tables, watched(broker)) as job:
            job.wait_until(lambda: tables.frame("lag").where("`group` = 'quick'").count() >= 6, "six samples")
    finally:
        ended.set()
        thread.join(60)
    rows = tables.frame("lag").where("`group` = 'quick'").withColumn("at_ms", f.unix_millis("at")).collect()
    for row in rows:
        before, after = next(both for at_ms, both in bounds.items() if abs(at_ms - row.at_ms) <= 1)
        assert before[0] <= row.committed <= after[0]
        assert before[1] <= row.end_offset <= after[1]
        assert -1 <= row.lag <= after[1] - before[0]
    assert_sound(tables)


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
    assert (committed(tables, "both", "one"), committed(tables, "both", "two")) == ([4, 6], [5, 7])
    assert_sound(tables)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("records", [3, 12], ids=["shorter", "longer"])
def test_a_topic_that_was_created_again_ends_its_cluster_with_unknown_lags_and_not_the_others(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path, records: int
) -> None:
    tables, topics = Tables(spark, str(tmp_path / "t")), [broker.create_topic() for _ in range(2)]
    one, two = (
        WatchedCluster(name, ClusterConf(broker.bootstrap), offsets_topic=topic)
        for name, topic in zip(("one", "two"), topics, strict=True)
    )
    for topic in topics:
        write(broker, topic, *(commit_record("g", "t", 0, number) for number in range(7)))
    with running(tables, one, two) as job:
        job.wait_until(lambda: len(committed(tables, "g", "two")) == 7, "the first commits")
        broker.admin.delete_topics([topics[1]])[topics[1]].result(60)
        wait_until(lambda: topics[1] not in broker.admin.list_topics().topics, what="the topic to go")
        broker.create_topic(topics[1])
        write(broker, topics[1], *(commit_record("g", "t", 0, 100 + number) for number in range(records)))
        wait_until(lambda: "two" in job.job.errors, timeout_s=120, what="the error of the second cluster")
        write(broker, topics[0], commit_record("g", "t", 0, 7))
        job.wait_until(
            lambda: committed(tables, "g", "one") == [*range(8)], "the commit to the first cluster"
        )
        assert list(job.job.errors) == ["two"]
        error = job.job.errors["two"]
        assert isinstance(error, DataLost)
        assert str(error).startswith(f"cluster two: the topic {topics[1]} was created again (its id was ")
    assert {(row.lag, row.end_offset) for row in newest_lag(tables, "two").values()} == {(None, None)}
    with pytest.raises(DataLost, match=f"^cluster two: the topic {topics[1]} was created again"):
        run_once(tables, two)
    assert committed(tables, "g", "two") == [*range(7)]
    assert_sound(tables)


def test_topics_match_by_pythons_expressions_as_groups_do(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    wanted, other = broker.create_topic(), broker.create_topic()
    for topic in (wanted, other):
        commit(broker, "choosy", topic, 0, 1)
    conf = ClusterConf(broker.bootstrap)
    only = WatchedCluster("c", conf, topics=f"(?P<name>^{wanted}$)", groups="(?P<g>choosy)")
    tables = Tables(spark, str(tmp_path / "t"))
    run_once(tables, only)
    rows = tables.frame("records").where("kind = 'OffsetCommit'").collect()
    assert {(row["group"], row.topic) for row in rows} == {("choosy", wanted)}
    assert {slot[:2] for slot in newest_lag(tables)} == {("choosy", wanted)}


def test_a_log_is_read_in_batches_of_at_most_so_many_offsets_and_sampled_at_its_end(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    topic = broker.create_topic()
    write(broker, topic, *(commit_record("g", "t", 0, number) for number in range(7)))
    mine = WatchedCluster("c", ClusterConf(broker.bootstrap), offsets_topic=topic)
    tables = Tables(spark, str(tmp_path / "t"))
    done = run_once(tables, mine, max_offsets_per_batch=3)
    assert [(each.records, each.behind, each.sampled) for each in done] == [
        (3, 4, None),
        (3, 1, None),
        (1, 0, 1),
    ]
    assert committed(tables, "g") == [*range(7)]


def test_a_second_job_on_the_same_host_stops_and_the_first_goes_on(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    topic, tables = broker.create_topic(), Tables(spark, str(tmp_path / "t"))
    write(broker, topic, commit_record("g", "t", 0, 1))
    mine = WatchedCluster("c", ClusterConf(broker.bootstrap), offsets_topic=topic)
    with running(tables, mine) as job:
        job.wait_until(lambda: committed(tables, "g") == [1], "the first commit")
        told = (
            rf"^cluster c: process {os.getpid()} on .* writes this cluster \(batch \d+ of .* UTC\): stop that"
        )
        with pytest.raises(TakenOver, match=told):
            run_once(tables, mine)
        write(broker, topic, commit_record("g", "t", 0, 2))
        job.wait_until(lambda: committed(tables, "g") == [1, 2], "the next commit")
    run_once(tables, mine)


def children(process: int) -> list[int]:
    """The processes that it has started and that still run."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):  # a thread that has ended meanwhile
            found += [int(each) for each in (task / "children").read_text().split()]
    return found

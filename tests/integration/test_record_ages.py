"""Lags in seconds by the age of the record at the commit, whatever became of it, on a real Kafka."""

import csv
import io
import re
import time

import pytest
from confluent_kafka import TopicPartition

from koff.client import ClusterConf
from koff.client.offsets.lister import OffsetLister
from koff.client.record_times import EndReached, ReadPlace, ReadRecord, Unread, read_record_times
from koff.kafkatest import KafkaCluster, wait_until
from tests.kafka_groups import commit
from tests.koff_process import monitoring, run_koff, run_lag

pytestmark = pytest.mark.kafka
DAY_MS = 86_400_000
FROM_MS = int(time.time() * 1000) - 3_600_000
"""An hour ago; the n-th record of a partition is n seconds younger."""


def written(kafka: KafkaCluster, topic: str, *keys: str, at_ms: int | None = None, **properties: str) -> None:
    """Writes a record a key, each in a batch of its own, a second apart."""
    producer = kafka.producer({"batch.num.messages": 1, **properties})
    for number, key in enumerate(keys):
        when = FROM_MS + number * 1000 if at_ms is None else at_ms
        producer.produce(topic, b"x" * 100, key, partition=0, timestamp=when)
        assert producer.flush(60) == 0


def first(kafka: KafkaCluster, *places: tuple[str, int, int], timeout_s: float = 60.0) -> list:
    wanted = [ReadPlace(*place) for place in places]
    with OffsetLister(ClusterConf(kafka.bootstrap)) as lister:
        answers = read_record_times(lister, wanted, timeout_s)
    found = [answers[place] for place in wanted]
    # How old the next ones are depends on what came in the same response.
    return [each._replace(later_ms=None) if isinstance(each, ReadRecord) else each for each in found]


def lag_of(kafka: KafkaCluster, group: str) -> dict:
    (row,) = run_lag(kafka.bootstrap, group=group)["partitions"]
    return row


def check_age(age_s: float, *, offset: int, since: float) -> None:
    """Fails unless this was the age of the record at some time between `since` and now."""
    written_at = FROM_MS / 1000 + offset
    assert since - written_at - 1 <= age_s <= time.time() - written_at + 1


def test_the_record_at_an_offset_is_the_one_that_was_written_there(kafka, make_topic):
    topic, other = make_topic(), make_topic(partitions=2)
    written(kafka, topic, *"abcdefghij")
    written(kafka, other, *"ab")
    places = [(topic, 0, 4), (topic, 0, 9), (topic, 0, 4), (other, 0, 1), (topic, 0, 0)]
    assert first(kafka, *places) == [
        ReadRecord(offset, FROM_MS + offset * 1000) for offset in (4, 9, 4, 1, 0)
    ]
    assert first(kafka, (topic, 0, 10), (other, 1, 0)) == [EndReached(10), EndReached(0)]
    assert first(kafka, (topic, 0, 11)) == [Unread("beyond the end of the log")]


def test_below_the_log_start_it_is_the_record_that_the_log_starts_with(kafka, make_topic):
    topic, group = make_topic(), "below-the-start"
    written(kafka, topic, *"abcdefghij")
    commit(kafka, group, (topic, 0, 2))
    kafka.admin.delete_records([TopicPartition(topic, 0, 6)])[TopicPartition(topic, 0)].result(60)
    assert first(kafka, (topic, 0, 2)) == [ReadRecord(6, FROM_MS + 6000)]
    begun = time.time()
    row = lag_of(kafka, group)
    assert (row["lag"], row["lost"], row["time_lag_source"]) == (8, 4, "record")
    check_age(row["time_lag_s"], offset=6, since=begun)


def test_where_only_a_control_record_is_left_the_lag_is_an_offset_and_no_time(kafka, make_topic):
    topic, group = make_topic(), "up-to-the-marker"
    producer = kafka.producer({"transactional.id": topic})
    producer.init_transactions()
    for commits in (True, False, True):
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=0, timestamp=FROM_MS)
        producer.flush(60)
        (producer.commit_transaction if commits else producer.abort_transaction)()
    wait_until(lambda: first(kafka, (topic, 0, 5)) == [EndReached(6)], what="the last marker")
    assert first(kafka, (topic, 0, 1), (topic, 0, 2)) == [ReadRecord(2, FROM_MS), ReadRecord(2, FROM_MS)]
    commit(kafka, group, (topic, 0, 5))
    row = lag_of(kafka, group)
    assert (row["lag"], row["time_lag_s"], row["time_lag_source"]) == (1, 0, "record")


def test_koff_lag_gives_the_age_of_the_record_and_says_where_it_has_it_from(kafka, make_topic):
    topic = make_topic()
    written(kafka, topic, *"abcdefghij")
    commit(kafka, "reads", (topic, 0, 7))
    args = ("lag", "--brokers", kafka.bootstrap, "--group", "^reads$")
    begun = time.time()
    row = lag_of(kafka, "reads")
    assert (row["lag"], row["time_lag_source"]) == (3, "record")
    check_age(row["time_lag_s"], offset=7, since=begun)
    (in_csv,) = csv.DictReader(io.StringIO(run_koff(*args, "--format", "csv").stdout))
    assert in_csv["time_lag_source"] == "record"
    assert re.search(r"PARTITION +LAG +SECONDS", run_koff(*args).stdout)


def test_clocks_of_producers_that_are_wrong_make_no_lag_smaller_in_silence(kafka, make_topic):
    """Each group is an hour behind. Between: a record that is dated ahead, and a producer whose clock is."""
    ahead_ms = FROM_MS + 3_000_000
    lives = {
        "one-ahead": [FROM_MS, int(time.time() * 1000) - 3_000, *[FROM_MS + 1_000] * 8],
        "at-one-ahead": [ahead_ms, *[FROM_MS + n * 1_000 for n in range(8)]],
        "next-year": [FROM_MS + 365 * DAY_MS, *[FROM_MS] * 3],
        "all-next-year": [FROM_MS + 365 * DAY_MS] * 3,
    }
    at = {"one-ahead": 3}
    for group, times in lives.items():
        topic = make_topic(config={"message.timestamp.after.max.ms": str(1 << 62)})
        for at_ms in times:
            written(kafka, topic, "k", at_ms=at_ms)
        commit(kafka, group, (topic, 0, at.get(group, 0)))
    for group in lives:
        row = lag_of(kafka, group)
        age_s = time.time() - FROM_MS / 1000
        assert row["at_least"] or 0.75 * age_s < row["time_lag_s"] < 1.25 * age_s, (group, row)
        assert row["at_least"] == (group == "all-next-year"), (group, row)


def test_the_monitor_follows_the_commits_of_groups(kafka, make_topic):
    topic, group = make_topic(), "followed"
    written(kafka, topic, *"abcdefghij")
    commit(kafka, group, (topic, 0, 2))
    with monitoring(kafka.bootstrap) as monitor:
        monitor.wait_until_ready()

        def age_of_commit() -> float:
            """How long after FROM_MS the record was written whose age is shown."""
            ages = monitor.rows("koff_group_lag_seconds")  # withheld while the machine is busy
            return time.time() - FROM_MS / 1000 - ages.get((group, topic, 0), 0.0)

        wait_until(lambda: abs(age_of_commit() - 2) < 0.9, what="the age of offset 2")
        commit(kafka, group, (topic, 0, 8))
        wait_until(lambda: abs(age_of_commit() - 8) < 0.9, what="the age of offset 8")

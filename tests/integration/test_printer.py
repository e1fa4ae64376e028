"""`koff printer` and `koff.Consumer` on a real Kafka."""

import json
import subprocess
from typing import IO

import pytest
from confluent_kafka import Producer, TopicPartition

import koff
from koff.kafkatest import wait_until
from koff.tail.messages import OffsetsConsumer
from koff.tail.reader import PolledRuns, TailReader
from tests.integration.test_monitor import write
from tests.kafka_groups import commit, consuming, produce
from tests.koff_process import KOFF, run_koff
from tests.unit.builders import classic_group
from tests.unit.builders import commit as commit_record

pytestmark = pytest.mark.kafka


@pytest.fixture
def offsets(kafka) -> str:
    """A copy of an offsets topic, with commits, a deletion and garbage."""
    topic = kafka.create_topic(partitions=2)
    write(
        kafka.bootstrap,
        topic,
        commit_record("payments", "orders", 0, 1),
        commit_record("payments", "clicks", 0, 2),
        commit_record("audit", "orders", 1, 3),
        commit_record("audit", "orders", 1, None),
        (b"\x00\x01\x00\x05gr", b"\xde\xad\xbe\xef"),
    )
    return topic


def printed(kafka, offsets: str, *args: str) -> list[str]:
    result = run_koff(
        "printer", "--brokers", kafka.bootstrap, "--offsets-topic", offsets, "--no-follow", *args
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.splitlines()


def test_every_record_is_a_line_deletions_and_garbage_too(kafka, offsets):
    lines = printed(kafka, offsets)
    assert len(lines) == 5
    assert "payments orders/0 = 1" in lines[0]
    assert "audit orders/1 deleted" in lines[3]
    assert "deadbeef" in lines[4]


def test_groups_and_topics_are_chosen_by_regex(kafka, offsets):
    assert len(printed(kafka, offsets, "--group", "^pay")) == 2
    assert len(printed(kafka, offsets, "--topic", "order")) == 3
    assert len(printed(kafka, offsets, "--group", "payments", "--topic", "clicks")) == 1


def test_json_is_an_object_a_line_with_where_it_stood(kafka, offsets):
    records = [json.loads(line) for line in printed(kafka, offsets, "--format", "json")]
    first = records[0]
    assert (first["at"]["partition"], first["at"]["offset"], first["record"]) == (0, 0, "OffsetCommit")
    assert (first["group"], first["topic"], first["partition"]) == ("payments", "orders", 0)
    assert first["value"]["offset"] == 1
    assert records[3]["value"] is None
    assert records[4]["record"] == "Undecodable"
    assert records[4]["value"] == "deadbeef"


def test_a_pipe_that_closes_early_ends_it_without_a_traceback(kafka, offsets):
    write(kafka.bootstrap, offsets, *(commit_record("g", "t", 0, n) for n in range(20_000)))
    command = f"{' '.join(KOFF)} printer --brokers {kafka.bootstrap} --offsets-topic {offsets} | head -n 3"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == ""


def test_it_follows_and_flushes_and_ends_quietly_when_interrupted(kafka):
    topic = kafka.create_topic()
    group = f"g-{topic}"
    process = subprocess.Popen(
        [*KOFF, "printer", "--brokers", kafka.bootstrap, "--group", f"^{group}$"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        commit(kafka, group, (topic, 0, 7))
        line = process.stdout.readline()
        assert f"{topic}/0 = 7" in line
        process.send_signal(2)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert err == ""
    finally:
        process.kill()
        process.wait()


def test_the_consumer_of_the_seed_yields_messages_and_ends(kafka):
    topic = kafka.create_topic()
    produce(kafka, topic, 3)
    group = f"g-{topic}"
    with (
        consuming(kafka, group, topic, count=3),
        koff.Consumer(kafka.bootstrap.split(","), watch=False) as messages,
    ):
        mine = [message for message in messages if message.consumer == group]
    commits = [message.offset_message for message in mine if message.offset_message]
    assert (commits[-1].topic, commits[-1].partition, commits[-1].offset) == (topic, 0, 3)
    (group_message,) = [m.group_message for m in mine if m.group_message and m.group_message.members]
    assert group_message.complete
    assert group_message.members[0].subscription == (koff.TopicAndPartition(topic, -1),)
    assert group_message.members[0].assignment == (koff.TopicAndPartition(topic, 0),)


def test_a_watching_consumer_goes_on_and_raises_once_it_is_closed(kafka):
    topic = kafka.create_topic()
    commit(kafka, f"g-{topic}", (topic, 0, 1))
    with koff.Consumer(kafka.bootstrap) as messages:
        assert next(m for m in messages if m.consumer == f"g-{topic}").offset_message.offset == 1
        commit(kafka, f"g-{topic}", (topic, 0, 2))
        assert next(m for m in messages if m.consumer == f"g-{topic}").offset_message.offset == 2
    assert list(messages) == []
    with pytest.raises(koff.errors.Closed):
        next(messages)


def read_lag(output: IO[str] | None) -> int | None:
    """What the next line says. None: the end offset is older than koff allows, as on a busy machine."""
    assert output is not None
    lag: int | None = json.loads(output.readline())["partitions"][0]["lag"]
    return lag


def test_watch_of_lag_repeats(kafka):
    topic = kafka.create_topic()
    commit(kafka, f"g-{topic}", (topic, 0, 0))
    process = subprocess.Popen(
        [
            *KOFF,
            "lag",
            "--brokers",
            kafka.bootstrap,
            "--watch",
            "--interval",
            "0.2",
            "--format",
            "json",
            "--group",
            topic,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: read_lag(process.stdout) == 0, what="the lag")
        produce(kafka, topic, 3)
        wait_until(lambda: read_lag(process.stdout) == 3, what="the new lag")
        process.send_signal(2)
        process.communicate(timeout=60)
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()


def test_types_are_chosen_by_name_or_number(kafka, offsets):
    write(kafka.bootstrap, offsets, classic_group("payments", {}))
    assert len(printed(kafka, offsets, "--type", "groupmetadata")) == 1
    assert len(printed(kafka, offsets, "--type", "1", "--type", "2")) == 6
    result = run_koff("printer", "--brokers", kafka.bootstrap, "--type", "Nonsense")
    assert result.returncode == 2
    assert "OffsetCommit" in result.stderr


def test_partitions_are_chosen_and_a_missing_one_is_an_error(kafka):
    topic = kafka.create_topic(partitions=2)
    write(kafka.bootstrap, topic, commit_record("zero", "t", 0, 0), partition=0)
    write(kafka.bootstrap, topic, commit_record("one", "t", 0, 0), partition=1)
    (line,) = printed(kafka, topic, "--partition", "1")
    assert "one" in line
    result = run_koff("printer", "--brokers", kafka.bootstrap, "--offsets-topic", topic, "--partition", "7")
    assert result.returncode == 2
    assert "no partition 7" in result.stderr


def test_a_topic_that_does_not_exist_is_an_error_when_nothing_is_waited_for(kafka):
    args = ("printer", "--brokers", kafka.bootstrap, "--offsets-topic", "no-such-topic", "--no-follow")
    result = run_koff(*args)
    assert (result.returncode, result.stdout) == (2, "")
    assert "there is no topic no-such-topic, or koff may not DESCRIBE it" in result.stderr


def write_a_minute_apart(kafka, count: int) -> str:
    """A topic with a commit of each of so many groups, from 2023-11-14 22:13:20 UTC on."""
    topic = kafka.create_topic(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(count):
        key, value = commit_record(f"g{number}", "t", 0, 0)
        producer.produce(topic, value, key, 0, timestamp=1_700_000_000_000 + number * 60_000)
    assert producer.flush(60) == 0
    return str(topic)


def test_a_span_of_time_is_chosen_by_from_and_until(kafka):
    topic = write_a_minute_apart(kafka, 5)
    groups = [line.split()[3] for line in printed(kafka, topic, "--from", "2023-11-14T22:14:20")]
    assert groups == ["g1", "g2", "g3", "g4"]
    assert len(printed(kafka, topic, "--until", "1700000120000")) == 2
    assert len(printed(kafka, topic, "--from", "1700000060000", "--until", "2023-11-14T22:16:20Z")) == 2
    assert printed(kafka, topic, "--from", "latest") == []
    assert printed(kafka, topic, "--from", "-1h") == []


def test_stats_count_by_type_group_and_partition(kafka, offsets):
    lines = [line.split() for line in printed(kafka, offsets, "--stats")]
    assert ["OffsetCommit", "4", "1"] in lines
    assert ["Undecodable", "1", "0"] in lines
    assert ["all", "5", "1"] in lines
    assert ["payments", "2"] in lines
    assert ["0", "5"] in lines


def test_segments_off_a_stopped_broker_say_what_the_printer_said(more_kafka):
    """Plain commits, a committed and an aborted transaction, read off the disk."""
    kafka = more_kafka()
    topic = kafka.create_topic()
    commit(kafka, "plain", (topic, 0, 1))
    for group, end in (("committed", Producer.commit_transaction), ("aborted", Producer.abort_transaction)):
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": group})
        producer.init_transactions(60)
        producer.begin_transaction()
        member = kafka.consumer(group)
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, 5)], member.consumer_group_metadata(), 60
        )
        end(producer, 60)
        member.close()
    live = run_koff("printer", "--brokers", kafka.bootstrap, "--no-follow")
    assert live.returncode == 0, live.stderr
    kafka.nodes[0].stop()
    offline = run_koff("decode", "segments", str(kafka.nodes[0].data), "--read-committed")
    assert offline.returncode == 0, offline.stderr
    commits = [line for line in offline.stdout.splitlines() if " marker " not in line]
    assert sorted(commits) == sorted(live.stdout.splitlines())
    assert "1 abort markers, 1 commit markers" in offline.stderr
    everything = run_koff("decode", "segments", str(kafka.nodes[0].data)).stdout
    assert "aborted" in everything
    assert "aborted" not in offline.stdout
    assert "abort of producer" in everything


def test_a_span_that_has_ended_is_read_to_its_end_however_late_it_comes(kafka, monkeypatch):
    """The first polls may bring nothing: koff printed nothing then, without a word."""
    topic = write_a_minute_apart(kafka, 3)
    poll, empty = TailReader.poll, iter(range(3))

    def poll_late(reader: TailReader, timeout_s: float) -> PolledRuns:
        return PolledRuns() if next(empty, None) is not None else poll(reader, timeout_s)

    monkeypatch.setattr(TailReader, "poll", poll_late)
    with OffsetsConsumer(kafka.bootstrap, topic=topic, until_ms=1_700_000_120_000) as messages:
        assert [message.consumer for message in messages] == ["g0", "g1"]

"""What a reader and a writer of clusters keep: the same tests for the doubles and for a real Kafka."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from koff import aio
from koff.client import Closed, ClusterConf, Message, StartOffset
from koff.client.multicluster import (
    CommitError,
    Reader,
    ReaderConf,
    ReadErrors,
    RWMode,
    Unavailable,
    WriteErrors,
    Writer,
    WriterConf,
)
from koff.errors import ConfigError, ConnectError
from koff.kafkatest import wait_until
from koff.kafkatest.doubles import MemoryClusters, MemoryWriter
from tests.client.blocking import open_in_loop, run_loop
from tests.client.conftest import ALL_SIDES


@dataclass
class World:
    """One cluster, named east, and the makers of readers and writers."""

    address: str
    make_topic: Callable[..., str]
    make_reader: Callable[..., Any]
    make_writer: Callable[..., Any]
    create_again: Callable[[str], object]
    """Deletes the topic, and creates it again with one partition."""
    delete_before: Callable[[str, int, int], object]
    """Deletes the messages of a partition before an offset."""

    def reader(self, topic: str, **conf: Any) -> Any:
        return self.make_reader({"east": ClusterConf(self.address)}, ReaderConf(topic, **conf))

    def writer(self, topic: str, **conf: Any) -> Any:
        return self.make_writer({"east": ClusterConf(self.address)}, WriterConf(topic, **conf))

    def write(self, topic: str, *values: bytes) -> None:
        with self.writer(topic) as writer:
            writer.write_messages(*map(Message, values))


@pytest.fixture(params=ALL_SIDES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with ExitStack() as opened:
        if request.param.endswith("memory"):
            clusters = MemoryClusters("east:9092")
            broker, names = clusters["east:9092"], iter(range(1000))
            made = World(
                "east:9092",
                lambda partitions=1: broker.create_topic(f"t-{next(names)}", partitions),
                clusters.reader,
                clusters.writer,
                broker.create_topic,
                broker.delete_before,
            )
        else:
            kafka = request.getfixturevalue("kafka")
            made = World(
                kafka.bootstrap,
                lambda partitions=1: kafka.create_topic(partitions=partitions),
                Reader,
                Writer,
                kafka.create_topic_again,
                kafka.delete_before,
            )
        if request.param.startswith("aio"):
            loop = opened.enter_context(run_loop())
            make_reader, make_writer = made.make_reader, made.make_writer
            made.make_reader = lambda at, conf: open_in_loop(loop, lambda: aio.Reader(at, conf, make_reader))
            made.make_writer = lambda at, conf: open_in_loop(loop, lambda: aio.Writer(at, conf, make_writer))
        yield made


def read(reader: Any, count: int, call: str = "fetch_message") -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        messages += getattr(reader, call)(timeout_s=60)
    return messages


def test_the_double_of_a_writer_has_every_public_method():
    assert {name for name in vars(Writer) if not name.startswith("_")} <= set(dir(MemoryWriter))


def test_what_is_written_is_read_and_each_message_has_its_place(world):
    topic = world.make_topic()
    messages = [Message(b"%d" % number, key=b"k", headers=(("h", b"1"),)) for number in range(5)]
    with world.writer(topic) as writer:
        writer.write_messages(*messages)
        assert writer.stats().messages == writer.stats().clusters["east"].messages == 5
        assert writer.stats().write_s.count == 5
    assert [(each.cluster, each.partition, each.offset) for each in messages] == [
        ("east", 0, offset) for offset in range(5)
    ]
    with world.reader(topic) as reader:
        got = read(reader, 5)
        assert [(each.cluster, each.value, each.key, each.headers) for each in got] == [
            ("east", each.value, b"k", (("h", b"1"),)) for each in messages
        ]
        assert (reader.offset(0), reader.lag(0), reader.read_lag(0)) == (5, 0, 0)
        assert reader.fetch_message(timeout_s=0.1) == []
        assert reader.stats(0).messages == 5


def test_a_reader_continues_where_it_is_told(world):
    topic = world.make_topic()
    world.write(topic, *(b"%d" % number for number in range(5)))
    with world.reader(topic, start_offset=3) as reader:
        assert [message.offset for message in read(reader, 2)] == [3, 4]
        reader.set_offset(0, 1)
        assert read(reader, 1)[0].offset == 1
        reader.set_offset(0, StartOffset.OLDEST)
        assert read(reader, 1)[0].offset == 0
        reader.set_offset_at(0, 0.0)
        assert read(reader, 1)[0].offset == 0
        with pytest.raises(ValueError, match="no offset"):
            reader.set_offset(0, -7)
        assert (reader.offset(0) + reader.lag(0), reader.read_lag(0)) == (5, reader.lag(0))
        with pytest.raises(Unavailable):
            reader.commit_messages(Message(topic=topic, cluster="east", offset=0, partition=0))


def test_a_reader_continues_at_the_first_message_of_a_time_or_at_the_end(world):
    topic = world.make_topic()
    with world.writer(topic) as writer:
        writer.write_messages(*(Message(b"v", timestamp_ms=1_000_000 + number) for number in range(0, 10, 2)))
    with world.reader(topic) as reader:
        reader.set_offset_at(0, datetime.fromtimestamp(1000.003, UTC))
        first = read(reader, 3)[0]
        assert (first.offset, first.timestamp_ms) == (2, 1_000_004)
        reader.set_offset_at(0, datetime.now(UTC).timestamp())
        assert (reader.offset(0), reader.lag(0), reader.read_lag(0)) == (5, -1, 0)
        assert reader.read_message(0.3) == []


def test_the_last_offset_is_the_end_at_the_moment_of_the_call(world):
    topic = world.make_topic()
    world.write(topic, b"old")
    with world.writer(topic) as writer:
        for number in range(5):
            with world.reader(topic, start_offset=StartOffset.NEWEST) as reader:
                writer.write_messages(Message(b"first %d" % number))
                assert read(reader, 1)[0].value == b"first %d" % number
                reader.set_offset(0, StartOffset.NEWEST)
                writer.write_messages(Message(b"second %d" % number))
                assert read(reader, 1)[0].value == b"second %d" % number


def test_a_group_resumes_after_what_was_committed(world):
    topic, group = world.make_topic(partitions=2), f"g-{uuid.uuid4().hex[:8]}"
    with world.writer(topic) as writer:
        for number in range(6):
            writer.write_messages(Message(b"%d" % number, key=b"%d" % number))
    assigned: list[Any] = []
    with world.reader(topic, group_id=group, on_assigned=assigned.extend) as reader:
        messages = read(reader, 6)
        reader.commit_messages(*messages)
        assert reader.offset(0) == -1
        with pytest.raises(Unavailable):
            reader.set_offset(0, 0)
    assert sorted(assigned) == [(topic, 0), (topic, 1)]
    assert sorted(message.value or b"" for message in messages) == [b"%d" % number for number in range(6)]
    world.write(topic, b"next")
    with world.reader(topic, group_id=group) as reader:
        assert [message.value for message in read(reader, 1, "read_message")] == [b"next"]
    world.write(topic, b"last")
    with world.reader(topic, group_id=group) as reader:  # `close` has committed
        assert [message.value for message in read(reader, 1)] == [b"last"]


@pytest.mark.parametrize(("start", "resumed", "skipped"), [("oldest", 4, 3), ("newest", 6, 5)])
def test_a_group_whose_commit_left_the_log_says_what_it_skipped(world, caplog, start, resumed, skipped):
    topic = world.make_topic()
    world.write(topic, *(b"%d" % number for number in range(6)))
    conf = {"group_id": f"g-{topic}", "start_offset": start}
    with world.reader(topic, **{**conf, "start_offset": StartOffset.OLDEST}) as reader:
        reader.commit_messages(read(reader, 6)[0])
    world.delete_before(topic, 0, 4)
    with world.reader(topic, **conf) as reader:
        wait_until(lambda: reader.fetch_message(0.1) or reader.stats(0).skipped, what="the start")
        world.write(topic, b"next")
        wait_until(lambda: b"next" in [m.value for m in reader.fetch_message(0.1)], what="the next message")
        assert reader.stats(0).skipped == skipped
    assert "is not in the log: reading continues elsewhere" in caplog.text
    assert resumed - 1 == skipped


@pytest.mark.parametrize("group", ["", "g"])
def test_a_reader_that_retention_overtakes_says_what_it_skipped(world, caplog, group):
    topic = world.make_topic()
    with world.writer(topic) as writer:  # more than the reader and its client fetch ahead
        for number in range(50):
            writer.write_messages(Message(b"%0500000d" % number))
    conf = {"queue_capacity": 1, **({"group_id": f"{group}-{topic}"} if group else {})}
    with world.reader(topic, **conf) as reader:
        offsets = [message.offset for message in read(reader, 1)]
        world.delete_before(topic, 0, 45)
        while offsets[-1] < 49:
            offsets += [message.offset for message in reader.fetch_message(timeout_s=60)]
        gaps = [after - before - 1 for before, after in itertools.pairwise(offsets) if after > before + 1]
        assert gaps == [reader.stats(0).skipped]
        assert (offsets[0], offsets[-5:]) == (0, [45, 46, 47, 48, 49])
    assert "is not in the log: reading continues elsewhere" in caplog.text


def test_small_fetches_are_no_error(world):
    topic = world.make_topic()
    world.write(topic, b"a")
    with world.reader(topic, max_bytes=1000) as reader:
        assert read(reader, 1)[0].value == b"a"


def test_what_is_paused_is_returned_after_resume(world):
    topic = world.make_topic()
    world.write(topic, b"a", b"b")
    with world.reader(topic) as reader:
        for partitions in (None, [0]):
            reader.pause(0, partitions)
            assert reader.fetch_message(timeout_s=0.5) == []
            reader.resume(0, partitions)
            assert [message.value for message in read(reader, 2)] == [b"a", b"b"]
            reader.set_offset(0, 0)
        reader.pause()
        reader.resume()
        assert len(read(reader, 2)) == 2


@pytest.mark.parametrize("group", ["", "g-again"])
def test_a_topic_that_is_created_again_is_read_from_its_start(world, group):
    topic = world.make_topic()
    world.write(topic, *(b"old" for _ in range(50)))
    conf = {"group_id": f"{group}-{topic}", "commit_interval_s": 0.1} if group else {}
    with world.reader(topic, **conf) as reader:
        read(reader, 50, "read_message")
        reader.read_message(timeout_s=0.5)
        world.create_again(topic)
        world.write(topic, *(b"%d" % number for number in range(100)))
        values: list[bytes | None] = []
        while len(dict.fromkeys(values)) < 100:
            values += [message.value for message in reader.read_message(timeout_s=60)]
        assert values[-1] == b"99"


def test_closing_ends_a_wait_and_refuses_calls(world):
    topic = world.make_topic()
    reader = world.reader(topic)
    seen: list[list[Message]] = []
    waiting = threading.Thread(target=lambda: seen.extend(reader))
    waiting.start()
    world.write(topic, b"a")
    wait_until(lambda: seen, what="the first list")
    reader.close()
    reader.close()
    waiting.join(60)
    assert not waiting.is_alive()
    for call in (
        reader.read_message,
        reader.fetch_message,
        lambda: reader.set_offset(0, 0),
        lambda: reader.read_lag(0),
    ):
        with pytest.raises(Closed, match="the reader is closed"):
            call()
    writer = world.writer(topic)
    writer.close(timeout_s=0)
    writer.close()
    with pytest.raises(Closed):
        writer.write_messages(Message(b"a"))


def test_messages_that_cannot_be_written_are_named(world):
    topic = world.make_topic()
    bad: Any = Message("text")  # type: ignore[arg-type]  # that is the test
    with world.writer(topic, max_attempts=2) as writer, pytest.raises(WriteErrors) as caught:
        writer.write_messages(Message(b"a"), bad)
    assert caught.value[0] is None
    assert caught.value[1] is not None


class Nowhere:
    """A balancer that chooses a partition which no topic has."""

    def balance(self, message: Message, partitions: int) -> int:
        return -1


def test_a_balancer_that_chooses_no_partition_is_an_error_of_its_messages(world):
    writer = world.writer(world.make_topic(), balancer=Nowhere, max_attempts=1)
    with writer, pytest.raises(WriteErrors, match="Nowhere chose partition -1: use 0 to 0"):
        writer.write_messages(Message(b"a"))


def test_a_message_for_a_topic_that_no_cluster_has_does_not_wait_for_it(world):
    with world.writer("nonesuch", give_up_after_s=600.0) as writer:
        with pytest.raises(WriteErrors, match="nonesuch") as caught:
            writer.write_messages(Message(b"a"))
        assert (caught.value.failed, caught.value.unknown) == ((0,), ())


def test_nothing_to_read_or_write_is_refused(world):
    with pytest.raises(ConfigError):
        world.make_reader({}, ReaderConf("t"))
    with pytest.raises(ConfigError):
        world.make_reader({"east": ClusterConf(world.address)}, [])
    with pytest.raises(ConfigError):
        world.make_reader({"east": ClusterConf(world.address)}, ReaderConf("t", cluster="west"))
    with pytest.raises(ConfigError):
        world.make_writer({}, WriterConf("t"))


def two_clusters() -> tuple[MemoryClusters, dict[str, ClusterConf]]:
    clusters = MemoryClusters("east:9092", "west:9092", topics={"t": 1})
    return clusters, {name: ClusterConf(f"{name}:9092") for name in ("east", "west")}


def test_the_double_of_a_writer_uses_another_cluster_while_the_first_is_down():
    clusters, confs = two_clusters()
    writer = clusters.writer(confs, WriterConf("t", mode=RWMode.PRIMARY_BACKUP))
    clusters["east:9092"].go_down()
    message = Message(b"a")
    writer.write_messages(message)
    assert message.cluster == "west"
    assert writer.stats().clusters["east"].failure
    clusters["west:9092"].go_down()
    clusters.clock.call_later(30, clusters["east:9092"].come_back)
    writer.write_messages(message)
    assert message.cluster == "east"
    assert clusters.clock.now_s >= 30
    clusters["east:9092"].go_down()
    with pytest.raises(WriteErrors):
        writer.write_messages(message)
    assert clusters.clock.now_s >= 60


def test_a_scripted_error_of_a_writer_is_tried_again_elsewhere():
    clusters, confs = two_clusters()
    writer = clusters.writer(confs, WriterConf("t", mode=RWMode.PRIMARY_BACKUP))
    clusters["east:9092"].fail("produce", ConnectError("away"))
    message = Message(b"a")
    writer.write_messages(message)
    assert (message.cluster, writer.stats().failovers) == ("west", 1)
    assert [call.error is None for call in clusters["east:9092"].calls] == [False]


def test_the_double_of_a_reader_fails_when_all_clusters_are_down_and_goes_on_afterwards():
    clusters, confs = two_clusters()
    reader = clusters.reader(confs, ReaderConf("t"))
    clusters["east:9092"].go_down()
    clusters["west:9092"].producer().produce("t", 0, Message(b"a"))
    assert [message.cluster for message in reader.read_message()] == ["west"]
    clusters["west:9092"].go_down()
    with pytest.raises(ReadErrors):
        reader.read_message()
    clusters["east:9092"].come_back()
    clusters["east:9092"].producer().produce("t", 0, Message(b"b"))
    assert [message.value for message in reader.read_message()] == [b"b"]


def test_a_commit_of_the_double_fails_as_it_is_told():
    clusters, confs = two_clusters()
    clusters["east:9092"].producer().produce("t", 0, Message(b"a"))
    reader = clusters.reader(confs, ReaderConf("t", group_id="g", cluster="east"))
    messages = reader.fetch_message()
    clusters["east:9092"].fail("commit", ConnectError("away"))
    with pytest.raises(CommitError, match="away"):
        reader.commit_messages(*messages)
    reader.commit_messages(*messages)
    assert clusters["east:9092"].committed == {("g", "t", 0): (1, "")}

"""Groups on ZooKeeper whose offset manager fails, whose partitions differ in load, or that lose ZooKeeper."""

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from koff.client import ClusterConf, OffsetCoordinatorConf, StartOffset, TopicPartition, dial
from koff.client.message import Message
from koff.client.zookeeper import (
    ConsumerGroup,
    ConsumerGroupConf,
    KafkaOffsetManager,
    OffsetManager,
    PartitionError,
    UncleanClose,
    ZooKeeperLost,
    ZooKeeperOffsetManager,
)
from koff.client.zookeeper.offset_manager import GroupHandle
from koff.errors import ConnectError, KoffError
from koff.kafkatest import KafkaCluster, LocalKafka, LocalZooKeeper, wait_until
from tests.kafka_groups import produce
from tests.zookeeper_groups import joining

NAME = "faulty"
Join = Callable[..., ConsumerGroup]


class Faulty(ZooKeeperOffsetManager):
    """Raises `error` for partition 1, or at the end, as a subclass says."""

    error: Exception = ZeroDivisionError("odd")
    initializes = closes = True

    def initialize_partition(self, topic: str, partition: int) -> int | None:
        if partition == 1 and not self.initializes:
            raise self.error
        return super().initialize_partition(topic, partition)

    def close(self) -> None:
        super().close()
        if not self.closes:
            raise self.error


class CannotStart(Faulty):
    initializes = False


class CannotStartInTime(CannotStart):
    error = TimeoutError("slow")


class CannotClose(Faulty):
    closes = False


class Hanging(ZooKeeperOffsetManager):
    """Never returns from `finalize_partition` of a group."""

    released = threading.Event()

    def finalize_partition(
        self, topic: str, partition: int, last_offset: int | None, timeout_s: float
    ) -> None:
        self.released.wait()


class CannotFlush(ZooKeeperOffsetManager):
    """Cannot store an offset of partition 1."""

    def _store_offset(self, partition: TopicPartition, next_offset: int) -> None:
        if partition.partition == 1:
            raise KoffError("no permission")
        super()._store_offset(partition, next_offset)


@pytest.fixture
def join(
    kafka: KafkaCluster, koff_zookeeper: LocalZooKeeper, make_topic: Callable[..., str]
) -> Iterator[Join]:
    conf = ConsumerGroupConf(
        cluster=ClusterConf(kafka.bootstrap),
        session_timeout_s=10.0,
        processing_timeout_s=2.0,
        metadata_interval_s=0.3,
    )
    hosts = f"{koff_zookeeper.hosts}/{make_topic()}"
    with joining(NAME, conf) as join:
        yield lambda topic, **changes: join([topic], changes.pop("hosts", hosts), **changes)


def take(group: ConsumerGroup, count: int) -> list[Message]:
    return list(islice(group.messages(), count))


@pytest.mark.parametrize("manager", [CannotStart, CannotStartInTime])
def test_a_claim_that_fails_goes_to_a_healthy_member_and_the_other_partition_is_read_on(
    kafka: KafkaCluster,
    make_topic: Callable[..., str],
    join: Join,
    manager: Callable[[GroupHandle], OffsetManager],
):
    topic = make_topic(partitions=2)
    produce(kafka, topic, 1, partition=0)
    produce(kafka, topic, 1, partition=1)
    ill = join(topic, offset_manager=manager)
    (message,) = take(ill, 1)
    assert message.partition == 0
    message.ack()
    error = next(ill.errors())
    assert isinstance(error, PartitionError)
    assert error.partition == 1
    wait_until(lambda: TopicPartition(topic, 1) not in ill.claims, what="the claim to be released")
    healthy = join(topic)
    wait_until(lambda: TopicPartition(topic, 1) in healthy.claims, what="the healthy member to take over")
    while (message := take(healthy, 1)[0]).partition != 1:
        message.ack()
    message.ack()
    ill.close()
    healthy.close()


def test_a_partition_whose_first_offset_cannot_be_committed_does_not_stop_the_other(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join
):
    topic = make_topic(partitions=2)
    group = join(topic, offset_manager=CannotFlush, initial_offset=StartOffset.NEWEST)
    wait_until(
        lambda: group.session.call("exists", group.paths.offset(topic, 0)) is not None,
        what="the first offset of the good partition",
    )
    produce(kafka, topic, 1, partition=0)
    (message,) = take(group, 1)
    assert message.partition == 0
    message.ack()
    assert isinstance(next(group.errors()), PartitionError)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_an_outage_of_kafka_is_reported_and_the_partition_is_read_on_after_it(
    more_kafka: Callable[..., LocalKafka], koff_zookeeper: LocalZooKeeper
):
    kafka = more_kafka()
    topic = kafka.create_topic()
    produce(kafka, topic, 1)
    conf = ConsumerGroupConf(cluster=ClusterConf(kafka.bootstrap), session_timeout_s=10.0)
    with joining(NAME, conf) as join_group:
        group = join_group([topic], f"{koff_zookeeper.hosts}/outage")
        take(group, 1)[0].ack()
        kafka.kill()
        error = next(group.errors())
        assert isinstance(error, PartitionError)
        assert (error.topic, error.partition) == (topic, 0)
        assert isinstance(error.__cause__, ConnectError)
        assert kafka.bootstrap in str(error)
        for node in kafka.nodes:
            node.start()
        kafka.wait_until_up()
        produce(kafka, topic, 1)
        (message,) = take(group, 1)
        assert message.offset == 1
        message.ack()
        group.close()


def test_an_error_in_the_close_of_the_offset_manager_reaches_the_caller_and_ends_the_session(
    make_topic: Callable[..., str], join: Join
):
    group = join(make_topic(), offset_manager=CannotClose)
    with pytest.raises(UncleanClose, match="ZeroDivisionError"):
        group.close()
    assert group.closed
    assert group.session._kazoo.client_state == "CLOSED"


def test_a_close_has_a_deadline_though_the_offset_manager_hangs(
    make_topic: Callable[..., str], join: Join, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("koff.client.zookeeper.group._CLOSE_GRACE_S", 1.0)
    topic = make_topic()
    group = join(topic, offset_manager=Hanging, processing_timeout_s=0.5)
    wait_until(lambda: bool(group.claims), what="the claim")
    membership: Any = group._membership
    wait_until(lambda: all(c.initialized for c in membership.claims.values()), what="the start of the claim")
    try:
        with pytest.raises(UncleanClose, match="not returned in time"):
            group.close()
    finally:
        Hanging.released.set()
    assert group.closed


def test_an_outage_of_zookeeper_is_among_the_errors(make_topic: Callable[..., str], join: Join):
    with LocalZooKeeper() as own:
        group = join(make_topic(), hosts=own.hosts, session_timeout_s=3.0)
        with own.paused():
            error = next(group.errors())
            assert isinstance(error, ZooKeeperLost)
            assert "no message is handed out" in str(error)


def test_messages_come_while_zookeeper_is_away_for_less_than_the_lease(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join
):
    topic = make_topic()
    produce(kafka, topic, 50)
    with LocalZooKeeper(tick_ms=2000) as own:
        group = join(topic, hosts=own.hosts, session_timeout_s=30.0)
        take(group, 1)[0].ack()
        own.kill()
        wait_until(lambda: not group.session._kazoo.connected, what="the connection to be lost")
        for message in take(group, 49):
            message.ack()
        own.start()


def test_offsets_in_kafka_with_long_metadata_of_another_client_are_loaded(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join
):
    topic = make_topic()
    produce(kafka, topic, 3)
    with dial(kafka.bootstrap) as broker:
        coordinator = broker.offset_coordinator(OffsetCoordinatorConf(NAME))
        coordinator.commit(topic, 0, 2, metadata="x" * 999 + "é")
    group = join(topic, offset_manager=KafkaOffsetManager)
    # confluent-kafka may crash here, or read what is behind the metadata: it is not asked.
    assert [message.offset for message in take(group, 1)] == [2]

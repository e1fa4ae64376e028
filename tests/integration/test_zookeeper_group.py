"""Consumer groups on a real ZooKeeper and a real Kafka: what each promise of theirs comes to."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition
from kazoo.client import KazooClient

from koff.client import ClusterConf, StartOffset, TopicPartition
from koff.client.message import Message
from koff.client.zookeeper import (
    ClaimLost,
    ConsumerGroup,
    ConsumerGroupConf,
    KafkaOffsetManager,
    PartitionError,
    UncleanClose,
    join_consumer_group,
)
from koff.errors import ConfigError, ConnectError, KoffError
from koff.kafkatest import KafkaCluster, LocalZooKeeper, wait_until
from tests.kafka_groups import produce
from tests.zookeeper_groups import joining

NAME = "payments"
Join = Callable[..., ConsumerGroup]


@pytest.fixture
def hosts(koff_zookeeper: LocalZooKeeper, make_topic: Callable[..., str]) -> str:
    """An address with a chroot of the test's own."""
    return f"{koff_zookeeper.hosts}/{make_topic()}"


@pytest.fixture
def tree(hosts: str) -> Iterator[KazooClient]:
    """What stands in ZooKeeper, seen by somebody else."""
    client = KazooClient(hosts.partition("/")[0])
    client.start()
    client.ensure_path("/" + hosts.partition("/")[2])
    client.chroot = "/" + hosts.partition("/")[2]
    yield client
    client.stop()
    client.close()


@pytest.fixture
def conf(kafka: KafkaCluster) -> ConsumerGroupConf:
    return ConsumerGroupConf(
        cluster=ClusterConf(kafka.bootstrap),
        session_timeout_s=10.0,
        commit_interval_s=60.0,
        processing_timeout_s=10.0,
        metadata_interval_s=0.3,
    )


@pytest.fixture
def join(hosts: str, conf: ConsumerGroupConf) -> Iterator[Join]:
    """Joins the group, and leaves it in the end without waiting for anything."""
    with joining(NAME, conf) as join:
        yield lambda *topics, **changes: join(topics, hosts, **changes)


def stored(tree: KazooClient, topic: str, partition: int = 0) -> bytes | None:
    path = f"/consumers/{NAME}/offsets/{topic}/{partition}"
    return tree.get(path)[0] if tree.exists(path) else None


def take(group: ConsumerGroup, count: int) -> list[Message]:
    return list(islice(group.messages(), count))


def first_error(group: ConsumerGroup) -> KoffError:
    return next(group.errors())


def owns(group: ConsumerGroup, topic: str, *partitions: int) -> bool:
    return set(group.claims) == {TopicPartition(topic, p) for p in partitions}


def test_messages_come_whole_and_those_before_are_committed_when_one_is(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join, tree: KazooClient
):
    topic = make_topic()
    producer = kafka.producer()
    producer.produce(topic, b"v", b"k", partition=0, headers={"h": b"x"})
    assert producer.flush(60) == 0
    produce(kafka, topic, 9)
    group = join(topic)
    messages = take(group, 5)
    first = messages[0]
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"k", b"v", topic, 0, 0)
    assert first.headers == (("h", b"x"),)
    assert first.timestamp_ms
    assert first.cluster == group.cluster.cluster_name
    assert (group.name, group.topics, group.closed) == (NAME, (topic,), False)
    group.commit_up_to(messages[3])
    group.flush_offsets()
    assert stored(tree, topic) == b"4"
    messages[4].ack()
    group.close()
    assert stored(tree, topic) == b"5"
    assert group.closed
    assert [m.offset for m in take(join(topic), 5)] == [5, 6, 7, 8, 9]


def test_nodes_are_those_of_the_original_tools(make_topic: Callable[..., str], join: Join, tree: KazooClient):
    topic = make_topic()
    group = join(topic)
    wait_until(lambda: owns(group, topic, 0), what="the claim")
    data, stat = tree.get(f"/consumers/{NAME}/ids/{group.id}")
    told = json.loads(data)
    assert stat.ephemeralOwner
    assert (told["version"], told["subscription"], told["pattern"]) == (1, {topic: 1}, "static")
    assert told["timestamp"].isdecimal()
    owner, stat = tree.get(f"/consumers/{NAME}/owners/{topic}/0")
    assert (owner.decode(), bool(stat.ephemeralOwner)) == (group.id, True)
    assert group.claims == {TopicPartition(topic, 0): stat.czxid}
    assert group.instance_registered()
    group.close()
    assert tree.get_children(f"/consumers/{NAME}/ids") == []
    assert tree.get_children(f"/consumers/{NAME}/owners/{topic}") == []


def test_a_hand_over_waits_for_what_is_being_processed(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join
):
    topic = make_topic(partitions=2)
    for partition in range(2):
        produce(kafka, topic, 2, partition=partition)
    first = join(topic)
    messages = take(first, 4)
    second = join(topic)
    given = 1 if first.id < second.id else 0
    wait_until(lambda: _wants(first, 1) and _wants(second, 1), what="both to know")
    lease = second.session.lease_until
    wait_until(lambda: second.session.lease_until > lease + 1, what="time to pass for both")
    for message in messages:
        assert not second.claims
        message.ack()
    wait_until(lambda: owns(second, topic, given) and owns(first, topic, 1 - given), what="one each")
    produce(kafka, topic, 1, partition=given)
    assert [m.offset for m in take(second, 1)] == [2]


def test_a_hand_over_that_waited_long_enough_says_what_was_not_processed_and_the_next_owner_gets_it(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join
):
    topic = make_topic(partitions=2)
    for partition in range(2):
        produce(kafka, topic, 1, partition=partition)
    first = join(topic, processing_timeout_s=0.5)
    messages = {m.partition: m for m in take(first, 2)}
    second = join(topic)
    wait_until(lambda: len(second.claims) == 1, what="the second to have its share")
    (given,) = second.claims
    (error,) = islice(first.errors(), 1)
    assert isinstance(error, PartitionError)
    assert (error.topic, error.partition) == (topic, given.partition)
    assert isinstance(error.__cause__, UncleanClose)
    (again,) = take(second, 1)
    assert (again.partition, again.offset) == (given.partition, 0)
    late = messages[given.partition]
    with pytest.raises(ClaimLost):
        first.commit_up_to(late)
    late.ack()
    first.flush_offsets()


@pytest.mark.parametrize("reset", [False, True])
def test_a_group_that_begins_at_the_newest_gets_the_messages_of_open_transactions(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join, tree: KazooClient, reset: bool
):
    topic = make_topic()
    produce(kafka, topic, 1)
    writer = kafka.producer({"transactional.id": f"tx-{topic}"})
    writer.init_transactions(60)
    writer.begin_transaction()
    writer.produce(topic, b"open")
    writer.flush(60)
    group = join(topic, initial_offset=StartOffset.NEWEST, reset_offsets=reset)
    wait_until(lambda: stored(tree, topic) == b"1", what="the last stable offset to be noted")
    writer.commit_transaction(60)
    assert [m.offset for m in take(group, 1)] == [1]


def test_offsets_are_reset_by_the_first_instance_only(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join, tree: KazooClient
):
    topic = make_topic()
    produce(kafka, topic, 4)
    with join(topic) as group:
        for message in take(group, 3):
            message.ack()
    assert stored(tree, topic) == b"3"
    with join(topic, reset_offsets=True) as group:
        (message,) = take(group, 1)
        assert message.offset == 0
        message.ack()
        group.flush_offsets()
        join(topic, reset_offsets=True)
        assert stored(tree, topic) == b"1"


def test_offsets_may_be_kept_in_kafka(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join, tree: KazooClient
):
    topic = make_topic()
    produce(kafka, topic, 6)
    with join(topic, offset_manager=KafkaOffsetManager) as group:
        for message in take(group, 4):
            message.ack()
    assert stored(tree, topic) is None
    consumer = kafka.consumer(NAME)
    (committed,) = consumer.committed([KafkaTopicPartition(topic, 0)], timeout=60)
    consumer.close()
    assert committed.offset == 4
    assert [m.offset for m in take(join(topic, offset_manager=KafkaOffsetManager), 2)] == [4, 5]


def test_brokers_are_found_in_zookeeper_where_they_are_registered(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join, tree: KazooClient
):
    topic = make_topic()
    produce(kafka, topic, 1)
    with pytest.raises(ConfigError, match="knows no brokers"):
        join(topic, cluster=None)
    host, _, port = kafka.bootstrap.partition(",")[0].rpartition(":")
    told = {"host": host, "port": int(port), "endpoints": [f"PLAINTEXT://{host}:{port}"], "version": 4}
    tree.create("/brokers/ids/1", json.dumps(told).encode(), makepath=True)
    assert [m.offset for m in take(join(topic, cluster=None), 1)] == [0]


def test_a_member_of_the_original_tools_gets_its_share_and_its_claims_are_left_alone(
    make_topic: Callable[..., str], join: Join, tree: KazooClient
):
    topic = make_topic(partitions=6)
    told = {"version": 1, "subscription": {topic: 2}, "pattern": "static", "timestamp": "1400000000000"}
    tree.create(f"/consumers/{NAME}/ids/a_java-1-2", json.dumps(told).encode(), ephemeral=True, makepath=True)
    tree.create(f"/consumers/{NAME}/owners/{topic}/5", b"a_java-1-2-1", ephemeral=True, makepath=True)
    group = join(topic)
    wait_until(lambda: owns(group, topic, 4), what="what is not claimed of a third")
    tree.delete(f"/consumers/{NAME}/owners/{topic}/5")
    wait_until(lambda: owns(group, topic, 4, 5), what="the third")


def test_nothing_processed_under_a_lost_claim_is_committed_over_the_offset_of_a_newer_owner(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join, tree: KazooClient
):
    topic = make_topic()
    produce(kafka, topic, 10)
    first = join(topic)
    messages = take(first, 2)
    for message in messages:
        message.ack()
    path = f"/consumers/{NAME}/offsets/{topic}/0"
    tree.create(path, b"7", makepath=True)  # as by one that had the partition in between
    tree.delete(f"/consumers/{NAME}/owners/{topic}/0")
    tree.create(f"/consumers/{NAME}/owners/{topic}/0", b"somebody else", ephemeral=True)
    with pytest.raises(KoffError, match="another member"):
        first.flush_offsets()
    assert stored(tree, topic) == b"7"


def test_an_offset_that_a_tool_set_while_consuming_is_overwritten_by_the_next_commit(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join, tree: KazooClient
):
    topic = make_topic()
    produce(kafka, topic, 4)
    group = join(topic)
    messages = take(group, 4)
    messages[0].ack()
    group.flush_offsets()
    tree.set(f"/consumers/{NAME}/offsets/{topic}/0", b"0")
    messages[1].ack()
    group.flush_offsets()
    assert stored(tree, topic) == b"2"
    tree.delete(f"/consumers/{NAME}/offsets/{topic}/0")
    group.commit_up_to(messages[3])
    group.flush_offsets()
    assert stored(tree, topic) == b"4"


def test_partitions_that_come_later_are_read_too(
    kafka: KafkaCluster, make_topic: Callable[..., str], join: Join
):
    from confluent_kafka.admin import NewPartitions

    topic, other = make_topic(), make_topic()
    group = join(topic, other)
    wait_until(lambda: len(group.claims) == 2, what="both topics")
    kafka.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    wait_until(lambda: len(group.claims) == 4, what="the new partitions")
    produce(kafka, topic, 1, partition=2)
    produce(kafka, other, 1)
    assert {(m.topic, m.partition) for m in take(group, 2)} == {(topic, 2), (other, 0)}


def test_a_zookeeper_that_is_not_there_is_an_error_that_says_what_to_check(conf: ConsumerGroupConf):
    with pytest.raises(ConnectError, match=r"cannot reach ZooKeeper at 127\.0\.0\.1:1: .*check"):
        join_consumer_group(NAME, ["t"], "127.0.0.1:1", replace(conf, connect_timeout_s=0.5))


def test_a_close_while_zookeeper_is_away_does_not_hang_and_is_unclean(
    kafka: KafkaCluster, make_topic: Callable[..., str], conf: ConsumerGroupConf
):
    topic = make_topic()
    produce(kafka, topic, 1)
    with LocalZooKeeper() as own:
        group = join_consumer_group(
            NAME, [topic], own.hosts, replace(conf, processing_timeout_s=0.5, session_timeout_s=3.0)
        )
        take(group, 1)[0].ack()
        own.kill()
        with pytest.raises(UncleanClose):
            group.close()
        own.start()
        again = join_consumer_group(NAME, [topic], own.hosts, conf)
        (message,) = take(again, 1)
        assert message.offset == 0
        message.ack()
        again.close()


def _wants(group: ConsumerGroup, count: int) -> bool:
    membership: Any = group._membership
    return len(membership._assigned) == count

"""koff on older Kafkas: each row equals what that version's own tool says. `make test-versions` runs this."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from koff.kafkatest import LocalKafka, LocalZooKeeper, wait_until
from koff.kafkatest.jars import KAFKA_VERSION, kafka_jars
from tests.kafka_groups import consuming, member, produce
from tests.kafka_tools import CONSUMER_GROUPS
from tests.koff_process import Monitor, describe_groups, monitoring, run_koff

pytestmark = [pytest.mark.versions, pytest.mark.kafka, pytest.mark.timeout(600)]
BY_ZOOKEEPER, BEFORE_TOOLS_MOVED, NEW_PROTOCOL = (2, 8), (3, 7), (4, 0)
VERSIONS = ("2.8.2", "3.3.2", "3.6.2", "3.9.1", "4.1.1")
WAYS = (
    ("--start", "snapshot"),
    ("--start", "replay"),
    ("--source", "coordinators"),
)
Row = tuple[int | None, int | None, int | None]
"""Committed offset, end offset, lag."""
Rows = dict[tuple[str, str, int], Row]


def parse(version: str) -> tuple[int, int]:
    major, minor, _ = version.split(".")
    return int(major), int(minor)


def kafkas_rows(kafka: LocalKafka, version: str) -> Rows:
    moved = parse(version) >= BEFORE_TOOLS_MOVED
    tool = CONSUMER_GROUPS if moved else "kafka.admin.ConsumerGroupCommand"
    printed = kafka.run_tool(
        tool, "--bootstrap-server", kafka.bootstrap, "--describe", "--all-groups", timeout_s=120
    )

    def number(text: str) -> int | None:
        return None if text == "-" else int(text)

    return {
        at: (number(row["CURRENT-OFFSET"]), number(row["LOG-END-OFFSET"]), number(row["LAG"]))
        for at, row in describe_groups(printed).items()
    }


def koffs_rows(brokers: str, *args: str) -> Rows:
    result = run_koff("lag", "--brokers", brokers, "--format", "json", *args, timeout_s=60)
    assert result.returncode == 0, result.stderr
    return {
        (row["group"], row["topic"], row["partition"]): (row["committed"], row["end"], row["lag"])
        for row in json.loads(result.stdout)["partitions"]
    }


def commit_in_transaction(kafka: LocalKafka, group: str, topic: str, offset: int, *, ends: str) -> object:
    """A transaction that commits the offset, and is committed, aborted or left open. Returns its producer."""
    producer = kafka.producer({"transactional.id": f"{group}-{ends}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    consumer = kafka.consumer(group)
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, 30)
    consumer.close()
    if ends == "commit":
        producer.commit_transaction(60)
    elif ends == "abort":
        producer.abort_transaction(60)
    return producer


def make_groups(kafka: LocalKafka, version: str, live: ExitStack) -> set[str]:
    """Groups of all kinds that write commits. Returns their names."""
    kafka.create_topic("orders", partitions=3)
    kafka.create_topic("clicks", partitions=1)
    for partition in range(3):
        produce(kafka, "orders", 20, partition=partition)
    produce(kafka, "clicks", 30)
    live.enter_context(consuming(kafka, "classic", "orders", count=60))
    with consuming(kafka, "stopped", "orders", "clicks", count=90):
        pass
    groups = {"classic", "stopped", "simple", "transactional"}
    if parse(version) >= NEW_PROTOCOL:
        live.enter_context(consuming(kafka, "new-protocol", "clicks", count=30, protocol="consumer"))
        groups.add("new-protocol")
    simple = kafka.consumer("simple")
    simple.commit(
        offsets=[TopicPartition("orders", 1, 3), TopicPartition("clicks", 0, 30)], asynchronous=False
    )
    simple.close()
    commit_in_transaction(kafka, "transactional", "orders", 7, ends="commit")
    commit_in_transaction(kafka, "transactional", "orders", 9, ends="abort")
    for partition in range(3):
        produce(kafka, "orders", 4, partition=partition)
    return groups


@pytest.fixture(scope="module", params=VERSIONS)
def old(request: pytest.FixtureRequest) -> Iterator[tuple[LocalKafka, str, set[str]]]:
    """A Kafka of that version with live and dead groups, its version, and the groups."""
    version = request.param
    with ExitStack() as running:
        zookeeper = ""
        if parse(version) <= BY_ZOOKEEPER:
            zookeeper = running.enter_context(LocalZooKeeper()).hosts
        kafka = running.enter_context(LocalKafka(version=version, zookeeper=zookeeper))
        yield kafka, version, make_groups(kafka, version, running)


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_each_row_equals_that_of_the_versions_own_tool(
    old: tuple[LocalKafka, str, set[str]], way: tuple[str, str]
):
    kafka, version, groups = old
    expected = kafkas_rows(kafka, version)
    assert {group for group, _, _ in expected} == groups
    assert koffs_rows(kafka.bootstrap, *way) == expected


def test_the_monitor_follows_and_leaves_out_what_an_open_transaction_holds_back(
    old: tuple[LocalKafka, str, set[str]],
):
    kafka, version, _ = old
    with monitoring(kafka.bootstrap) as monitor:
        monitor.wait_until_ready(60)
        held = commit_in_transaction(kafka, "transactional", "orders", 11, ends="open")
        produce(kafka, "clicks", 5)
        simple = kafka.consumer("simple")
        simple.commit(offsets=[TopicPartition("clicks", 0, 34)], asynchronous=False)
        simple.close()
        wait_until(
            lambda: lags(monitor) == {at: lag for at, (_, _, lag) in kafkas_rows(kafka, version).items()},
            timeout_s=60,
            every_s=1,
            what="koff to agree with Kafka",
        )
        assert lags(monitor)["simple", "clicks", 0] == 1
        assert lags(monitor)["transactional", "orders", 0] == 17
        held.abort_transaction(60)  # type: ignore[attr-defined]
        assert monitor.stop() == 0


def lags(monitor: Monitor) -> dict[tuple[str, str, int], int | None]:
    samples = monitor.metrics().get("koff_group_lag", {})
    return {(group, topic, int(partition)): int(lag) for (_, group, topic, partition), lag in samples.items()}


def test_a_rolling_upgrade_under_the_monitor():
    """Three brokers go from 3.9 to the newest version, one after the other, while groups commit."""
    before, newest = "3.9.1", kafka_jars()
    with LocalKafka(brokers=3, version=before) as kafka, ExitStack() as live:
        kafka.create_topic("orders", partitions=3)
        for partition in range(3):
            produce(kafka, "orders", 20, partition=partition)
        joined = live.enter_context(member(kafka, "classic", "orders", client_id="classic-app"))
        joined.commit(1, 2, 3)
        monitor = live.enter_context(monitoring(kafka.bootstrap))
        monitor.wait_until_ready(60)
        for number, node in enumerate(kafka.nodes, 1):
            node.stop()
            joined.commit(number, number, number)
            node.jars = newest
            node.start()
            kafka.wait_until_up()
            wait_for_full_isr(kafka)
            joined.commit(number + 1, number + 1, number + 1)
        expected: Rows = {("classic", "orders", partition): (4, 20, 16) for partition in range(3)}
        wait_until(
            lambda: lags(monitor) == {at: lag for at, (_, _, lag) in expected.items()},
            timeout_s=120,
            every_s=1,
            what="the monitor to show the last commits",
        )
        assert kafkas_rows(kafka, KAFKA_VERSION) == expected
        for way in WAYS:
            assert koffs_rows(kafka.bootstrap, *way) == expected
        assert monitor.stop() == 0


def wait_for_full_isr(kafka: LocalKafka) -> None:
    """Until each partition has all its replicas: the next broker may stop."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def is_full() -> bool:
        topics = admin.list_topics(timeout=60).topics.values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all(len(each.isrs) == len(each.replicas) and each.leader >= 0 for each in partitions)

    wait_until(is_full, timeout_s=120, every_s=0.5, what="all replicas to be in sync")

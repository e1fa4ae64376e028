"""koff watching groups that keep their offsets in ZooKeeper."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from koff.client import ClusterConf
from koff.client.zookeeper import ConsumerGroupConf, join_consumer_group
from koff.kafkatest import KafkaCluster, LocalZooKeeper, wait_until
from tests.kafka_groups import produce
from tests.koff_process import Monitor, monitoring, run_koff, run_lag

ROOT = "/old/kafka"


@pytest.fixture
def zookeeper() -> Iterator[LocalZooKeeper]:
    with LocalZooKeeper() as local:
        yield local


@pytest.fixture
def hosts(zookeeper: LocalZooKeeper) -> str:
    return zookeeper.hosts + ROOT


@pytest.fixture
def tree(zookeeper: LocalZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.hosts)
    client.start()
    client.ensure_path(ROOT)
    client.chroot = ROOT
    yield client
    client.stop()
    client.close()


def commit(tree: KazooClient, group: str, topic: str, partition: int, offset: int) -> None:
    path = f"/consumers/{group}/offsets/{topic}/{partition}"
    again = KazooRetry(max_tries=-1, deadline=60)  # a test restarts ZooKeeper
    again(tree.ensure_path, path)
    again(tree.set, path, str(offset).encode())


def lag_of(kafka: KafkaCluster, hosts: str, group: str) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    told = run_lag(kafka.bootstrap, "--zookeeper", hosts, group=group)
    (total,) = told["groups"]
    return total, {row["partition"]: row for row in told["partitions"]}


def lags(monitor: Monitor) -> dict[tuple[str, int], float]:
    return {at[1:]: lag for at, lag in monitor.rows().items() if at[0] == "kept-in-zookeeper"}


def test_a_group_is_shown_with_its_members_and_what_each_owns(
    kafka: KafkaCluster, make_topic: Callable[..., str], hosts: str
):
    topic = make_topic(partitions=2)
    produce(kafka, topic, 5)
    conf = ConsumerGroupConf(cluster=ClusterConf(kafka.bootstrap))
    with join_consumer_group("here", [topic], hosts, conf) as group:
        for message in islice(group.messages(), 3):
            message.ack()
        group.flush_offsets()
        total, rows = lag_of(kafka, hosts, "here")
        shown = (total["type"], total["state"], total["members"], total["lag"])
        assert shown == ("zookeeper", "Stable", 1, 2)
        assert (rows[0]["committed"], rows[0]["lag"], rows[0]["client_id"]) == (3, 2, group.id)
        assert rows[0]["client_host"]
        assert (rows[1]["committed"], rows[1]["lag"], rows[1]["reasons"]) == (None, None, "no_commit")
        for message in islice(group.messages(), 2):
            message.ack()
    total, rows = lag_of(kafka, hosts, "here")
    assert (total["state"], total["members"], total["lag"]) == ("Empty", 0, 0)
    assert rows[0]["client_id"] is None


def test_a_group_that_commits_to_kafka_too_is_shown_once_as_kafka_has_it(
    kafka: KafkaCluster, make_topic: Callable[..., str], hosts: str, tree: KazooClient
):
    topic = make_topic()
    produce(kafka, topic, 5)
    commit(tree, "both-ways", topic, 0, 1)
    consumer = kafka.consumer("both-ways")
    consumer.subscribe([topic])
    assert consumer.consume(5, 60)
    consumer.commit(asynchronous=False)
    consumer.close()
    total, rows = lag_of(kafka, hosts, "both-ways")
    assert (total["type"], rows[0]["committed"]) == ("classic", 5)
    with monitoring(kafka.bootstrap, "--zookeeper", hosts) as monitor:
        monitor.wait_until_ready()
        lines = monitor.get("/metrics")[1].splitlines()
        assert sum(line.startswith("koff_group_lag{") and topic in line for line in lines) == 1


def test_the_monitor_follows_commits_and_deletions_and_shows_nothing_stale(
    kafka: KafkaCluster,
    make_topic: Callable[..., str],
    zookeeper: LocalZooKeeper,
    hosts: str,
    tree: KazooClient,
):
    topic = make_topic(partitions=2)
    produce(kafka, topic, 10)
    commit(tree, "kept-in-zookeeper", topic, 0, 4)
    tree.create(f"/consumers/kept-in-zookeeper/offsets/{topic}/1", b"rubbish")
    with monitoring(kafka.bootstrap, "--zookeeper", hosts) as monitor:
        monitor.wait_until_ready()
        wait_until(lambda: lags(monitor) == {(topic, 0): 6}, what="the lag")
        commit(tree, "kept-in-zookeeper", topic, 0, 9)
        wait_until(lambda: lags(monitor) == {(topic, 0): 1}, what="the commit")
        commit(tree, "kept-in-zookeeper", topic, 1, 0)
        wait_until(lambda: lags(monitor) == {(topic, 0): 1, (topic, 1): 0}, what="another partition")
        zookeeper.restart()
        commit(tree, "kept-in-zookeeper", topic, 0, 10)
        wait_until(lambda: lags(monitor) == {(topic, 0): 0, (topic, 1): 0}, what="a restart to be survived")
        tree.delete(f"/consumers/kept-in-zookeeper/offsets/{topic}/1")
        wait_until(lambda: lags(monitor) == {(topic, 0): 0}, what="the partition to go")
        tree.delete("/consumers/kept-in-zookeeper", recursive=True)
        wait_until(lambda: lags(monitor) == {}, what="the group to go")
        assert "kept-in-zookeeper" not in monitor.get("/metrics")[1]
        commit(tree, "kept-in-zookeeper", topic, 0, 7)
        wait_until(lambda: lags(monitor) == {(topic, 0): 3}, what="the group to come again")
        with zookeeper.paused():
            wait_until(lambda: lags(monitor) == {}, timeout_s=60, what="what is stale to go")
            assert sum(monitor.metrics()["koff_rows_withheld"].values()) == 1
            wait_until(lambda: monitor.events("ZooKeeper lost"), timeout_s=60, what="the warning")
        wait_until(lambda: lags(monitor) == {(topic, 0): 3}, timeout_s=60, what="ZooKeeper to be back")
        monitor.wait_until_ready()


def test_an_address_without_zookeeper_or_without_the_chroot_is_one_line(
    kafka: KafkaCluster, zookeeper: LocalZooKeeper
):
    for command in ("lag", "monitor"):
        args = (command, "--brokers", kafka.bootstrap, "--zookeeper", f"{zookeeper.hosts}/nothing")
        done = run_koff(*args, *(("--listen", "127.0.0.1:0") if command == "monitor" else ()))
        assert done.returncode == 2, done.stderr
        assert "has no /nothing" in done.stderr
        assert "Traceback" not in done.stderr

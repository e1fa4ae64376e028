"""Groups on ZooKeeper under stress: instances come and go, sessions die, nothing is lost or shared."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from koff.client import ClusterConf
from koff.client.zookeeper import ConsumerGroupConf
from koff.kafkatest import KafkaCluster, LocalKafka, LocalZooKeeper, freeze, reap, spawn, wait_until
from tests.zookeeper_workers import Handed, Record, Source, Worker, churn, stop_all

PARTITIONS = 12
SESSION_S = 3.0


@pytest.fixture
def zookeeper() -> Iterator[LocalZooKeeper]:
    with LocalZooKeeper() as local:
        yield local
        stop_all()


def conf_of(kafka: KafkaCluster, **more: Any) -> ConsumerGroupConf:
    return ConsumerGroupConf(
        cluster=ClusterConf(kafka.bootstrap, connect_timeout_s=30.0),  # brokers die here
        session_timeout_s=SESSION_S,
        commit_interval_s=0.5,
        processing_timeout_s=20.0,
        **more,
    )


def all_arrive(source: Source, record: Record) -> None:
    source.stop()
    assert source.acknowledged
    wait_until(
        lambda: not source.acknowledged - record.values, timeout_s=60, what="every message to be processed"
    )


def flows(record: Record) -> None:
    """Returns when 200 more messages were handed out."""
    seen = len(record.values)
    wait_until(lambda: len(record.values) > seen + 200, timeout_s=60, what="messages to flow")


@pytest.mark.timeout(480)
@pytest.mark.parametrize("seconds", [15, pytest.param(120, marks=pytest.mark.long)])
def test_ten_instances_come_and_go_and_every_message_is_processed_by_one_owner_at_a_time(
    kafka: KafkaCluster, make_topic: Callable[..., str], zookeeper: LocalZooKeeper, seconds: int
):
    topic, record, dice = make_topic(partitions=PARTITIONS), Record(), random.Random(6)
    source = Source(kafka, topic, PARTITIONS)
    workers, counts = churn(
        lambda: Worker("churn", topic, f"{zookeeper.hosts}/root", conf_of(kafka), record),
        seconds,
        most=10,
        dice=dice,
    )
    all_arrive(source, record)
    for worker in workers:
        worker.leave()
    record.check_claims()
    for times in record.repeated():
        first, *again = sorted(times, key=lambda each: each.claim)
        assert {each.member for each in (first, *again[:-1])} <= record.crashed, times
    print(counts, len(record.handed), "handed,", len(record.repeated()), "repeated")
    assert counts["left"] > 1
    assert counts["crashed"] > 0


@pytest.mark.thorough
def test_a_zookeeper_that_is_killed_and_paused_costs_no_message_and_no_partition_is_shared(
    kafka: KafkaCluster, make_topic: Callable[..., str], zookeeper: LocalZooKeeper
):
    topic, record = make_topic(partitions=PARTITIONS), Record()
    source = Source(kafka, topic, PARTITIONS)
    workers = [Worker("zk", topic, zookeeper.hosts, conf_of(kafka), record) for _ in range(3)]
    wait_until(lambda: len(record.values) > 200, what="some messages")
    zookeeper.restart()
    with zookeeper.paused():
        wait_until(lambda: not any(w.group.session.trusted for w in workers), what="the leases to end")
        silent = len(record.handed)
        wait_until(lambda: len(source.acknowledged - record.values) > 1600, what="sessions to be over")
        # Each worker may note one more, which it was handed before.
        assert len(record.handed) <= silent + len(workers), (
            "messages were handed out without a session to trust"
        )
    all_arrive(source, record)
    # Two may have processed all. One that is not connected yet could not commit, and would say so.
    wait_until(lambda: all(w.group.session.trusted for w in workers), timeout_s=60, what="all sessions")
    for worker in workers:
        worker.leave()
    record.check_claims(late=1)


@pytest.mark.thorough
def test_an_expired_session_ends_all_claims_and_the_instance_comes_back(
    kafka: KafkaCluster, make_topic: Callable[..., str], zookeeper: LocalZooKeeper
):
    topic, record = make_topic(partitions=PARTITIONS), Record()
    source = Source(kafka, topic, PARTITIONS)
    workers = [Worker("expired", topic, zookeeper.hosts, conf_of(kafka), record) for _ in range(2)]
    victim = workers[0].group
    wait_until(lambda: len(victim.claims) == PARTITIONS // 2, what="half of the partitions")
    wait_until(lambda: len(record.values) > 200, what="some messages")
    before = dict(victim.claims)
    for _ in range(3):
        number = victim.session.number
        _expire(zookeeper, victim.session._kazoo.client_id)
        wait_until(partial(lambda was: victim.session.number > was, number), what="the session to be lost")
        wait_until(
            lambda: victim.session.id is not None and victim.instance_registered(), what="it to be back"
        )
        wait_until(lambda: len(victim.claims) == PARTITIONS // 2, what="half of the partitions again")
    assert not set(before.values()) & set(victim.claims.values())
    all_arrive(source, record)
    for worker in workers:
        worker.leave()
    # A session that somebody else ends is over before its owner's lease is.
    record.check_claims(late=1, tolerance_s=SESSION_S)


@pytest.mark.long
def test_a_broker_that_is_killed_costs_no_message(
    more_kafka: Callable[..., LocalKafka], zookeeper: LocalZooKeeper
):
    kafka = more_kafka(brokers=3, config={"offsets.topic.num.partitions": "1"})
    topic = kafka.create_topic(partitions=PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})
    record = Record()
    source = Source(kafka, topic, PARTITIONS, per_s=200)
    workers = [Worker("brokers", topic, zookeeper.hosts, conf_of(kafka), record) for _ in range(2)]
    for node in kafka.nodes[1:]:
        flows(record)
        node.kill()
        left = workers.pop(0)
        left.leave()
        workers.append(Worker("brokers", topic, zookeeper.hosts, conf_of(kafka), record))
        flows(record)
        node.start()
        kafka.wait_until_up()
    all_arrive(source, record)
    for worker in workers:
        worker.leave()
    record.check_claims()
    assert not record.repeated()


def test_an_instance_that_is_killed_or_frozen_is_replaced_and_a_thawed_one_reads_nothing_that_it_lost(
    kafka: KafkaCluster, make_topic: Callable[..., str], zookeeper: LocalZooKeeper, tmp_path: Path
):
    topic, record = make_topic(partitions=PARTITIONS), Record()
    source = Source(kafka, topic, PARTITIONS)
    script = Path(__file__).parents[1] / "zookeeper_instance.py"
    command = [sys.executable, str(script), "frozen", topic, zookeeper.hosts, kafka.bootstrap, str(SESSION_S)]
    outputs = [tmp_path / "killed", tmp_path / "frozen"]
    children = []
    for path in outputs:
        with path.open("wb") as output:
            children.append(spawn(command, stdout=output, stdin=subprocess.DEVNULL))
    killed, frozen = children
    try:
        worker = Worker("frozen", topic, zookeeper.hosts, conf_of(kafka), record)
        wait_until(lambda: all(_lines(path) for path in outputs), what="all to have messages")
        wait_until(lambda: len(worker.group.claims) == 4, what="three instances")
        reap(killed)
        wait_until(lambda: len(worker.group.claims) == 6, what="the killed one to be replaced")
        freeze(frozen)
        frozen_at_s = time.monotonic()
        wait_until(lambda: len(worker.group.claims) == PARTITIONS, what="the frozen one to be replaced")
        flows(record)
        frozen.send_signal(signal.SIGCONT)
        wait_until(lambda: len(worker.group.claims) == 6, what="the thawed one to have a share again")
        source.stop()

        def all_processed() -> bool:
            values = {line.value for path in outputs for line in _lines(path)}
            return source.acknowledged <= record.values | values

        wait_until(all_processed, timeout_s=60, what="every message")
        worker.leave()
    finally:
        reap(killed)
        reap(frozen)
    for path in outputs:
        record.handed += _lines(path)
    # The one message that it was handed just before it was frozen, it processes when it is thawed.
    ended = {each.claim for each in _lines(outputs[1]) if each.at_s < frozen_at_s}
    late = [each for each in _lines(outputs[1]) if each.claim in ended and each.at_s > frozen_at_s]
    assert len(late) <= 1
    record.handed = [each for each in record.handed if each not in late]
    record.check_claims()


def _lines(path: Path) -> list[Handed]:
    found = []
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            at_s, member, partition, offset, claim, value = line.split()
            found.append(Handed(float(at_s), member, int(partition), int(offset), int(claim), value.encode()))
    return found


def _expire(zookeeper: LocalZooKeeper, client_id: tuple[int, bytes]) -> None:
    """Ends the session by ending it from elsewhere, which to its owner looks like any other end."""
    other = KazooClient(zookeeper.hosts, client_id=client_id, timeout=SESSION_S)
    other.start()
    other.stop()
    other.close()

"""Real groups for tests to look at: of librdkafka, classic and KIP-848, and of Kafka's own Java."""

import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from koff.kafkatest import KafkaCluster, LocalKafka, reap, spawn, wait_until
from koff.kafkatest.jars import kafka_streams_jars
from koff.kafkatest.java import java_command

SCRAM_SHA_256 = ScramMechanism.SCRAM_SHA_256
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
STREAMS_APP = Path(__file__).with_name("java") / "StreamsApp.java"


def produce(kafka: KafkaCluster, topic: str, count: int, *, partition: int = 0) -> None:
    """Writes `count` messages and waits until they are there."""
    producer = kafka.producer()
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(60) == 0


@contextmanager
def consuming(
    kafka: KafkaCluster,
    group: str,
    *topics: str,
    count: int,
    protocol: str = "classic",
    client_id: str = "koff-test",
) -> Iterator[Consumer]:
    """A live member of `group` that has read and committed at least `count` messages; leaves at the end.

    `protocol` is librdkafka's group.protocol: `classic`, or `consumer` (KIP-848).
    """
    consumer = kafka.consumer(
        group, {"group.protocol": protocol, "client.id": client_id, "enable.auto.commit": False}
    )
    consumer.subscribe(list(topics))
    read = 0

    def enough() -> bool:
        nonlocal read
        messages = consumer.consume(max(count - read, 1), 0.2) if read < count else []
        read += sum(message.error() is None for message in messages)
        return read >= count

    try:
        wait_until(enough, timeout_s=60, what=f"{group} to read {count} messages")
        wait_until(lambda: is_committed(consumer), what=f"the commit of {group}")
        with _polled(consumer):
            yield consumer
    finally:
        consumer.close()


def is_committed(consumer: Consumer, **offsets: list[TopicPartition]) -> bool:
    """Commits. False if that may succeed the next time.

    A coordinator that has only just been elected refuses, and a busy broker does not respond in time.
    """
    try:
        consumer.commit(**offsets, asynchronous=False)
    except KafkaException as failure:
        name = failure.args[0].name()
        if not any(word in name for word in ("COORDINATOR", "TIMED_OUT", "_TRANSPORT", "IN_PROGRESS")):
            raise
        return False
    return True


def commit(
    kafka: KafkaCluster, group: str, *offsets: tuple[str, int, int] | tuple[str, int, int, str]
) -> None:
    """Commits as an application without membership does: topic, partition, offset, metadata."""
    consumer, to_commit = kafka.consumer(group), [TopicPartition(*at) for at in offsets]
    wait_until(lambda: is_committed(consumer, offsets=to_commit), what=f"the commit of {group}")
    consumer.close()


def make_lag(
    kafka: KafkaCluster, group: str = "", *, committed: int, records: int = 10, replicas: int = 1
) -> str:
    """A new topic with so many records in its partition, to which a group has committed. Returns its name.

    Without a name, the group has that of the topic.
    """
    topic = kafka.create_topic(replicas=replicas)
    produce(kafka, topic, records)
    commit(kafka, group or topic, (topic, 0, committed))
    return topic


@contextmanager
def _polled(consumer: Consumer) -> Iterator[None]:
    """Keeps a paused `consumer` in its group: membership, and rebalances with others, need polling."""
    consumer.pause(consumer.assignment())
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            consumer.poll(0.1)

    poller = threading.Thread(target=poll, name="kafka-groups-poll")
    poller.start()
    try:
        yield
    finally:
        done.set()
        poller.join()


@contextmanager
def java_consuming(
    kafka: KafkaCluster, group: str, topic: str, *, count: int
) -> Iterator["subprocess.Popen[bytes]"]:
    """Kafka's Java console consumer, live in `group` after it printed `count` messages of `topic`.

    It commits on its own, once a second.
    """
    java = kafka.start_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", kafka.bootstrap, "--topic", topic, "--group", group, "--from-beginning"),
        *("--command-property", "auto.commit.interval.ms=1000"),
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(count):
            assert java.stdout.readline(), "the console consumer ended early"
        yield java
    finally:
        reap(java)


@contextmanager
def sharing(kafka: LocalKafka, group: str, topic: str, *, count: int) -> Iterator[None]:
    """Kafka's console share consumer, live in `group` after it printed `count` messages of `topic`."""
    kafka.run_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", kafka.bootstrap, "--alter", "--group", group),
        *("--add-config", "share.auto.offset.reset=earliest"),
    )
    java = kafka.start_tool(
        SHARE_CONSUMER,
        *("--bootstrap-server", kafka.bootstrap, "--topic", topic, "--group", group),
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(count):
            assert java.stdout.readline(), "the share consumer ended early"
        yield
    finally:
        reap(java)


class Member:
    """A member of a group that goes through rebalances and restarts, and commits what it is told to.

    A thread of its own does all with the consumer: calls from another may wait for ever while it polls.
    """

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._to_commit: deque[list[TopicPartition]] = deque()
        self._leaving = threading.Event()
        consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._live, name="kafka-groups-member")
        self._thread.start()

    def commit(self, *offsets: int) -> None:
        """Commits an offset for each of the topic's partitions, in order; tries until it succeeds."""
        self._to_commit.append([TopicPartition(self._topic, *at) for at in enumerate(offsets)])

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._leaving.is_set():
            self._consumer.poll(0.1)
            if self._to_commit:
                self._try_to_commit()
        self._consumer.close()

    def _try_to_commit(self) -> None:
        try:
            self._consumer.commit(offsets=self._to_commit[0], asynchronous=False)
        except KafkaException:
            return  # a broker that starts, or a rebalance: the next turn tries again
        self._to_commit.popleft()


@contextmanager
def member(
    kafka: KafkaCluster,
    group: str,
    topic: str,
    *,
    protocol: str = "classic",
    client_id: str,
    properties: Mapping[str, Any] | None = None,
) -> Iterator[Member]:
    """Joins `group`, without waiting until it is let in; leaves at the end."""
    # The new protocol's members beat as often as the broker tells them.
    beat = {"heartbeat.interval.ms": 200} if protocol == "classic" else {}
    own = {"group.protocol": protocol, "client.id": client_id, "enable.auto.commit": False}
    consumer = kafka.consumer(group, {**own, **beat, **(properties or {})})
    joined = Member(consumer, topic)
    try:
        yield joined
    finally:
        joined.leave()


@contextmanager
def streaming(kafka: KafkaCluster, group: str, topic: str, *, count: int) -> Iterator[None]:
    """A Kafka Streams application, live in the streams group `group` after it counted `count` messages.

    It commits on its own, five times a second, and leaves its group at the end.
    """
    with tempfile.TemporaryDirectory(prefix="koff-streams-") as folder:
        java = spawn(
            [
                *(java_command(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"),
                *(f"-Djava.io.tmpdir={folder}", "-cp", f"{kafka.jars}/*:{kafka_streams_jars()}/*"),
                *(str(STREAMS_APP), kafka.bootstrap, group, topic),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(count):
                assert java.stdout.readline(), "the Streams application ended early"
            yield
        finally:
            reap(java, signal_number=signal.SIGTERM)


Right = tuple[str, ResourceType, str, AclOperation]
"""User, kind of resource, its name ("*": all), operation."""


def allow(kafka: KafkaCluster, *rights: Right) -> None:
    """Gives rights in a secured cluster."""
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", to, AclPermissionType.ALLOW)
        for user, kind, name, to in rights
    ]
    for future in kafka.admin.create_acls(bindings).values():
        future.result(60)


def revoke(kafka: KafkaCluster, *rights: Right) -> None:
    """Takes rights back that `allow` gave."""
    filters = [
        AclBindingFilter(
            kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", to, AclPermissionType.ALLOW
        )
        for user, kind, name, to in rights
    ]
    for future in kafka.admin.delete_acls(filters).values():
        future.result(60)


def set_password(kafka: KafkaCluster, password: str, mechanism: ScramMechanism = SCRAM_SHA_256) -> None:
    """Sets the password with which the user admin logs in by SCRAM."""
    info = ScramCredentialInfo(mechanism, 4096)
    change = UserScramCredentialUpsertion("admin", info, password.encode())
    kafka.admin.alter_user_scram_credentials([change])["admin"].result(60)

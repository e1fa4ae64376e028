"""A member of a group on ZooKeeper gets a signal, and leaves the group."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from koff.client import ClusterConf
from koff.client.zookeeper import ConsumerGroupConf, join_consumer_group
from koff.kafkatest import KafkaCluster, LocalZooKeeper, reap, spawn, wait_until
from tests.kafka_groups import produce

EXAMPLE = Path(__file__).parents[2] / "examples" / "zookeeper_group.py"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_example_commits_and_leaves_on_a_signal(
    kafka: KafkaCluster,
    make_topic: Callable[..., str],
    koff_zookeeper: LocalZooKeeper,
    tmp_path: Path,
    number: signal.Signals,
):
    topic, output = make_topic(), tmp_path / "output"
    produce(kafka, topic, 20)
    command = [sys.executable, str(EXAMPLE), topic, topic, koff_zookeeper.hosts, kafka.bootstrap]
    with output.open("wb") as sink:
        process = spawn(command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: output.read_text().count(f"{topic} 0 ") == 20, what="all messages")
        process.send_signal(number)
        assert process.wait(60) == 0, output.read_text()
    finally:
        reap(process)
    assert "processed 20 messages" in output.read_text()
    conf = ConsumerGroupConf(cluster=ClusterConf(kafka.bootstrap))
    with join_consumer_group(topic, [topic], koff_zookeeper.hosts, conf) as group:
        assert group.session.call("get", group.paths.offset(topic, 0))[0] == b"20"


def test_a_close_in_a_signal_handler_does_not_wait_for_the_message_that_its_thread_processes(
    kafka: KafkaCluster, make_topic: Callable[..., str], koff_zookeeper: LocalZooKeeper
):
    topic = make_topic()
    produce(kafka, topic, 3)
    conf = ConsumerGroupConf(cluster=ClusterConf(kafka.bootstrap), processing_timeout_s=120.0)
    assert threading.current_thread() is threading.main_thread()
    closed_in_s: list[float] = []
    seen = []
    group = join_consumer_group(topic, [topic], koff_zookeeper.hosts, conf)

    def leave(_signal: int, _frame: object) -> None:
        started = time.monotonic()
        group.close()
        closed_in_s.append(time.monotonic() - started)

    before = signal.signal(signal.SIGUSR1, leave)
    try:
        with group:
            for message in group.messages():
                seen.append(message.offset)
                os.kill(os.getpid(), signal.SIGUSR1)
                wait_until(lambda: bool(closed_in_s), what="the handler to return")
                assert not group.closed  # the shutdown waits for this message
                message.ack()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [0]
    assert closed_in_s[0] < 30  # the message is processed for longer
    assert group.closed
    with join_consumer_group(topic, [topic], koff_zookeeper.hosts, conf) as again:
        assert again.session.call("get", again.paths.offset(topic, 0))[0] == b"1"

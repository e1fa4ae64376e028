"""A program forks while it uses a real Kafka: the child gets errors at once, and its parent goes on."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

from koff.client import ClusterConf, ConsumerConf, Message, OtherProcess, dial
from koff.client.multicluster import Writer, WriterConf

pytestmark = pytest.mark.kafka


def test_a_forked_process_dials_again_and_its_parent_goes_on(kafka):
    topic = kafka.create_topic()
    fork = multiprocessing.get_context("fork")
    results: Any = fork.Queue()
    clusters = {"east": ClusterConf(kafka.bootstrap)}
    with dial(kafka.bootstrap) as broker, Writer(clusters, WriterConf(topic)) as writer:
        producer, consumer = broker.producer(), broker.consumer(ConsumerConf(topic))
        producer.produce(topic, 0, Message(b"parent"))
        writer.write_messages(Message(b"parent"))
        assert consumer.consume(timeout_s=60).value == b"parent"

        def work() -> None:
            for call in (
                lambda: producer.produce(topic, 0, Message(b"never")),
                lambda: writer.write_messages(Message(b"never"), timeout_s=5),
                lambda: broker.offset_latest(topic, 0),
            ):
                try:
                    call()
                except OtherProcess:
                    results.put("refused")
            broker.close()
            writer.close()
            with dial(kafka.bootstrap) as own:
                own.producer().produce(topic, 0, Message(b"child"))

        child = fork.Process(target=work)
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert [results.get(timeout=10) for _ in range(3)] == ["refused"] * 3
        producer.produce(topic, 0, Message(b"parent again"))
        values = [consumer.consume(timeout_s=60).value for _ in range(3)]
        assert values == [b"parent", b"child", b"parent again"]

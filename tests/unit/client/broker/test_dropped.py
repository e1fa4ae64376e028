"""A connection that nobody closes: it warns, and leaves nothing behind."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from koff.client import Broker, BrokerConf, ClusterConf, ConsumerConf, OffsetCoordinatorConf
from koff.client.cluster import Cluster
from koff.errors import Closed
from koff.kafkatest import wait_until
from tests.process_threads import count_threads, wait_for_threads


def make_broker() -> Broker:
    broker = Broker(Cluster(ClusterConf("127.0.0.1:1")), BrokerConf(leader_retry_limit=0))
    broker._partition_counts["t"] = 1
    return broker


def make_parts() -> list[weakref.ref[object]]:
    broker = make_broker()
    producer, consumer = broker.producer(), broker.consumer(ConsumerConf("t"))
    return [weakref.ref(each) for each in (broker, producer, broker._cluster, consumer.feed)]


def test_a_connection_that_is_dropped_warns_and_leaves_nothing_behind(monkeypatch):
    gc.collect()
    before = count_threads()

    def are_gone() -> bool:
        gc.collect()
        return not any(part() for part in parts)

    warned: list[str] = []
    with warnings.catch_warnings():  # without `record`: a recorded warning keeps its source alive
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *rest: warned.append(str(message)))
        parts = make_parts()
        wait_until(are_gone, what="the end of all parts")
    wait_for_threads(before)
    assert "<Broker at 127.0.0.1:1> was not closed" in warned


@pytest.mark.parametrize("part", ["consumer", "producer", "coordinator"])
def test_a_part_that_is_used_keeps_the_connection(part):
    def make() -> tuple[object, weakref.ref[Broker]]:
        broker = make_broker()
        makers: dict[str, Callable[[], object]] = {
            "consumer": partial(broker.consumer, ConsumerConf("t")),
            "producer": broker.producer,
            "coordinator": partial(broker.offset_coordinator, OffsetCoordinatorConf("g")),
        }
        return makers[part](), weakref.ref(broker)

    kept, connection = make()
    gc.collect()
    found = connection()
    assert found is not None
    found.close()
    del kept


def test_a_connection_that_is_closed_says_nothing():
    broker = make_broker()
    consumer = broker.consumer(ConsumerConf("t"))
    broker.close()
    with pytest.raises(Closed):
        consumer.consume()
    del broker, consumer
    gc.collect()

"""Whatever librdkafka, a socket or kazoo raises, a call of `koff.client` raises a `KoffError`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol

import pytest
from confluent_kafka import KafkaError, KafkaException
from kazoo.exceptions import ConnectionLoss, KazooException

import koff.client
from koff.client import (
    Broker,
    BrokerConf,
    ClusterConf,
    ConsumerConf,
    HashProducer,
    Message,
    OffsetCoordinatorConf,
    OffsetSpec,
    ProducerConf,
    RandomProducer,
    RoundRobinProducer,
    TopicPartition,
    dial,
    merge,
    plan_reset,
)
from koff.client.broker.consumer import PartitionConsumer
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.broker.producer import PartitionProducer
from koff.client.cluster import Cluster
from koff.client.zookeeper.session import Session
from koff.errors import KoffError

ERRORS = [
    KafkaException(KafkaError(KafkaError._TRANSPORT, "broken pipe")),
    KafkaException(KafkaError(KafkaError._TIMED_OUT)),
    KafkaException("without a code"),
    TimeoutError(),
    OSError(24, "too many open files"),
    RuntimeError("Consumer closed"),
    RuntimeError("can't start new thread"),
    MemoryError(),
    ValueError("a value"),
    TypeError("a type"),
    BufferError("the queue is full"),
    KeyError("t"),
]
AT = TopicPartition("t", 0)
CLUSTER = ClusterConf("127.0.0.1:1", request_timeout_s=0.2, connect_timeout_s=0.2)


class FailingClient:
    """A producer or consumer. Each call raises an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            raise self.error

        return call


class Made(Protocol):
    """What a test makes before the libraries begin to fail, with the names of the tests' objects."""

    def __getitem__(self, name: str, /) -> Any: ...


def make_broker() -> Broker:
    conf = BrokerConf(leader_retry_limit=0, dial_retry_limit=0, dial_timeout_s=0.2)
    broker = Broker(Cluster(CLUSTER), conf)
    broker._partition_counts["t"] = 1
    return broker


def consumer_conf() -> ConsumerConf:
    return ConsumerConf("t", 0, retry_err_limit=0, retry_err_wait_s=0.0, retry_limit=0)


def coordinator_conf() -> OffsetCoordinatorConf:
    return OffsetCoordinatorConf("g", retry_err_limit=0)


Call = Callable[[dict[str, Any]], object]
CALLS: dict[str, Call] = {
    "dial": lambda made: dial("127.0.0.1:1", made["broker"].conf),
    "merge": lambda made: merge(made["consumer"]).consume(),
    "plan_reset": lambda made: plan_reset(made["broker"], "g", OffsetSpec.LATEST, topics=["t"]),
    "Broker.metadata": lambda made: made["broker"].metadata(),
    "Broker.partition_count": lambda made: made["broker"].partition_count("t"),
    "Broker.offset_earliest": lambda made: made["broker"].offset_earliest("t", 0),
    "Broker.offset_latest": lambda made: made["broker"].offset_latest("t", 0),
    "Broker.offsets": lambda made: made["broker"].offsets([AT], 5),
    "Broker.producer": lambda made: made["broker"].producer(ProducerConf(retry_limit=3)),
    "Broker.consumer": lambda made: made["broker"].consumer(ConsumerConf("u", start_offset=-1)),
    "Broker.offset_coordinator": lambda made: made["broker"].offset_coordinator(coordinator_conf()).offsets(),
    "PartitionProducer.produce": lambda made: made["producer"].produce("t", 0, Message(b"a"), Message(b"b")),
    "PartitionProducer.produce_async": lambda made: _wait(made["producer"].produce_async("t", 0, Message())),
    "PartitionConsumer.consume": lambda made: made["consumer"].consume(),
    "PartitionConsumer.consume_batch": lambda made: made["consumer"].consume_batch(),
    "PartitionConsumer.poll_batch": lambda made: _poll(made["consumer"]),
    "PartitionConsumer.position": lambda made: made["consumer"].position(),
    "PartitionConsumer.seek": lambda made: made["consumer"].seek(-1),
    "PartitionConsumer.resume_at": lambda made: made["consumer"].resume_at(-1, KoffError("out of range")),
    "GroupCoordinator.commit": lambda made: made["coordinator"].commit("t", 0, 1),
    "GroupCoordinator.commit_offsets": lambda made: made["coordinator"].commit_offsets({AT: 1}),
    "GroupCoordinator.delete_offsets": lambda made: made["coordinator"].delete_offsets([AT]),
    "GroupCoordinator.offset": lambda made: made["coordinator"].offset("t", 0),
    "GroupCoordinator.offsets": lambda made: made["coordinator"].offsets(),
    "HashProducer.distribute": lambda made: HashProducer(made["producer"], 1).distribute("t", Message()),
    "RandomProducer.distribute": lambda made: RandomProducer(made["producer"], 1).distribute("t", Message()),
    "RoundRobinProducer.distribute": lambda made: RoundRobinProducer(made["producer"], 1).distribute(
        "t", Message(b"with a header", headers=(("h", b""),))
    ),
    "Mx.consume": lambda made: made["mx"].consume(),
    "Mx.consume_batch": lambda made: made["mx"].consume_batch(),
    "Cluster.connect": lambda made: made["cluster"].connect(),
    "Cluster.lacks_partition": lambda made: made["cluster"].lacks_partition(AT, "UNKNOWN_TOPIC_OR_PARTITION"),
    "Cluster.fetch_topic": lambda made: made["cluster"].fetch_topic("t"),
    "Cluster.find_denied_topics": lambda made: made["cluster"].find_denied_topics(["t"]),
    "Cluster.fetch_topic_ids": lambda made: made["cluster"].fetch_topic_ids(["t"]),
    "Cluster.fetch_metadata": lambda made: made["cluster"].fetch_metadata(),
    "Cluster.fetch_topic_configs": lambda made: made["cluster"].fetch_topic_configs("t", "retention.ms"),
    "Cluster.find_address": lambda made: made["cluster"].find_address(1),
    "Cluster.fetch_offsets": lambda made: _raise_text(made["cluster"].fetch_offsets([AT])),
}
"""Each public call that reaches a library. A result that is an error is raised, too."""

MAKE_NO_CALL = {
    "Batch.keys Batch.offsets Batch.split Batch.values",
    "Broker.close Cluster.close",
    "GroupCoordinator.close Message.ack Message.nack Metadata.leader Mx.close",
    "PartitionConsumer.close PartitionConsumer.start_waiting PartitionConsumer.wake PartitionProducer.close",
    "FeedConf.librdkafka_properties BrokerConf.cluster_conf",
    "ClusterConf.librdkafka_properties ClusterConf.read_properties",
    "crc32_partition fnv1a_partition murmur2_partition",
}
"""Calls that only read memory or close something, for which `test_closing_never_fails` stands."""


def _raise_text(results: dict[Any, Any]) -> None:
    for result in results.values():
        if isinstance(result, str):
            raise KoffError(str(result))


def _wait(future: Future[int | None]) -> None:
    future.result(60)


def _poll(consumer: PartitionConsumer) -> None:
    while consumer.poll_batch(10) is None:
        consumer.feed.wait_for_messages([consumer.buffer], 0.1)


def fail_all(monkeypatch: pytest.MonkeyPatch, error: Exception) -> FailingClient:
    """Makes all libraries fail with the error, from now on."""
    failing = FailingClient(error)
    for name, module in list(sys.modules.items()):
        if name.startswith("koff.client") and hasattr(module, "new_client"):
            monkeypatch.setattr(module, "new_client", lambda *args, **options: failing)

    def open_socket(*args: Any) -> Any:
        raise error

    monkeypatch.setattr("koff.client.wire.connection.open_socket", open_socket)
    # `plan_reset` takes no configuration: without this, it would repeat its request for five seconds.
    monkeypatch.setattr(
        "koff.client.broker.offset_reset.OffsetCoordinatorConf", lambda group: coordinator_conf()
    )
    return failing


@pytest.fixture
def made() -> Iterator[dict[str, Any]]:
    """One object of each class, made while the libraries still work."""
    broker = make_broker()
    objects: dict[str, Any] = {
        "broker": broker,
        "producer": broker.producer(ProducerConf(retry_limit=0)),
        "consumer": broker.consumer(consumer_conf()),
        "coordinator": broker.offset_coordinator(coordinator_conf()),
        "cluster": Cluster(CLUSTER),
    }
    objects["mx"] = merge(objects["consumer"])
    yield objects
    for each in reversed(objects.values()):
        each.close()


def replace_clients(made: dict[str, Any], failing: Any) -> None:
    """Puts the failing client into objects that are made already. The real clients are closed."""
    feed = made["consumer"].feed
    feed._consumer.close()
    feed._consumer = failing
    made["producer"]._producer = failing


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_raises_only_errors_of_koff(made, monkeypatch, call, error):
    replace_clients(made, fail_all(monkeypatch, error))
    if call == "Broker.producer":  # the test's client can be made: its calls fail
        CALLS[call](made)
        return
    with pytest.raises(KoffError) as raised:
        CALLS[call](made)
    assert str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_closing_never_fails(made, monkeypatch, error):
    replace_clients(made, fail_all(monkeypatch, error))
    for name in ("mx", "consumer", "producer", "coordinator", "cluster", "broker"):
        made[name].close()


def test_no_public_call_is_left_out():
    classes = [PartitionProducer, PartitionConsumer, GroupCoordinator, Cluster]
    functions = []
    for name in koff.client.__all__:
        public = getattr(koff.client, name)
        if inspect.isclass(public) and not getattr(public, "_is_protocol", False):
            classes.append(public)
        elif inspect.isfunction(public):
            functions.append(name)
    methods = [
        f"{each.__name__}.{name}"
        for each in classes
        if not issubclass(each, Exception | tuple)
        for name, method in vars(each).items()
        if inspect.isfunction(method) and not name.startswith("_")
    ]
    silent = {name for names in MAKE_NO_CALL for name in names.split()}
    assert set(functions + methods) - silent - set(CALLS) == set()


@pytest.mark.parametrize("error", [*ERRORS, KazooException("other"), ConnectionLoss()], ids=repr)
def test_a_call_of_zookeeper_raises_only_errors_of_koff(monkeypatch, error):
    with Session("127.0.0.1:1", connect_timeout_s=0.1) as session:
        failing = FailingClient(error)
        monkeypatch.setattr(session, "_kazoo", failing)
        failing.__dict__["connected"] = True
        for call in (
            session.connect,
            lambda: session.call("get", "/a"),
            lambda: session.wait_for_result(failing),
            lambda: session.list_children("/a"),
            lambda: session.renew_lease("/a"),
        ):
            with pytest.raises(KoffError):
                call()

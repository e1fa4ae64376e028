"""Every public call has a contract test or a reason why not; calls for tasks have the same parameters."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from koff import aio
from koff.client import Broker, multicluster, zookeeper
from koff.client.broker.consumer import PartitionConsumer
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.broker.producer import PartitionProducer

MODULES = [
    *("koff.client", "koff.client.multicluster", "koff.client.zookeeper"),
    *("koff.aio", "koff.kafkatest", "koff.kafkatest.doubles"),
]
FOR_AIO = """*Reader.wait_for_messages *Writer.begin_write *Writer.give_up *ConsumerGroup.poll_message
    *ConsumerGroup.wait_for_message"""
"""What `koff.aio` calls of its cores."""
INSIDE = """BrokerConf.cluster_conf *.librdkafka_properties ClusterConf.read_properties
    Summary.with_value ConsumerGroup.abandon ZooKeeperLogin.kazoo_options *.begin_call *.call_in_thread
    *.end_wait MemoryBroker.add_unfinished MemoryBroker.begin_call MemoryBroker.check_open
    MemoryBroker.count_partitions MemoryBroker.find_log MemoryBroker.has_script MemoryBroker.take_delay
    MemoryConsumerGroup.claim_partitions MemoryConsumerGroup.lose_claims MemoryConsumerGroup.release_claims
    MemoryZooKeeper.rebalance VirtualClock.wait_for"""
WITHOUT_CONTRACT = {
    FOR_AIO: "the sides `aio-memory` and `aio-kafka` of the contract tests go through them",
    INSIDE: "other parts of koff call them, not programs",
    "*.check_process": "it is the same method everywhere: tests/unit/client/test_closing.py",
    "*_partition *.balance Redelivery.delay_s": "they are pure, and no double has them: tests/unit/client",
    "*OffsetManager.*": "the doubles have no offset managers: tests/integration/test_zookeeper_group.py",
    """KafkaCluster.* KafkaNode.* LocalKafka.* LocalZooKeeper.* free_ports freeze is_free kafka_jars reap
    spawn""": "they are the real thing, and no double has them: tests/unit/kafkatest, tests/integration",
    "Batch.index": "it is Python's own, of a Sequence",
}
"""Patterns of calls, and why they have no contract test."""


def list_calls(name: str) -> set[str]:
    """The public functions of a module, and the public methods of its classes, as Class.method."""
    module, calls = import_module(name), set()
    names = getattr(module, "__all__", None) or [each for each in dir(module) if not each.startswith("_")]
    for public in (getattr(module, each) for each in names):
        if inspect.isfunction(public):
            calls.add(public.__name__)
        elif inspect.isclass(public) and not issubclass(public, Exception):
            methods = inspect.getmembers_static(public, inspect.isfunction)
            calls |= {f"{public.__name__}.{each}" for each, _ in methods if not each.startswith("_")}
    return calls


def read_names() -> set[str]:
    """All names and attributes in the contract tests, and in those of what only doubles have."""
    here, names = Path(__file__).parent, set[str]()
    for path in [*here.glob("test_contract*.py"), here / "test_doubles.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            names |= {node.attr} if isinstance(node, ast.Attribute) else set()
            names |= {node.id} if isinstance(node, ast.Name) else set()
    return names


def test_every_public_call_has_a_contract_test_or_a_reason():
    used, calls = read_names(), set[str]().union(*map(list_calls, MODULES))
    without = {call for call in calls if call.rpartition(".")[2] not in used}
    patterns = {pattern for patterns in WITHOUT_CONTRACT for pattern in patterns.split()}
    assert {call for call in without if not any(fnmatchcase(call, each) for each in patterns)} == set()
    assert {each for each in patterns if not any(fnmatchcase(call, each) for call in without)} == set()


PAIRS = [
    (Broker, aio.Broker, ""),
    (PartitionProducer, aio.Producer, "produce_async"),
    (PartitionConsumer, aio.Consumer, "wake start_waiting poll_batch resume_at"),
    (GroupCoordinator, aio.OffsetCoordinator, "delete_offsets"),
    (multicluster.Reader, aio.Reader, "wait_for_messages"),
    (multicluster.Writer, aio.Writer, "begin_write give_up"),
    (zookeeper.ConsumerGroup, aio.ConsumerGroup, "join abandon poll_message wait_for_message"),
]


@pytest.mark.parametrize(("blocking", "for_tasks", "left_out"), PAIRS)
def test_each_call_for_tasks_has_the_parameters_of_the_blocking_one(blocking, for_tasks, left_out):
    for name, call in vars(blocking).items():
        if inspect.isfunction(call) and not name.startswith("_") and name not in left_out.split():
            ours = describe_parameters(getattr(for_tasks, name))
            theirs = describe_parameters(call)
            assert list(theirs) == [each for each in ours if each in theirs]
            assert {each: ours[each] for each in theirs} == theirs
            assert ours.keys() - theirs.keys() <= {"timeout_s"}


def describe_parameters(call: Callable[..., Any]) -> dict[str, tuple[object, object]]:
    return {each.name: (each.kind, each.default) for each in inspect.signature(call).parameters.values()}

"""The test kit: a real Apache Kafka on loopback without Docker, and waits without sleeping.

with LocalKafka() as kafka:
    topic = kafka.create_topic(partitions=3)
    print(kafka.bootstrap)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koff.kafkatest.guard import GUARD, freeze, reap, spawn
    from koff.kafkatest.jars import KAFKA_VERSION, kafka_jars
    from koff.kafkatest.java import KafkaTestError
    from koff.kafkatest.kafka_cluster import KafkaCluster
    from koff.kafkatest.local_kafka import LocalKafka
    from koff.kafkatest.local_zookeeper import LocalZooKeeper
    from koff.kafkatest.node import KafkaNode
    from koff.kafkatest.ports import free_ports, is_free
    from koff.kafkatest.progress_line import ProgressLine
    from koff.kafkatest.wait import wait_until

__all__ = [
    "GUARD",
    "KAFKA_VERSION",
    "KafkaCluster",
    "KafkaNode",
    "KafkaTestError",
    "LocalKafka",
    "LocalZooKeeper",
    "ProgressLine",
    "free_ports",
    "freeze",
    "is_free",
    "kafka_jars",
    "reap",
    "spawn",
    "wait_until",
]

_MODULES = {
    "GUARD": "guard",
    "KAFKA_VERSION": "jars",
    "KafkaCluster": "kafka_cluster",
    "KafkaNode": "node",
    "KafkaTestError": "java",
    "LocalKafka": "local_kafka",
    "LocalZooKeeper": "local_zookeeper",
    "ProgressLine": "progress_line",
    "free_ports": "ports",
    "freeze": "guard",
    "is_free": "ports",
    "kafka_jars": "jars",
    "reap": "guard",
    "spawn": "guard",
    "wait_until": "wait",
}


def __getattr__(name: str) -> Any:
    """A public name of this package, imported when it is first used. Raises `AttributeError`."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not at the top: `make demo` fetches the jars before confluent-kafka is installed.
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value

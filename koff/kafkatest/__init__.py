"""The test kit: a real Apache Kafka on loopback without Docker, and waiting without sleeping.

with LocalKafka() as kafka:
    topic = kafka.create_topic(partitions=3)
    print(kafka.bootstrap)
"""

from koff.kafkatest.cluster import Cluster
from koff.kafkatest.guard import GUARD, reap, spawn
from koff.kafkatest.jars import KAFKA_VERSION, kafka_jars
from koff.kafkatest.java import KafkaTestError
from koff.kafkatest.local import LocalKafka
from koff.kafkatest.node import Node
from koff.kafkatest.ports import free_ports, is_free
from koff.kafkatest.progress import ProgressLine
from koff.kafkatest.wait import wait_until
from koff.kafkatest.zookeeper import LocalZooKeeper

__all__ = [
    "GUARD",
    "KAFKA_VERSION",
    "Cluster",
    "KafkaTestError",
    "LocalKafka",
    "LocalZooKeeper",
    "Node",
    "ProgressLine",
    "free_ports",
    "is_free",
    "kafka_jars",
    "reap",
    "spawn",
    "wait_until",
]

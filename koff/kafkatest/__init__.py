"""The test kit: a real Apache Kafka on loopback without Docker, and waits without sleeping.

with LocalKafka() as kafka:
    topic = kafka.create_topic(partitions=3)
    print(kafka.bootstrap)
"""

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

"""What tests need of the test kit. `as` tells type checkers that a name is public."""

from koff.kafkatest.guard import GUARD as GUARD
from koff.kafkatest.guard import freeze as freeze
from koff.kafkatest.guard import reap as reap
from koff.kafkatest.guard import spawn as spawn
from koff.kafkatest.jars import KAFKA_VERSION as KAFKA_VERSION
from koff.kafkatest.jars import kafka_jars as kafka_jars
from koff.kafkatest.java import KafkaTestError as KafkaTestError
from koff.kafkatest.kafka_cluster import KafkaCluster as KafkaCluster
from koff.kafkatest.local_kafka import LocalKafka as LocalKafka
from koff.kafkatest.local_zookeeper import LocalZooKeeper as LocalZooKeeper
from koff.kafkatest.node import KafkaNode as KafkaNode
from koff.kafkatest.ports import free_ports as free_ports
from koff.kafkatest.ports import is_free as is_free
from koff.kafkatest.progress_line import ProgressLine as ProgressLine
from koff.kafkatest.wait import wait_until as wait_until

"""Consumer groups that are coordinated through ZooKeeper, with the nodes that Kafka's first consumers used.

Needs the extra `koff[zookeeper]` (kazoo).
"""

from koff.client.delivery.conf import Redelivery, RedeliveryCounts
from koff.client.delivery.errors import PartitionError
from koff.client.zookeeper.conf import ConsumerGroupConf
from koff.client.zookeeper.errors import (
    AlreadyClosing,
    ClaimLost,
    UncleanClose,
    ZooKeeperLost,
)
from koff.client.zookeeper.group import ConsumerGroup, join_consumer_group
from koff.client.zookeeper.offset_manager import OffsetManager, OffsetManagerConf
from koff.client.zookeeper.offsets_in_kafka import KafkaOffsetManager
from koff.client.zookeeper.offsets_in_zookeeper import ZooKeeperOffsetManager
from koff.client.zookeeper.session import ZooKeeperLogin

__all__ = [
    "AlreadyClosing",
    "ClaimLost",
    "ConsumerGroup",
    "ConsumerGroupConf",
    "KafkaOffsetManager",
    "OffsetManager",
    "OffsetManagerConf",
    "PartitionError",
    "Redelivery",
    "RedeliveryCounts",
    "UncleanClose",
    "ZooKeeperLogin",
    "ZooKeeperLost",
    "ZooKeeperOffsetManager",
    "join_consumer_group",
]

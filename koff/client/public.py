"""What users of the client stack need, with the errors that they catch: `koff.client` has these names."""

from koff.client.batch import Batch
from koff.client.broker.broker import Broker, dial
from koff.client.broker.conf import (
    START_OFFSET_NEWEST,
    START_OFFSET_OLDEST,
    BrokerConf,
    Compression,
    ConsumerConf,
    OffsetCoordinatorConf,
    ProducerConf,
    RequiredAcks,
)
from koff.client.broker.interfaces import Client, Consumer, DistributingProducer, OffsetCoordinator, Producer
from koff.client.broker.merge import Mx, merge
from koff.client.broker.offset_reset import OffsetChange, plan_reset
from koff.client.broker.partitioners import HashProducer, RandomProducer, RoundRobinProducer
from koff.client.cluster_conf import ClusterConf, Isolation, OffsetSpec, TopicPartition
from koff.client.errors import (
    CoordinatorError,
    InvalidMessage,
    MxClosed,
    MxError,
    NoData,
    NoDataInTime,
    OffsetOutOfRange,
    ProduceError,
    UnknownTopic,
)
from koff.client.feed.source import FeedConf
from koff.client.key_hashes import crc32_partition, fnv1a_partition, murmur2_partition
from koff.client.message import Message
from koff.client.metadata import Metadata, Node, PartitionMetadata
from koff.client.start_offset import StartOffset
from koff.client.wire.connection import UnsupportedVersion
from koff.errors import Closed, ConfigError, ConnectError, Denied, KoffError

__all__ = [
    "START_OFFSET_NEWEST",
    "START_OFFSET_OLDEST",
    "Batch",
    "Broker",
    "BrokerConf",
    "Client",
    "Closed",
    "ClusterConf",
    "Compression",
    "ConfigError",
    "ConnectError",
    "Consumer",
    "ConsumerConf",
    "CoordinatorError",
    "Denied",
    "DistributingProducer",
    "FeedConf",
    "HashProducer",
    "InvalidMessage",
    "Isolation",
    "KoffError",
    "Message",
    "Metadata",
    "Mx",
    "MxClosed",
    "MxError",
    "NoData",
    "NoDataInTime",
    "Node",
    "OffsetChange",
    "OffsetCoordinator",
    "OffsetCoordinatorConf",
    "OffsetOutOfRange",
    "OffsetSpec",
    "PartitionMetadata",
    "ProduceError",
    "Producer",
    "ProducerConf",
    "RandomProducer",
    "RequiredAcks",
    "RoundRobinProducer",
    "StartOffset",
    "TopicPartition",
    "UnknownTopic",
    "UnsupportedVersion",
    "crc32_partition",
    "dial",
    "fnv1a_partition",
    "merge",
    "murmur2_partition",
    "plan_reset",
]

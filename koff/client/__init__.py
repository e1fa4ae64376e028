"""The client stack on confluent-kafka: connections, producers, consumers, feeds and groups' offsets.

Apart from the test kit (`koff.kafkatest`), no other package of koff imports confluent-kafka.
"""

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
from koff.client.closing import Closing
from koff.client.cluster import Cluster, ClusterConf, Isolation, OffsetSpec, TopicInfo, TopicPartition
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
from koff.client.feed.feed import Feed, Fetched, PartitionLost, RawRecord, Run
from koff.client.feed.record_times import Answer, EndReached, FirstRecord, Place, RecordTimes, Unread
from koff.client.feed.source import FeedConf
from koff.client.key_hashes import crc32_partition, fnv1a_partition, murmur2_partition
from koff.client.message import Message
from koff.client.metadata import Metadata, Node, PartitionMetadata
from koff.client.start_offset import StartOffset
from koff.errors import Closed

__all__ = [
    "START_OFFSET_NEWEST",
    "START_OFFSET_OLDEST",
    "Answer",
    "Batch",
    "Broker",
    "BrokerConf",
    "Client",
    "Closed",
    "Closing",
    "Cluster",
    "ClusterConf",
    "Compression",
    "Consumer",
    "ConsumerConf",
    "CoordinatorError",
    "DistributingProducer",
    "EndReached",
    "Feed",
    "FeedConf",
    "Fetched",
    "FirstRecord",
    "HashProducer",
    "InvalidMessage",
    "Isolation",
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
    "PartitionLost",
    "PartitionMetadata",
    "Place",
    "ProduceError",
    "Producer",
    "ProducerConf",
    "RandomProducer",
    "RawRecord",
    "RecordTimes",
    "RequiredAcks",
    "RoundRobinProducer",
    "Run",
    "StartOffset",
    "TopicInfo",
    "TopicPartition",
    "UnknownTopic",
    "Unread",
    "crc32_partition",
    "dial",
    "fnv1a_partition",
    "merge",
    "murmur2_partition",
    "plan_reset",
]

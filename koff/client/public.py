"""What users of the client stack need, with the errors that they catch: `koff.client` has these names.

`as` tells type checkers that a name is public.
"""

from koff.client.batch import Batch as Batch
from koff.client.broker.broker import Broker as Broker
from koff.client.broker.broker import dial as dial
from koff.client.broker.conf import START_OFFSET_NEWEST as START_OFFSET_NEWEST
from koff.client.broker.conf import START_OFFSET_OLDEST as START_OFFSET_OLDEST
from koff.client.broker.conf import BrokerConf as BrokerConf
from koff.client.broker.conf import Compression as Compression
from koff.client.broker.conf import ConsumerConf as ConsumerConf
from koff.client.broker.conf import OffsetCoordinatorConf as OffsetCoordinatorConf
from koff.client.broker.conf import ProducerConf as ProducerConf
from koff.client.broker.conf import RequiredAcks as RequiredAcks
from koff.client.broker.interfaces import Client as Client
from koff.client.broker.interfaces import Consumer as Consumer
from koff.client.broker.interfaces import DistributingProducer as DistributingProducer
from koff.client.broker.interfaces import OffsetCoordinator as OffsetCoordinator
from koff.client.broker.interfaces import Producer as Producer
from koff.client.broker.merge import Mx as Mx
from koff.client.broker.merge import merge as merge
from koff.client.broker.offset_reset import OffsetChange as OffsetChange
from koff.client.broker.offset_reset import plan_reset as plan_reset
from koff.client.broker.partitioners import HashProducer as HashProducer
from koff.client.broker.partitioners import RandomProducer as RandomProducer
from koff.client.broker.partitioners import RoundRobinProducer as RoundRobinProducer
from koff.client.cluster_conf import ClusterConf as ClusterConf
from koff.client.cluster_conf import Isolation as Isolation
from koff.client.cluster_conf import OffsetSpec as OffsetSpec
from koff.client.cluster_conf import TopicPartition as TopicPartition
from koff.client.errors import CoordinatorError as CoordinatorError
from koff.client.errors import InvalidMessage as InvalidMessage
from koff.client.errors import MxClosed as MxClosed
from koff.client.errors import MxError as MxError
from koff.client.errors import NoData as NoData
from koff.client.errors import NoDataInTime as NoDataInTime
from koff.client.errors import OffsetOutOfRange as OffsetOutOfRange
from koff.client.errors import ProduceError as ProduceError
from koff.client.errors import TopicRecreated as TopicRecreated
from koff.client.errors import UnknownTopic as UnknownTopic
from koff.client.feed.source import FeedConf as FeedConf
from koff.client.key_hashes import crc32_partition as crc32_partition
from koff.client.key_hashes import fnv1a_partition as fnv1a_partition
from koff.client.key_hashes import murmur2_partition as murmur2_partition
from koff.client.message import Message as Message
from koff.client.metadata import Metadata as Metadata
from koff.client.metadata import Node as Node
from koff.client.metadata import PartitionMetadata as PartitionMetadata
from koff.client.start_offset import StartOffset as StartOffset
from koff.client.wire.connection import UnsupportedVersion as UnsupportedVersion
from koff.errors import Closed as Closed
from koff.errors import ConfigError as ConfigError
from koff.errors import ConnectError as ConnectError
from koff.errors import Denied as Denied
from koff.errors import KoffError as KoffError
from koff.errors import OtherProcess as OtherProcess

"""The client stack: what koff says to Kafka, on confluent-kafka. The only room that imports it."""

from koff.client.closing import Closing
from koff.client.cluster import Cluster, ClusterConf, Isolation, OffsetSpec, TopicInfo, TopicPartition
from koff.client.feed import Feed, Fetched, PartitionLost, RawRecord, Run
from koff.client.source import FeedConf
from koff.client.timestamps import Answer, EndReached, FirstRecord, Place, RecordTimes, Unread

__all__ = [
    "Answer",
    "Closing",
    "Cluster",
    "ClusterConf",
    "EndReached",
    "Feed",
    "FeedConf",
    "Fetched",
    "FirstRecord",
    "Isolation",
    "OffsetSpec",
    "PartitionLost",
    "Place",
    "RawRecord",
    "RecordTimes",
    "Run",
    "TopicInfo",
    "TopicPartition",
    "Unread",
]

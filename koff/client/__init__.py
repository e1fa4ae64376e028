"""The client stack: what koff says to Kafka, on confluent-kafka. The only room that imports it."""

from koff.client.closing import Closing
from koff.client.cluster import Cluster, ClusterConf, Isolation, OffsetSpec, TopicInfo, TopicPartition
from koff.client.feed import Feed, FeedConf, Fetched, PartitionLost, RawRecord, Run

__all__ = [
    "Closing",
    "Cluster",
    "ClusterConf",
    "Feed",
    "FeedConf",
    "Fetched",
    "Isolation",
    "OffsetSpec",
    "PartitionLost",
    "RawRecord",
    "Run",
    "TopicInfo",
    "TopicPartition",
]

"""Many clusters as one: a reader of all clusters, and a writer that uses another cluster when one fails."""

from koff.client.delivery.conf import Redelivery, RedeliveryCounts
from koff.client.delivery.errors import PartitionError
from koff.client.multicluster.balancers import CRC32, Balancer, Hash, LeastBytes, Murmur2, RoundRobin
from koff.client.multicluster.conf import FIRST_OFFSET, LAST_OFFSET, ReaderConf, RWMode, WriterConf
from koff.client.multicluster.errors import (
    CommitError,
    ReadError,
    ReadErrors,
    Unavailable,
    WriteError,
    WriteErrors,
)
from koff.client.multicluster.reader import Reader
from koff.client.multicluster.stats import ClientStats, ClusterWrites, ReaderStats, Summary, WriterStats
from koff.client.multicluster.writer import Writer

__all__ = [
    "CRC32",
    "FIRST_OFFSET",
    "LAST_OFFSET",
    "Balancer",
    "ClientStats",
    "ClusterWrites",
    "CommitError",
    "Hash",
    "LeastBytes",
    "Murmur2",
    "PartitionError",
    "RWMode",
    "ReadError",
    "ReadErrors",
    "Reader",
    "ReaderConf",
    "ReaderStats",
    "Redelivery",
    "RedeliveryCounts",
    "RoundRobin",
    "Summary",
    "Unavailable",
    "WriteError",
    "WriteErrors",
    "Writer",
    "WriterConf",
    "WriterStats",
]

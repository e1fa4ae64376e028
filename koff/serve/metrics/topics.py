"""The families of topics and their partitions."""

from collections.abc import Iterator
from operator import attrgetter

import numpy as np

from koff.lag import UNKNOWN
from koff.serve.metrics.family import Column
from koff.serve.metrics.numbers import LISTED, PARTITIONS, ListedNumbers, PartitionNumbers

_TOPIC, _PARTITION = ("topic",), ("topic", "partition")
_UNKNOWN = "it is unknown, or the end offset is absent"
_NOT_LISTED = "as koff_topic_partitions"


@PARTITIONS.family(
    _TOPIC,
    "offsets",
    "sum by (topic) (rate(koff_topic_messages_total[5m]))",
    "an end offset in it is not current",
)
def koff_topic_messages_total(numbers: PartitionNumbers) -> Column:
    """Offsets by which the partitions that koff samples have grown while koff ran (see watch_topics)."""
    numbers.produced.add(numbers.end)
    is_used = np.array(numbers.partitions.partition, np.int64) >= 0
    missing = numbers.count_by_topic((numbers.end < 0) & ~numbers.partitions.gone & is_used)
    known = (numbers.count_by_topic(numbers.end >= 0) > 0) & (missing == 0)
    return Column(numbers.produced.sums, known)


@LISTED.family(
    _TOPIC,
    "partitions",
    "sum by (cluster) (koff_topic_partitions)",
    "the list of topics is older than three of its intervals (a minute)",
)
def koff_topic_partitions(numbers: ListedNumbers) -> Column:
    """Partitions of the topic. Of all topics that koff may describe, also of those that no group reads."""
    return numbers.build_column(attrgetter("partitions"))


@LISTED.family(_TOPIC, "replicas", "koff_topic_replication_factor < 3", _NOT_LISTED, default=False)
def koff_topic_replication_factor(numbers: ListedNumbers) -> Column:
    """Replicas of each partition of the topic: the least of its partitions."""
    return numbers.build_column(attrgetter("replicas"))


@LISTED.family(_TOPIC, "partitions", "koff_topic_leaderless_partitions > 0", _NOT_LISTED, default=False)
def koff_topic_leaderless_partitions(numbers: ListedNumbers) -> Column:
    """Partitions of the topic that have no leader."""
    return numbers.build_column(attrgetter("leaderless"))


@LISTED.family(_TOPIC, "partitions", "koff_topic_under_replicated_partitions > 0", _NOT_LISTED, default=False)
def koff_topic_under_replicated_partitions(numbers: ListedNumbers) -> Column:
    """Partitions of the topic with a replica that is not in sync."""
    return numbers.build_column(attrgetter("under_replicated"))


@LISTED.family(
    ("topic", "broker"),
    "bytes",
    "topk(10, sum by (topic) (koff_topic_log_size_bytes))",
    f"log_sizes is off; the broker has not responded for three minutes; {_NOT_LISTED}",
)
def koff_topic_log_size_bytes(numbers: ListedNumbers) -> Iterator[Column]:
    """Size of the topic's logs on the broker, with those of replicas."""
    for broker, by_topic in sorted(numbers.facts.log_sizes.items()):
        sizes = np.array([by_topic.get(topic, UNKNOWN) for topic in numbers.facts.topics], np.int64)
        yield Column(sizes, sizes >= 0, (str(broker),))


@PARTITIONS.family(_PARTITION, "offset", absent="it is older than five intervals", default=False)
def koff_partition_end_offset(numbers: PartitionNumbers) -> Column:
    """High watermark: the offset of the next record."""
    return Column(numbers.end, numbers.end >= 0)


@PARTITIONS.family(
    _PARTITION, "offset", "koff_partition_end_offset - koff_partition_start_offset", _UNKNOWN, default=False
)
def koff_partition_start_offset(numbers: PartitionNumbers) -> Column:
    """Log start offset: the first that can be read (sampled every 30 s)."""
    start = numbers.partitions.start
    return Column(start, (start >= 0) & (numbers.end >= 0))


@PARTITIONS.family(
    _PARTITION,
    "offsets per second",
    "sum by (topic) (koff_partition_produced_per_second)",
    _UNKNOWN,
    default=False,
)
def koff_partition_produced_per_second(numbers: PartitionNumbers) -> Iterator[Column]:
    """Growth of the end offset per second, over 5 minutes."""
    if (rates := numbers.partitions.produce) is not None:
        yield Column(np.round(rates.per_s, 3), rates.known & (numbers.end >= 0))

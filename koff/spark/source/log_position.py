"""How far the offsets topic of a cluster reaches."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.errors import ConfigError
from koff.records.topics import OFFSETS_TOPIC

log = structlog.get_logger(component="spark.source.log_position")
MOST_REASONS = 5
"""A log line names at most so many reasons."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """An offset of each partition, in the log of one topic id. `partitions` is how many the topic has.

    `highs` has the high watermarks just before, of the partitions whose leader returned one.
    `leader_epochs` has the epoch of each partition's leader when it said that the log reaches that offset:
    with it, a log that was truncated below the offset is found out, also when it is as long again.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    topic_id: str = ""
    leader_epochs: Mapping[int, int] = field(default_factory=dict)
    partitions: int = 0
    highs: Mapping[int, int] = field(default_factory=dict)


def fetch_position(
    cluster: Cluster, name: str, topic: str, spec: OffsetSpec | int = OffsetSpec.LATEST
) -> LogPosition:
    """The offset of each partition of `topic` that has one now; -1 if no record is as new as a time.

    Latest is the last stable offset. `name` is the name of the cluster in errors. Raises `ConnectError`, and
    `ConfigError` if there is no such topic.
    """
    found = cluster.fetch_topic(topic)
    if found is None and topic == OFFSETS_TOPIC:
        return LogPosition()  # brokers create it when the first group is used
    if found is None:
        raise ConfigError(
            f"cluster {name}: there is no topic {topic}: check --offsets-topic (the source: offsetsTopic)"
        )
    at = [TopicPartition(topic, p) for p in range(found.partitions)]
    highs = cluster.lister.list_offsets(at)
    results = cluster.lister.list_offsets(at, spec, Isolation.READ_COMMITTED)
    errors = sorted({result for result in results.values() if isinstance(result, str)})
    if errors:
        why = errors[:MOST_REASONS]
        log.warning("no offsets from some partitions", cluster=name, topic=topic, why=why)
    known = {p.partition: each for p, each in results.items() if not isinstance(each, str)}
    return LogPosition(
        {p: each.offset for p, each in known.items()},
        found.topic_id,
        {p: each.leader_epoch for p, each in known.items()},
        found.partitions,
        {p.partition: high.offset for p, high in highs.items() if not isinstance(high, str)},
    )

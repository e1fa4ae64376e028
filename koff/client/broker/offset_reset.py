"""Where a group would continue to read, if its offsets were reset: a plan first, which commits nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.broker.interfaces import Client
from koff.client.cluster_conf import OffsetSpec, TopicPartition
from koff.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """One partition of a plan: the committed offset, -1 without one, and the offset to commit instead."""

    partition: TopicPartition
    before: int
    after: int


def plan_reset(
    client: Client, group: str, to: OffsetSpec | datetime | int, *, topics: str | Iterable[str] | None = None
) -> list[OffsetChange]:
    """What `to` means for each partition of the group, by partition. Commits nothing.

    `to` is the first or the next offset of each partition, or a time (a datetime with its time zone, or
    milliseconds since 1970): the first offset at or after it, and the next offset where there is none. The
    partitions are those that the group has committed, or all partitions of `topics`. To do it, commit:

        plan = plan_reset(broker, "billing", datetime(2026, 1, 1, tzinfo=UTC))
        coordinator.commit_offsets({change.partition: change.after for change in plan})

    Kafka refuses that while the group has members. Raises as `Broker.offsets` and `OffsetCoordinator.offsets`
    do, and `ConfigError` for a datetime without a time zone.
    """
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise ConfigError(f"the time {to} has no time zone: use datetime(..., tzinfo=UTC)")
        to = round(to.timestamp() * 1000)
    committed = client.offset_coordinator(OffsetCoordinatorConf(group)).offsets()
    partitions = list(committed)
    if topics is not None:
        topics = [topics] if isinstance(topics, str) else topics
        partitions = [
            TopicPartition(topic, p) for topic in topics for p in range(client.partition_count(topic))
        ]
    if not partitions:
        return []
    after = client.offsets(partitions, to)
    if late := [partition for partition, offset in after.items() if offset < 0]:
        after |= client.offsets(late, OffsetSpec.LATEST)
    return [
        OffsetChange(partition, committed.get(partition, (-1, ""))[0], after[partition])
        for partition in sorted(partitions)
    ]

"""Samples of end offsets: those of all partitions that groups read, as rows of the table `end_offsets`."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import structlog

from koff.client import ClusterConf, Isolation, OffsetSpec, TopicPartition
from koff.client.cluster import Cluster
from koff.errors import ConnectError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(component="spark.job")
TOPICS_INTERVAL_S = 30.0
"""The time between two listings of the topics."""
SHARDED_ABOVE, PARTITIONS_PER_TASK = 20_000, 10_000
"""With more than `SHARDED_ABOVE` partitions, Spark tasks fetch the offsets, `PARTITIONS_PER_TASK` in each."""


class Sample(NamedTuple):
    """One partition at one time. An offset that could not be fetched is None.

    `gone`: the partition does not exist, or koff may not describe its topic.
    """

    at: datetime
    topic: str
    partition: int
    topic_id: str | None
    start_offset: int | None
    end_offset: int | None
    stable_offset: int | None
    gone: bool


PartitionOffsets = tuple[int | None, int | None, int | None]
"""Log start offset, end offset and last stable offset of a partition; None for an offset with an error."""
TaskResult = list[PartitionOffsets] | str
"""What one task fetched: the offsets of its partitions in their order, or the text of the error."""
_UNKNOWN: PartitionOffsets = (None, None, None)


class EndOffsetSampler:
    """Takes samples of one cluster.

    With more than `sharded_above` partitions, Spark tasks send the requests, each for `partitions_per_task`
    over a connection of its own. Otherwise the driver alone would have to decode all responses.
    """

    def __init__(
        self,
        cluster: Cluster,
        spark: SparkSession | None = None,
        *,
        sharded_above: int = SHARDED_ABOVE,
        partitions_per_task: int = PARTITIONS_PER_TASK,
    ) -> None:
        self._cluster, self._spark = cluster, spark
        self._sharded_above, self._partitions_per_task = sharded_above, partitions_per_task
        self._partitions: dict[str, int] = {}
        self._ids: dict[str, str] = {}
        self._due = 0.0

    @property
    def topic_names(self) -> dict[str, str]:
        """The name of each topic of the cluster, by topic id, as of the last listing."""
        return {topic_id: name for name, topic_id in self._ids.items()}

    def refresh_topics(self) -> None:
        """Lists the topics and their ids, if the last listing is `TOPICS_INTERVAL_S` old.

        Raises `ConnectError`.
        """
        if time.monotonic() < self._due:
            return
        self._partitions = self._cluster.fetch_partition_counts()
        described = self._cluster.describe_topics(self._partitions)
        self._ids = {topic.name: topic.topic_id for topic in described.values() if topic.topic_id}
        self._due = time.monotonic() + TOPICS_INTERVAL_S

    def take_sample(self, watched: Collection[tuple[str, int]]) -> list[Sample]:
        """One sample, with a row for each watched partition. Raises `ConnectError`.

        A topic in `watched` is a name; or an id, if the name was not known when the assignment was decoded.
        """
        # Topics: if a watched topic is not in the listing, it may be new, so list the topics again now.
        if any(topic not in self._partitions for topic, _ in watched):
            self._due = 0.0
        self.refresh_topics()
        # Partitions by topic name, without duplicates, and those that exist.
        names = self.topic_names
        partitions = sorted({TopicPartition(names.get(topic, topic), number) for topic, number in watched})
        # A record may contain any number, so also a negative one.
        present = [at for at in partitions if 0 <= at.partition < self._partitions.get(at.topic, 0)]

        now = datetime.now(UTC)  # taken before the requests: the end offsets are at least as new as this time
        offsets = dict(zip(present, self._fetch_all(present), strict=True))
        return [
            Sample(
                now,
                at.topic,
                at.partition,
                self._ids.get(at.topic),
                *offsets.get(at, _UNKNOWN),
                at not in offsets,
            )
            for at in partitions
        ]

    def _fetch_all(self, partitions: Sequence[TopicPartition]) -> list[PartitionOffsets]:
        if self._spark is None or len(partitions) <= self._sharded_above:
            return fetch_offsets(self._cluster, partitions)
        # Local variables: Spark pickles the lambda with what it uses, and the connection in `self` cannot be
        # pickled.
        conf, size = self._cluster.conf, self._partitions_per_task
        parts = [partitions[first : first + size] for first in range(0, len(partitions), size)]
        tasks = self._spark.sparkContext.parallelize(parts, len(parts))
        results = tasks.mapPartitions(lambda mine: [_fetch_in_task(conf, part) for part in mine]).collect()
        return merge_task_results(parts, results)


def fetch_offsets(cluster: Cluster, partitions: Sequence[TopicPartition]) -> list[PartitionOffsets]:
    """The offsets of each partition, in the order of `partitions`. Raises `ConnectError`."""
    ends = cluster.fetch_offsets(partitions)
    starts = cluster.fetch_offsets(partitions, OffsetSpec.EARLIEST)
    stables = cluster.fetch_offsets(partitions, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
    errors = {error for error in ends.values() if isinstance(error, str)}
    if errors:
        log.warning("some partitions have no end offset: their lag is unknown", why=sorted(errors))

    def find_offset(offsets: Mapping[TopicPartition, int | str], at: TopicPartition) -> int | None:
        offset = offsets.get(at)
        return offset if isinstance(offset, int) else None

    return [(find_offset(starts, at), find_offset(ends, at), find_offset(stables, at)) for at in partitions]


def _fetch_in_task(conf: ClusterConf, partitions: Sequence[TopicPartition]) -> TaskResult:
    """The offsets of the task's partitions, or the text of the error. Runs in a Spark task."""
    try:
        with Cluster(conf) as cluster:
            return fetch_offsets(cluster.connect(), partitions)
    except ConnectError as error:
        return str(error)  # a value: an exception would fail the whole Spark job, and so all tasks


def merge_task_results(
    parts: Sequence[Sequence[TopicPartition]], results: Sequence[TaskResult]
) -> list[PartitionOffsets]:
    """The offsets of all partitions, in their order; None for the partitions of a task with an error.

    `parts` has the partitions of each task. Raises `ConnectError` if every task has an error.
    """
    errors = [result for result in results if isinstance(result, str)]
    if len(errors) == len(results):
        raise ConnectError(errors[0])
    offsets: list[PartitionOffsets] = []
    for partitions, result in zip(parts, results, strict=True):
        if isinstance(result, str):
            log.warning(
                "a Spark task fetched no end offsets: the lag of its partitions is unknown",
                partitions=len(partitions),
                why=result,
            )
        offsets += [_UNKNOWN] * len(partitions) if isinstance(result, str) else result
    return offsets

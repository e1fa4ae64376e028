"""End offsets in bulk: one round over all partitions that anybody reads, as rows of `end_offsets`."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import structlog

from koff.client import Cluster, ClusterConf, Isolation, OffsetSpec, TopicPartition
from koff.errors import ConnectError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(component="spark.job")
TOPICS_INTERVAL_S = 30.0
SHARDED_ABOVE, SHARE = 20_000, 10_000
"""Partitions."""


class Sample(NamedTuple):
    """One partition at one time; None: could not be had. `gone`: it does not exist (or may not be seen)."""

    at: datetime
    topic: str
    partition: int
    topic_id: str | None
    start_offset: int | None
    end_offset: int | None
    stable_offset: int | None
    gone: bool


Known = tuple[int | None, int | None, int | None]
"""Start, end and last stable offset."""
Answer = list[Known] | str
"""Of a task: the offsets of its share, or why it has none."""
_UNKNOWN: Known = (None, None, None)


class Samples:
    """Asks one cluster. `topic_names` by topic id, of all topics that it has.

    More than `sharded_above` partitions are asked for by Spark's executors, each task for `share` of them
    over a connection of its own: a driver alone would have all the answers to take apart.
    """

    def __init__(
        self,
        cluster: Cluster,
        spark: SparkSession | None = None,
        *,
        sharded_above: int = SHARDED_ABOVE,
        share: int = SHARE,
    ) -> None:
        self._cluster, self._spark = cluster, spark
        self._sharded_above, self._share = sharded_above, share
        self._partitions: dict[str, int] = {}
        self._ids: dict[str, str] = {}
        self._due = 0.0

    @property
    def topic_names(self) -> dict[str, str]:
        """Names of topics by their ids."""
        return {topic_id: name for name, topic_id in self._ids.items()}

    def look_at_topics(self) -> None:
        """Lists the topics and their ids, when it is time."""
        if time.monotonic() < self._due:
            return
        self._partitions = self._cluster.topics()
        described = self._cluster.describe(self._partitions)
        self._ids = {topic.name: topic.topic_id for topic in described.values() if topic.topic_id}
        self._due = time.monotonic() + TOPICS_INTERVAL_S

    def take(self, watched: Collection[tuple[str, int]]) -> list[Sample]:
        """One round, a row for each that is watched. Raises `ConnectError` when the cluster is silent.

        Topics are watched by name, or by id where nobody knew the name when it was written down.
        """
        if any(topic not in self._partitions for topic, _ in watched):
            self._due = 0.0
        self.look_at_topics()
        names = self.topic_names
        at = sorted({TopicPartition(names.get(topic, topic), partition) for topic, partition in watched})
        present = [each for each in at if each.partition < self._partitions.get(each.topic, 0)]
        now = datetime.now(UTC)  # before the question: the ends are at least as new
        found = dict(zip(present, self._asked(present), strict=True))
        there = set(present)
        return [
            Sample(
                now,
                each.topic,
                each.partition,
                self._ids.get(each.topic),
                *found.get(each, _UNKNOWN),
                each not in there,
            )
            for each in at
        ]

    def _asked(self, partitions: Sequence[TopicPartition]) -> list[Known]:
        if self._spark is None or len(partitions) <= self._sharded_above:
            return asked(self._cluster, partitions)
        conf, each = self._cluster.conf, self._share
        shares = [partitions[first : first + each] for first in range(0, len(partitions), each)]
        tasks = self._spark.sparkContext.parallelize(shares, len(shares))
        answers = tasks.mapPartitions(lambda mine: [_answer(conf, share) for share in mine]).collect()
        return put_together(shares, answers)


def asked(cluster: Cluster, partitions: Sequence[TopicPartition]) -> list[Known]:
    """The offsets of each. Raises `ConnectError`."""
    ends = cluster.offsets(partitions)
    starts = cluster.offsets(partitions, OffsetSpec.EARLIEST)
    stables = cluster.offsets(partitions, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
    failed = {why for why in ends.values() if isinstance(why, str)}
    if failed:
        log.warning("no offset from some partitions", why=sorted(failed))

    def known(answers: Mapping[TopicPartition, int | str], each: TopicPartition) -> int | None:
        answer = answers.get(each)
        return answer if isinstance(answer, int) else None

    return [(known(starts, each), known(ends, each), known(stables, each)) for each in partitions]


def _answer(conf: ClusterConf, share: Sequence[TopicPartition]) -> Answer:
    """What a task says of its share: the offsets, or why there are none."""
    try:
        with Cluster(conf) as cluster:
            return asked(cluster.connect(), share)
    except ConnectError as failure:
        return str(failure)


def put_together(shares: Sequence[Sequence[TopicPartition]], answers: Sequence[Answer]) -> list[Known]:
    """The offsets of all; those of a share that failed are not known. Raises `ConnectError` when all did."""
    failed = [answer for answer in answers if isinstance(answer, str)]
    if len(failed) == len(answers):
        raise ConnectError(failed[0])
    found: list[Known] = []
    for share, answer in zip(shares, answers, strict=True):
        if isinstance(answer, str):
            log.warning("no offset from a share of the partitions", partitions=len(share), why=answer)
        found += [_UNKNOWN] * len(share) if isinstance(answer, str) else answer
    return found

"""End offsets in bulk: one round over all partitions that anybody reads, as rows of `end_offsets`."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import NamedTuple

import structlog

from koff.client import Cluster, Isolation, OffsetSpec, TopicPartition

log = structlog.get_logger("koff.pipeline")
TOPICS_INTERVAL_S = 30.0


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


class Samples:
    """Asks one cluster. `topic_names` by topic id, of all topics that it has."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
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
        """One round, a row for each that is watched. Raises `ConnectError` when the cluster is silent."""
        if any(topic not in self._partitions for topic, _ in watched):
            self._due = 0.0
        self.look_at_topics()
        at = [TopicPartition(*each) for each in sorted(watched)]
        present = [each for each in at if each.partition < self._partitions.get(each.topic, 0)]
        now = datetime.now(UTC)  # before the question: the ends are at least as new
        ends = self._cluster.offsets(present)
        starts = self._cluster.offsets(present, OffsetSpec.EARLIEST)
        stables = self._cluster.offsets(present, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
        failed = {why for why in ends.values() if isinstance(why, str)}
        if failed:
            log.warning("no offset from some partitions", why=sorted(failed))
        there = set(present)

        def known(answers: dict[TopicPartition, int | str], each: TopicPartition) -> int | None:
            answer = answers.get(each)
            return answer if isinstance(answer, int) else None

        return [
            Sample(
                now,
                each.topic,
                each.partition,
                self._ids.get(each.topic),
                known(starts, each),
                known(ends, each),
                known(stables, each),
                each not in there,
            )
            for each in at
        ]

"""Samples the end and start offsets of every partition that a group reads, in bulk, into the tracker."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from koff.client import Cluster, OffsetSpec, TopicPartition
from koff.tracker import Tracker

log = structlog.get_logger("koff.sampler")


@dataclass(frozen=True, slots=True)
class SamplerConf:
    """How often to ask: ends are what lag is made of; starts and the list of topics change slowly."""

    end_interval_s: float = 5.0
    start_interval_s: float = 60.0
    topics_interval_s: float = 30.0


class Sampler:
    """Asks for the offsets when `sample` is called; who calls it, and when, is the monitor's affair."""

    def __init__(self, cluster: Cluster, tracker: Tracker, conf: SamplerConf | None = None) -> None:
        self.conf = conf or SamplerConf()
        self.sampled_at: float | None = None
        self._cluster = cluster
        self._tracker = tracker
        self._topics: dict[str, int] = {}
        self._unresolved: set[str] = set()
        self._missing: set[str] = set()
        self._started: set[TopicPartition] = set()
        self._topics_due = self._starts_due = 0.0

    @property
    def age_s(self) -> float | None:
        """Seconds since the last complete sample; None before the first."""
        return None if self.sampled_at is None else time.monotonic() - self.sampled_at

    def sample(self) -> None:
        """One round. Raises `ConnectError` when the cluster does not answer; then nothing was changed."""
        self._look_at_topics()
        watched = [TopicPartition(*at) for at in self._tracker.watched()]
        present = [at for at in watched if at.partition < self._topics.get(at.topic, 0)]
        self._note_gone(set(watched).difference(present))
        ends = self._offsets(present, OffsetSpec.LATEST)
        now = time.monotonic()
        everything = now >= self._starts_due
        starts = self._offsets(present if everything else set(present) - self._started, OffsetSpec.EARLIEST)
        if everything:
            self._starts_due = now + self.conf.start_interval_s
            self._started.clear()
        self._started.update(TopicPartition(*at) for at in starts)
        self._tracker.sample(ends=ends, starts=starts)
        self.sampled_at = now

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        """The offsets that can be had; partitions without one are forgotten until they have it again."""
        answers = self._cluster.offsets(partitions, spec)
        failed = {at: why for at, why in answers.items() if isinstance(why, str)}
        if failed:
            self._tracker.forget(failed)
            self._topics_due = 0.0
            log.warning("no offset from some partitions", count=len(failed), why=sorted(set(failed.values())))
        return {at: offset for at, offset in answers.items() if isinstance(offset, int)}

    def _look_at_topics(self) -> None:
        """Lists the topics when it is time, or when groups speak of topics that are not known yet."""
        unknown = {topic for topic, _ in self._tracker.watched()} - self._topics.keys() - self._missing
        unnamed = self._tracker.unnamed_topics() - self._unresolved
        if time.monotonic() < self._topics_due and not unknown and not unnamed:
            return
        self._topics = self._cluster.topics()
        self._topics_due = time.monotonic() + self.conf.topics_interval_s
        if unnamed:
            described = self._cluster.describe(self._topics)
            self._tracker.name_topics({topic.topic_id: topic.name for topic in described.values()})
            self._unresolved = self._tracker.unnamed_topics()

    def _note_gone(self, gone: set[TopicPartition]) -> None:
        self._tracker.forget(gone)
        missing = {at.topic for at in gone if at.topic not in self._topics}
        for topic in sorted(missing - self._missing):
            log.warning("topic is gone, or may not be described: no lag for it", topic=topic)
        self._missing = missing

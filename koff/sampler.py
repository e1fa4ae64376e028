"""Samples the end and start offsets of every partition that a group reads, in bulk, into the tracker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from koff.client import Cluster, Isolation, OffsetSpec, TopicPartition
from koff.tracker import Tracker

log = structlog.get_logger("koff.sampler")


@dataclass(frozen=True, slots=True)
class SamplerConf:
    """How often to ask: lag is made of ends; starts, last stable offsets and topics change slowly."""

    end_interval_s: float = 5.0
    start_interval_s: float = 60.0
    topics_interval_s: float = 30.0


class Sampler:
    """Asks for the offsets when `sample` is called; who calls it, and when, is the monitor's affair."""

    def __init__(
        self,
        cluster: Cluster,
        tracker: Tracker,
        conf: SamplerConf | None = None,
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.conf = conf or SamplerConf()
        self._clock_ms = clock_ms
        self.sampled_at: float | None = None
        self._cluster = cluster
        self._tracker = tracker
        self._topics: dict[str, int] = {}
        self._unresolved: set[str] = set()
        self._missing: set[str] = set()
        self._slowly_sampled: set[TopicPartition] = set()
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
        now = time.monotonic()
        asked_at_ms = self._clock_ms()
        ends = self._offsets(present, OffsetSpec.LATEST)
        everything = now >= self._starts_due
        slow = present if everything else set(present) - self._slowly_sampled
        starts = self._offsets(slow, OffsetSpec.EARLIEST)
        stables = self._offsets(slow, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
        if everything:
            self._starts_due = now + self.conf.start_interval_s
            self._slowly_sampled.clear()
        self._slowly_sampled.update(TopicPartition(*at) for at in starts)
        self._tracker.sample(ends=ends, starts=starts, stables=stables, at_ms=asked_at_ms)
        self.sampled_at = now

    def _offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[tuple[str, int], int]:
        """The offsets that can be had; partitions without one are forgotten until they have it again."""
        answers = self._cluster.offsets(partitions, spec, isolation)
        failed = {at: why for at, why in answers.items() if isinstance(why, str)}
        if failed:
            self._tracker.forget(failed, gone=False)
            self._topics_due = 0.0
            log.warning("no offset from some partitions", count=len(failed), why=sorted(set(failed.values())))
        return {at: offset for at, offset in answers.items() if isinstance(offset, int)}

    def _look_at_topics(self) -> None:
        """Lists the topics when it is time, or when groups speak of topics that are not known yet."""
        wanted = {topic for topic, _ in self._tracker.watched()}
        unnamed = self._tracker.unnamed_topics() - self._unresolved
        if (
            time.monotonic() < self._topics_due
            and not unnamed
            and wanted <= self._topics.keys() | self._missing
        ):
            return
        self._topics = self._cluster.topics()
        self._topics_due = time.monotonic() + self.conf.topics_interval_s
        asked = self._topics.keys() if unnamed else wanted & self._topics.keys()
        described = self._cluster.describe(asked)
        self._tracker.identify_topics(
            {topic.name: topic.topic_id for topic in described.values() if topic.topic_id}
        )
        self._unresolved = self._tracker.unnamed_topics()

    def _note_gone(self, gone: set[TopicPartition]) -> None:
        self._tracker.forget(gone)
        missing = {at.topic for at in gone if at.topic not in self._topics}
        for topic in sorted(missing - self._missing):
            log.warning("topic is gone, or may not be described: no lag for it", topic=topic)
        self._missing = missing

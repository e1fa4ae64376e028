"""Samples the end and start offsets of every partition that a group reads, in bulk, into the tracker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from koff.client import Cluster, Feed, FeedConf, Isolation, OffsetSpec, TopicPartition
from koff.errors import ConnectError
from koff.tracker import Tracker

log = structlog.get_logger(component="monitor.sampler")
PROBE_S = 1.0
"""How long to look for the first records that are held back."""


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
        watched = [TopicPartition(*at) for at in self._tracker.watched_partitions()]
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
        self._tracker.add_samples(ends=ends, starts=starts, stables=stables, at_ms=asked_at_ms)
        self.sampled_at = now

    def _offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[tuple[str, int], int]:
        """The offsets that can be had; partitions without one are forgotten until they have it again."""
        answers = self._cluster.fetch_offsets(partitions, spec, isolation)
        failed = {at: why for at, why in answers.items() if isinstance(why, str)}
        if failed:
            self._tracker.forget_offsets(failed, gone=False)
            self._topics_due = 0.0
            log.warning("no offset from some partitions", count=len(failed), why=sorted(set(failed.values())))
        return {at: offset for at, offset in answers.items() if isinstance(offset, int)}

    def _look_at_topics(self) -> None:
        """Lists the topics when it is time, or when groups speak of topics that are not known yet."""
        wanted = {topic for topic, _ in self._tracker.watched_partitions()}
        unnamed = self._tracker.unnamed_topic_ids() - self._unresolved
        if (
            time.monotonic() < self._topics_due
            and not unnamed
            and wanted <= self._topics.keys() | self._missing
        ):
            return
        self._topics = self._cluster.fetch_partition_counts()
        self._topics_due = time.monotonic() + self.conf.topics_interval_s
        asked = self._topics.keys() if unnamed else wanted & self._topics.keys()
        described = self._cluster.describe_topics(asked)
        self._tracker.identify_topics(
            {topic.name: topic.topic_id for topic in described.values() if topic.topic_id}
        )
        self._unresolved = self._tracker.unnamed_topic_ids()

    def _note_gone(self, gone: set[TopicPartition]) -> None:
        self._tracker.forget_offsets(gone)
        missing = {at.topic for at in gone if at.topic not in self._topics}
        for topic in sorted(missing - self._missing):
            log.warning("topic is gone, or may not be described: no lag for it", topic=topic)
        self._missing = missing


class HeldBack:
    """What open transactions hold back of the offsets topic: read_committed gives nothing behind them.

    `stable` are the last stable offsets by partition, `records` how many offsets lie behind them,
    `since_ms` the timestamp of the oldest record there (None when nothing is held back).
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.stable: dict[int, int] = {}
        self.records = 0
        self.since_ms: int | None = None
        self._cluster = cluster
        self._topic = topic
        self._first: dict[int, tuple[int, int]] = {}

    def sample(self, partitions: Iterable[int]) -> None:
        """One round. Raises `ConnectError` when the cluster does not answer, for some partition even."""
        at = [TopicPartition(self._topic, p) for p in partitions]
        stables = self._cluster.fetch_offsets(at, isolation=Isolation.READ_COMMITTED)
        ends = self._cluster.fetch_offsets(at)
        reasons = {answer for answer in (*stables.values(), *ends.values()) if isinstance(answer, str)}
        if reasons:
            raise ConnectError(f"cannot read all of {self._topic}: {', '.join(sorted(reasons))}")
        self.stable = {p.partition: int(offset) for p, offset in stables.items()}
        held = {p.partition: int(end) - int(stables[p]) for p, end in ends.items()}
        self.records = sum(max(0, count) for count in held.values())
        self._look_at_first({p: self.stable[p] for p, count in held.items() if count > 0})

    def _look_at_first(self, held: dict[int, int]) -> None:
        """Reads the first record behind each last stable offset that was not looked at before."""
        self._first = {p: known for p, known in self._first.items() if held.get(p) == known[0]}
        new = {p: offset for p, offset in held.items() if p not in self._first}
        if new:
            with Feed(self._cluster.conf, self._topic, FeedConf(isolation="read_uncommitted")) as feed:
                feed.add(new)
                deadline = time.monotonic() + PROBE_S
                while new.keys() - self._first.keys() and time.monotonic() < deadline:
                    for run in feed.fetch(100, 0.1).runs:
                        if run.partition not in self._first:
                            first = next(iter(run))
                            self._first[run.partition] = (new[run.partition], first.timestamp_ms)
        self.since_ms = min((timestamp for _, timestamp in self._first.values()), default=None)

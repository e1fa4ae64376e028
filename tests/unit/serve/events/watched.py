"""A cluster whose views are compared, for tests of events."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from koff.lag import Reason
from koff.serve.events.changes import ClusterChanges
from koff.serve.events.event import ClusterEvent
from koff.tracker import ShownNames, Tracker
from koff.view.cluster_view import ClusterFacts, ClusterView, MonitorStats, Readiness, TopicFacts
from koff.view.owners import Owners
from tests.unit.builders import Pair, apply, commit
from tests.unit.serve.views import NOW_MS, READY

NOT_READY = Readiness(False, "not ready: the cluster does not respond")
NO_VIEW = ClusterView("c", Tracker().take_snapshot(0), NOT_READY, MonitorStats(up=False))
BLIND = Reason.COMMITS_NOT_CURRENT | Reason.END_NOT_CURRENT


class Watched:
    """A cluster whose views are compared. Time passes with `wait`."""

    def __init__(self) -> None:
        self.tracker, self.changes, self.now_ms = Tracker(), ClusterChanges(), NOW_MS
        self.clock_ms = 0
        """How far the clock of the machine was set."""
        self.shown, self.stats = ShownNames(), MonitorStats()
        self.expected: Mapping[str, bool] = {}
        self.topics: tuple[str, ...] = ("t", "u")
        self.denied: frozenset[str] = frozenset()
        self.owners = Owners()
        self.runbook: str | None = None

    def apply(self, *pairs: Pair, shard: int = 0) -> None:
        apply(self.tracker, *pairs, partition=shard, seen_at_ms=self.now_ms)

    def commit(
        self, group: str, offset: int | None, *, topic: str = "t", partition: int = 0, shard: int = 0
    ) -> None:
        self.apply(commit(group, topic, partition, offset, at=self.now_ms), shard=shard)

    def sample(self, end: int, *, start: int = 0, topic: str = "t", partitions: int = 1) -> None:
        places = [(topic, partition) for partition in range(partitions)]
        self.tracker.add_samples(
            ends=dict.fromkeys(places, end), starts=dict.fromkeys(places, start), at_ms=self.now_ms
        )

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def take_view(self, *, blind: bool | Collection[int] = False, is_ready: bool = True) -> ClusterView:
        """A view in which all shards, or these, are not current."""
        snapshot = self.tracker.take_snapshot(self.now_ms)
        shards = [n for n in snapshot.shards if (n in blind if isinstance(blind, Collection) else blind)]
        bits = {n: (snapshot.shards[n].group * 0 + int(BLIND)).astype("uint8") for n in shards}
        snapshot = snapshot.withhold(bits, dict.fromkeys(shards, False))
        facts = ClusterFacts(3, dict.fromkeys(self.topics, TopicFacts(1, 1)), denied=self.denied)
        stats = replace(self.stats, not_current=len(shards))
        return ClusterView(
            "c",
            snapshot,
            READY if is_ready else NOT_READY,
            stats,
            facts,
            shown=self.shown,
            expected_groups=self.expected,
            owners=self.owners,
            runbook=self.runbook,
        )

    def look(self, *, blind: bool | Collection[int] = False, is_ready: bool = True) -> list[ClusterEvent]:
        return self.changes.compare(
            self.take_view(blind=blind, is_ready=is_ready), self.now_ms + self.clock_ms
        )

    def find_kinds(self, **how: Any) -> list[tuple[str, str | None]]:
        return [(event.kind, event.group) for event in self.look(**how)]


def keep_up(watched: Watched, group: str = "g", *, shard: int = 0) -> None:
    """Ten commits of a group, each at the end of the log."""
    for number in range(1, 11):
        watched.wait(10)
        watched.commit(group, number * 10, shard=shard)
        watched.sample(number * 10)


def stop(watched: Watched) -> None:
    """Records arrive, and nobody commits."""
    for number in range(11, 40):
        watched.wait(10)
        watched.sample(number * 10)

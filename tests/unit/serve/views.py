"""Views without a cluster behind them, for tests of what is served."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from koff.lag import Reason
from koff.serve.events.changes import ClusterChanges, look_at
from koff.serve.metrics.conf import MetricsConf
from koff.tracker import Snapshot, Tracker
from koff.view.activity import RecentActivity
from koff.view.cluster_view import (
    ClusterView,
    LastReload,
    MonitorStats,
    NoProgress,
    Readiness,
    StoredTable,
    Views,
)
from tests.unit.builders import apply, commit

NOW_MS = 1_800_000_000_000
READY = Readiness(True, "ready")
EVERYTHING = MetricsConf(families=("all",))
Row = tuple[str, str, int]


def fill_tracker(partitions: int = 1) -> Tracker:
    """Group g, 6 behind on each partition of t."""
    tracker = Tracker()
    apply(tracker, *(commit("g", "t", partition, 4) for partition in range(partitions)))
    tracker.add_samples(ends={("t", partition): 10 for partition in range(partitions)})
    return tracker


def take_view(tracker: Tracker, cluster: str = "c") -> ClusterView:
    """A view in which nothing is withheld."""
    return build_view(tracker.take_snapshot(NOW_MS), cluster)


def build_view(snapshot: Snapshot, cluster: str = "c", readiness: Readiness = READY) -> ClusterView:
    """A view of the snapshot, with statistics that agree with it, and looked at for verdicts."""
    stats = MonitorStats(withheld=snapshot.withheld_rows(), up=readiness.ready)
    return judge(ClusterView(cluster, snapshot, readiness, stats))


def judge(view: ClusterView) -> ClusterView:
    """The view, with the verdicts of a first look at it."""
    scratch = replace(view, cluster=view.cluster or "c", activity=RecentActivity())
    looked, _ = look_at(scratch, ClusterChanges(), NOW_MS)
    return replace(view, snapshot=looked.snapshot)


def withhold(tracker: Tracker, rows: Mapping[Row, Reason], stale_groups: Collection[str] = ()) -> ClusterView:
    """A view of a tracker in which these rows are withheld, and these groups not current."""
    return build_view(withhold_rows(tracker.take_snapshot(NOW_MS), rows, stale_groups))


def withhold_rows(
    snapshot: Snapshot,
    rows: Mapping[Row, Reason],
    stale_groups: Collection[str] = (),
    partial_groups: Collection[str] = (),
) -> Snapshot:
    """The snapshot with these rows withheld, these groups not current, and rows of these groups missing."""
    places, bits, current, whole = snapshot.partitions, {}, {}, {}
    for number, shard in snapshot.shards.items():
        found = [
            rows.get((shard.groups[group].name, places.topic[at], places.partition[at]), 0)
            for group, at in zip(shard.group, shard.partition, strict=True)
        ]
        bits[number] = np.array(found, np.uint8)
        current[number] = np.array([group.name not in stale_groups for group in shard.groups], np.bool_)
        whole[number] = np.array([group.name not in partial_groups for group in shard.groups], np.bool_)
    return snapshot.withhold(bits, current, None, whole)


class Source:
    """A `ViewSource` of a view of each cluster. It counts its calls, and each takes the next of `later`."""

    def __init__(self, *views: ClusterView) -> None:
        self.views: Sequence[ClusterView] = views
        self.later: list[ClusterView] = []
        self.readiness: Readiness | None = None
        self.taken = 0
        self.failure: Exception | str | None = None
        """No view can be taken."""
        self.stall: str | None = None
        self.tables: dict[str, StoredTable] = {}
        self.reload: LastReload | None = None

    def take_views(self) -> Views:
        self.taken += 1
        if self.failure is not None:
            raise NoProgress(self.failure) if isinstance(self.failure, str) else self.failure
        if self.later:
            self.views = [self.later.pop(0)]
        readiness = self.readiness or self.views[0].readiness
        return Views(tuple(self.views), readiness, tables=self.tables, reload=self.reload)

    def find_stall(self) -> str | None:
        return self.stall

"""What /metrics serves of a view, without a server: the text, and the numbers in it."""

import re

from koff.serve.metrics.exposition import Exposition
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView
from tests.unit.builders import ASSIGNED_T_0_1, apply, classic_group, commit, note_records
from tests.unit.serve.views import EVERYTHING, NOW_MS


def text(view: ClusterView, exposition: Exposition | None = None) -> str:
    """The families of koff, or what `exposition` is to render."""
    return b"".join((exposition or Exposition(EVERYTHING)).render_chunks(view)).decode()


def values(served: str, name: str) -> dict[str, float]:
    """The numbers of a family by the labels after the cluster."""
    found = re.findall(rf'^{name}{{cluster="c",?(.*)}} (.*)$', served, re.MULTILINE)
    return {labels: float(number) for labels, number in found}


def two_groups() -> Tracker:
    """Groups g and h on t-0 and u-0, with a commit each ten seconds, and one exact lag in seconds."""
    tracker = Tracker()
    apply(tracker, classic_group("g", {"app": ASSIGNED_T_0_1}))
    for second in range(0, 110, 10):
        at_ms = NOW_MS - 100_000 + second * 1000
        ends, starts = (
            {("t", 0): 90 + second // 2, ("t", 1): 7, ("u", 0): 95 + second // 2},
            {("t", 0): 0, ("u", 0): 0},
        )
        tracker.add_samples(ends=ends, starts=starts, at_ms=at_ms)
        apply(tracker, *(commit(g, topic, 0, second, at=at_ms) for g in "gh" for topic in "tu"))
    note_records(tracker, NOW_MS, NOW_MS - 30_000)
    return tracker

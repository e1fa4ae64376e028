"""A group is scaled by `/api/v1/scale` and a stand-in for KEDA, for hours of virtual time."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from koff.serve.events.changes import ClusterChanges
from koff.tracker import Tracker
from koff.view.activity import RecentActivity
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness
from koff.view.verdicts import attach_verdicts
from tests.group_records import assign
from tests.unit.builders import apply, classic_group, commit
from tests.unit.serve.api.clusters import Clusters
from tests.unit.serve.api.keda import Keda
from tests.unit.serve.views import NOW_MS, READY

STEP_S, STARTS_S = 15, 30
CAPACITY = 100.0
"""Records a second that one member can do."""
Rate = Callable[[int], float]


class World:
    """A group g that reads 12 partitions of t. A pod becomes a member after half a minute."""

    def __init__(self, produce: Rate, *, replicas: int = 0, most: int = 20) -> None:
        self.produce, self.downstream = produce, float("inf")
        self.now_s, self.generation = 0, 1
        self.stuck: set[int] = set()
        self.is_known = True
        self.keda = Keda(self.fetch, replicas=replicas, most=most)
        self.members, self.pods = replicas, [0] * replicas
        self.tracker, self.changes, self.activity = Tracker(), ClusterChanges(), RecentActivity()
        self.ends, self.committed = [1000.0] * 12, [1000.0] * 12
        self.rejoin()
        apply(self.tracker, *(commit("g", "t", at, 1000, at=self.now_ms) for at in range(12)))

    @property
    def now_ms(self) -> int:
        return NOW_MS + self.now_s * 1000

    @property
    def lag(self) -> float:
        return sum(self.ends) - sum(self.committed)

    def rejoin(self) -> None:
        owned = {
            f"m{number}": tuple(range(12))[number :: max(self.members, 1)] for number in range(self.members)
        }
        self.generation += 1
        members = {name: assign(("t", partitions)) for name, partitions in owned.items() if partitions}
        members |= {name: assign(("t", ())) for name, partitions in owned.items() if not partitions}
        group = classic_group("g", members, generation=self.generation, since_ms=self.now_ms)
        apply(self.tracker, group, seen_at_ms=self.now_ms)

    def pass_s(self, seconds: int) -> None:
        for _ in range(0, seconds, STEP_S):
            self.now_s += STEP_S
            self.ends = [end + self.produce(self.now_s) * STEP_S / 12 for end in self.ends]
            self.consume()
            self.commit()
            self.keda.look(self.now_s)
            self.follow_pods()

    def follow_pods(self) -> None:
        """Pods start, and become members; those that are too many leave at once."""
        self.pods = self.pods[: self.keda.replicas]
        self.pods += [self.now_s] * (self.keda.replicas - len(self.pods))
        present = sum(began_s <= self.now_s - STARTS_S or began_s == 0 for began_s in self.pods)
        if present != self.members:
            self.members = present
            self.rejoin()

    def consume(self) -> None:
        left = min(self.downstream, CAPACITY * self.members) * STEP_S
        for number in range(self.members):
            budget = left / self.members
            owned = [at for at in range(12)[number :: self.members] if at not in self.stuck]
            for turn, at in enumerate(owned):
                done = min(self.ends[at] - self.committed[at], budget / (len(owned) - turn))
                self.committed[at] += done
                budget -= done

    def commit(self) -> None:
        pairs = (
            commit("g", "t", at, int(offset), at=self.now_ms) for at, offset in enumerate(self.committed)
        )
        if self.members:
            apply(self.tracker, *pairs, seen_at_ms=self.now_ms)
        ends = {("t", at): int(end) for at, end in enumerate(self.ends)}
        self.tracker.add_samples(ends=ends, stables=ends, starts=dict.fromkeys(ends, 0), at_ms=self.now_ms)
        self.changes.compare(self.take_view(), self.now_ms)

    def take_view(self) -> ClusterView:
        snapshot = self.tracker.take_snapshot(self.now_ms)
        snapshot = attach_verdicts(snapshot, self.activity.current.verdicts)
        return ClusterView("c", snapshot, READY, MonitorStats(), activity=self.activity)

    def fetch(self) -> float | None:
        """What KEDA reads."""
        view = self.take_view() if self.is_known else self.withhold()
        response = Clusters(view).request("/api/v1/scale", "group=g")
        if self.now_s > 60:  # before that, koff does not know how fast records come
            assert response.status == (200 if self.is_known else 503), response.json
        return float(response.json["members_wanted"]) if response.status == 200 else None

    def withhold(self) -> ClusterView:
        view = self.take_view()
        stale = dict.fromkeys(view.snapshot.shards, False)
        return replace(
            view, snapshot=view.snapshot.withhold({}, stale), readiness=Readiness(False, "not ready")
        )

    @property
    def course(self) -> list[int]:
        """The numbers of replicas, one after the other."""
        return [replicas for _, replicas in self.keda.changes]


def count_turns(course: list[int]) -> int:
    """How often the course turns from up to down, or back."""
    steps = [after > before for before, after in pairwise(course)]
    return sum(before != after for before, after in pairwise(steps))


def test_a_burst_is_worked_off_from_zero_and_back_to_zero():
    world = World(lambda now_s: 1000.0 if now_s <= 300 else 0.0)  # 300,000 records
    world.pass_s(900)
    assert world.lag < 1
    world.pass_s(900)
    assert world.course[0] == 1
    assert max(world.course) >= 6
    assert world.keda.replicas == 0
    assert count_turns([0, *world.course]) == 1, world.keda.changes


def test_a_load_that_rises_and_falls_is_followed_without_oscillation():
    world = World(lambda now_s: 80.0 if now_s < 600 or now_s > 3600 else 650.0, replicas=1)
    world.pass_s(600)
    assert world.course == []
    world.pass_s(3000)
    assert world.keda.replicas == 12  # with fewer, a member has two partitions, and one is too many for it
    assert world.lag / 650 < 120  # seconds
    world.pass_s(1800)
    assert world.keda.replicas <= 2
    assert count_turns([1, *world.course]) == 1, world.keda.changes


def test_a_slow_downstream_is_not_flooded_with_members():
    world = World(lambda now_s: 300.0, replicas=4)
    world.pass_s(900)
    assert world.course == []
    world.downstream = 150.0
    world.pass_s(2400)
    assert world.course == [8], world.keda.changes  # one try
    world.downstream = float("inf")
    world.pass_s(1800)
    assert world.lag / 300 < 120


def test_a_stuck_partition_asks_for_no_member():
    world = World(lambda now_s: 240.0, replicas=3)
    world.pass_s(900)
    world.stuck = {5}
    world.pass_s(2700)
    assert world.course == [], world.keda.changes
    assert world.lag > 50_000


def test_nothing_is_scaled_while_koff_withholds():
    world = World(lambda now_s: 240.0, replicas=3)
    world.pass_s(600)
    world.is_known = False
    world.produce = lambda now_s: 0.0
    world.pass_s(1200)
    assert world.course == []
    world.is_known = True
    world.pass_s(600)
    assert world.keda.replicas == 0


@pytest.mark.parametrize("members", [1, 3])
def test_a_group_that_keeps_up_keeps_its_members(members):
    world = World(lambda now_s: 90.0 * members, replicas=members)
    world.pass_s(4500)
    assert world.course == [], world.keda.changes


def test_more_members_than_partitions_are_never_wanted():
    world = World(lambda now_s: 5000.0, replicas=8, most=50)
    world.pass_s(1200)
    assert max(world.course) == 12

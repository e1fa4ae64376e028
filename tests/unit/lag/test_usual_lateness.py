"""What koff learns of how late a group usually is."""

import numpy as np
import pytest

from koff.lag.usual_lateness import (
    CLASSES,
    EDGES_S,
    FLOOR_S,
    HALF_LIFE_S,
    LEARNED_S,
    UsualLateness,
    find_classes,
)


class Group:
    """One group that learns, step by step."""

    def __init__(self) -> None:
        self.usual = UsualLateness(1)
        self.now_s, self.late_s = 0.0, 0.0
        self.step(0, 0)

    def step(
        self, records: int, late_s: float, *, before_s: float | None = None, passed_s: float = 5
    ) -> None:
        """Records that are committed: the group was `before_s` late just before, and is `late_s` late now."""
        self.now_s += passed_s
        self.usual.add(
            np.zeros(1, np.int64),
            np.array([float(records)]),
            np.array([late_s if before_s is None else before_s]),
            np.array([late_s]),
            late_s=np.array([late_s]),
            late_before_s=np.array([self.late_s]),
            now_s=self.now_s,
        )
        self.late_s = late_s

    def usual_s(self, later_s: float = 0.0) -> float:
        return float(self.usual.find_usual_s(self.now_s + later_s)[0])

    def excursion(self, late_s: float = 1000, records: int = 100) -> None:
        """The group is late, and comes back."""
        self.step(0, late_s)
        self.step(records, 0, before_s=late_s)


def test_classes_are_half_octaves_from_30_s():
    late_s = np.array([0, 30, 30.1, 42, 43, 60, 10**9], float)
    assert find_classes(late_s).tolist() == [0, 0, 1, 1, 2, 2, CLASSES - 1]
    assert EDGES_S[[0, 2, 4]].tolist() == [30, 60, 120]


def test_the_records_of_one_commit_are_spread_from_before_it_to_after_it():
    group = Group()
    group.step(80, 20, before_s=100)
    # 95, 85, 75, 65, 55, 45, 35, 25 seconds: ten records each.
    assert group.usual.counts[0, :5].tolist() == [10, 10, 20, 20, 20]


def test_it_is_used_after_three_returns_or_a_day():
    group = Group()
    for _ in range(2):
        group.excursion()
        assert group.usual_s() == 0
    assert group.usual_s(LEARNED_S) > 0
    group.excursion()
    assert group.usual_s() == pytest.approx(960, rel=0.01)


def test_four_of_five_records_are_within_it():
    group = Group()
    for _ in range(3):
        group.excursion(records=100)
    group.step(1400, 0)
    assert group.usual_s() == 30  # of 1,700 records, 300 were late: less than a fifth
    group.step(0, 0)
    for _ in range(3):
        group.excursion(records=200)
    assert group.usual_s() > FLOOR_S


def test_an_excursion_teaches_nothing_while_it_lasts():
    group = Group()
    for _ in range(3):
        group.excursion(late_s=130, records=1)
    before = group.usual.counts.copy()
    group.step(0, 500)
    for _ in range(5):
        group.step(1000, 500)
    assert (group.usual.counts == before).all()
    group.step(1000, 0, before_s=500)
    assert group.usual.counts.sum() == pytest.approx(before.sum() + 6000, rel=1e-3)


def test_an_excursion_of_which_the_begin_was_not_seen_is_dropped():
    group = Group()
    group.late_s = np.nan
    group.step(1000, 500)
    group.step(1000, 0, before_s=500)
    assert group.usual.counts.sum() == 0
    assert group.usual.returns.tolist() == [0]
    group.step(10, 0)
    assert group.usual.counts.sum() == 10


def test_half_is_forgotten_in_the_half_life():
    group = Group()
    group.step(1000, 0)
    group.step(0, 0, passed_s=HALF_LIFE_S)
    assert group.usual.counts[0, 0] == pytest.approx(500, rel=1e-3)


def test_groups_keep_what_they_know_at_other_numbers():
    usual = UsualLateness(2)
    late_s = np.array([500.0, 500.0])
    group, records = np.array([0, 1]), np.array([8.0, 16.0])
    usual.add(group, records, late_s, late_s, late_s=late_s, late_before_s=late_s * 0, now_s=5.0)
    usual = usual.select(np.array([1, -1]))
    back_s = np.array([0.0, 0.0])
    usual.add(group[:0], records[:0], late_s[:0], late_s[:0], late_s=back_s, late_before_s=late_s, now_s=10.0)
    assert usual.counts.sum(axis=1).tolist() == [16, 0]
    assert usual.returns.tolist() == [1, 0]

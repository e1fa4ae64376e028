"""A part of a snapshot has the same rows and totals of its groups as the whole."""

import random

import numpy as np
import pytest

from koff.lag import Reason
from koff.tracker import Snapshot, Tracker
from koff.tracker.selection import select_groups
from tests.unit.builders import ASSIGNED_T_0_1, apply, classic_group, commit

NOW_MS = 1_790_000_000_000


def take_snapshot(rng: random.Random) -> Snapshot:
    """Groups in four shards, some with members, some of whose rows are withheld or may be missing."""
    tracker = Tracker()
    for number in range(40):
        group, shard = f"g{number}", number % 4
        pairs = [classic_group(group, {"m": ASSIGNED_T_0_1})] if rng.random() < 0.3 else []
        for _ in range(rng.randrange(15)):
            topic, at_ms = rng.choice("tu"), NOW_MS - rng.randrange(400_000)
            pairs.append(commit(group, topic, rng.randrange(3), rng.randrange(200), at=at_ms))
        apply(tracker, *pairs, partition=shard, seen_at_ms=NOW_MS)
    ends = {(topic, partition): rng.randrange(100, 200) for topic in "tu" for partition in range(3)}
    tracker.add_samples(ends=ends, starts=dict.fromkeys(ends, 20), stables=ends, at_ms=NOW_MS - 60_000)
    tracker.add_samples(ends=ends, at_ms=NOW_MS)
    snapshot = tracker.take_snapshot(NOW_MS)
    bits = [0, 0, 0, int(Reason.END_NOT_CURRENT), int(Reason.COMMITS_NOT_CURRENT)]
    old_ends = np.array([rng.random() < 0.2 for _ in snapshot.partitions.partition], np.bool_)

    def draw(size: int, odds: float) -> np.ndarray:
        return np.array([rng.random() < odds for _ in range(size)], np.bool_)

    shards = snapshot.shards.items()
    return snapshot.withhold(
        {n: np.array([rng.choice(bits) for _ in shard.committed], np.uint8) for n, shard in shards if n != 3},
        {n: draw(len(shard.groups), 0.8) for n, shard in shards if n != 2},
        old_ends,
        {n: draw(len(shard.groups), 0.8) for n, shard in shards if n != 1},
    )


@pytest.mark.parametrize("seed", range(8))
def test_rows_and_totals_of_selected_groups_are_those_of_the_whole(seed):
    rng = random.Random(seed)
    snapshot = take_snapshot(rng)
    chosen = {
        number: rng.sample(range(len(shard.groups)), rng.randrange(5, len(shard.groups)))
        for number, shard in snapshot.shards.items()
        if number == 0 or rng.random() < 0.8
    }
    names = {
        snapshot.shards[number].groups[place].name for number, places in chosen.items() for place in places
    }
    selected = select_groups(snapshot, chosen)
    assert selected.totals() == [total for total in snapshot.totals() if total.group.name in names]
    expected = [row for row in snapshot.rows() if row.group in names]
    assert list(selected.rows()) == expected
    assert len(expected) > 20


def test_nothing_selected_is_an_empty_snapshot():
    snapshot = take_snapshot(random.Random(1))
    assert list(select_groups(snapshot, {}).rows()) == []
    assert select_groups(snapshot, {0: []}).totals() == []

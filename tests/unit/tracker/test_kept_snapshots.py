"""A snapshot shares what has not changed with the one before, and shows all that has."""

import dataclasses
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from koff.records import encode
from koff.records.placement import group_partition
from koff.tracker import Rule, ShareLag, ShownNames, Snapshot, Tracker
from koff.tracker.commit_columns import CommitColumns
from tests.group_records import Share
from tests.unit.builders import ASSIGNED_T_0_1, Pair, classic_group, commit
from tests.unit.tracker.share_groups import OLD, share, snapshot_of

NOW_MS = 1_790_000_000_000
SHARDS = 3
Change = Callable[[Tracker], Any]


def apply(*pairs: Pair, shard: int = 0) -> Change:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return lambda tracker: tracker.apply(shard, keys, values, seen_at_ms=NOW_MS)


def choose_change(rng: random.Random) -> Change:
    """One of the calls that change what a snapshot shows."""
    shard, group, offset = rng.randrange(SHARDS), f"g{rng.randrange(4)}", rng.randrange(50)
    few = [commit(group, "t", rng.randrange(3), rng.choice([None, offset]))]
    many = [commit(f"g{n % 4}", "t", n % 3, offset + n, at=NOW_MS + n) for n in range(40)]
    members = rng.choice([None, {}, {"a": ASSIGNED_T_0_1}, {"a": b"", "b": ASSIGNED_T_0_1}])
    shared = f"s{rng.randrange(2)}"
    place = group_partition(shared, SHARDS)
    offsets = CommitColumns.from_offsets({(group, "t", 0): offset, ("g9", "t", 1): 1})
    start = rng.choice([None, offset])
    names = ShownNames() if rng.random() < 0.7 else ShownNames(groups=(Rule(re.compile("g[01].*"), True),))
    changes: list[Change] = [
        apply(*few, shard=shard),
        apply(*many, shard=shard),
        apply(classic_group(group, members), shard=shard),
        apply(encode(Share.own(shared, 1)), shard=place),
        lambda tracker: share(tracker, 0, snapshot_of(shared, start), seen_at_ms=NOW_MS),
        lambda tracker: tracker.shares.describe(
            {shared: [ShareLag("t", OLD, 1, offset)]}, requested_ms=NOW_MS
        ),
        lambda tracker: tracker.identify_topics({"t": OLD}),
        lambda tracker: tracker.shards[shard].overwrite(offsets, {}, ["g1"], seen_at_ms=NOW_MS + offset),
        lambda tracker: tracker.apply_external_commits(-2, {("z", "t", 0): (offset, NOW_MS)}, [], {}),
        lambda tracker: tracker.set_offsets_partitions(SHARDS),
        lambda tracker: tracker.show(names),
        lambda tracker: tracker.reset_partition(shard),
        lambda tracker: tracker.add_samples(ends={("t", n): 100 + offset for n in range(3)}, at_ms=NOW_MS),
    ]
    return rng.choice(changes)


def describe(snapshot: Snapshot) -> list[Any]:
    """All that the snapshot shows."""
    shards = []
    for number, shard in snapshot.shards.items():
        columns: dict[str, Any] = {}
        for field in dataclasses.fields(shard):
            value = getattr(shard, field.name)
            if field.name == "layout":
                continue
            if isinstance(value, tuple):
                value = [None if each is None else each.tolist() for each in value]
            elif isinstance(value, np.ndarray):
                value = value.tolist()
            columns[field.name] = value
        shards.append((number, columns))
    return [shards, list(snapshot.rows()), snapshot.totals()]


def forget_kept(tracker: Tracker) -> None:
    """Makes the tracker copy everything for its next snapshot."""
    for shard in tracker.shards.values():
        shard._kept = shard._list = None


@pytest.mark.parametrize("seed", range(12))
def test_snapshots_show_the_same_whether_anything_was_kept_or_not(seed):
    rng = random.Random(seed)
    keeping, copying = Tracker(), Tracker()
    earlier: list[tuple[Snapshot, list[Any]]] = []
    for step in range(80):
        change = choose_change(rng)
        for tracker in (keeping, copying):
            change(tracker)
        forget_kept(copying)
        snapshot, copied = (tracker.take_snapshot(NOW_MS + step) for tracker in (keeping, copying))
        shown = describe(snapshot)
        assert shown == describe(copied)
        earlier.append((snapshot, shown))
    assert all(describe(snapshot) == then for snapshot, then in earlier)


def test_what_has_not_changed_is_shared():
    tracker = Tracker()
    apply(commit("a", "t", 0, 1), shard=0)(tracker)
    apply(commit("b", "t", 0, 1), shard=1)(tracker)
    before = tracker.take_snapshot(NOW_MS)
    apply(commit("b", "t", 0, 2), shard=1)(tracker)
    after = tracker.take_snapshot(NOW_MS)
    for shard, is_same in ((0, True), (1, False)):
        assert (after.shards[shard].committed is before.shards[shard].committed) is is_same
        assert after.shards[shard].groups is before.shards[shard].groups


def test_a_copy_of_a_shard_never_has_the_lags_of_another_one_that_was_dropped():
    """Python gives the id of an object that was dropped to the next one."""
    tracker = Tracker()
    for shard in range(SHARDS):
        apply(*(commit(f"g{shard}", "t", n, n) for n in range(shard + 1)), shard=shard)(tracker)
    snapshot = tracker.take_snapshot(NOW_MS)
    shards = list(snapshot.shards.values())
    assert len({len(each.committed) for each in shards}) == SHARDS
    for each in shards:
        size = len(each.committed)
        assert len(snapshot.lags(dataclasses.replace(each)).known) == size
        assert len(snapshot.statuses(dataclasses.replace(each))) == size
        assert len(snapshot.catch_ups(dataclasses.replace(each)).seconds) == size

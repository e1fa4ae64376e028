"""How many commits of each group were applied as they were made."""

from functools import partial

from koff.tracker import Tracker
from tests.unit import builders
from tests.unit.builders import commit, save

NOW_MS = 1_800_000_000_000


apply = partial(builders.apply, seen_at_ms=NOW_MS)


def counts(tracker: Tracker) -> dict[str, int]:
    shard = tracker.take_snapshot(NOW_MS).shards[0]
    return dict(zip((group.name for group in shard.groups), shard.commit_counts.tolist(), strict=True))


def test_each_commit_counts_in_small_and_in_large_batches():
    tracker = Tracker()
    pairs = [commit(group, "t", partition, 1) for group in "gh" for partition in range(50)]
    apply(tracker, *pairs, commit("g", "t", 0, 2))
    assert counts(tracker) == {"g": 51, "h": 50}
    apply(tracker, *pairs[:3])
    assert counts(tracker) == {"g": 54, "h": 50}


def test_history_and_deletions_do_not_count():
    tracker = Tracker()
    pairs = [commit("g", "t", partition, 1) for partition in range(50)]
    apply(tracker, *pairs, is_live=False)
    apply(tracker, *pairs[:3], is_live=False)
    apply(tracker, commit("g", "t", 0, None))
    apply(tracker, *(commit("g", "t", partition, None) for partition in range(1, 40)))
    assert counts(tracker) == {"g": 0}


def test_a_shard_that_takes_the_place_of_another_counts_on():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 1))
    tracker.restore_partition(0, save(tracker))
    apply(tracker, commit("g", "t", 0, 2))
    assert counts(tracker) == {"g": 2}


def test_the_counts_of_groups_that_are_gone_are_forgotten():
    tracker = Tracker()
    apply(tracker, commit("stays", "t", 0, 1))
    for number in range(500):
        apply(tracker, commit(f"g{number}", "t", 0, 1), commit(f"g{number}", "t", 0, None))
        assert counts(tracker) == {"stays": 1}
    assert len(tracker.shards[0].commit_counts) < 200

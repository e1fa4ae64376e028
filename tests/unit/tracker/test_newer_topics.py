"""Commits that were read after the topics were listed: their topic may have been created in between."""

import pytest

from koff.lag import UNKNOWN
from koff.tracker import Tracker
from koff.tracker.commit_columns import CommitColumns
from tests.unit.builders import commit

LISTED_MS, SEEN_MS, NOW_MS = 1_000_000, 1_000_200, 1_000_400
KEY = ("g", "t", 0)


def apply(tracker: Tracker, offset: int = 5, *, is_live: bool = False, count: int = 1) -> None:
    records = [commit(*KEY, offset - count + number + 1, at=SEEN_MS) for number in range(count)]
    keys, values = [key for key, _ in records], [value for _, value in records]
    tracker.apply(0, keys, values, seen_at_ms=SEEN_MS, is_live=is_live)


def seed(tracker: Tracker) -> None:
    tracker.seed_partitions(CommitColumns.from_offsets({KEY: 5}), {}, 1, [0], seen_at_ms=SEEN_MS)


def overwrite(tracker: Tracker, offset: int = 5, seen_at_ms: int = SEEN_MS) -> None:
    commits = CommitColumns.from_offsets({KEY: offset})
    tracker.shards[0].overwrite(commits, {}, (), seen_at_ms=seen_at_ms)


def take_from_zookeeper(tracker: Tracker) -> None:
    tracker.apply_external_commits(0, {KEY: (5, 1)}, [], {}, seen_at_ms=SEEN_MS, is_live=False)


def fill_history(tracker: Tracker) -> None:
    """A partition that was seeded gets its history, which was read aside."""
    seed(tracker)
    shard = tracker.create_shard()
    shard.apply(*([part] for part in commit(*KEY, 5)))
    tracker.replace_shard(0, shard)


def delete_topic(tracker: Tracker) -> None:
    tracker.partitions.forget_offsets([("t", 0)])


WAYS = [
    apply,
    lambda tracker: apply(tracker, count=40),
    lambda tracker: apply(tracker, is_live=True),
    seed,
    overwrite,
    take_from_zookeeper,
    fill_history,
]


@pytest.mark.parametrize("come", WAYS)
def test_a_commit_to_a_topic_that_is_gone_is_doubtful_until_a_newer_list(come):
    tracker = Tracker()
    come(tracker)
    assert not tracker.find_doubtful_topics(LISTED_MS)
    delete_topic(tracker)
    assert tracker.find_doubtful_topics(LISTED_MS) == {"t"}
    assert not tracker.find_doubtful_topics(SEEN_MS)


def test_a_response_of_coordinators_that_changes_nothing_makes_no_commit_newer():
    tracker = Tracker()
    seed(tracker)
    delete_topic(tracker)
    overwrite(tracker, seen_at_ms=NOW_MS)
    assert not tracker.find_doubtful_topics(SEEN_MS)
    overwrite(tracker, 6, seen_at_ms=NOW_MS)
    assert tracker.find_doubtful_topics(SEEN_MS) == {"t"}


def test_commits_that_were_saved_are_older_than_any_list_whatever_clock_they_were_saved_by():
    tracker, restored = Tracker(), Tracker()
    apply(tracker)
    state = tracker.save_partition(0)
    assert state is not None
    restored.restore_partition(0, state, seen_at_ms=0)
    delete_topic(restored)
    assert not restored.find_doubtful_topics(LISTED_MS)


@pytest.mark.parametrize(("is_live", "lag"), [(False, UNKNOWN), (True, 3)])
@pytest.mark.parametrize("count", [1, 40])
def test_history_does_not_show_the_lag_at_commit(is_live, lag, count):
    tracker = Tracker()
    apply(tracker, 4)
    tracker.add_samples(ends={("t", 0): 8}, at_ms=LISTED_MS)
    apply(tracker, is_live=is_live, count=count)
    window = tracker.shards[0].rows.windows.get(tracker.shards[0].rows.list_live())
    assert int(window.lag[0, -1]) == lag

"""A name that is that of a share group, and then of another group, or the other way round.

The records of both groups come from several partitions, in any order.
"""

import pytest

from koff.records import encode
from koff.tracker import ShareLag, Tracker
from tests.group_records import Consumer, Share, gone
from tests.unit.builders import commit, committed
from tests.unit.tracker.share_groups import NOW_MS, OLD, apply_home, build_tracker, share, snapshot_of

AS_SHARE, AS_CONSUMER = Share.own("s", 1), Consumer.own("s", 1)


def describe(tracker: Tracker, **lags: int) -> None:
    tracker.shares.describe(
        {name: [ShareLag("t", OLD, 0, lag)] for name, lag in lags.items()}, requested_ms=NOW_MS
    )


def lags(tracker: Tracker) -> list[int | None]:
    return [row.lag for row in tracker.take_snapshot(NOW_MS).rows() if row.group == "s"]


@pytest.fixture
def tracker():
    """A tracker that knows the share group s, and the topic t, which ends at 100."""
    return build_tracker("s", ends={("t", 0): 100})


def retype(tracker: Tracker, times: int = 1) -> None:
    """The share group is deleted, and a consumer group with that name commits 90."""
    apply_home(tracker, encode(gone(AS_SHARE)), encode(AS_CONSUMER), *[commit("s", "t", 0, 90)] * times)


@pytest.mark.parametrize("start", [None, 5], ids=["tombstone", "snapshot"])
@pytest.mark.parametrize("times", [1, 100])
def test_share_state_that_is_read_late_changes_no_commit_of_a_consumer_group(tracker, start, times):
    share(tracker, 3, snapshot_of("s", 4))
    retype(tracker, times)
    share(tracker, 3, snapshot_of("s", start))
    assert committed(tracker) == {("s", "t", 0): 90}


def test_described_lags_that_come_late_or_go_change_no_commit_of_a_consumer_group(tracker):
    describe(tracker, s=7)
    retype(tracker)
    describe(tracker, s=8)
    assert lags(tracker) == [10]
    tracker.shares.forget_descriptions()
    assert lags(tracker) == [10]


@pytest.mark.parametrize("times", [1, 100])
def test_deleted_commits_of_a_consumer_group_take_no_row_of_the_share_group_after_it(times):
    tracker = build_tracker()
    apply_home(tracker, encode(AS_CONSUMER), *[commit("s", "t", 0, 90)] * times)
    share(tracker, 3, snapshot_of("s", 4))  # its partition is ahead of that of the group
    assert committed(tracker) == {("s", "t", 0): 90}
    apply_home(tracker, *[commit("s", "t", 0, None)] * times, encode(gone(AS_CONSUMER)), encode(AS_SHARE))
    assert committed(tracker) == {("s", "t", 0): 4}

"""Lags of share groups that coordinators returned, in place of share state that may not be read."""

import numpy as np
import pytest

from koff.lag import Reason
from koff.records.placement import group_partition
from koff.tracker import PartitionLag, ShareLag, Tracker
from tests.unit.builders import commit, list_unread
from tests.unit.tracker.share_groups import (
    NEW,
    NOW_MS,
    OLD,
    add_share_groups,
    build_tracker,
    share,
    snapshot_of,
)

ENDS = {("t", p): 100 for p in range(3)}


@pytest.fixture
def tracker():
    """A tracker that knows the share groups s and u, and the topic t with three partitions."""
    return build_tracker("s", "u", ends=ENDS)


def lag_of(partition: int, lag: int | None, *, topic_id: str = OLD) -> ShareLag:
    return ShareLag("t", topic_id, partition, lag)


def describe(tracker: Tracker, *lags: ShareLag, group: str = "s", partial: bool = False) -> None:
    names = {group} if partial else set()
    tracker.shares.describe({group: lags}, names, requested_ms=NOW_MS)


def rows(tracker: Tracker) -> dict[tuple[str, int], PartitionLag]:
    found = list(tracker.take_snapshot(NOW_MS).rows())
    by_key = {(row.group, row.partition): row for row in found}
    assert len(by_key) == len(found)
    return by_key


def lags(tracker: Tracker) -> dict[tuple[str, int], int | None]:
    return {key: row.lag for key, row in rows(tracker).items()}


def test_a_row_shows_the_lag_that_was_returned_whatever_the_end_offset_is_and_no_commit(tracker):
    describe(tracker, lag_of(0, 7), lag_of(1, 0))
    tracker.add_samples(ends=dict.fromkeys(ENDS, 5000), at_ms=NOW_MS + 1)
    shown = rows(tracker)[("s", 0)]
    assert (shown.lag, shown.published_lag, shown.committed, shown.end) == (7, 7, None, 5000)
    assert (shown.readable, shown.lag_to_stable, shown.time_lag_s) == (None, None, None)
    assert shown.reasons == Reason(0)
    assert rows(tracker)[("s", 1)].lag == 0


def test_a_response_replaces_all_rows_of_the_group_and_those_of_its_state(tracker):
    share(tracker, 3, snapshot_of("s", 4), snapshot_of("s", 5, partition=2), snapshot_of("u", 6))
    describe(tracker, lag_of(0, 7), lag_of(1, 8))
    assert lags(tracker) == {("s", 0): 7, ("s", 1): 8, ("u", 0): 94}
    describe(tracker, lag_of(1, 9))
    assert lags(tracker) == {("s", 1): 9, ("u", 0): 94}


def test_rows_that_a_partial_response_lacks_stay_as_they_are(tracker):
    describe(tracker, lag_of(0, 7), lag_of(1, 8))
    tracker.shares.describe({"s": [lag_of(1, 9)]}, {"s"}, requested_ms=NOW_MS + 5)
    assert lags(tracker) == {("s", 0): 7, ("s", 1): 9}
    shard = tracker.take_snapshot().shards[group_partition("s", 50)]
    seen = dict(zip(shard.share_lag.tolist(), shard.seen_at.tolist(), strict=True))
    assert seen == {7: NOW_MS, 9: NOW_MS + 5}


def test_records_that_are_read_meanwhile_change_no_row_before_the_state_is_the_source_again(tracker):
    describe(tracker, lag_of(0, 7), lag_of(1, 8))
    share(tracker, 3, snapshot_of("s", 40))
    assert lags(tracker) == {("s", 0): 7, ("s", 1): 8}
    tracker.shares.forget_descriptions()
    assert lags(tracker) == {("s", 0): 60}
    assert rows(tracker)[("s", 0)].committed == 40


def test_rows_outlive_a_shard_that_is_read_anew_and_move_with_the_partition_count(tracker):
    describe(tracker, lag_of(0, 7))
    tracker.reset_partition(group_partition("s", 50))
    assert lags(tracker) == {}  # the group is not known
    add_share_groups(tracker, "s", "u")
    tracker.set_offsets_partitions(50)
    assert lags(tracker) == {("s", 0): 7}
    tracker.set_offsets_partitions(60)
    add_share_groups(tracker, "s", "u", count=60)
    assert lags(tracker) == {("s", 0): 7}


def test_a_lag_of_an_earlier_topic_of_that_name_is_not_shown(tracker):
    describe(tracker, lag_of(0, 7, topic_id=NEW))
    assert (rows(tracker)[("s", 0)].lag, rows(tracker)[("s", 0)].reasons) == (None, Reason.TOPIC_RECREATED)
    tracker.identify_topics({"t": NEW})
    assert lags(tracker) == {("s", 0): 7}
    tracker.partitions.forget_offsets([("t", 0)])
    assert (rows(tracker)[("s", 0)].lag, rows(tracker)[("s", 0)].reasons) == (None, Reason.TOPIC_GONE)


def test_described_lags_are_not_saved_and_are_no_place_in_the_log(tracker):
    home = group_partition("s", 50)
    tracker.apply(home, *([part] for part in commit("classic", "t", 0, 1)))
    describe(tracker, lag_of(0, 7))
    state = tracker.save_partition(home)
    assert state.columns["committed"].tolist() == [1]
    assert np.all(tracker.take_snapshot(NOW_MS).shards[home].committed == [1, -1])
    (found,) = list_unread(tracker, NOW_MS)
    assert (found.topic, found.committed) == ("t", 1)


def test_many_rows_make_room_for_more_described_lags(tracker):
    for count in (1, 40, 200):
        describe(tracker, *(lag_of(p, p) for p in range(count)))
        assert lags(tracker) == {("s", p): p for p in range(count)}

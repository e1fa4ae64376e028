"""The tracker: batches of records in, the state of all groups out."""

import pytest

from koff.lag import Status
from koff.proto.schema import Tag
from koff.records import OffsetCommit, OffsetCommitValue, encode
from koff.records.commit_values import decode_commit_values
from koff.records.placement import group_partition
from koff.tracker import Snapshot, Tracker
from tests.group_records import TOPIC_ID
from tests.unit.builders import apply, commit, committed, consumer_group, list_statuses
from tests.unit.tracker.share_groups import add_share_groups, share, snapshot_of

START_MS = 1_790_000_000_000


def groups(tracker: Tracker) -> dict[str, str]:
    return {group.name: f"{group.type} {group.state}" for group in tracker.take_snapshot().groups()}


def test_a_commit_under_an_old_key_is_the_same_row():
    tracker = Tracker()
    apply(
        tracker,
        commit("g", "t", 0, 1, type=0, version=0),
        commit("g", "t", 0, 2),
        commit("g", "t", 0, 3, type=0, version=0),
    )
    assert committed(tracker) == {("g", "t", 0): 3}
    apply(tracker, commit("g", "t", 0, None, type=0))
    assert committed(tracker) == {}


def test_a_record_that_does_not_decode_is_counted_and_disturbs_nothing():
    tracker = Tracker()
    key, value = commit("g", "t", 0, 1)
    assert value is not None
    apply(
        tracker,
        (key, value),
        (key, value[:-4]),
        (key, b""),
        (None, value),
        (b"\x00", b""),
        commit("g", "t", 1, 2),
    )
    assert committed(tracker) == {("g", "t", 0): 1, ("g", "t", 1): 2}
    assert tracker.record_counts == {"OffsetCommit": 2, "Undecodable": 4}


def test_an_unknown_type_is_counted_as_such():
    tracker = Tracker()
    apply(tracker, (b"\x7f\xff", b"x"))
    assert tracker.record_counts == {"Unknown": 1}


def test_assignments_by_topic_id_get_their_names_once_these_are_known():
    tracker = Tracker()
    apply(
        tracker,
        *consumer_group("g", epoch=1, assignment_epoch=1, members={"m": (1, 0)}),
        commit("g", "t", 3, 5),
    )
    assert tracker.unnamed_topic_ids() == {TOPIC_ID}
    tracker.identify_topics({"t": TOPIC_ID})
    assert tracker.watched_partitions() == [("t", 3)]
    (row,) = tracker.take_snapshot().rows()
    assert row.member.client_id == "m-client"


def test_totals_sum_what_is_known_and_say_how_much_is_not():
    tracker = Tracker()
    apply(
        tracker,
        commit("g", "t", 0, 1),
        commit("g", "t", 1, 1),
        commit("g", "u", 0, 1),
        commit("h", "u", 0, 1),
    )
    tracker.add_samples(ends={("t", 0): 10, ("t", 1): 0})
    totals = {total.group.name: total for total in tracker.take_snapshot().totals()}
    assert (totals["g"].lag, totals["g"].partitions, totals["g"].unknown) == (9, 3, 1)
    assert (totals["h"].lag, totals["h"].unknown) == (None, 1)


def test_rows_come_worst_first_and_unknown_last():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 1), commit("g", "t", 1, 1), commit("g", "t", 2, 1))
    tracker.add_samples(ends={("t", 0): 10, ("t", 1): 100})
    assert [row.lag for row in tracker.take_snapshot().rows()] == [99, 9, None]


def watched_for(tracker: Tracker, *, consumed_a_second: int, seconds: int = 400) -> Snapshot:
    """A partition that grows by 10 records a second, ends sampled every 5 s, a commit every 20 s."""
    for second in range(0, seconds, 5):
        now_ms = START_MS + second * 1000
        tracker.add_samples(ends={("t", 0): 1000 + 10 * second}, at_ms=now_ms)
        if second % 20 == 0:
            record = commit("g", "t", 0, 1000 + consumed_a_second * second, at=now_ms)
            tracker.apply(0, [record[0]], [record[1]], seen_at_ms=now_ms)
    return tracker.take_snapshot(START_MS + seconds * 1000)


def name_statuses(snapshot: Snapshot) -> list[str]:
    """Burrow's status of each row, by partition."""
    return [status.name for _, status in sorted(list_statuses(snapshot).items())]


@pytest.mark.parametrize(
    ("consumed", "verdict", "lag_s"), [(10, "OK", (0, 21)), (5, "WARN", (190, 212)), (0, "STALL", (390, 401))]
)
def test_a_group_is_judged_and_its_lag_told_in_seconds(consumed, verdict, lag_s):
    snapshot = watched_for(Tracker(), consumed_a_second=consumed)
    (row,) = snapshot.rows()
    assert name_statuses(snapshot) == [verdict]
    assert lag_s[0] <= row.time_lag_s <= lag_s[1]
    (status,) = snapshot.group_statuses(snapshot.shards[0])
    assert Status(status).name == ("ERR" if verdict == "STALL" else verdict)


def test_a_group_that_fell_silent_behind_the_end_has_stopped():
    tracker = Tracker()
    watched_for(tracker, consumed_a_second=5)
    for second in range(400, 1000, 5):
        tracker.add_samples(ends={("t", 0): 1000 + 10 * second}, at_ms=START_MS + second * 1000)
    assert name_statuses(tracker.take_snapshot(START_MS + 1_000_000)) == ["STOP"]


def test_a_group_is_not_ok_while_it_is_behind_in_a_partition_of_which_too_little_is_known():
    tracker = Tracker()
    watched_for(tracker, consumed_a_second=10)
    now_ms = START_MS + 400_000
    tracker.add_samples(ends={("t", 1): 10}, at_ms=now_ms)
    apply(tracker, commit("g", "t", 1, 4, at=now_ms))
    for offset, status in ((4, "UNKNOWN"), (10, "OK")):
        apply(tracker, commit("g", "t", 1, offset, at=now_ms))
        snapshot = tracker.take_snapshot(now_ms)
        assert name_statuses(snapshot) == ["OK", status]
        assert [Status(each).name for each in snapshot.group_statuses(snapshot.shards[0])] == [status]


def test_ahead_of_the_log_is_said_only_when_the_end_was_sampled_after_the_commit_came():
    tracker = Tracker()
    tracker.add_samples(ends={("t", 0): 10}, at_ms=START_MS)
    apply(tracker, commit("g", "t", 0, 20), seen_at_ms=START_MS + 5)
    (row,) = tracker.take_snapshot().rows()
    assert (row.lag, row.published_lag, row.reasons.names) == (-10, 0, ())
    tracker.add_samples(ends={("t", 0): 10}, at_ms=START_MS + 10)
    (row,) = tracker.take_snapshot().rows()
    assert row.reasons.names == ("ahead_of_log",)


def share_state(tracker: Tracker, start: int | None, done: int = 0) -> None:
    """What `__share_group_state` says of group s on partition 0 of topic `TOPIC_ID`; None deletes."""
    share(tracker, 0, snapshot_of("s", start, topic_id=TOPIC_ID, done=done), seen_at_ms=START_MS)


def share_lags(tracker: Tracker) -> list[int | None]:
    return [row.lag for row in tracker.take_snapshot().rows() if row.group == "s"]


def test_a_share_group_gets_its_lag_once_the_topics_name_is_known_and_loses_it_with_its_state():
    tracker = Tracker()
    tracker.set_offsets_partitions(50)
    add_share_groups(tracker, "s")
    share_state(tracker, 4, done=3)
    assert (share_lags(tracker), tracker.unnamed_topic_ids()) == ([], {TOPIC_ID})
    tracker.identify_topics({"t": TOPIC_ID})
    tracker.add_samples(ends={("t", 0): 10})
    assert share_lags(tracker) == [3]
    share_state(tracker, -1)
    assert share_lags(tracker) == [None]
    share_state(tracker, None)
    assert share_lags(tracker) == []
    assert tracker.record_counts == {"ShareGroupMetadata": 1, "ShareSnapshot": 3}


def test_share_state_outlives_a_partition_of_the_offsets_topic_that_is_read_anew_and_goes_with_its_own():
    tracker = Tracker()
    tracker.identify_topics({"t": TOPIC_ID})
    tracker.set_offsets_partitions(50)
    add_share_groups(tracker, "s")
    share_state(tracker, 4, done=3)
    tracker.add_samples(ends={("t", 0): 10})
    assert share_lags(tracker) == [3]
    tracker.reset_partition(group_partition("s", 50))
    tracker.set_offsets_partitions(50)
    assert share_lags(tracker) == []  # the group's record went with its partition
    add_share_groups(tracker, "s")
    assert share_lags(tracker) == [3]
    tracker.shares.reset_partition(1)
    assert share_lags(tracker) == [3]
    tracker.shares.reset_partition(0)
    assert share_lags(tracker) == []


def test_a_commit_that_only_the_scalar_decoder_reads_keeps_its_topic_id():
    """An unknown tag behind the topic's id: the columns leave such a value alone."""
    key, _ = commit("g", "t", 0, 4)
    value = OffsetCommitValue(
        version=4,
        offset=4,
        metadata="",
        commit_timestamp=1000,
        topic_id=TOPIC_ID,
        unknown_tags=(Tag(tag=9, data=b"x"),),
    )
    _, encoded = encode(OffsetCommit(group="g", topic="t", partition=0, value=value))
    assert encoded is not None
    assert not decode_commit_values([encoded]).ok.any()
    tracker = Tracker()
    apply(tracker, (key, encoded))
    tracker.identify_topics({"t": "AAAAAAAAAAAAAAAAAAAAAg"})
    tracker.add_samples(ends={("t", 0): 10})
    (row,) = tracker.take_snapshot().rows()
    assert (row.committed, row.lag, row.reasons.names) == (4, None, ("topic_recreated",))
    tracker.identify_topics({"t": TOPIC_ID})
    (row,) = tracker.take_snapshot().rows()
    assert row.lag == 6

"""Events of commits, losses, rebalances and members."""

from dataclasses import replace

from koff.serve.events.event import Severity
from tests.unit.builders import ASSIGNED_T_0_1, NOTHING_ASSIGNED, classic_group, consumer_group


def test_a_committed_offset_that_goes_back(watched):
    for partition in (0, 1, 2):
        watched.commit("g", 100, partition=partition)
    watched.sample(100, partitions=3)
    watched.look()
    watched.look(blind=True)
    for partition, offset in ((0, 90), (1, 0), (2, 101)):
        watched.commit("g", offset, partition=partition)
    event = next(event for event in watched.look() if event.kind == "offsets_reset")
    text = "group g: the committed offset of t-1 went back from 100 to 0, and of 1 more partition"
    assert (event.text, event.severity, event.partition) == (text, Severity.WARNING, 1)
    assert event.details == {"from": 100, "to": 0, "partitions": 2, "offsets": 110}


def test_the_sum_of_what_the_largest_offsets_went_back_is_right(watched):
    most = (1 << 63) - 1
    for partition in (0, 1):
        watched.commit("g", most, partition=partition)
    watched.look()
    for partition in (0, 1):
        watched.commit("g", 0, partition=partition)
    event = next(event for event in watched.look() if event.kind == "offsets_reset")
    assert event.details["offsets"] == 2 * most


def test_a_commit_that_was_deleted_is_forgotten(watched):
    watched.commit("g", 50, partition=1)
    watched.look()
    watched.commit("g", None, partition=1)
    assert watched.look() == []
    watched.commit("g", 3, partition=1)
    assert "offsets_reset" not in dict(watched.find_kinds())


def test_records_that_are_lost_are_told_once(watched):
    watched.sample(200, start=100)
    watched.look()
    watched.sample(200, start=150)
    (event,) = [event for event in watched.look() if event.kind == "records_lost"]
    assert event.text == "group g: 50 offsets of t-0 left the log before they were committed"
    assert event.severity is Severity.ERROR
    assert event.details == {"committed_offset": 100, "start_offset": 150, "partitions": 1, "offsets": 50}
    watched.sample(200, start=160)
    assert watched.look() == []
    watched.commit("g", 160)
    watched.look()
    watched.sample(200, start=170)
    assert [event.kind for event in watched.look() if event.kind == "records_lost"]


def test_a_commit_beyond_the_end_of_the_log_is_told_once(watched):
    watched.look()
    watched.commit("g", 1 << 62)
    watched.wait(1)
    watched.sample(200)
    (event,) = [event for event in watched.look() if event.kind == "ahead_of_log"]
    assert event.text == (
        "group g: the committed offset 4,611,686,018,427,387,904 of t-0 is beyond the end of the log, 200"
    )
    assert event.severity is Severity.INFO
    assert event.details == {"committed_offset": 1 << 62, "end_offset": 200, "partitions": 1}
    watched.wait(1)
    watched.sample(210)
    assert watched.look() == []
    watched.commit("g", 210)
    watched.look()
    watched.commit("g", 1 << 62)
    watched.wait(1)
    watched.sample(220)
    assert "ahead_of_log" not in dict(watched.find_kinds())


def test_a_rebalance(watched):
    watched.apply(*consumer_group("m", epoch=5, assignment_epoch=5, members={"a": (5, 0)}))
    watched.look()
    watched.apply(*consumer_group("m", epoch=7, assignment_epoch=7, members={"b": (7, 0)}))
    (event,) = watched.look()
    assert (event.kind, event.severity) == ("rebalanced", Severity.INFO)
    assert event.text == "group m: rebalanced (epoch 5 to 7), 1 joined (b-client), 2 members"


def test_a_rebalance_is_recent_for_five_minutes_although_the_clock_is_set_back(watched):
    watched.apply(*consumer_group("m", epoch=5, assignment_epoch=5, members={"a": (5, 0)}))
    watched.look()
    watched.apply(*consumer_group("m", epoch=7, assignment_epoch=7, members={"a": (7, 0)}))
    watched.look()
    watched.clock_ms = -6 * 3_600_000
    for seconds, rebalances in ((299, {"m": 2}), (2, {})):
        watched.wait(seconds)
        view = watched.take_view()
        watched.changes.compare(view, watched.now_ms + watched.clock_ms)
        groups = view.activity.current.groups
        assert {name: did.rebalances for name, did in groups.items()} == rebalances


def test_members_that_come_and_go(watched):
    watched.apply(classic_group("m", {"app": ASSIGNED_T_0_1}))
    watched.look()
    watched.apply(classic_group("m", {"app": ASSIGNED_T_0_1, "late": NOTHING_ASSIGNED}))
    (event,) = watched.look()
    assert event.kind == "members_changed"
    assert event.details["joined_count"] == 1
    assert event.details["joined"][0]["client_id"] == "late"
    assert "1 joined (late), 2 members" in event.text
    assert watched.look() == []
    watched.look(blind=True)
    watched.apply(classic_group("m", {"late": NOTHING_ASSIGNED}))
    (event,) = watched.look()
    assert (event.details["left_count"], event.details["members"]) == (1, 1)


def test_what_a_group_consumed_is_counted_between_looks_and_a_reset_is_nothing(watched):
    activity = watched.take_view().activity
    for offset, end in ((100, 100), (130, 160), (50, 160), (65, 175)):
        watched.commit("g", offset)
        watched.sample(end)
        watched.changes.compare(replace(watched.take_view(), activity=activity), watched.now_ms)
        watched.wait(15)
    watched.changes.compare(replace(watched.take_view(), activity=activity), watched.now_ms)
    course = activity.history.find("g")
    assert course.consumed_per_s[-5:-1].tolist()[1:] == [2, 0, 1]

"""When a saved state may be resumed: never if something that it missed may be gone."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koff.monitor.moment import Moment
from koff.monitor.resume_rules import (
    is_pause_too_long,
    newest_stamp,
    reason_not_to_restore_ends,
    reason_not_to_resume,
)
from koff.monitor.saved import Saved
from koff.tracker import State

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HERE, ELSEWHERE = "this boot", "another boot"
STAMP = Moment(1000.0, 1_790_000_000_000, HERE)
SAFE_MS = DAY_MS * 9 // 10

pauses_ms = st.integers(0, 2 * DAY_MS)
steps_ms = st.integers(-30 * 365 * DAY_MS, 30 * 365 * DAY_MS)
retentions_ms = st.integers(0, 7 * DAY_MS)
offsets = st.integers(0, 2**63 - 1)
boots = st.sampled_from(["", HERE, ELSEWHERE])
moments = st.builds(Moment, st.integers(0, 10**9).map(float), st.integers(0, 2**42), boots)


def resumable(position: int = 100, stamp: Moment = STAMP) -> Saved:
    return Saved(7, position, 4, stamp, State({}, {}))


def after(pause_ms: int, *, step_ms: int = 0, since: Moment = STAMP) -> Moment:
    """The moment that long after `since` in the same boot. The wall clock was set by `step_ms` between."""
    return Moment(since.at_s + pause_ms / 1000, since.wall_ms + pause_ms + step_ms, since.boot)


def after_reboot(pause_ms: int, at_s: float = 5.0) -> Moment:
    return Moment(at_s, STAMP.wall_ms + pause_ms, ELSEWHERE)


def reason(saved: Saved | None = None, **change: Any) -> str | None:
    """The reason for a state that can be resumed, but for `change`."""
    facts: dict[str, Any] = {
        "now": after(HOUR_MS),
        "delete_retention_ms": DAY_MS,
        "log_start": 0,
        "last_stable": 200,
    }
    return reason_not_to_resume(saved or resumable(), **facts | change)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"now": STAMP},
        {"now": after(SAFE_MS)},
        {"now": after_reboot(SAFE_MS)},
        {"now": after_reboot(0)},
        {"now": after_reboot(-1000)},
        {"now": after_reboot(-DAY_MS // 10)},
        {"log_start": 100},
        {"last_stable": 100},
    ],
)
def test_a_state_is_resumed_while_nothing_that_it_missed_can_be_gone(change):
    assert reason(**change) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"now": after(SAFE_MS + 1)}, "tombstones may be gone"),
        ({"now": after_reboot(SAFE_MS + 1)}, "tombstones may be gone"),
        ({"delete_retention_ms": 0}, "tombstones may be gone"),
        ({"now": after_reboot(-DAY_MS // 10 - 1)}, "a time that is in the future"),
        ({"now": after_reboot(-1), "delete_retention_ms": 0}, "a time that is in the future"),
        ({"log_start": 101}, "the log starts at 101 now"),
        ({"last_stable": 99}, "the log was truncated: it ends at 99"),
    ],
)
def test_a_state_is_not_resumed_when_something_may_be_gone(change, expected):
    found = reason(**change)
    assert found is not None
    assert expected in found
    assert "\n" not in found


@given(pause_ms=pauses_ms, back_ms=st.integers(0, 30 * 365 * DAY_MS))
def test_in_one_boot_a_wall_clock_that_was_set_back_does_not_matter(pause_ms, back_ms):
    assert reason(now=after(pause_ms, step_ms=-back_ms)) == reason(now=after(pause_ms))


@given(pause_ms=pauses_ms, stopped_ms=pauses_ms)
def test_a_pause_of_the_virtual_machine_counts(pause_ms, stopped_ms):
    resumed = after(pause_ms, step_ms=stopped_ms)
    assert reason(now=resumed) == reason(now=after(pause_ms + stopped_ms))


@given(earlier_ms=st.floats(0.001, 1e9), pause_ms=steps_ms)
def test_an_uptime_that_went_back_is_not_believed(earlier_ms, pause_ms):
    now = after_reboot(pause_ms, STAMP.at_s - earlier_ms)
    assert reason(now=now._replace(boot=HERE)) == reason(now=now)


@given(
    now=moments, stamp=moments, retention_ms=retentions_ms, position=offsets, start=offsets, stable=offsets
)
def test_a_state_that_is_resumed_lies_within_the_log_and_is_young(
    now, stamp, retention_ms, position, start, stable
):
    why = reason_not_to_resume(
        resumable(position, stamp),
        now=now,
        delete_retention_ms=retention_ms,
        log_start=start,
        last_stable=stable,
    )
    one_boot = stamp.boot == now.boot != ""
    passed_ms = [now.wall_ms - stamp.wall_ms, (now.at_s - stamp.at_s) * 1000 if one_boot else math.inf]
    if why is None:
        assert start <= position <= stable
        assert min(map(abs, passed_ms)) <= 0.9 * retention_ms
    elif start <= position <= stable:
        assert not all(0 <= passed <= 0.9 * retention_ms - 1 for passed in passed_ms)


@given(at_s=st.sampled_from([math.nan, math.inf, -math.inf]), retention_ms=retentions_ms)
def test_a_clock_that_makes_no_sense_resumes_nothing(at_s, retention_ms):
    now = Moment(at_s, STAMP.wall_ms + 2 * DAY_MS * 7, HERE)
    assert reason(now=now, delete_retention_ms=retention_ms) is not None
    assert is_pause_too_long(math.nan, retention_ms)


def test_partitions_that_were_saved_one_after_another_are_too_old_for_one_reason():
    """So that they are one line of the log."""
    now = after(2 * DAY_MS)
    assert len({reason(resumable(stamp=after(seconds * 1000)), now=now) for seconds in range(50)}) == 1


# the newest stamp


@given(one=moments, other=moments)
def test_the_newest_stamp_is_one_of_the_two_in_either_order(one, other):
    newest = newest_stamp(one, other)
    assert newest in (one, other)
    if one.boot == other.boot != "":
        assert newest.at_s == max(one.at_s, other.at_s)
    else:
        assert newest.wall_ms == max(one.wall_ms, other.wall_ms)
        assert newest_stamp(other, one).wall_ms == newest.wall_ms


# the history of end offsets


@given(pause_ms=pauses_ms, step_ms=st.integers(-9_900, 9_900))
def test_a_history_is_restored_if_its_times_are_right_within_seconds(pause_ms, step_ms):
    for now in (after(pause_ms, step_ms=step_ms), after_reboot(pause_ms)):
        assert reason_not_to_restore_ends(STAMP, now=now, steady_ms=now.wall_ms) is None


@given(pause_ms=pauses_ms, step_ms=st.one_of(st.integers(-DAY_MS, -10_100), st.integers(10_100, DAY_MS)))
def test_a_history_is_not_restored_if_the_clock_was_set(pause_ms, step_ms):
    now = after(pause_ms, step_ms=step_ms)
    assert reason_not_to_restore_ends(STAMP, now=now, steady_ms=now.wall_ms) is not None


@given(pause_ms=pauses_ms, step_ms=st.one_of(st.integers(-DAY_MS, -10_100), st.integers(10_100, DAY_MS)))
def test_a_history_is_not_restored_if_the_clock_was_set_between_the_start_and_its_loading(pause_ms, step_ms):
    now = after_reboot(pause_ms)
    why = reason_not_to_restore_ends(STAMP, now=now, steady_ms=now.wall_ms + step_ms)
    assert why is not None
    assert "since koff began" in why


@given(ahead_ms=st.integers(10_001, 30 * 365 * DAY_MS))
def test_a_history_of_the_future_is_not_restored(ahead_ms):
    now = after_reboot(-ahead_ms)
    why = reason_not_to_restore_ends(STAMP, now=now, steady_ms=now.wall_ms)
    assert why is not None
    assert "in the future" in why

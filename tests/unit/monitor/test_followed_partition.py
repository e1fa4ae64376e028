"""A partition is current at t if the position has reached the high watermark that was requested at t."""

from __future__ import annotations

from koff.monitor.followed_partition import AGREEING, AGREEING_S, MAX_WATERMARKS, FollowedPartition
from koff.monitor.requests import Records
from tests.unit.monitor.fakes import at


def reading(position: int = 0) -> FollowedPartition:
    part = FollowedPartition()
    part.begin(position, -1, at(0))
    return part


def test_an_open_transaction_leaves_the_moment_before_it() -> None:
    part = reading(10)
    part.note_end(10, at(5), 10)
    part.note_stable(10, 10)
    part.note_end(14, at(10), 10)
    part.note_stable(10, 14)
    assert (part.is_held_back, part.held_back) == (True, 4)
    assert part.current == at(5)
    part.note_end(15, at(15), 10)
    assert part.held_back == 5


def test_what_was_written_between_two_requests_is_not_held_back() -> None:
    part = reading(10)
    part.note_stable(10, None)
    part.note_end(14, at(5), 10)
    assert (part.is_held_back, part.held_back, part.is_read, part.needs_stable) == (False, 0, False, True)
    part.note_stable(14, 14)
    assert (part.is_held_back, part.held_back, part.is_read, part.needs_stable) == (False, 0, False, False)


def test_a_partition_that_only_a_transaction_holds_back_is_read_but_not_current() -> None:
    part = reading(10)
    part.note_end(14, at(5), 10)
    part.note_stable(10, 14)
    assert part.is_read
    assert part.current is None


def test_low_watermarks_that_agree_over_seconds_are_a_truncation() -> None:
    part = reading(10)
    answers = [part.note_end(8, at(5 + number * AGREEING_S), 10) for number in range(AGREEING)]
    assert answers == [False] * (AGREEING - 1) + [True]


def test_low_watermarks_in_a_moment_are_no_truncation() -> None:
    part = reading(10)
    assert not any(part.note_end(8, at(5 + number / 100), 10) for number in range(2 * AGREEING))


def test_marks_are_thinned_out_and_never_promise_too_much() -> None:
    part = reading()
    for second in range(4 * MAX_WATERMARKS):
        part.note_end(second + 1, at(second), 0)
    part.move(2 * MAX_WATERMARKS, at(1000))
    part.note_end(4 * MAX_WATERMARKS, at(1001), part.position)
    part.move(4 * MAX_WATERMARKS, at(1002))
    assert part.current is not None
    assert 2 * MAX_WATERMARKS - 20 <= part.current.at_s <= 2 * MAX_WATERMARKS - 1


def test_records_before_the_position_are_known() -> None:
    part = reading(5)
    records = Records(0, 1, [b"3", b"4", b"5"], [None] * 3, [3, 4, 5])
    new = part.split_known(records)
    assert new is not None
    assert (new.keys, new.offsets) == ([b"5"], [5])
    assert part.split_known(records._replace(offsets=[2, 3, 4])) is None
    assert part.split_known(records._replace(offsets=[5, 6, 9])) == records._replace(offsets=[5, 6, 9])


def test_after_an_election_a_position_proves_nothing_until_the_reader_is_validated() -> None:
    part = reading(10)
    part.note_epoch(3)
    part.note_end(10, at(5), 10)
    part.note_epoch(4)  # the new leader may have truncated the log, and written to it again
    part.note_end(10, at(10), 10)
    assert part.is_to_begin_again
    assert part.current == at(5)
    part.note_validated()  # by the attempt before the election was noticed
    assert part.current == at(5)
    part.begin(10, 3, at(10))
    part.note_validated()
    assert part.current == at(10)


def test_after_an_election_a_watermark_makes_no_response_of_the_coordinators_needless() -> None:
    part = reading(7)
    part.note_epoch(0)
    part.note_end(7, at(1), 7)
    part.wait()
    assert part.needs_no_response
    # The position may be one of a log that the new leader has truncated, so the watermark proves nothing.
    part.note_epoch(1)
    part.note_end(7, at(2), 7)
    assert not part.needs_no_response
    assert part.current == at(1)

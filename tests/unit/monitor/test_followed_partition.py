"""A partition is current at t if the position has reached the high watermark that was requested at t."""

from koff.monitor.followed_partition import MAX_WATERMARKS, FollowedPartition
from koff.monitor.requests import Records, Watermarks
from tests.unit.monitor.fakes import at


def reading(position: int = 0) -> FollowedPartition:
    part = FollowedPartition()
    part.begin(position, -1, at(0))
    return part


def returned(end: int, second: float, *, stable: int | None = None) -> Watermarks:
    return Watermarks(1, end, end if stable is None else stable, at(second))


def test_an_open_transaction_leaves_the_moment_before_it():
    part = reading(10)
    part.note_ends(returned(10, 5))
    part.note_ends(returned(14, 10, stable=10))
    assert (part.is_held_back, part.held_back) == (True, 4)
    assert part.current == at(5)
    part.note_ends(returned(15, 15, stable=10))
    assert part.held_back == 5


def test_a_partition_that_only_a_transaction_holds_back_is_read_but_not_current():
    part = reading(10)
    part.note_ends(returned(14, 5, stable=10))
    assert part.is_read
    assert part.current is None


def test_an_end_before_the_position_proves_nothing():
    part = reading(10)
    part.note_ends(returned(8, 5))
    assert (part.end, part.current) == (None, None)


def test_a_log_that_was_truncated_before_it_was_read_is_current_at_its_new_end():
    part = reading(10)
    part.note_ends(returned(20, 5))
    part.note_ends(returned(12, 10))
    part.move(12, at(11))
    part.note_ends(returned(12, 12))
    assert part.current == at(12)


def test_marks_are_thinned_out_and_never_promise_too_much():
    part = reading()
    for second in range(4 * MAX_WATERMARKS):
        part.note_ends(returned(second + 1, second))
    part.move(2 * MAX_WATERMARKS, at(1000))
    part.note_ends(returned(4 * MAX_WATERMARKS, 1001))
    part.move(4 * MAX_WATERMARKS, at(1002))
    assert 2 * MAX_WATERMARKS - 20 <= part.current.at_s <= 2 * MAX_WATERMARKS - 1


def test_records_before_the_position_are_known():
    part = reading(5)
    records = Records(0, 1, [b"3", b"4", b"5"], [None] * 3, [3, 4, 5])
    new = part.split_known(records)
    assert (new.keys, new.offsets) == ([b"5"], [5])
    assert part.split_known(records._replace(offsets=[2, 3, 4])) is None
    assert part.split_known(records._replace(offsets=[5, 6, 9])) == records._replace(offsets=[5, 6, 9])

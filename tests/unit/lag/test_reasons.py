"""Why a lag is null or strange."""

import uuid

import numpy as np
import pytest

from koff.lag import NULL, UNKNOWN, WITHHELD, Reason, is_topic_recreated, lags, reasons


def why(**row):
    return Reason(int(reasons(**{"end": 10, "committed": 4, "start": 0} | row))).names


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ({}, ()),
        ({"committed": UNKNOWN}, ("no_commit",)),
        ({"committed": -7}, ("no_commit",)),
        ({"end": UNKNOWN}, ("end_unknown",)),
        ({"end": UNKNOWN, "topic_gone": True}, ("topic_gone",)),
        ({"end": 10, "topic_gone": True}, ("topic_gone",)),
        ({"committed": UNKNOWN, "topic_gone": True}, ("no_commit", "topic_gone")),
        ({"committed_topic_id": 1, "topic_id": 2}, ("topic_recreated",)),
        ({"committed_topic_id": 1, "topic_id": 2, "committed": UNKNOWN}, ("no_commit",)),
        ({"start": 5}, ("below_log_start",)),
        ({"start": 4}, ()),
        ({"committed": UNKNOWN, "start": 5}, ("no_commit",)),  # a null lag is not called strange
        ({"end": UNKNOWN, "committed": 3, "start": 5}, ("end_unknown",)),
        (
            {"committed": 12, "start": 20, "end": 11, "end_sampled_at_ms": 2, "commit_seen_at_ms": 1},
            ("ahead_of_log", "below_log_start"),
        ),
    ],
)
def test_every_null_or_strange_lag_says_why(row, names):
    assert why(**row) == names


def test_a_deleted_and_created_topic_does_not_inherit_commits_but_ids_must_be_known_to_tell():
    old, new = uuid.UUID(int=5).int, uuid.UUID(int=6).int
    assert is_topic_recreated(committed_topic_id=old, topic_id=new)
    assert not is_topic_recreated(committed_topic_id=new, topic_id=new)
    assert not is_topic_recreated(committed_topic_id=0, topic_id=new)
    assert not is_topic_recreated(committed_topic_id=old, topic_id=0)


@pytest.mark.parametrize(
    ("sampled", "seen", "said"),
    [(101, 100, True), (100, 100, False), (99, 100, False), (101, UNKNOWN, False), (UNKNOWN, 100, False)],
)
def test_ahead_of_the_log_is_said_only_when_the_end_was_sampled_after_the_commit_arrived(sampled, seen, said):
    row = {"committed": 12, "end_sampled_at_ms": sampled, "commit_seen_at_ms": seen}
    assert why(**row) == (("ahead_of_log",) if said else ())


def test_arrays_give_what_numbers_give_row_by_row():
    columns = {
        "end": np.array([10, -1, 10, 10, 10, 10]),
        "committed": np.array([4, 4, -1, 12, 1, 4]),
        "start": np.array([0, 0, 0, 0, 2, 0]),
        "topic_gone": np.array([False, True, False, False, False, False]),
        "committed_topic_id": np.array([1, 1, 1, 1, 1, 1]),
        "topic_id": np.array([1, 1, 1, 1, 1, 9]),
        "end_sampled_at_ms": np.array([5, 5, 5, 5, 5, 5]),
        "commit_seen_at_ms": np.array([4, 4, 4, 4, 4, 4]),
    }
    many = reasons(**columns)
    assert many.dtype == np.uint8
    one_by_one = [int(reasons(**{k: v[i].item() for k, v in columns.items()})) for i in range(6)]
    assert many.tolist() == one_by_one == [0, 2, 1, 16, 32, 8]


def test_lag_is_null_for_the_same_rows_that_have_a_reason_for_it():
    end, committed = np.array([10, -1, 10, 12]), np.array([4, 4, -1, 13])
    why_null = reasons(end=end, committed=committed) & NULL
    assert (why_null == 0).tolist() == lags(end=end, committed=committed).known.tolist()
    assert Reason.NO_COMMIT & NULL
    assert not Reason.AHEAD_OF_LOG & NULL


def test_a_row_that_is_withheld_has_no_other_reason():
    for bits in (Reason.COMMITS_NOT_CURRENT, Reason.END_NOT_CURRENT, WITHHELD):
        for row in ({}, {"committed": -1}, {"end": -1, "topic_gone": True}, {"committed": 20, "start": 30}):
            assert why(**row, withheld=int(bits)) == bits.names
    assert why(withheld=0) == ()
    assert WITHHELD.names == ("commits_not_current", "end_not_current")


def test_each_row_is_withheld_for_itself():
    bits = np.array([0, 64, 128, 0], np.uint8)
    committed = np.array([4, 4, 4, -1])
    found = reasons(end=np.full(4, 10), committed=committed, withheld=bits)
    assert found.tolist() == [0, 64, 128, 1]
    assert found.dtype == np.uint8


def test_what_is_withheld_makes_a_lag_null():
    assert WITHHELD & NULL == WITHHELD
    assert Reason.END_NOT_CURRENT & NULL

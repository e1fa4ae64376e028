"""Lag in offsets."""

import numpy as np
import pytest

from koff.lag import UNKNOWN, lag, lag_to_stable, lags, lost, published_lag, readable


@pytest.mark.parametrize(
    ("end", "committed", "expected"),
    [(10, 4, 6), (10, 10, 0), (0, 0, 0), (10, 12, -2), (10, UNKNOWN, None), (UNKNOWN, 4, None)],
)
def test_lag_is_end_less_committed_signed_and_unknown_where_either_is(end, committed, expected):
    assert lag(end=end, committed=committed) == expected
    many = lags(end=np.array([end]), committed=np.array([committed]))
    assert many.known.tolist() == [expected is not None]
    assert many.signed.tolist() == [expected or 0]


@pytest.mark.parametrize(
    ("committed", "returned", "hidden", "gone", "expected"),
    [
        (4, UNKNOWN, False, False, 6),
        (4, UNKNOWN, True, False, None),
        (4, UNKNOWN, False, True, 6),  # a caller says in `hidden` what it does not serve
        (UNKNOWN, 7, False, False, 7),
        (4, 7, False, False, 7),
        (UNKNOWN, 7, True, False, None),
        (UNKNOWN, 7, False, True, None),
    ],
)
def test_a_lag_that_a_coordinator_returned_takes_the_place_of_offsets(
    committed, returned, hidden, gone, expected
):
    found = lags(
        end=np.array([10]),
        committed=np.array([committed]),
        hidden=np.array([hidden]),
        returned=np.array([returned]),
        gone=np.array([gone]),
    )
    assert (found.signed.item() if found.known[0] else None) == expected


def test_lag_is_zero_when_the_commit_outruns_the_sampled_end():
    assert published_lag(lag(end=10, committed=12)) == 0
    assert lags(end=np.array([10]), committed=np.array([12])).published.tolist() == [0]


def test_unknown_lag_is_published_as_unknown_and_not_as_zero():
    assert published_lag(None) is None


@pytest.mark.parametrize(
    ("end", "committed", "start", "left", "gone"),
    [
        (10, 4, 0, 6, 0),
        (10, 0, 3, 7, 3),  # seen on a broker: the tool shows 10 where 7 remain
        (10, 2, 10, 0, 8),  # retention emptied the partition
        (0, 0, 0, 0, 0),
        (10, 12, 0, 0, 0),
        (10, UNKNOWN, 3, UNKNOWN, UNKNOWN),
        (10, 4, UNKNOWN, UNKNOWN, UNKNOWN),
        (UNKNOWN, 4, 3, UNKNOWN, 0),
    ],
)
def test_what_retention_took_is_lost_and_the_rest_readable(end, committed, start, left, gone):
    assert readable(end=end, committed=committed, start=start) == left
    assert lost(start=start, committed=committed) == gone
    columns = {"end": [end, 5], "committed": [committed, 5], "start": [start, 0]}
    arrays = {name: np.array(column) for name, column in columns.items()}
    assert readable(**arrays).tolist() == [left, 0]
    assert lost(start=arrays["start"], committed=arrays["committed"]).tolist() == [gone, 0]


@pytest.mark.parametrize(
    ("stable", "committed", "expected"),
    [(8, 5, 3), (8, 8, 0), (8, 9, 0), (UNKNOWN, 5, UNKNOWN), (8, UNKNOWN, UNKNOWN)],
)
def test_lag_to_stable_is_what_read_committed_can_reach_and_never_negative(stable, committed, expected):
    assert lag_to_stable(stable=stable, committed=committed) == expected
    assert lag_to_stable(stable=np.array([stable]), committed=committed).tolist() == [expected]


def test_offsets_at_the_edge_of_int64_do_not_overflow():
    top = np.array([2**63 - 1])
    zero = np.array([0])
    assert lags(end=zero, committed=top).signed.tolist() == [-(2**63 - 1)]
    assert readable(end=top, committed=zero, start=zero).tolist() == [2**63 - 1]
    assert readable(end=zero, committed=top, start=zero).tolist() == [0]

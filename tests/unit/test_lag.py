"""The rules of lag."""

import numpy as np
import pytest

from koff.lag import UNKNOWN, lag, lags, published


@pytest.mark.parametrize(
    ("end", "committed", "expected"),
    [(10, 4, 6), (10, 10, 0), (0, 0, 0), (10, 12, -2), (10, UNKNOWN, None), (UNKNOWN, 4, None)],
)
def test_lag_is_end_less_committed_signed_and_unknown_where_either_is(end, committed, expected):
    assert lag(end=end, committed=committed) == expected
    many = lags(end=np.array([end]), committed=np.array([committed]))
    assert many.known.tolist() == [expected is not None]
    assert many.signed.tolist() == [expected or 0]


def test_lag_is_zero_when_the_commit_outruns_the_sampled_end():
    assert published(lag(end=10, committed=12)) == 0
    assert lags(end=np.array([10]), committed=np.array([12])).published.tolist() == [0]


def test_unknown_lag_is_published_as_unknown_and_not_as_zero():
    assert published(None) is None

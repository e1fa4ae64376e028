"""Windows of commits: what they show, and what becomes of a new commit."""

import random

import numpy as np
import pytest

from koff.lag import UNKNOWN, Mark, lacks_commit_time, window_features
from tests.unit.lag import burrow
from tests.unit.lag.burrow import Commit


def turned_into_arrays(windows, size=10, seed=0):
    """Offsets, times, lags and counts; the unfilled slots in front hold rubbish."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(-5, 2000, (len(windows), size)) for _ in Commit._fields]
    for row, commits in enumerate(windows):
        for column, values in zip(columns, zip(*commits, strict=True), strict=False):
            column[row, size - len(commits) :] = values
    return *columns, np.array([len(commits) for commits in windows], np.uint8)


def features(*commits):
    return window_features(*turned_into_arrays([[Commit(*commit) for commit in commits]]))


def test_an_empty_window_has_no_times_and_is_not_complete():
    empty = features()
    assert [column.item() for column in empty[:3]] == [0, 0, 0]
    assert not (empty.marks & (Mark.REWOUND | Mark.LAG_WAS_ALLOWED | Mark.LAGS_KNOWN)).any()
    assert empty.completeness().tolist() == [0]


def test_a_window_has_the_times_of_its_first_and_last_commit_and_says_how_full_it_is():
    found = features((1, 500, 3), (2, 700, -1), (3, 900, 4))
    assert [column.item() for column in found[:3]] == [500, 900, 3]
    assert found.completeness().tolist() == [0.3]
    assert Mark(found.marks.item()) == Mark.NEVER_DECREASED | Mark.LAGS_KNOWN


def test_the_features_of_chosen_rows_can_be_made_those_of_an_empty_window():
    found = window_features(*turned_into_arrays([[Commit(1, 500, 3), Commit(2, 700, 2)]] * 2))
    assert found.empty_rows(np.array([False, False])) is found
    half = found.empty_rows(np.array([False, True]))
    assert [column.tolist() for column in half] == [[column[0].item(), 0] for column in found]
    assert [column.dtype for column in half] == [column.dtype for column in found]


def test_only_a_commit_can_lack_its_time():
    committed, at_ms = np.array([5, 0, 5, UNKNOWN]), np.array([UNKNOWN, UNKNOWN, 0, UNKNOWN])
    assert lacks_commit_time(committed=committed, committed_at_ms=at_ms).tolist() == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("size", [1, 2, 10])
def test_marks_agree_with_plain_python_on_random_windows_of_any_size_and_dtype(size):
    rng = random.Random(size)
    windows = [
        [
            Commit(rng.choice([5, 5, 6, 7, rng.randrange(9)]), rng.randrange(99), rng.randrange(-2, 4))
            for _ in range(rng.randrange(size + 1))
        ]
        for _ in range(20_000)
    ]
    expected = {
        Mark.REWOUND: [burrow.rewound(w) for w in windows],
        Mark.LAG_WAS_ALLOWED: [any(0 <= c.lag <= 1 for c in w) for w in windows],
        Mark.STALLED: [len({c.offset for c in w}) <= 1 for w in windows],
        Mark.NEVER_DECREASED: [burrow.never_decreased(w) for w in windows],
        Mark.LAGS_KNOWN: [len(burrow.known_lags(w)) >= 2 for w in windows],
    }
    offsets, times, lags, count = turned_into_arrays(windows, size)
    for narrow in (np.int64, np.int32):
        found = window_features(offsets.astype(narrow), times, lags.astype(narrow), count, allowed_lag=1)
        for mark, shown in expected.items():
            filled = count > 0
            assert ((found.marks & mark != 0) == shown)[filled].all(), mark
    assert found.first_ms.tolist() == [w[0].at_ms if w else 0 for w in windows]
    assert found.last_ms.tolist() == [w[-1].at_ms if w else 0 for w in windows]


def test_the_sum_of_steps_of_the_largest_offsets_is_not_below_zero():
    offsets = np.tile(np.array([0, (1 << 63) - 1], np.int64), 5)[None]
    times, count = np.arange(10, dtype=np.int64)[None], np.array([10])
    features = window_features(offsets, times, np.zeros_like(offsets), count)
    assert features.consumed[0] == np.float32(5 * 2.0**63)

"""What a group skips, and reads again, if its committed offset is replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koff.lag.resets import LogRange, count_read_again, count_skipped

LOG = LogRange(100, 200)
OFFSETS = st.integers(0, 300)


@pytest.mark.parametrize(
    ("before", "after", "skipped", "read_again"),
    [
        (150, 150, 0, 0),
        (150, 170, 20, 0),
        (150, 120, 0, 30),
        (50, 120, 20, 0),  # 50 to 99 are not in the log: they were lost before
        (150, 100, 0, 50),
        (250, 200, 0, 0),  # the commit is ahead of the log
        (250, 190, 0, 10),
    ],
)
def test_only_what_the_log_still_has_counts(before, after, skipped, read_again):
    assert count_skipped(LOG, before=before, after=after) == skipped
    assert count_read_again(LOG, before=before, after=after) == read_again


@given(OFFSETS, OFFSETS)
def test_what_a_reset_skips_its_undo_reads_again(before, after):
    assert count_skipped(LOG, before=before, after=after) == count_read_again(LOG, before=after, after=before)


@given(OFFSETS)
def test_an_offset_is_moved_into_the_log_by_as_little_as_possible(offset):
    clamped = LOG.clamp(offset)
    assert 100 <= clamped <= 200
    assert abs(clamped - offset) == min(abs(each - offset) for each in range(100, 201))

"""Counters of what offsets have grown by."""

import numpy as np

from koff.view.growth import MOST, Growth


def test_a_counter_that_grows_too_large_for_a_float_starts_again():
    growth = Growth(["a", "b"], ["x"], np.zeros(2, np.int64))
    seen = []
    for offset in (0, MOST // 4, 0, MOST // 4, 0, MOST, 2 * MOST, 2 * MOST + 3):
        growth.add(np.full(2, offset))
        seen.append(int(growth.sums[0]))
    assert seen == [0, MOST // 2, MOST // 2, MOST, MOST, 0, 0, 6]

"""Pieces of a buffer as numpy arrays, at many positions at once, aligned or not.

To gather one big-endian number takes 12 ns for each row. To cut out the bytes around the number takes 9 ns
for each row, and no time if the rows are evenly spaced. All numbers of a row are then read from these
bytes.
"""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

PAD = 640
"""How many zeros follow the data. So `cut_rows` can cut more bytes than a row at the end of the data has."""


def cut_rows(data: Bytes, at: Ints, width: int) -> Bytes:
    """Returns `width` bytes from each position, as an array (rows, width). Do not write to it.

    The array is a view of `data` if the positions are evenly spaced, else a copy. `data` must have `width`
    bytes from the last position on: nothing checks this for a view.
    """
    step = int(at[1] - at[0]) if len(at) > 1 else 0
    if step > 0 and at[-1] - at[0] == step * (len(at) - 1) and (np.diff(at) == step).all():
        return as_strided(data[at[0] :], (len(at), width), (step, 1))
    # One item of `width` bytes at every position of the buffer: an index then copies whole rows.
    windows: NDArray[Any] = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    return windows[at].view(np.uint8).reshape(-1, width)


def read_column(rows: Bytes, at: int, dtype: str) -> NDArray[Any]:
    """Returns the number at byte `at` of every row, as a view."""
    numbers: NDArray[Any] = rows[:, at : at + np.dtype(dtype).itemsize].view(dtype)[:, 0]
    return numbers

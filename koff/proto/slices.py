"""Pieces of a buffer as numpy arrays: many places at once, aligned or not.

Gathering one big-endian number a row costs 12 ns. Cutting out the bytes around it costs 9, however
many numbers are read from them then; and nothing where the rows are evenly spaced.
"""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

PAD = 640
"""Zeros behind the data, so that a row's bytes can be cut out before it is known to have them."""


def cut(data: Bytes, at: Ints, width: int) -> Bytes:
    """(rows, width): the bytes that stand at those places; a view where those are evenly spaced."""
    step = int(at[1] - at[0]) if len(at) > 1 else 0
    if step > 0 and at[-1] - at[0] == step * (len(at) - 1) and (np.diff(at) == step).all():
        return as_strided(data[at[0] :], (len(at), width), (step, 1))
    everywhere: NDArray[Any] = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    return everywhere[at].view(np.uint8).reshape(-1, width)


def column(rows: Bytes, at: int, dtype: str) -> NDArray[Any]:
    """The numbers at a place in every row."""
    numbers: NDArray[Any] = rows[:, at : at + np.dtype(dtype).itemsize].view(dtype)[:, 0]
    return numbers

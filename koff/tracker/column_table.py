"""Tables of numpy columns. A table declares each column once; it is made, grown and reset from that."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from koff.tracker.row_index import Ints


class _Declared(NamedTuple):
    dtype: DTypeLike
    fill: int
    height: int | None

    def build(self, rows: int) -> NDArray[Any]:
        shape = (rows,) if self.height is None else (self.height, rows)
        return np.full(shape, self.fill, self.dtype)


def column(dtype: DTypeLike, fill: int = 0, *, height: int | None = None) -> Any:
    """Declares a column, (rows,) or (height, rows), that has `fill` in new rows."""
    return _Declared(dtype, fill, height)


class ColumnTable:
    """Columns by row number. They have room for more rows than there are.

    A subclass declares them: `offset: Ints = column(np.int64)`.
    """

    _declared: ClassVar[dict[str, _Declared]]

    def __init_subclass__(cls) -> None:
        cls._declared = {name: each for name, each in vars(cls).items() if isinstance(each, _Declared)}
        for name in cls._declared:  # an attribute of the class would slow down that of the object
            delattr(cls, name)

    def __init__(self) -> None:
        self.room = 0
        for name, declared in self._declared.items():
            setattr(self, name, declared.build(0))

    def reserve(self, rows: int) -> None:
        if rows <= self.room:
            return
        # At least an eighth more, so that many small batches seldom copy the columns.
        size = max(rows, self.room + self.room // 8 + 16)
        for name, declared in self._declared.items():
            more = declared.build(size - self.room)
            setattr(self, name, np.concatenate([getattr(self, name), more], axis=-1))
        self.room = size

    def reset(self, rows: Ints) -> None:
        """Sets all columns of `rows` to what new rows have."""
        for name, declared in self._declared.items():
            getattr(self, name)[..., rows] = declared.fill


class LateColumn:
    """A column that takes no memory until a row is set. All other rows have `fill`."""

    def __init__(self, dtype: DTypeLike, fill: int, *, height: int | None = None) -> None:
        self._declared = _Declared(dtype, fill, height)
        self._values = self._declared.build(0)

    def __bool__(self) -> bool:
        """Whether a row was ever set."""
        return self._values.size > 0

    def put(self, rows: Ints, values: Any) -> None:
        """Sets the values of `rows`."""
        if rows.size:
            self._reserve(rows)
            self._values[..., rows] = values

    def get(self, rows: Ints) -> NDArray[Any] | None:
        """The values of `rows`. None if no row was ever set."""
        if not self:
            return None
        self._reserve(rows)
        return self._values[..., rows]

    def clear(self, rows: Ints) -> None:
        self._values[..., rows[rows < self._values.shape[-1]]] = self._declared.fill

    def _reserve(self, rows: Ints) -> None:
        size = int(rows.max(initial=-1)) + 1
        more = size - self._values.shape[-1]
        if more > 0:
            # An eighth more than needed, so that a growing table seldom copies.
            self._values = np.concatenate(
                [self._values, self._declared.build(more + size // 8 + 16)], axis=-1
            )

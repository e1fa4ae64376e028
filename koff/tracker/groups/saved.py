"""State as lists, dicts, strings and numbers, and back: what any JSON keeps."""

from __future__ import annotations

import sys
from typing import Any

_ATOMS = (str, int, bool, type(None))


def plain(value: Any) -> Any:
    """The value with lists for tuples and slotted dataclasses, and dicts of its own."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return [plain(getattr(value, name)) for name in kind.__slots__]


def restored(value: Any) -> Any:
    """The value with tuples for lists, its strings shared with all equal ones."""
    kind = type(value)
    if kind is str:
        return sys.intern(value)
    if kind is dict:
        return {sys.intern(key): restored(each) for key, each in value.items()}
    if kind is list:
        return tuple(map(restored, value))
    return value

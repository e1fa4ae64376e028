"""State as lists, tuples, dicts, strings and numbers, and back: what any JSON keeps."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from koff.tracker.groups.views import NOTHING, Assignment

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


def assignment(saved: Mapping[str, Iterable[int]]) -> Assignment:
    """Partitions by topic, as they were before `plain`."""
    return {sys.intern(topic): tuple(partitions) for topic, partitions in saved.items()} or NOTHING


def strings(saved: Iterable[str]) -> tuple[str, ...]:
    """Strings as they were before `plain`, shared with all equal ones."""
    return tuple(map(sys.intern, saved))

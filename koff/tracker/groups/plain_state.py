"""State as lists, tuples, dicts, strings and numbers, which JSON can hold, and back."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from koff.tracker.groups.views import Assignment, merge_assignments

_ATOMS = (str, int, bool, type(None))  # compared with the exact type, for speed


def to_plain(value: Any) -> Any:
    """A copy of the value, with lists in place of tuples and of slotted dataclasses (their field values)."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return [to_plain(getattr(value, name)) for name in kind.__slots__]


def load_assignment(saved: Mapping[str, Iterable[int]]) -> Assignment:
    """The assignment from its saved form, with interned topic names."""
    return merge_assignments((topic, tuple(partitions)) for topic, partitions in saved.items())


def intern_strings(saved: Iterable[str]) -> tuple[str, ...]:
    """The strings as a tuple, interned: equal strings share their memory."""
    return tuple(map(sys.intern, saved))

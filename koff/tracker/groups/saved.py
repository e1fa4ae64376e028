"""State as lists, dicts, strings and numbers, and back: what any JSON keeps."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """The value with lists for tuples and dataclasses, and dicts of its own."""
    if isinstance(value, str | int) or value is None:
        return value
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return [plain(each) for each in value]


def restored(value: Any) -> Any:
    """The value with tuples for lists, its strings shared with all equal ones."""
    if isinstance(value, str):
        return sys.intern(value)
    if isinstance(value, Mapping):
        return {sys.intern(key): restored(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(restored(each) for each in value)
    return value

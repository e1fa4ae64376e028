"""Members of enums that a caller may also name by their value."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

from koff.errors import ConfigError

E = TypeVar("E", bound=Enum)


def parse_member(kind: type[E], value: Any, name: str) -> E:
    """The member of `kind` that `value` is, or whose value it is: "gzip" or -1. Raises `ConfigError`."""
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(repr(member.value) for member in kind)
        raise ConfigError(f"{name} {value!r} is not valid: use one of {allowed}") from None


def normalize_members(conf: object, **kinds: type[Enum]) -> None:
    """Replaces each named field of a frozen dataclass by the member of its enum. Raises `ConfigError`.

    Code compares members by identity, and a plain value would silently be none of them.
    """
    for name, kind in kinds.items():
        object.__setattr__(conf, name, parse_member(kind, getattr(conf, name), name))

"""`StartOffset`: the two places in a partition that have a name in place of an offset."""

from __future__ import annotations

from enum import IntEnum

from koff.errors import ConfigError


class StartOffset(IntEnum):
    """Where reading begins. Their values are not offsets: offsets are 0 and more.

    OLDEST: the log start offset, the oldest message that the partition still has. NEWEST: the end offset, so
    that only messages that are written from now on are read. "oldest" and "newest" are valid, too.
    """

    OLDEST = -2
    NEWEST = -1

    @classmethod
    def _missing_(cls, value: object) -> StartOffset | None:
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


def parse_start(offset: object, name: str = "") -> int:
    """An offset of 0 or more, or a `StartOffset`, perhaps given as text. Raises `ConfigError`.

    `name` is what the error begins with.
    """
    start = StartOffset.__members__.get(offset.upper()) if isinstance(offset, str) else offset
    if isinstance(start, int) and StartOffset.OLDEST <= start < 1 << 63:
        return start
    raise ConfigError(f"{name}{offset!r} is no offset: use 0 or more, or StartOffset.OLDEST or NEWEST")

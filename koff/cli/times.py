"""Points in time as users write them: `2026-11-21T03:00`, `1795225081984`, `-1h`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import click

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class When(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """Milliseconds since the epoch, or one of `words` as it is.

    ISO 8601 without an offset is UTC; a bare number is milliseconds; `-1h` is an hour ago.
    """

    name = "WHEN"

    def __init__(self, *words: str) -> None:
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The moment, or click's error."""
        if isinstance(value, int) or value in self._words:
            return value  # type: ignore[no-any-return]
        if ago := re.fullmatch(r"-(\d+)([smhd])", value):
            return int((time.time() - int(ago[1]) * _UNITS_S[ago[2]]) * 1000)
        if value.isdecimal():
            return int(value)
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            words = "".join(f"{word}, " for word in self._words)
            self.fail(f"{value!r} is none of {words}-1h, 2026-01-31T12:00 or milliseconds", param, ctx)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)

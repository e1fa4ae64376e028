"""Parses points in time as users write them: `2026-11-21T03:00`, `1795225081984`, `-1h`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import click

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class When(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """The type of an option that takes a point in time: an int, in ms since the epoch.

    Accepts ISO 8601 (UTC if it has no offset), a number of milliseconds, or a time ago such as `-1h`. One of
    `words` is returned as it is.
    """

    name = "WHEN"

    def __init__(self, *words: str) -> None:
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The time in ms, or one of `words`. Fails with click's error."""
        if isinstance(value, int) or value in self._words:
            return value  # type: ignore[no-any-return]  # `value` is Any: one of `words` is a str
        timestamp_ms = _parse_time(value)
        if timestamp_ms is None:
            words = "".join(f"{word}, " for word in self._words)
            self.fail(
                f"{value!r} is not a time: write {words}-1h, 2026-01-31T12:00 or milliseconds since 1970",
                param,
                ctx,
            )
        if not 0 <= timestamp_ms < 2**63:  # Kafka has other meanings for negative timestamps
            self.fail(f"{value!r} is before 1970, or further in the future than Kafka's times go", param, ctx)
        return timestamp_ms


def _parse_time(text: str) -> int | None:
    """The time in ms since 1970. None if the text is no time."""
    if ago := re.fullmatch(r"-(\d+)([smhd])", text):
        return int(time.time() * 1000) - int(ago[1]) * _UNITS_S[ago[2]] * 1000
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)

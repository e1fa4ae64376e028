"""Points in time and durations as users write them: `2026-11-21T03:00`, `1795225081984`, `-1h`; `30s`."""

import re
import time
from datetime import UTC, datetime

from koff.config.kinds import Kind, text

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def when(*words: str) -> Kind:
    """A point in time: an int, in ms since the epoch.

    ISO 8601 (UTC if it has no offset), a number of milliseconds, or a time ago such as `-1h`. One of `words`
    stays as it is.
    """
    return text("WHEN", lambda given: given if given in words else _parse_when(given, words))


def _parse_when(given: str, words: tuple[str, ...]) -> int:
    timestamp_ms = parse_time(given)
    if timestamp_ms is None:
        known = "".join(f"{word}, " for word in words)
        raise ValueError(f"is not a time: write {known}-1h, 2026-01-31T12:00 or milliseconds since 1970")
    if not 0 <= timestamp_ms < 2**63:  # Kafka has other meanings for negative timestamps
        raise ValueError("is before 1970, or further in the future than Kafka's times go")
    return timestamp_ms


def parse_time(given: str) -> int | None:
    """The time in ms since 1970. None if the text is no time."""
    if ago := re.fullmatch(r"-(\d+)([smhd])", given):
        return int(time.time() * 1000) - int(ago[1]) * _UNITS_S[ago[2]] * 1000
    if given.isdecimal():
        return int(given)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _parse_duration(given: str) -> float:
    number, unit = (given[:-1], given[-1]) if given[-1:] in _UNITS_S else (given, "s")
    try:
        seconds = float(number) * _UNITS_S[unit]
    except ValueError:
        raise ValueError("is not a duration: write for example 30s, 5m, 12h or 90d") from None
    if not 0 < seconds < float("inf"):
        raise ValueError("is not a duration above zero")
    return seconds


DURATION = text("DURATION", _parse_duration)
"""A duration in seconds: a number, with a unit or without."""

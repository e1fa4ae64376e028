"""Hours in which notices are held back."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self
from zoneinfo import ZoneInfo

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FORM = re.compile(r"(?:([a-z,]+) +)?(\d\d):(\d\d)-(\d\d):(\d\d)(?: +(\S+))?")
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From the minute `start` of a day to `end`, which is on the next day if it is not after `start`.

    Hours belong to the day (0 is Monday) on which they start. None: all days. `text` is as `parse` takes it.
    """

    text: str
    start: int
    end: int
    days: frozenset[int] | None = None
    zone: tzinfo = UTC

    @classmethod
    def parse(cls, text: str) -> Self:
        """`[DAYS ]HH:MM-HH:MM[ ZONE]`: `sat,sun 22:00-07:00 Europe/Berlin`. Raises `ValueError`."""
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError("must be [DAYS ]HH:MM-HH:MM[ TIME ZONE], as sat,sun 22:00-07:00 Europe/Berlin")
        days, *times, zone = found.groups()
        hours, minutes = map(int, times[::2]), map(int, times[1::2])
        start, end = (60 * hour + minute for hour, minute in zip(hours, minutes, strict=True))
        if max(start, end) > _DAY_MINUTES or any(int(minute) > 59 for minute in times[1::2]):
            raise ValueError("has a time that no day has")
        return cls(text.strip(), start, end, _parse_days(days), _find_zone(zone))

    def hold(self, at_s: float) -> bool:
        """Whether they hold back notices at that time, in seconds since 1970."""
        local = datetime.fromtimestamp(at_s, self.zone)
        minute, is_overnight = 60 * local.hour + local.minute, self.end <= self.start
        if minute >= self.start and (is_overnight or minute < self.end):
            return self._has_day(local)
        return is_overnight and minute < self.end and self._has_day(local - timedelta(days=1))

    def _has_day(self, local: datetime) -> bool:
        return self.days is None or local.weekday() in self.days

    def __str__(self) -> str:
        return self.text


def _parse_days(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    if unknown := [day for day in text.split(",") if day not in _DAYS]:
        raise ValueError(f"has the day {unknown[0]!r}: use {', '.join(_DAYS)}")
    return frozenset(map(_DAYS.index, text.split(",")))


def _find_zone(name: str | None) -> tzinfo:
    if name in (None, "UTC"):
        return UTC
    try:
        return ZoneInfo(str(name))
    except (LookupError, OSError, ValueError):
        raise ValueError(f"has the time zone {name!r}: there is none, or tzdata is not installed") from None

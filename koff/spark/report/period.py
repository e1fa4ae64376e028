"""The period of a report, and the steps in which it is drawn."""

from dataclasses import dataclass
from datetime import UTC, date, datetime

from koff.errors import ConfigError

_STEPS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440)
_MOST_STEPS = 200
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Period:
    """From `since_ms` to before `until_ms`, both since the epoch. Raises ConfigError if it is empty."""

    since_ms: int
    until_ms: int

    def __post_init__(self) -> None:
        if self.since_ms >= self.until_ms:
            since, until = format_iso(self.since_ms), format_iso(self.until_ms)
            raise ConfigError(
                f"the report would end ({until}) before it begins ({since}): check --from and --until"
            )

    @property
    def step_ms(self) -> int:
        """The length of a step: a round one, such that the period has at most about 200 steps."""
        span_min = (self.until_ms - self.since_ms) / 60_000
        for step_min in _STEPS_MIN:
            if span_min / step_min <= _MOST_STEPS:
                return step_min * 60_000
        days = -(-span_min // (1440 * _MOST_STEPS))
        return int(days) * 1440 * 60_000

    @property
    def hourly(self) -> bool:
        """Whether each step is one or more whole hours. Then the rows of `lag_hourly` are enough."""
        return self.step_ms % HOUR_MS == 0

    @property
    def since_day(self) -> date:
        """The first day of the period, in UTC."""
        return to_datetime(self.since_ms).date()

    @property
    def until_day(self) -> date:
        """The last day of the period, in UTC."""
        return to_datetime(self.until_ms - 1).date()


def to_datetime(ms: int) -> datetime:
    """The time as a datetime in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def format_iso(ms: int) -> str:
    """The time as `2026-03-02T10:00:00Z`."""
    return to_datetime(ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_time(ms: int) -> str:
    """The time for people, as `2026-03-02 10:00 UTC`."""
    return to_datetime(ms).strftime("%Y-%m-%d %H:%M UTC")


def format_span(ms: int) -> str:
    """The length of a step as `30 min`, `2 h` or `1 d`. `ms` is a whole number of minutes."""
    minutes = ms // 60_000
    if minutes % 1440 == 0:
        return f"{minutes // 1440} d"
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"

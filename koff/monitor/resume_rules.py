"""When a saved state may be used again, as pure functions. docs/records-format.md 4.2 has the reasons.

A saved state knows nothing of what was written after its stamp. Reading on at its position finds all of that,
unless compaction removed a tombstone meanwhile, or the log is another one by now.
"""

from koff.monitor.moment import Moment
from koff.monitor.saved import Saved

NOTHING_SAVED = "nothing was saved"
"""Why there is no saved state where there is no file. Nothing is wrong then."""
SAFE_PERCENT = 90
"""The part of `delete.retention.ms` that a pause may last. The rest is for reading what was missed."""
CLOCK_ERROR_PERCENT = 10
"""A stamp may be later than now by this part of `delete.retention.ms`: a clock that was set back a little."""
ENDS_CLOCK_ERROR_MS = 10_000
"""How far off the times of a restored history of end offsets may be."""


def is_pause_too_long(pause_ms: float, delete_retention_ms: int) -> bool:
    """Whether tombstones that were written during a pause may be gone after it."""
    # Not `>`: a pause of nan is too long.
    return not pause_ms * 100 <= delete_retention_ms * SAFE_PERCENT


def reason_not_to_resume(
    saved: Saved, *, now: Moment, delete_retention_ms: int, log_start: int, last_stable: int
) -> str | None:
    """Why reading on at the saved position could miss records, or read another log. None if it can not.

    `log_start` and `last_stable` are the present bounds of the partition of `saved`. The reasons name no
    time, so that all partitions which are too old have the same reason.
    """
    pause_ms, position = measure_pause_ms(saved.stamp, now), saved.position
    if pause_ms * 100 < -delete_retention_ms * CLOCK_ERROR_PERCENT:
        return "it was saved at a time that is in the future: a clock was wrong, or is wrong"
    if is_pause_too_long(pause_ms, delete_retention_ms):
        return f"it is so old that tombstones may be gone, with delete.retention.ms {delete_retention_ms}"
    if position < log_start:
        return f"the log starts at {log_start} now, after its position {position}"
    if position > last_stable:
        return f"the log was truncated: it ends at {last_stable}, before its position {position}"
    return None


def reason_not_to_restore_ends(stamp: Moment, *, now: Moment, steady_ms: int) -> str | None:
    """Why the times in a history of end offsets, saved at `stamp`, do not fit the clock of `now`.

    `steady_ms` is now by the wall clock when koff began.
    """
    if abs(now.wall_ms - steady_ms) > ENDS_CLOCK_ERROR_MS:
        return "the clock was set since koff began"
    passed_ms = now.wall_ms - stamp.wall_ms
    if passed_ms < -ENDS_CLOCK_ERROR_MS:
        return "it was saved at a time that is in the future: a clock was wrong, or is wrong"
    by_uptime_ms = (now.at_s - stamp.at_s) * 1000
    if (
        _is_same_boot(stamp, now)
        and by_uptime_ms >= 0
        and abs(passed_ms - by_uptime_ms) > ENDS_CLOCK_ERROR_MS
    ):
        return "the clock was set since it was saved"
    return None


def newest_stamp(one: Moment, other: Moment) -> Moment:
    """The later of two moments: by `at_s` if both are of one boot, else by `wall_ms`."""
    if _is_same_boot(one, other):
        return max(one, other, key=lambda moment: moment.at_s)
    return max(one, other, key=lambda moment: moment.wall_ms)


def measure_pause_ms(since: Moment, now: Moment) -> float:
    """The time between two moments, in ms. Negative only by `wall_ms`, which is used if the boots differ.

    The longer one if both are known: a virtual machine may be paused, and its boot clock with it.
    """
    passed_s, by_wall_ms = now.at_s - since.at_s, now.wall_ms - since.wall_ms
    if _is_same_boot(since, now) and passed_s >= 0:
        return max(passed_s * 1000, by_wall_ms)
    return by_wall_ms


def _is_same_boot(one: Moment, other: Moment) -> bool:
    return one.boot == other.boot != ""  # "" stands for an unknown boot, so for any

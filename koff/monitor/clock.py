"""Reads the clocks of this machine. The only module of the monitor that makes a `Moment`."""

import time
from functools import cache
from pathlib import Path

from koff.monitor.moment import Moment

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_OFFSETS = Path("/proc/self/timens_offsets")


def read_moment() -> Moment:
    """The present moment.

    `at_s` counts on while the machine is suspended, and `boot` is set, so that another process can compare
    them. Where the operating system has no such clock (macOS), or does not tell the boot, `boot` is "".
    """
    return Moment(read_at_s(), time.time_ns() // 1_000_000, _read_boot())


def read_at_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if _read_boot() else time.monotonic()


@cache
def _read_boot() -> str:
    """The id of this boot. "" if it is unknown, or if `CLOCK_BOOTTIME` cannot be read."""
    try:
        time.clock_gettime(time.CLOCK_BOOTTIME)
        return "" if _is_offset() else _BOOT_ID.read_text("ascii").strip()
    except (AttributeError, OSError, ValueError):
        return ""


def _is_offset() -> bool:
    """Whether this process is in a time namespace: its clock differs from that of others of the same boot."""
    try:
        lines = _TIME_OFFSETS.read_text("ascii").splitlines()
    except FileNotFoundError:  # before Linux 5.6
        return False
    return any(word != "0" for line in lines for word in line.split()[1:])

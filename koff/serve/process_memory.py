"""The memory of this process."""

from __future__ import annotations

import resource
from pathlib import Path

_STATM = Path("/proc/self/statm")


def read_memory_bytes() -> int | None:
    """The resident memory. None where the system does not say it (not Linux)."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None

"""glibc's malloc, set up for a process that runs long: what is freed goes back to the system."""

from __future__ import annotations

import ctypes
import os

# From malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1536 << 10
"""Larger blocks go back to the system. While a log is read, smaller ones are used again and again, and a
page that comes from the system costs as much as what is done with it."""
_KEPT_BYTES = 8 << 20
"""So much free memory stays with the process at the most, besides what lies between blocks in use."""


def return_freed_memory() -> None:
    """Lets all threads share one arena, and large blocks go back to the system when they are freed.

    By default each thread keeps an arena, and what was freed in it. Call this before threads start. It does
    nothing without glibc, or if the user has set up malloc by `MALLOC_...` or `GLIBC_TUNABLES`.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)

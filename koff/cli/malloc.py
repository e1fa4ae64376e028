"""glibc's malloc, set up for a process that runs long: what is freed goes back to the system."""

from __future__ import annotations

import ctypes
import os

# From malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_RETURNED_BYTES = 128 << 10
"""glibc's own first value, which it would raise as large blocks are freed."""


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
        mallopt(_TRIM_THRESHOLD, _RETURNED_BYTES)
        mallopt(_MMAP_THRESHOLD, _RETURNED_BYTES)

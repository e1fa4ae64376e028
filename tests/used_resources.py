"""Threads, open files and connections of this process: after a test they are what they were before it."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from koff.kafkatest import GUARD, free_ports
from tests.clusters import CLUSTERS

LOOKS, PAUSE_S = 100, 0.02
"""Threads of librdkafka end a little after `close` has returned. On a free machine, these looks take 2 s; on
a busy one, longer, as does what they wait for. (In a whole run of the suite, no test waited for 0.2 s.)"""
_THREADS, _FILES = Path("/proc/self/task"), Path("/proc/self/fd")


@contextmanager
def expect_nothing_left() -> Iterator[None]:
    """Fails if there is more after the block than before it: a thread, an open file or a connection."""
    GUARD.unregister("folder", "none")  # the test kit's watcher has a file from its first use on,
    free_ports(1)  # and its search for ports a socket
    CLUSTERS.forget_admins()
    before = count_used()
    yield
    CLUSTERS.forget_admins()
    for _ in range(LOOKS):
        if not (left := count_used() - before):
            return
        time.sleep(PAUSE_S)
    pytest.fail(f"the test leaves behind: {dict(left)}", pytrace=False)


def count_used() -> Counter[str]:
    """How many threads there are by name, files by path, and connections."""
    used: Counter[str] = Counter()
    for thread in _THREADS.iterdir():
        with suppress(OSError):  # it has ended
            used[f"thread {(thread / 'comm').read_text().strip()}"] += 1
    for file in _FILES.iterdir():
        with suppress(OSError):  # it was closed
            used[str(file.readlink()).split(":")[0]] += 1
    return used

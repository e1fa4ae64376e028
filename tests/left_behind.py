"""What a test leaves behind fails that test, not the next one: processes, and threads that are not daemons.

This process takes over the processes that its children leave behind. What a fixture of a module or a session
starts may stay until this fixture ends; so may what it starts later, inside `staying`. Python closes the
files of a `Popen` that nobody waited for when it collects it, so it collects at the end of a test that
started a process. A command that runs within a test may set handlers of signals: they are put back.
"""

import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

_PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 10.0
"""So long after its end, a test's processes and threads may end on their own."""
_ALLOWED = ("resource_tracker", "guard.py", "kafka.Kafka ")
"""Processes that stay: Python's own, that of the test kit, and brokers, which `CLUSTERS` ends."""
_staying: set[object] = set()
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def staying() -> Iterator[None]:
    """Lets stay what is started inside: it belongs to a fixture of a module or a session, which ends it."""
    before = _find_running()
    try:
        yield
    finally:
        _staying.update(_find_running().keys() - before.keys())


class LeftBehind:
    """Compares what there is before and after each test."""

    def __init__(self) -> None:
        self._has_started_process = False
        with suppress(OSError, AttributeError):  # only Linux has it
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        sys.addaudithook(self._notice)

    def _notice(self, event: str, _arguments: Any) -> None:
        if event in ("subprocess.Popen", "os.posix_spawn", "os.fork"):
            self._has_started_process = True

    def pytest_collection_finish(self) -> None:
        gc.freeze()  # what was imported stays: each collection is quicker without it

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        with staying():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._before, self._has_started_process = set(_find_running()), False
        handlers = {number: signal.getsignal(number) for number in _HANDLED}
        try:
            return (yield)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        yield
        if self._has_started_process:
            gc.collect()
            gc.freeze()  # the next collection need not look at it again
        deadline = time.monotonic() + PATIENCE_S
        while left := self._find_left():
            if time.monotonic() > deadline:
                _staying.update(left)
                _kill_processes(left)
                pytest.fail(f"the test leaves behind: {', '.join(sorted(left.values()))}", pytrace=False)
            time.sleep(0.05)
        if self._has_started_process:
            self._forget_dead_orphans()

    def _forget_dead_orphans(self) -> None:
        """Waits for the processes that this process took over and that have ended: nobody else does."""
        for pid in set(_list_children()) - self._before - _staying:
            if _has_ended(pid):
                with suppress(ChildProcessError):
                    os.waitpid(int(pid), os.WNOHANG)

    def _find_left(self) -> dict[object, str]:
        running = _find_running()
        return {key: running[key] for key in running.keys() - self._before - _staying}


def _find_running() -> dict[object, str]:
    """The children of this process and its threads, each with a description."""
    found: dict[object, str] = {
        thread: f"thread {thread.name}" for thread in threading.enumerate() if not thread.daemon
    }
    for pid in _list_children():
        command = _read(Path("/proc", pid, "cmdline")).replace("\0", " ").strip()
        if not (_has_ended(pid) or any(word in command for word in _ALLOWED)):
            found[pid] = f"process {pid}: {command[:300]}"
    return found


def _has_ended(pid: str) -> bool:
    return _read(Path("/proc", pid, "stat")).rpartition(")")[2][:2] in ("", " Z")


def _kill_processes(left: Iterable[object]) -> None:
    for pid in (int(each) for each in left if isinstance(each, str)):
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _list_children() -> list[str]:
    tasks = Path("/proc/self/task")
    return [
        pid
        for task in (tasks.iterdir() if tasks.exists() else ())
        for pid in _read(task / "children").split()
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""

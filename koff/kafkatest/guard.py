"""Leaves nothing behind: child processes and folders that go when this process goes, however it ends.

A small watcher process holds the read end of a pipe. While we live, it hears which process groups and
folders are ours; when the pipe closes it kills and removes what is left. So that even SIGKILL of a test
run leaves no broker. The watcher runs this file as a script, on the standard library alone.
"""

# ruff: noqa: S603 - it runs what its callers name

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

_PATIENCE_S = 5.0


class Guard:
    """One watcher a process, started at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watcher: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def keep(self, kind: str, value: object) -> None:
        """Hands a `group` (process group id) or a `folder` (path) to the watcher."""
        self._tell(f"+{kind} {value}\n")

    def release(self, kind: str, value: object) -> None:
        """Takes back what `keep` handed over, since it is gone."""
        self._tell(f"-{kind} {value}\n")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._watcher is None or self._owner != os.getpid():  # a fork is a process of its own
                self._owner = os.getpid()
                self._watcher = subprocess.Popen(
                    [sys.executable, "-S", "-E", __file__],
                    stdin=subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C on a terminal must not reach it
                )
            assert self._watcher.stdin is not None
            try:
                self._watcher.stdin.write(line.encode())
                self._watcher.stdin.flush()
            except BrokenPipeError:  # somebody ended the watcher; whoever is orderly still cleans up
                pass


GUARD = Guard()


def spawn(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """`subprocess.Popen` in a process group of its own, which `GUARD` kills if we die before `reap`."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    GUARD.keep("group", process.pid)
    return process


def reap(
    process: subprocess.Popen[bytes], *, signal_number: int = signal.SIGKILL, timeout_s: float = 30.0
) -> int:
    """The exit code of a process of `spawn`, after ending its whole group and closing its pipes.

    Sends `signal_number`, and SIGKILL when that did not end it within `timeout_s`.
    """
    if process.poll() is None:
        _signal_group(process.pid, signal_number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        _signal_group(process.pid, signal.SIGKILL)  # the rest of the group, or a leader that would not go
    code = process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        _close(pipe)
    GUARD.release("group", process.pid)
    return code


def _signal_group(group: int, signal_number: int) -> None:
    try:
        os.killpg(group, signal_number)
    except ProcessLookupError:
        pass


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        pipe.close()


def _watch(lines: IO[str]) -> None:
    """Until `lines` ends, remembers what is ours; then kills the groups and removes the folders."""
    ours: dict[str, set[str]] = {"group": set(), "folder": set()}
    for line in lines:
        kind, value = line[1:].rstrip("\n").split(" ", 1)
        if line[0] == "+":
            ours[kind].add(value)
        else:
            ours[kind].discard(value)
    for group in ours["group"]:
        _signal_group(int(group), signal.SIGKILL)
    for folder in ours["folder"]:
        _remove(Path(folder))


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S  # a killed process may write for a moment more
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


if __name__ == "__main__":
    _watch(sys.stdin)

"""Removes child processes and folders when this process ends, however it ends.

A small watcher process holds the read end of a pipe. This process writes to the pipe which process groups and
folders it has made. When the pipe closes, the watcher kills and removes what is left. So even a SIGKILL of a
test run leaves no broker behind. The watcher runs this file as a script, with the standard library alone.
"""

# ruff: noqa: S603 - it runs the commands that its callers pass

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

_REMOVE_S = 60.0


class Guard:
    """Starts one watcher for each process, at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watcher = -1  # the write end of its pipe; a file or a `Popen` would warn at the end
        self._owner_pid = 0

    def register(self, kind: str, value: object) -> None:
        """Hands a `group` (process group id) or a `folder` (path) to the watcher."""
        self._send(f"+{kind} {value}\n")

    def unregister(self, kind: str, value: object) -> None:
        """Takes a group or a folder back from the watcher, since it is gone."""
        self._send(f"-{kind} {value}\n")

    def _send(self, line: str) -> None:
        with self._lock:
            # A forked child starts a watcher of its own: the parent's watcher acts at the parent's end only.
            if self._owner_pid != os.getpid():
                self._owner_pid = os.getpid()
                read_end, self._watcher = os.pipe()
                os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-S", "-E", __file__],
                    os.environ,
                    file_actions=[(os.POSIX_SPAWN_DUP2, read_end, 0)],
                    setsid=True,  # Ctrl-C on a terminal must not reach it
                )
                os.close(read_end)
            try:
                os.write(self._watcher, line.encode())
            except BrokenPipeError:  # the watcher was killed; an orderly end of this process still cleans up
                pass


GUARD = Guard()


def spawn(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """`subprocess.Popen` in a process group of its own, which `GUARD` kills if this process ends first.

    The caller ends the process with `reap`.
    """
    process = subprocess.Popen(command, start_new_session=True, **options)
    GUARD.register("group", process.pid)
    return process


def reap(
    process: subprocess.Popen[bytes], *, signal_number: int = signal.SIGKILL, timeout_s: float = 30.0
) -> int:
    """The exit code of a process of `spawn`, after ending its whole group and closing its pipes.

    Sends `signal_number`, then SIGKILL to the rest of the group, after `timeout_s` at the latest. If the
    process ended before the call, its group gets no signal.
    """
    if process.poll() is None:
        _signal_group(process.pid, signal_number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        # Kill the rest of the group, and the leader if it ignored the signal.
        _signal_group(process.pid, signal.SIGKILL)
    code = process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        _close(pipe)
    GUARD.unregister("group", process.pid)
    return code


def freeze(process: subprocess.Popen[bytes]) -> None:
    """Stops a process of `spawn` until it gets SIGCONT. Returns when all of its threads have stopped.

    One thread takes the signal, and stops the others: on a busy machine, these go on for a while.
    """
    if process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _signal_group(group: int, signal_number: int) -> None:
    try:
        os.killpg(group, signal_number)
    except ProcessLookupError:
        pass


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        pipe.close()


def _run_watcher(lines: IO[str]) -> None:
    """Reads registrations until `lines` ends; then kills the groups and removes the folders."""
    registered: dict[str, set[str]] = {"group": set(), "folder": set()}
    for line in lines:
        kind, value = line[1:].rstrip("\n").split(" ", 1)
        if line[0] == "+":
            registered[kind].add(value)
        else:
            registered[kind].discard(value)
    for group in registered["group"]:
        _signal_group(int(group), signal.SIGKILL)
    for folder in registered["folder"]:
        _remove_folder(Path(folder))


def _remove_folder(folder: Path) -> None:
    deadline = time.monotonic() + _REMOVE_S  # a killed process may write for a moment more
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


if __name__ == "__main__":
    _run_watcher(sys.stdin)

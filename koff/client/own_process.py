"""Calls a function in a process of its own, for library code that may crash or hang.

The call and its result travel on a pair of connected sockets, so foreign code that prints or reads does not
disturb them. The new process ends as soon as koff's end of the pair is closed. The operating system closes
it when koff ends, in whatever way koff ends.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from koff.errors import ConnectError, KoffError, copy_error

T = TypeVar("T")
_CODE = "from koff.client.own_process import main; main()"
_SIZE_BYTES = 8
"""A message is a pickled object. Its size comes first, in so many bytes."""


def call_in_own_process(function: Callable[..., T], *args: Any, timeout_s: float, **kwargs: Any) -> T:
    """The result of the function, which a new Python process imports and calls.

    The function, its arguments and its result have to be picklable. Raises the function's `KoffError`, and
    `ConnectError` if the process does not start, crashes, or does not end within `timeout_s`. The process has
    ended when this returns or raises.
    """
    name, deadline_s = function.__name__, time.monotonic() + timeout_s
    try:
        with _start_process() as (process, connection):
            # Not as arguments of the process: there may be secrets
            _send(connection, pickle.dumps((function, args, kwargs)), deadline_s)
            message = _receive(connection, deadline_s)
            code = process.wait(_time_left_s(deadline_s)) if message is None else 0
    except (TimeoutError, subprocess.TimeoutExpired):
        raise ConnectError(f"{name} did not end within {timeout_s:g} s and was killed") from None
    except OSError as error:
        raise ConnectError(f"cannot start a process for {name}: {error.strerror or error}") from error
    if message is None:
        raise ConnectError(f"{name} has crashed ({_describe_exit(code)})")
    result, koff_error = pickle.loads(message)  # noqa: S301 (written by koff, in `main`)
    if koff_error is not None:
        raise copy_error(koff_error)
    return result  # type: ignore[no-any-return]  # that of the function


def main() -> None:
    """What the new process runs: receives a call, and sends what the function returns or raises."""
    code = 1
    try:
        connection = socket.socket(fileno=int(sys.argv[1]))
        call = _receive(connection)
        if call is not None:
            threading.Thread(target=_end_with_koff, args=(connection,), daemon=True).start()
            _send(connection, _carry_out(call))
            code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)  # Python's own exit would wait for threads that the function has left behind


@contextmanager
def _start_process() -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Yields the new process and the connection to it. At the end the process is killed, if it still runs."""
    koffs_end, other_end = socket.socketpair()
    with koffs_end:
        with other_end:
            process = subprocess.Popen(  # noqa: S603 (koff itself)
                # -P: no modules of the current directory
                [sys.executable, "-P", "-c", _CODE, str(other_end.fileno())],
                pass_fds=[other_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                start_new_session=True,  # Ctrl-C is for koff, not for this process
            )
        try:
            yield process, koffs_end
        finally:
            process.kill()
            process.wait()


def _end_with_koff(connection: socket.socket) -> None:
    """Ends this process when koff has closed its end of the connection, on which nothing more is sent."""
    with suppress(OSError):
        connection.recv(1)
    os._exit(1)


def _carry_out(call: bytes) -> bytes:
    function, args, kwargs = pickle.loads(call)  # noqa: S301 (written by the parent process)
    try:
        return pickle.dumps((function(*args, **kwargs), None))
    except KoffError as error:
        return pickle.dumps((None, error))


def _send(connection: socket.socket, message: bytes, deadline_s: float | None = None) -> None:
    """Sends a message, or drops it if the other process has ended. Raises `TimeoutError`."""
    connection.settimeout(_time_left_s(deadline_s))
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(len(message).to_bytes(_SIZE_BYTES, "big") + message)


def _receive(connection: socket.socket, deadline_s: float | None = None) -> bytes | None:
    """The next message. None if the other process ends before. Raises `TimeoutError`."""
    size = _receive_bytes(connection, _SIZE_BYTES, deadline_s)
    return None if size is None else _receive_bytes(connection, int.from_bytes(size, "big"), deadline_s)


def _receive_bytes(connection: socket.socket, count: int, deadline_s: float | None) -> bytes | None:
    received = bytearray(count)
    rest = memoryview(received)
    while rest:
        connection.settimeout(_time_left_s(deadline_s))
        try:
            new = connection.recv_into(rest)
        except ConnectionResetError:
            return None
        if not new:
            return None
        rest = rest[new:]
    return bytes(received)


def _time_left_s(deadline_s: float | None) -> float | None:
    """None: without limit. At least a millisecond, for to a socket 0 is "do not wait"."""
    return None if deadline_s is None else max(deadline_s - time.monotonic(), 0.001)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # a signal without a name, such as real-time signals
        return f"signal {-code}"

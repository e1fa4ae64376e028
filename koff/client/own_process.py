"""Calls a function in a process of its own, for library code that may crash or hang."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from koff.errors import ConnectError, KoffError

T = TypeVar("T")
_CODE = "from koff.client.own_process import main; main()"


def call_in_own_process(function: Callable[..., T], *args: Any, timeout_s: float, **kwargs: Any) -> T:
    """The result of the function, which a new Python process imports and calls.

    The function, its arguments and its result have to be picklable. Raises the function's `KoffError`, and
    `ConnectError` if the process crashes, or does not end within `timeout_s` (it is then killed).
    """
    name = function.__name__
    try:
        ended = subprocess.run(  # noqa: S603 (koff itself)
            [sys.executable, "-P", "-c", _CODE],  # -P: no modules of the current directory
            input=pickle.dumps((function, args, kwargs)),  # not as arguments: there may be secrets
            stdout=subprocess.PIPE,
            timeout=timeout_s,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,  # Ctrl-C is for koff, not for this process
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConnectError(f"{name} did not end within {timeout_s:g} s and was killed") from None
    if ended.returncode:
        raise ConnectError(f"{name} has crashed ({_describe_exit(ended.returncode)})")
    result = pickle.loads(ended.stdout)  # noqa: S301 (written by koff, in `main`)
    if isinstance(result, KoffError):
        raise result
    return result  # type: ignore[no-any-return]  # that of the function


def main() -> None:
    """What the new process runs: reads a call from standard input, writes its result to standard output."""
    function, args, kwargs = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 (written by the parent process)
    try:
        result = function(*args, **kwargs)
    except KoffError as error:
        result = error
    sys.stdout.buffer.write(pickle.dumps(result))


def _describe_exit(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"

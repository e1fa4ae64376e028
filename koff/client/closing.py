"""`Closing`: the context manager that all classes with a `close` share. Its objects belong to one process.

A forked process has no thread of its parent, and locks that such a thread held are never released there. Its
sockets are those of the parent: both would read parts of the same responses. So a forked process may neither
use nor close what its parent made.
"""

import os
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, Self

from koff.errors import OtherProcess

_process_id = os.getpid()


def _note_fork() -> None:
    global _process_id  # noqa: PLW0603  # the one place: a call of `getpid` for each message would be slow
    _process_id = os.getpid()


os.register_at_fork(after_in_child=_note_fork)


class Closing:
    """A context manager that closes itself at the end of the `with` block."""

    _made_in: int

    def __new__(cls, *_: Any, **__: Any) -> Self:
        self = super().__new__(cls)
        self._made_in = _process_id
        return self

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "close" in vars(cls):
            setattr(cls, "close", _close_in_own_process(vars(cls)["close"]))  # noqa: B010  # mypy knows it as final

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases connections, threads and files. Safe to call twice. No effect in a forked process."""

    @property
    def is_of_other_process(self) -> bool:
        """Whether this is a process that was forked after the object was made."""
        return self._made_in != _process_id

    def check_process(self) -> None:
        """Raises `OtherProcess` in a process that was forked after the object was made."""
        if self._made_in != _process_id:
            raise OtherProcess(
                f"this {type(self).__name__} was made in process {self._made_in}, and this is process "
                f"{_process_id}: make a new one here, after the fork (for example, dial again)"
            )


def _close_in_own_process(close: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(close)
    def close_here(self: Closing, *args: Any, **options: Any) -> Any:
        return None if self.is_of_other_process else close(self, *args, **options)

    return close_here

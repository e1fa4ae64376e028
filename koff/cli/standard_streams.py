"""Standard input, output and error of the koff process: closed, on a full disk, a pipe without a reader."""

import io
import os
import select
import shutil
import sys
from collections.abc import Callable
from typing import Any, TextIO

import click


class OutputError(click.ClickException):
    """Standard output cannot be written. Click prints one line and ends with exit code 1."""


class StandardOutput(io.FileIO):
    """Writes to standard output.

    Raises `OutputError` if a write fails, and click's `Exit` with 0 if the reader of a pipe has ended.
    After that it drops what is written.
    """

    _has_failed = False

    def write(self, data: Any) -> int:
        """Writes all or a part of the bytes. Returns how many."""
        if self._has_failed:
            return len(data)
        try:
            # None: a pipe or terminal that another program has made non-blocking is full
            while (written := super().write(data)) is None:
                select.select([], [self], [])
        except BrokenPipeError:
            self._has_failed = True
            raise click.exceptions.Exit(0) from None
        except OSError as error:
            self._has_failed = True
            raise OutputError(f"write error: {error.strerror}") from error
        return written


class StandardError(io.FileIO):
    """Writes to standard error, and drops what cannot be written: no command fails for lack of a message."""

    def write(self, data: Any) -> int:
        """Writes all or a part of the bytes. Returns how many."""
        try:
            while (written := super().write(data)) is None:
                select.select([], [self], [])
        except OSError:
            return len(data)
        return written


def set_up_standard_streams() -> None:
    """Replaces `sys.stdout` and `sys.stderr`, so that an error in them ends koff well, or not at all."""
    # A closed one must not become the number of a file or a connection that is opened later. The number of
    # standard output is opened so that writing fails, as it does with a closed one.
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        if not _is_open(number):
            os.open(os.devnull, mode)  # gets the lowest number that is free
    sys.stdout = _wrap(sys.stdout, StandardOutput, 1)
    sys.stderr = _wrap(sys.stderr, StandardError, 2)


def find_width() -> int | None:
    """The width of the terminal on standard output; None if that is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def has_terminal() -> bool:
    """Whether all three streams are a terminal that can do more than print.

    The live view reads input, and writes to standard error.
    """
    return all(map(can_erase, (sys.stdin, sys.stdout, sys.stderr)))


def can_erase(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal that can do more than print (TERM=dumb: a shell in an editor)."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _wrap(stream: TextIO | None, new_file: Callable[..., io.FileIO], number: int) -> TextIO:
    """A text stream like the given one (None: Python found it closed)."""
    file = new_file(number, "w", closefd=False)
    is_line_buffered = number == 2 or file.isatty() or bool(getattr(stream, "write_through", False))
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=stream.encoding if stream else "utf-8",
        errors="backslashreplace",  # a locale may lack the characters of a name
        line_buffering=is_line_buffered,
    )

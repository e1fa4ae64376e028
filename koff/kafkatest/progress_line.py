"""Progress as one line: rewritten in place on a terminal, printed now and then elsewhere."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

Progress = Callable[[str], None]
_REPEAT_S = 5.0


class ProgressLine:
    """Shows the text of each call; a context manager.

    On a terminal each text replaces the one before, and the last text stays when `with` ends. Elsewhere, a
    text is printed when its subject (up to the first colon) is new, and otherwise every five seconds.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._in_place = self._stream.isatty()
        self._subject = ""
        self._shown = ""
        self._printed_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown and self._in_place:
            self._stream.write("\n")
            self._stream.flush()
        self._shown = ""

    def __call__(self, text: str) -> None:
        subject = text.split(":", 1)[0]
        if self._in_place:
            # A new subject gets a new line; else go to the start of the line and erase it.
            begin = "\n" if self._shown and subject != self._subject else "\r\x1b[K"
            self._stream.write(f"{begin}{text}")
        elif subject != self._subject or time.monotonic() - self._printed_at >= _REPEAT_S:
            self._stream.write(f"{text}\n")
            self._printed_at = time.monotonic()
        self._subject, self._shown = subject, text
        self._stream.flush()

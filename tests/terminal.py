"""koff in a terminal of its own, as a person has it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from koff.kafkatest import wait_until
from tests.koff_process import KOFF

_SEQUENCE = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1bP.*?\x1b\\", re.DOTALL)


class Terminal:
    """koff in a terminal of its own. `text` is all that it wrote, without control sequences."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process, self._master, self.written = process, master, b""
        self._reading = threading.Thread(target=self._read, daemon=True, name="terminal")
        self._reading.start()

    def _read(self) -> None:
        while True:
            select.select([self._master], [], [])
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the other end was closed
                return
            if not data:
                return
            self.written += data

    @property
    def text(self) -> str:
        return _SEQUENCE.sub(b" ", self.written).decode(errors="replace")

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.text, timeout_s=120, what=f"{text!r} in the terminal")

    def wait_for_end(self) -> int:
        """The exit code, once all that koff wrote is in `written`."""
        code = self.process.wait(timeout=60)
        self._reading.join(60)  # it ends when nobody has the terminal open any more
        return code


@contextmanager
def koff_in_terminal(*args: str, env: dict[str, str] | None = None) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    process = subprocess.Popen(
        [*KOFF, *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", **(env or {})},
    )
    os.close(slave)
    terminal = Terminal(process, master)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait()
        os.close(master)

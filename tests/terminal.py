"""koff in a terminal of its own, as a person has it."""

import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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


HAS_TMUX = shutil.which("tmux") is not None


class Tmux:
    """A shell in a terminal of tmux, as a person has it: what is on the screen, keys, another size."""

    def __init__(self, socket: str, folder: Path, width: int, height: int) -> None:
        self._command = ("tmux", "-u", "-L", socket, "-f", "/dev/null")
        self._env = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "TMUX_TMPDIR": str(folder)}
        self._env.pop("TMUX", None)  # this run may be in a tmux itself
        self._env |= {"COLUMNS": "80", "LINES": "24"}  # the size is the terminal's, whatever these say
        self._call(
            "new-session",
            "-d",
            "-c",
            str(folder),
            "-x",
            str(width),
            "-y",
            str(height),
            "env PS1='$ ' HISTFILE= sh",
        )

    def _call(self, *args: str) -> str:
        run = subprocess.run(
            [*self._command, *args], env=self._env, check=True, capture_output=True, text=True, timeout=60
        )
        return run.stdout

    def close(self) -> None:
        """Ends the server, and with it all that runs in it."""
        self._call("kill-server")

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, without blanks at their ends."""
        return self._call("capture-pane", "-p").splitlines()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def read(self, variable: str) -> str:
        """A format of tmux, such as `cursor_flag`."""
        return self._call("display-message", "-p", f"#{{{variable}}}").strip()

    def press(self, *keys: str) -> None:
        """Keys as tmux names them, such as `Enter` and `C-c`."""
        self._call("send-keys", *keys)

    def type_line(self, text: str) -> None:
        self._call("send-keys", "-l", text)
        self.press("Enter")

    def start_koff(self, *args: str) -> None:
        """Types the command. The shell says the exit code when koff has ended."""
        self.type_line(f"clear; {shlex.join([*KOFF, *args])}; echo code=$?")

    def resize(self, width: int, height: int) -> None:
        self._call("resize-window", "-x", str(width), "-y", str(height))

    def copy_output(self, file: Path) -> None:
        """From now on, all that is written to the terminal also goes into the file."""
        self._call("pipe-pane", f"cat >{shlex.quote(str(file))}")

    def wait_for(self, text: str) -> None:
        self.wait_until(lambda: text in self.text, what=repr(text))

    def wait_until(self, condition: Callable[[], object], *, what: str) -> None:
        """Waits for the condition. A failure shows the screen."""
        try:
            wait_until(lambda: bool(condition()), timeout_s=120, what=what)
        except TimeoutError as error:
            raise AssertionError(f"{error}; the screen:\n{self.text}") from error


@contextmanager
def run_tmux(folder: Path, *, width: int = 80, height: int = 24) -> Iterator[Tmux]:
    """A terminal on a server of its own."""
    terminal = Tmux(f"koff-{os.getpid()}", folder, width, height)
    try:
        terminal.wait_for("$")
        yield terminal
    finally:
        terminal.close()

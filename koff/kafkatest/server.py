"""What the servers of the test kit share: a process to kill and freeze, and a start in a folder."""

import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from koff.kafkatest.guard import GUARD, freeze, reap, spawn
from koff.kafkatest.java import KafkaTestError

_ATTEMPTS = 3  # another process may take a port between the search for free ports and the start
_TAIL_LINES = 30


class ServerProcess:
    """A server in a process of its own, which logs to `logs`: its output goes to the last of them."""

    def __init__(self, name: str, *logs: Path) -> None:
        self.name = name
        self._logs = logs
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def pid(self) -> int | None:
        """The server's process id, or None while it does not run."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        """Whether the server's process runs, paused or not."""
        return self._process is not None and self._process.poll() is None

    def run(self, command: Sequence[str]) -> None:
        """Starts the process, without waiting until the server responds."""
        if self.running:
            raise KafkaTestError(f"{self.name} runs already, as process {self.pid}")
        self._process = self.spawn(command)

    def spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """A process whose output is logged; the caller ends it with `reap`."""
        with self._logs[-1].open("ab") as output:
            return spawn(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def check_running(self) -> None:
        """Raises `KafkaTestError`, with the end of the server's log, when its process has ended."""
        if not self.running:
            raise KafkaTestError(self.describe_end())

    def describe_end(self) -> str:
        """The exit code of the server's process, which does not run any more, and the end of its log."""
        code = self._process.returncode if self._process else None
        return f"{self.name} ended with code {code}:\n{self.tail()}"

    def stop(self, timeout_s: float = 60.0) -> None:
        """Ends the server cleanly (SIGTERM), by SIGKILL when that takes longer than `timeout_s`."""
        self.resume()  # a paused process does not act on SIGTERM
        self._end(signal.SIGTERM, timeout_s)

    def begin_stop(self) -> None:
        """Sends SIGTERM and does not wait: for a caller that stops several servers at the same time."""
        self.resume()
        self._send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the server by SIGKILL, like a crash."""
        self._end(signal.SIGKILL, 30.0)

    def pause(self) -> None:
        """Freezes the server (SIGSTOP): connections stay open, and the server does not respond."""
        if self._process is not None:
            freeze(self._process)
            self._paused = True

    def resume(self) -> None:
        """Resumes the server after `pause`."""
        if self._paused:
            self._send_signal(signal.SIGCONT)
            self._paused = False

    def tail(self) -> str:
        """The last lines of the server's logs."""
        lines: list[str] = []
        for path in self._logs:
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join(lines) or "(it logged nothing)"

    def _send_signal(self, number: int) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def _end(self, signal_number: int, timeout_s: float) -> None:
        if self._process is not None:
            reap(self._process, signal_number=signal_number, timeout_s=timeout_s)
        self._process, self._paused = None, False


Server = TypeVar("Server", bound=ServerProcess)


class LocalServers(ABC, Generic[Server]):
    """Servers on loopback, in a `folder` of their own, which run inside `with`.

    `stop` removes their data, and so does the end of this process, however it ends.
    """

    folder: Path | None = None
    servers: tuple[Server, ...] = ()

    def __enter__(self) -> Self:
        self._start_in_folder()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends all servers and removes their data. Does nothing when they are stopped already."""
        self.kill()  # a clean stop would flush data that is deleted below
        self.servers = ()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            GUARD.unregister("folder", self.folder)
            self.folder = None

    def kill(self) -> None:
        """Ends all servers by SIGKILL, like a crash; their data stays."""
        for server in self.servers:
            server.kill()

    def pause(self) -> None:
        """Freezes all servers: connections stay open, and no server responds."""
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        """Resumes all servers after `pause`."""
        for server in self.servers:
            server.resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keeps all servers frozen inside `with`."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def tail(self) -> str:
        """The last lines of the servers' logs."""
        return "\n".join(server.tail() for server in self.servers)

    def _start_in_folder(self) -> None:
        """Starts the servers in a new folder, again if another process took one of their ports."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self.folder = Path(tempfile.mkdtemp(prefix="koff-kafkatest-"))
                GUARD.register("folder", self.folder)
                self._start_servers(self.folder)
            except BaseException as error:
                # The logs are read before `stop` removes them.
                port_taken = "Address already in use" in self.tail()
                self.stop()
                if isinstance(error, KafkaTestError) and port_taken and attempt < _ATTEMPTS:
                    continue
                raise
            return

    @abstractmethod
    def _start_servers(self, folder: Path) -> None:
        """Sets `servers`, starts them, and waits until they respond. Raises `KafkaTestError`."""

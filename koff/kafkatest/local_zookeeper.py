"""A real Apache ZooKeeper on loopback, alone or beside a `LocalKafka`."""

import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from koff.kafkatest.guard import GUARD, freeze, reap, spawn
from koff.kafkatest.jars import ZOOKEEPER_VERSION, Progress, zookeeper_jars
from koff.kafkatest.java import KafkaTestError, class_command
from koff.kafkatest.ports import HOST, free_ports
from koff.kafkatest.wait import wait_until

_ATTEMPTS = 3  # another process may take a port between the search for a free port and ZooKeeper's start
_TAIL_LINES = 30
_CONFIG = """\
dataDir={folder}/data
clientPort={port}
clientPortAddress={host}
tickTime={tick_ms}
maxClientCnxns=0
admin.enableServer=false
"""


class LocalZooKeeper:
    """One ZooKeeper server, which runs inside `with`.

    Sessions last 2 to 20 ticks of `tick_ms`. `config` are further lines of zoo.cfg, and `options` are the
    JVM's. The server can be killed, paused, and started again on the same
    data and port. `stop` removes the data, and so does the end of this process, however it ends.
    """

    def __init__(
        self,
        *,
        tick_ms: int = 500,
        config: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        version: str = ZOOKEEPER_VERSION,
        timeout_s: float = 60.0,
        progress: Progress | None = None,
    ) -> None:
        self.port = 0
        self.folder: Path | None = None
        self._tick_ms = tick_ms
        self._config, self._options = dict(config or {}), options
        self._version = version
        self._timeout_s = timeout_s
        self._progress = progress
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    def __enter__(self) -> Self:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start_once()
            except BaseException as error:
                # The log is read before `stop` removes it.
                port_taken = "Address already in use" in self.tail()
                self.stop()
                if isinstance(error, KafkaTestError) and port_taken and attempt < _ATTEMPTS:
                    continue
                raise
            break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def hosts(self) -> str:
        """The address for clients, "host:port"."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the server's process runs, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server again on its data and port; returns when it responds."""
        assert self.folder is not None
        if self.running:
            raise KafkaTestError("the local ZooKeeper runs already")
        options = ["-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *self._options]
        command = class_command(
            zookeeper_jars(self._version, self._progress),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(self.folder / "zoo.cfg"),
            options=options,
        )
        with self._log.open("ab") as output:
            self._process = spawn(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=self.folder
            )
        wait_until(self._is_serving, timeout_s=self._timeout_s, what="the local ZooKeeper to respond")

    def stop(self) -> None:
        """Ends the server and removes its data. Does nothing when the server is stopped already."""
        self.kill()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            GUARD.unregister("folder", self.folder)
            self.folder = None

    def kill(self) -> None:
        """Ends the server by SIGKILL, like a crash; its data stays for `start`."""
        if self._process is not None:
            reap(self._process)
        self._process, self._paused = None, False

    def restart(self) -> None:
        """Kills the server and starts it again, on the same data and port."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Freezes the server (SIGSTOP): connections stay open, and the server does not respond."""
        if self._process is not None:
            freeze(self._process)
            self._paused = True

    def resume(self) -> None:
        """Resumes the server after `pause`."""
        if self._paused and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        self._paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keeps the server frozen inside `with`."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def tail(self) -> str:
        """The last lines of the server's output."""
        if self.folder is None or not self._log.exists():
            return "(it logged nothing)"
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    @property
    def _log(self) -> Path:
        assert self.folder is not None
        return self.folder / "zookeeper.log"

    def _start_once(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="koff-zookeeper-"))
        GUARD.register("folder", self.folder)
        (self.port,) = free_ports(1)
        config = _CONFIG.format(folder=self.folder, port=self.port, host=HOST, tick_ms=self._tick_ms)
        config += "".join(f"{name}={value}\n" for name, value in self._config.items())
        (self.folder / "zoo.cfg").write_text(config)
        self.start()

    def _is_serving(self) -> bool:
        if not self.running:
            raise KafkaTestError(f"the local ZooKeeper ended:\n{self.tail()}")
        # The server listens before it serves, so ask for its mode with the four-letter command `srvr`.
        try:
            with socket.create_connection((HOST, self.port), 0.5) as connection:
                connection.sendall(b"srvr")
                return b"Mode: standalone" in connection.makefile("rb").read()
        except OSError:
            return False

"""A real Apache ZooKeeper on loopback, alone or beside a `LocalKafka`."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from koff.kafkatest.jars import ZOOKEEPER_VERSION, zookeeper_jars
from koff.kafkatest.java import class_command
from koff.kafkatest.ports import HOST, free_ports
from koff.kafkatest.progress_line import Progress
from koff.kafkatest.server import LocalServers, ServerProcess
from koff.kafkatest.wait import wait_until

_CONFIG = """\
dataDir={folder}/data
clientPort={port}
clientPortAddress={host}
tickTime={tick_ms}
maxClientCnxns=0
admin.enableServer=false
"""


class LocalZooKeeper(LocalServers[ServerProcess]):
    """One ZooKeeper server, which runs inside `with`.

    Sessions last 2 to 20 ticks of `tick_ms`. `config` are further lines of zoo.cfg, and `options` are the
    JVM's. The server can be killed, paused, and started again on the same data and port.
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
        self._tick_ms = tick_ms
        self._config, self._options = dict(config or {}), options
        self._version = version
        self._timeout_s = timeout_s
        self._progress = progress

    @property
    def hosts(self) -> str:
        """The address for clients, "host:port"."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the server's process runs, paused or not."""
        return any(server.running for server in self.servers)

    def start(self) -> None:
        """Starts the server again on its data and port; returns when it responds."""
        assert self.folder is not None
        options = ["-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *self._options]
        command = class_command(
            zookeeper_jars(self._version, self._progress),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(self.folder / "zoo.cfg"),
            options=options,
        )
        self.servers[0].run(command)
        wait_until(self._is_serving, timeout_s=self._timeout_s, what="the local ZooKeeper to respond")

    def restart(self) -> None:
        """Kills the server and starts it again, on the same data and port."""
        self.kill()
        self.start()

    def _start_servers(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        config = _CONFIG.format(folder=folder, port=self.port, host=HOST, tick_ms=self._tick_ms)
        config += "".join(f"{name}={value}\n" for name, value in self._config.items())
        (folder / "zoo.cfg").write_text(config)
        self.servers = (ServerProcess("the local ZooKeeper", folder / "zookeeper.log"),)
        self.start()

    def _is_serving(self) -> bool:
        self.servers[0].check_running()
        # The server listens before it serves, so ask for its mode with the four-letter command `srvr`.
        try:
            with socket.create_connection((HOST, self.port), 0.5) as connection:
                connection.sendall(b"srvr")
                return b"Mode: standalone" in connection.makefile("rb").read()
        except OSError:
            return False

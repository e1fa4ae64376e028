"""Three real ZooKeeper servers on loopback; the connection of a follower to the leader can be stalled."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from koff.kafkatest import reap, spawn, wait_until
from koff.kafkatest.jars import zookeeper_jars
from koff.kafkatest.java import class_command
from koff.kafkatest.ports import free_ports
from tests.fault_proxy import FaultProxy

SERVERS = (1, 2, 3)


class Ensemble:
    """`hosts` are the addresses for clients. Only inside `run_ensemble`.

    A follower that is cut off serves reads for `sync_limit` ticks before it notices.
    """

    def __init__(self, folder: Path, *, tick_ms: int, sync_limit: int) -> None:
        self._folder = folder
        ports = free_ports(9)
        self._clients = dict(zip(SERVERS, ports[:3], strict=True))
        quorum = dict(zip(SERVERS, ports[3:6], strict=True))
        election = dict(zip(SERVERS, ports[6:], strict=True))
        self._proxies = {(a, b): FaultProxy(quorum[b]) for a in SERVERS for b in SERVERS if a != b}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for server in SERVERS:
            home = folder / str(server)
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(str(server))
            # Each server sees the quorum ports of the others through proxies of its own.
            lines = [
                f"server.{n}=127.0.0.1:{quorum[n] if n == server else self._proxies[server, n].port}"
                f":{election[n]};127.0.0.1:{self._clients[n]}"
                for n in SERVERS
            ]
            settings = [
                f"dataDir={home}/data",
                f"tickTime={tick_ms}",
                "initLimit=50",
                f"syncLimit={sync_limit}",
                "admin.enableServer=false",
                "maxClientCnxns=0",
            ]
            (home / "zoo.cfg").write_text("\n".join([*settings, *lines]))

    @property
    def hosts(self) -> str:
        return ",".join(self.host(server) for server in SERVERS)

    def host(self, server: int) -> str:
        return f"127.0.0.1:{self._clients[server]}"

    def mode(self, server: int) -> str:
        """Of the server: leader or follower; "" while it serves nobody."""
        try:
            with socket.create_connection(("127.0.0.1", self._clients[server]), 1) as connection:
                connection.sendall(b"srvr")
                text = connection.makefile("rb").read().decode()
        except OSError:
            return ""
        return text.partition("Mode: ")[2].partition("\n")[0]

    def find(self, mode: str) -> int:
        return next(server for server in SERVERS if self.mode(server) == mode)

    def start(self, server: int) -> None:
        home = self._folder / str(server)
        command = class_command(
            zookeeper_jars(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(home / "zoo.cfg"),
            options=["-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"],
        )
        with (home / "log").open("ab") as output:
            self._processes[server] = spawn(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=home
            )

    def kill(self, server: int) -> None:
        reap(self._processes.pop(server))

    def wait_until_up(self) -> None:
        wait_until(
            lambda: sorted(map(self.mode, SERVERS)) == ["follower", "follower", "leader"],
            timeout_s=90,
            what="a leader and two followers",
        )

    def cut_off(self, follower: int) -> None:
        """The follower and the leader hear nothing of each other any more; connections stay open."""
        self._proxies[follower, self.find("leader")].stall()

    def close(self) -> None:
        for process in self._processes.values():
            reap(process)
        for proxy in self._proxies.values():
            proxy.close()


@contextmanager
def run_ensemble(*, tick_ms: int = 500, sync_limit: int = 10) -> Iterator[Ensemble]:
    """Three servers that have elected a leader."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="koff-ensemble-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        ensemble = Ensemble(folder, tick_ms=tick_ms, sync_limit=sync_limit)
        stack.callback(ensemble.close)
        for server in SERVERS:
            ensemble.start(server)
        ensemble.wait_until_up()
        yield ensemble

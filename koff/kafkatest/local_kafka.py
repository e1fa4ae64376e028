"""A real Apache Kafka on loopback, for tests and for `koff demo`."""

import base64
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from koff.kafkatest.jars import KAFKA_VERSION, kafka_jars
from koff.kafkatest.java import KafkaTestError
from koff.kafkatest.kafka_cluster import KafkaCluster
from koff.kafkatest.node import KafkaNode
from koff.kafkatest.progress_line import Progress
from koff.kafkatest.server import LocalServers
from koff.kafkatest.settings import Ports, security_properties, server_properties
from koff.kafkatest.tls import make_keystore
from koff.kafkatest.wait import wait_until

USERS = {"admin": "admin-secret", "alice": "alice-secret"}


class LocalKafka(LocalServers[KafkaNode], KafkaCluster):
    """A cluster of `brokers` nodes, which runs between `start` and `stop`, or inside `with`.

    - `version` is 3.3 or newer, with a list of its jars (`kafka_jars` names these, and how to have another).
      With `zookeeper`, the addresses of a ZooKeeper, also 2.8 to 3.9.
    - `config` overrides server.properties, `jvm_options` the kit's options of Java (a heap of 512 MiB).
    - `security` adds two listeners. At `sasl_bootstrap`, `users` (name -> password) log in by SASL/PLAIN, and
      all but admin need ACLs. At `ssl_bootstrap`, clients use TLS and trust `ca_pem`. The plaintext listener
      may always do everything.
    - `proxies` has, for each broker, the port of a TCP proxy before it. Each broker gets one more plaintext
      listener, on the port `nodes[i].ports.proxied`, to which the proxy of node `i` must connect. The address
      that a broker names to clients of this listener is its proxy's, so clients that begin at
      `proxied_bootstrap` reach the brokers through the proxies alone.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        config: Mapping[str, str] | None = None,
        security: bool = False,
        proxies: Sequence[int] = (),
        users: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        zookeeper: str = "",
        jvm_options: Sequence[str] = (),
        timeout_s: float = 90.0,
        progress: Progress | None = None,
    ) -> None:
        self.users = dict(USERS if users is None else users)
        self._brokers = brokers
        self._config = dict(config or {})
        self._security = security
        self._proxies = tuple(proxies)
        self._version, self._zookeeper = version, zookeeper
        self._jvm_options = ("-Xmx512m", *jvm_options)
        self._timeout_s = timeout_s
        self._report: Progress = progress or (lambda _line: None)

    @property
    def nodes(self) -> tuple[KafkaNode, ...]:
        """The brokers; none before the start."""
        return self.servers

    @property
    def bootstrap(self) -> str:
        """The address of the plaintext listener, "host:port[,...]"."""
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def sasl_bootstrap(self) -> str:
        """The address of the SASL listener, "host:port[,...]"."""
        return ",".join(f"127.0.0.1:{node.ports.sasl}" for node in self.nodes)

    @property
    def ssl_bootstrap(self) -> str:
        """The address of the TLS listener, "host:port[,...]"."""
        return ",".join(f"127.0.0.1:{node.ports.ssl}" for node in self.nodes)

    @property
    def proxied_bootstrap(self) -> str:
        """The address of the proxies of `proxies`, "host:port[,...]"."""
        return ",".join(f"127.0.0.1:{port}" for port in self._proxies)

    @property
    def ca_pem(self) -> Path:
        """The certificate that clients of `ssl_bootstrap` trust (`ssl.ca.location`)."""
        assert self.folder is not None
        return self.folder / "ca.pem"

    @property
    def jars(self) -> Path:
        """The folder with the jars of this Kafka's version; fetches them if they are missing."""
        return kafka_jars(self._version)

    def start(self) -> None:
        """Returns when all nodes respond; raises `KafkaTestError`, with the end of their logs, if not."""
        self._start_in_folder()

    def stop(self) -> None:
        """Ends all nodes and removes their data. Does nothing when Kafka is stopped already."""
        super().stop()
        self.__dict__.pop("admin", None)  # the cached client of the old addresses

    def restart(self) -> None:
        """Stops all nodes cleanly and starts them again, on the same data and ports.

        The last node names no brokers for some milliseconds before it stops listening. A client of librdkafka
        that asks just then has forgotten them for good (its issue 5301): `kill` and `start` spare it that.
        """
        # All nodes get SIGTERM before any is awaited: a node that stops alone waits until another one leads.
        for node in self.nodes:
            node.begin_stop()
        for node in self.nodes:
            node.stop()
        for node in self.nodes:
            node.start()
        self.wait_until_up()

    def wait_until_up(self) -> None:
        """Returns when each running node listens and the metadata names them all.

        Raises `KafkaTestError`, with the end of the nodes' logs, if that takes too long.
        """
        started_at = time.monotonic()
        reported_s = 0

        def is_up() -> bool:
            nonlocal reported_s
            seconds = int(time.monotonic() - started_at)
            if seconds > reported_s:
                reported_s = seconds
                self._report(f"starting Apache Kafka {self._version}: {seconds} s")
            running = [node for node in self.nodes if node.running] or self.nodes
            return all(node.is_listening() for node in running) and self.is_up(len(running))

        try:
            wait_until(is_up, timeout_s=self._timeout_s, what="the local Kafka to respond", every_s=0.1)
        except TimeoutError as error:
            raise KafkaTestError(f"{error}; the end of its log:\n{self.tail()}") from error

    def _start_servers(self, folder: Path) -> None:
        # Make the keystore and the nodes.
        jars = kafka_jars(self._version, self._report)
        keystore = folder / "keystore.p12"
        if self._security:
            make_keystore(keystore, self.ca_pem)
        security = security_properties(self.users, keystore) if self._security else {}
        ports = Ports.find_free(self._brokers)
        self.servers = tuple(
            KafkaNode(number, ports[number - 1], folder / f"node-{number}", jars, self._jvm_options)
            for number in range(1, self._brokers + 1)
        )
        config, proxies, zookeeper = self._config, self._proxies, self._zookeeper
        for node in self.nodes:
            node.configure(
                server_properties(node.id, ports, node.data, config, security, proxies, zookeeper=zookeeper)
            )
        if not zookeeper:
            self._format_storage(jars)
        # Start all nodes.
        self._report(f"starting Apache Kafka {self._version}")
        for node in self.nodes:
            node.start()
        self.wait_until_up()

    def _format_storage(self, jars: Path) -> None:
        """Formats the storage of all nodes as Kafka's tool formats it.

        The tool takes a second or more. It runs once for each version: the files that it writes are kept
        beside the jars, and no configuration changes them.
        """
        formatted = jars.with_name(f"{jars.name}-storage")
        cluster_id, nodes = _new_id(), list(self.nodes)
        if not formatted.is_dir():
            self._report("formatting storage (once)")
            first = nodes.pop(0)
            first.format(cluster_id, self._timeout_s)
            _keep(first.data, formatted)
            formatted = first.data
        for node in nodes:
            ids = {"cluster.id": cluster_id, "node.id": str(node.id), "directory.id": _new_id()}
            node.format_like(formatted, ids)


def _keep(folder: Path, kept: Path) -> None:
    """Copies `folder` to `kept`, which appears whole; unless another process was first, or may not write."""
    with suppress(OSError), tempfile.TemporaryDirectory(prefix=f"{kept.name}.", dir=kept.parent) as work:
        shutil.copytree(folder, Path(work) / "storage").rename(kept)


def _new_id() -> str:
    """An id in Kafka's format: 22 characters of URL-safe base64.

    It does not begin with "-": Kafka's storage tool would read it as an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text

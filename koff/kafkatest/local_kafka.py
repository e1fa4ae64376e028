"""A real Apache Kafka on loopback, for tests and for `koff demo`."""

import base64
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from koff.kafkatest.guard import GUARD
from koff.kafkatest.jars import KAFKA_VERSION, Progress, kafka_jars
from koff.kafkatest.java import KafkaTestError
from koff.kafkatest.kafka_cluster import KafkaCluster
from koff.kafkatest.node import KafkaNode
from koff.kafkatest.settings import Ports, security_properties, server_properties
from koff.kafkatest.tls import make_keystore
from koff.kafkatest.wait import wait_until

_ATTEMPTS = 3  # another process may take a port between our looking and Kafka's binding
USERS = {"admin": "admin-secret", "alice": "alice-secret"}


class LocalKafka(KafkaCluster):
    """A KRaft cluster of `brokers` nodes, up between `start` and `stop`, or inside `with`.

    `config` overrides server.properties, `jvm_options` our options of Java (a heap of 512 MiB).
    With `security` there are two more listeners: SASL/PLAIN at `sasl_bootstrap` for `users` (name ->
    password), where everyone but admin needs ACLs; and TLS at `ssl_bootstrap`, whose clients trust
    `ca_pem`. The plaintext listener may always do everything.
    `stop` removes the data; so does the end of this process, however it comes.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        config: Mapping[str, str] | None = None,
        security: bool = False,
        users: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        jvm_options: Sequence[str] = (),
        timeout_s: float = 90.0,
        progress: Progress | None = None,
    ) -> None:
        self.users = dict(USERS if users is None else users)
        self.nodes: tuple[KafkaNode, ...] = ()
        self.folder: Path | None = None
        self._brokers = brokers
        self._config = dict(config or {})
        self._security = security
        self._version = version
        self._jvm_options = ("-Xmx512m", *jvm_options)
        self._timeout_s = timeout_s
        self._say: Progress = progress or (lambda _line: None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def sasl_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.ports.sasl}" for node in self.nodes)

    @property
    def ssl_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.ports.ssl}" for node in self.nodes)

    @property
    def ca_pem(self) -> Path:
        """The certificate that clients of `ssl_bootstrap` trust (`ssl.ca.location`)."""
        assert self.folder is not None
        return self.folder / "ca.pem"

    @property
    def jars(self) -> Path:
        return kafka_jars(self._version)

    def start(self) -> None:
        """Returns when all nodes answer; raises `KafkaTestError`, with their last words, if they do not."""
        jars = kafka_jars(self._version, self._say)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start_once(jars)
            except BaseException as error:
                taken = any("Address already in use" in node.tail() for node in self.nodes)
                self.stop()
                if isinstance(error, KafkaTestError) and taken and attempt < _ATTEMPTS:
                    continue
                raise
            return

    def stop(self) -> None:
        """Ends all nodes and removes their data. Does nothing when it is stopped already."""
        for node in self.nodes:
            node.kill()  # nobody will read the data again, so nobody waits for a flush
        self.nodes = ()
        self.__dict__.pop("admin", None)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            GUARD.release("folder", self.folder)
            self.folder = None

    def restart(self) -> None:
        """Stops all nodes cleanly and starts them again, on the same data and ports."""
        for node in self.nodes:
            node.begin_stop()
        for node in self.nodes:
            node.stop()
        for node in self.nodes:
            node.start()
        self.wait_until_up()

    def kill(self) -> None:
        """Ends all nodes by SIGKILL; their data stays for `nodes[i].start()`."""
        for node in self.nodes:
            node.kill()

    def pause(self) -> None:
        """Freezes all nodes: connections stay open and nothing answers."""
        for node in self.nodes:
            node.pause()

    def resume(self) -> None:
        for node in self.nodes:
            node.resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def wait_until_up(self) -> None:
        """Returns when every running node listens and metadata names them all."""
        began = time.monotonic()
        said = 0

        def up() -> bool:
            nonlocal said
            seconds = int(time.monotonic() - began)
            if seconds > said:
                said = seconds
                self._say(f"starting Apache Kafka {self._version}: {seconds} s")
            running = [node for node in self.nodes if node.running] or self.nodes
            return all(node.listening() for node in running) and self._answers(len(running))

        try:
            wait_until(up, timeout_s=self._timeout_s, what="the local Kafka to answer", every_s=0.1)
        except TimeoutError as error:
            tails = "\n".join(node.tail() for node in self.nodes)
            raise KafkaTestError(f"{error}; it logged last:\n{tails}") from error

    def _start_once(self, jars: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="koff-kafka-"))
        GUARD.keep("folder", self.folder)
        keystore = self.folder / "keystore.p12"
        if self._security:
            make_keystore(keystore, self.ca_pem)
        security = security_properties(self.users, keystore) if self._security else {}
        ports = Ports.free(self._brokers)
        self.nodes = tuple(
            KafkaNode(number, ports[number - 1], self.folder / f"node-{number}", jars, self._jvm_options)
            for number in range(1, self._brokers + 1)
        )
        self._say("formatting storage")
        cluster_id = _new_cluster_id()
        formats = [
            node.begin_format(
                cluster_id, server_properties(node.id, ports, node.data, self._config, security)
            )
            for node in self.nodes
        ]
        for node, tool in zip(self.nodes, formats, strict=True):
            node.end_format(tool, self._timeout_s)
        self._say(f"starting Apache Kafka {self._version}")
        for node in self.nodes:
            node.start()
        self.wait_until_up()


def _new_cluster_id() -> str:
    """A cluster id as Kafka makes them: 22 characters of URL-safe base64, not starting like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text

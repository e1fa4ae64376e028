"""One process of a `LocalKafka`: broker and controller in one JVM."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from koff.kafkatest.guard import reap, spawn
from koff.kafkatest.java import KafkaTestError, java_class
from koff.kafkatest.ports import answers
from koff.kafkatest.settings import LOG4J2, Ports, properties_text

_TAIL = 30


class KafkaNode:
    """A broker that can be stopped, killed, paused and started again on the same data and ports."""

    def __init__(
        self, number: int, ports: Ports, folder: Path, jars: Path, jvm_options: Sequence[str]
    ) -> None:
        self.id = number
        self.ports = ports
        self.folder = folder
        self.log = folder / "kafka.log"
        self._output = folder / "output.log"
        self._jars = jars
        self._jvm_options = jvm_options
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def data(self) -> Path:
        """Where the broker keeps its partitions' segments, a folder each."""
        return self.folder / "data"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports.plain}"

    @property
    def pid(self) -> int | None:
        """The broker's process id, or None while it does not run."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin_format(self, cluster_id: str, properties: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Kafka's storage tool at work on this node's data folder; hand it to `end_format`."""
        self.folder.mkdir(parents=True)
        (self.folder / "server.properties").write_text(properties_text(properties))
        (self.folder / "log4j2.properties").write_text(LOG4J2.format(log=self.log))
        config = str(self.folder / "server.properties")
        return self._java(
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config, options=["-Xmx64m"]
        )

    def end_format(self, tool: subprocess.Popen[bytes], timeout_s: float) -> None:
        try:
            tool.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        if reap(tool) != 0:
            raise KafkaTestError(f"node {self.id}: Kafka could not format its storage:\n{self.tail()}")

    def start(self) -> None:
        """Starts the process, without waiting until it answers."""
        if self.running:
            raise KafkaTestError(f"node {self.id} runs already, as process {self.pid}")
        self._process = self._java(
            "kafka.Kafka", str(self.folder / "server.properties"), options=self._jvm_options
        )

    def listening(self) -> bool:
        """Whether it accepts connections. Raises `KafkaTestError` with its last words when it has died."""
        if not self.running:
            code = self._process.returncode if self._process else None
            raise KafkaTestError(f"node {self.id} of the local Kafka ended with code {code}:\n{self.tail()}")
        return answers(self.ports.plain)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Ends it as an operator would (SIGTERM), by SIGKILL when that takes longer than `timeout_s`."""
        self.resume()
        self._end(signal.SIGTERM, timeout_s)

    def begin_stop(self) -> None:
        """Sends SIGTERM and does not wait: for stopping many at a time."""
        self.resume()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it as a crash would (SIGKILL)."""
        self._end(signal.SIGKILL, 30.0)

    def pause(self) -> None:
        """Freezes it (SIGSTOP): connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._signal(signal.SIGCONT)
            self._paused = False

    def tail(self) -> str:
        """The last lines of what it logged and printed."""
        lines: list[str] = []
        for path in (self.log, self._output):
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-_TAIL:]
        return "\n".join(lines) or "(it logged nothing)"

    def _java(self, class_name: str, *args: str, options: Sequence[str]) -> subprocess.Popen[bytes]:
        options = [
            *options,
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dkafka.logs.dir={self.folder}",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
        ]
        with self._output.open("ab") as output:
            return spawn(
                java_class(self._jars, class_name, *args, options=options),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _signal(self, number: int) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def _end(self, number: int, timeout_s: float) -> None:
        if self._process is not None:
            reap(self._process, signal_number=number, timeout_s=timeout_s)
        self._process = None
        self._paused = False

"""One process of a `LocalKafka`: broker and controller in one JVM."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from koff.kafkatest.guard import freeze, reap, spawn
from koff.kafkatest.java import KafkaTestError, class_command
from koff.kafkatest.ports import is_listening
from koff.kafkatest.settings import LOG4J2, Ports, format_properties

_TAIL_LINES = 30


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
        self.jars = jars
        """Another folder is used from the next start on: so a node is upgraded."""
        self._jvm_options = jvm_options
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def data(self) -> Path:
        """The folder in which the broker keeps a folder of segments for each partition."""
        return self.folder / "data"

    @property
    def bootstrap(self) -> str:
        """The address of the broker's plaintext listener, "host:port"."""
        return f"127.0.0.1:{self.ports.plain}"

    @property
    def pid(self) -> int | None:
        """The broker's process id, or None while it does not run."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        """Whether the broker's process runs, paused or not."""
        return self._process is not None and self._process.poll() is None

    def configure(self, properties: Mapping[str, str]) -> None:
        """Writes the node's configuration into its new folder."""
        self.folder.mkdir(parents=True)
        (self.folder / "server.properties").write_text(format_properties(properties))
        (self.folder / "log4j2.properties").write_text(LOG4J2.format(log=self.log))

    def format(self, cluster_id: str, timeout_s: float) -> None:
        """Formats the node's data by Kafka's storage tool.

        Raises `KafkaTestError`, with the end of the tool's log, when it failed.
        """
        config = str(self.folder / "server.properties")
        tool = self._spawn_java(
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config, options=["-Xmx64m"]
        )
        try:
            tool.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        if reap(tool) != 0:
            raise KafkaTestError(f"node {self.id}: Kafka could not format its storage:\n{self.tail()}")

    def format_like(self, files: Mapping[str, bytes], ids: Mapping[str, str]) -> None:
        """Formats the node's data like that of another node, with these ids in meta.properties."""
        self.data.mkdir()
        for name, content in files.items():
            (self.data / name).write_bytes(content)
        path = self.data / "meta.properties"
        lines = (line.partition("=") for line in path.read_text().splitlines())
        path.write_text("".join(f"{key}{equals}{ids.get(key, value)}\n" for key, equals, value in lines))

    def start(self) -> None:
        """Starts the process, without waiting until the broker responds."""
        if self.running:
            raise KafkaTestError(f"node {self.id} runs already, as process {self.pid}")
        self._process = self._spawn_java(
            "kafka.Kafka", str(self.folder / "server.properties"), options=self._jvm_options
        )

    def is_listening(self) -> bool:
        """Whether the broker accepts connections.

        Raises `KafkaTestError`, with the end of the broker's log, when its process has ended.
        """
        if not self.running:
            raise KafkaTestError(self.describe_end())
        return is_listening(self.ports.plain)

    def describe_end(self) -> str:
        """The exit code of the broker's process, which does not run any more, and the end of its log."""
        code = self._process.returncode if self._process else None
        return f"node {self.id} of the local Kafka ended with code {code}:\n{self.tail()}"

    def stop(self, timeout_s: float = 60.0) -> None:
        """Ends the broker cleanly (SIGTERM), by SIGKILL when that takes longer than `timeout_s`."""
        self.resume()  # a paused process does not act on SIGTERM
        self._end_process(signal.SIGTERM, timeout_s)

    def begin_stop(self) -> None:
        """Sends SIGTERM and does not wait: for a caller that stops several nodes at the same time."""
        self.resume()
        self._send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the broker by SIGKILL, like a crash."""
        self._end_process(signal.SIGKILL, 30.0)

    def pause(self) -> None:
        """Freezes the broker (SIGSTOP): connections stay open, and the broker does not respond."""
        if self._process is not None:
            freeze(self._process)
            self._paused = True

    def resume(self) -> None:
        """Resumes the broker after `pause`."""
        if self._paused:
            self._send_signal(signal.SIGCONT)
            self._paused = False

    def tail(self) -> str:
        """The last lines of the broker's log and of its output."""
        lines: list[str] = []
        for path in (self.log, self._output):
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join(lines) or "(it logged nothing)"

    def _spawn_java(self, class_name: str, *args: str, options: Sequence[str]) -> subprocess.Popen[bytes]:
        options = [
            *options,
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dkafka.logs.dir={self.folder}",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
        ]
        with self._output.open("ab") as output:
            return spawn(
                class_command(self.jars, class_name, *args, options=options),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _send_signal(self, number: int) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def _end_process(self, signal_number: int, timeout_s: float) -> None:
        if self._process is not None:
            reap(self._process, signal_number=signal_number, timeout_s=timeout_s)
        self._process = None
        self._paused = False

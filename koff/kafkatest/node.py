"""One process of a `LocalKafka`: broker and controller in one JVM."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from koff.kafkatest.guard import reap
from koff.kafkatest.java import KafkaTestError, class_command
from koff.kafkatest.ports import is_listening
from koff.kafkatest.server import ServerProcess
from koff.kafkatest.settings import LOG4J2, Ports, format_properties


class KafkaNode(ServerProcess):
    """A broker that can be stopped, killed, paused and started again on the same data and ports."""

    def __init__(
        self, number: int, ports: Ports, folder: Path, jars: Path, jvm_options: Sequence[str]
    ) -> None:
        self.log = folder / "kafka.log"
        super().__init__(f"node {number} of the local Kafka", self.log, folder / "output.log")
        self.id = number
        self.ports = ports
        self.folder = folder
        self.jars = jars
        """Another folder is used from the next start on: so a node is upgraded."""
        self._jvm_options = jvm_options

    @property
    def data(self) -> Path:
        """The folder in which the broker keeps a folder of segments for each partition."""
        return self.folder / "data"

    @property
    def class_list(self) -> Path:
        """The file to which Java writes the names of the classes that it loads; see `archive`."""
        return self.folder / "classes"

    @property
    def bootstrap(self) -> str:
        """The address of the broker's plaintext listener, "host:port"."""
        return f"127.0.0.1:{self.ports.plain}"

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
        command = self._build_command(
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config, options=["-Xmx64m"]
        )
        tool = self.spawn(command)
        try:
            tool.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        if reap(tool) != 0:
            raise KafkaTestError(f"node {self.id}: Kafka could not format its storage:\n{self.tail()}")

    def format_like(self, formatted: Path, ids: Mapping[str, str]) -> None:
        """Formats the node's data like that of another node, with these ids in meta.properties."""
        shutil.copytree(formatted, self.data)
        path = self.data / "meta.properties"
        lines = (line.partition("=") for line in path.read_text().splitlines())
        path.write_text("".join(f"{key}{equals}{ids.get(key, value)}\n" for key, equals, value in lines))

    def start(self) -> None:
        """Starts the process, without waiting until the broker responds."""
        config = str(self.folder / "server.properties")
        options = [f"-XX:DumpLoadedClassList={self.class_list}", *self._jvm_options]
        self.run(self._build_command("kafka.Kafka", config, options=options))

    def is_listening(self) -> bool:
        """Whether the broker accepts connections.

        Raises `KafkaTestError`, with the end of the broker's log, when its process has ended.
        """
        self.check_running()
        return is_listening(self.ports.plain)

    def _build_command(self, class_name: str, *args: str, options: Sequence[str]) -> list[str]:
        options = [
            *options,
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dkafka.logs.dir={self.folder}",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
        ]
        return class_command(self.jars, class_name, *args, options=options)

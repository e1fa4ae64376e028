"""A Kafka that tests talk to, whoever started it: its address, an admin client, Kafka's own tools."""

import functools
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from koff.kafkatest.guard import reap, spawn
from koff.kafkatest.jars import kafka_jars
from koff.kafkatest.java import KafkaTestError, java_class
from koff.kafkatest.wait import wait_until

_TOOL_JVM = ("-Xmx128m",)


class KafkaCluster:
    """A cluster by its plaintext address `bootstrap` ("host:port[,...]")."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    @property
    def jars(self) -> Path:
        """Kafka's jars, fetched when there are none yet."""
        return kafka_jars()

    @functools.cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @property
    def cluster_id(self) -> str:
        return str(self.admin.list_topics(timeout=10).cluster_id)

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        replicas: int = -1,
        config: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> str:
        """The name (made up when None) of a new topic whose partitions all have a leader."""
        name = name or f"t-{uuid.uuid4().hex[:8]}"
        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {})
        )
        self.admin.create_topics([topic], operation_timeout=timeout_s)[name].result(timeout_s)

        def led() -> bool:
            leaders = self.leaders(name)
            return len(leaders) == partitions and min(leaders.values()) >= 0

        wait_until(led, timeout_s=timeout_s, what=f"leaders of {name}")
        return name

    def leaders(self, topic: str) -> dict[int, int]:
        """Each partition's leader by broker id, -1 where there is none; empty while no broker tells."""
        listed = self._listed(topic)
        partitions = listed.topics[topic].partitions if listed else {}
        return {number: partition.leader for number, partition in partitions.items()}

    def producer(self, properties: Mapping[str, Any] | None = None) -> Producer:
        return Producer({**self._client(), **(properties or {})})

    def consumer(self, group: str, properties: Mapping[str, Any] | None = None) -> Consumer:
        """A consumer of `group` that starts at the earliest offset."""
        return Consumer(
            {**self._client(), "group.id": group, "auto.offset.reset": "earliest", **(properties or {})}
        )

    def tool(self, class_name: str, *args: str, timeout_s: float = 60.0) -> str:
        """What Kafka's tool `class_name` printed; raises `KafkaTestError` with its errors when it failed.

        `args` go to the tool as they are: add `--bootstrap-server` yourself.
        """
        running = self.popen_tool(class_name, *args, stderr=subprocess.PIPE)
        try:
            output, errors = running.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise KafkaTestError(
                f"{class_name} {' '.join(args)} did not end within {timeout_s:g} s"
            ) from error
        finally:
            code = reap(running)
        if code != 0:
            said = (errors or output).decode(errors="replace")
            raise KafkaTestError(f"{class_name} {' '.join(args)} ended with code {code}:\n{said}")
        return output.decode()

    def popen_tool(
        self, class_name: str, *args: str, stderr: int | IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """Kafka's tool `class_name` as it runs, standard output piped; end it with `koff.kafkatest.reap`."""
        return spawn(
            java_class(self.jars, class_name, *args, options=_TOOL_JVM),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )

    def _answers(self, brokers: int) -> bool:
        """Whether metadata names `brokers` brokers and a controller."""
        found = self._listed()
        return found is not None and len(found.brokers) >= brokers and found.controller_id >= 0

    def _listed(self, topic: str | None = None) -> Any:
        """Metadata; None while no broker tells, or `admin` has forgotten them all (librdkafka issue 5301)."""
        try:
            return self.admin.list_topics(topic, timeout=2)
        except KafkaException:
            self.__dict__.pop("admin", None)
            return None

    def _client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "log_level": 2}  # no line for each lost connection

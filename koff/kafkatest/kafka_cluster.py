"""A Kafka cluster that tests use, started by them or not: its address, an admin client, Kafka's tools."""

import functools
import itertools
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from koff.kafkatest.guard import reap, spawn
from koff.kafkatest.jars import kafka_jars
from koff.kafkatest.java import KafkaTestError, class_command
from koff.kafkatest.wait import wait_until

_TOOL_JVM = ("-Xmx128m",)


class KafkaCluster:
    """A cluster at the plaintext address `bootstrap` ("host:port[,...]")."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        """The plaintext address, "host:port[,...]"."""
        return self._bootstrap

    @property
    def jars(self) -> Path:
        """The folder with Kafka's jars; fetches them if they are missing."""
        return kafka_jars()

    @functools.cached_property
    def admin(self) -> AdminClient:
        """An admin client, made at the first use."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return str(self.admin.list_topics(timeout=60).cluster_id)

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        replicas: int = -1,
        config: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> str:
        """The name (a random name if None) of a new topic whose partitions all have a leader."""
        name = name or f"t-{uuid.uuid4().hex[:8]}"
        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {})
        )
        attempts = itertools.count()
        wait_until(
            lambda: self._create(topic, next(attempts), timeout_s),
            timeout_s=timeout_s,
            what=f"the creation of {name}",
        )

        def has_leaders() -> bool:
            leaders = self.leaders(name)
            return len(leaders) == partitions and min(leaders.values()) >= 0

        wait_until(has_leaders, timeout_s=timeout_s, what=f"leaders of {name}")
        return name

    def create_topic_again(self, name: str, partitions: int = 1, *, timeout_s: float = 60.0) -> str:
        """Deletes the topic, and creates an empty one of that name. Returns the name."""
        self.admin.delete_topics([name], operation_timeout=timeout_s)[name].result(timeout_s)
        wait_until(lambda: not self.leaders(name), timeout_s=timeout_s, what=f"the deletion of {name}")
        return self.create_topic(name, partitions, timeout_s=timeout_s)

    def delete_before(self, topic: str, partition: int, offset: int, *, timeout_s: float = 60.0) -> None:
        """Deletes the messages of the partition before the offset, as retention does."""
        records = [TopicPartition(topic, partition, offset)]
        for future in self.admin.delete_records(records).values():
            future.result(timeout_s)

    def _create(self, topic: NewTopic, attempt: int, timeout_s: float) -> bool:
        """Whether the topic exists now. The first attempt (0) raises if it existed before."""
        try:
            self.admin.create_topics([topic], operation_timeout=timeout_s)[topic.topic].result(timeout_s)
        except KafkaException as error:
            code = error.args[0].code()
            # librdkafka drops requests to a broker that metadata lacks for a moment.
            if code == KafkaError._DESTROY_BROKER:
                return False
            if attempt == 0 or code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return True

    def leaders(self, topic: str) -> dict[int, int]:
        """The broker id of each partition's leader, -1 for a leaderless partition.

        Empty while no broker responds.
        """
        metadata = self._fetch_metadata(topic)
        partitions = metadata.topics[topic].partitions if metadata else {}
        return {number: partition.leader for number, partition in partitions.items()}

    def producer(self, properties: Mapping[str, Any] | None = None) -> Producer:
        """A new producer of confluent-kafka."""
        return Producer({**self._client_properties(), **(properties or {})})

    def consumer(self, group: str, properties: Mapping[str, Any] | None = None) -> Consumer:
        """A new consumer of confluent-kafka in `group`, which starts at the earliest offset."""
        own = {"group.id": group, "auto.offset.reset": "earliest"}
        return Consumer({**self._client_properties(), **own, **(properties or {})})

    def run_tool(self, class_name: str, *args: str, timeout_s: float = 120.0) -> str:
        """The output of Kafka's tool `class_name`; raises `KafkaTestError` with its errors when it failed.

        `args` go to the tool unchanged: the caller adds `--bootstrap-server`.
        """
        process = self.start_tool(class_name, *args, stderr=subprocess.PIPE)
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise KafkaTestError(
                f"{class_name} {' '.join(args)} did not end within {timeout_s:g} s"
            ) from error
        finally:
            code = reap(process)
        if code != 0:
            printed = (errors or output).decode(errors="replace")
            raise KafkaTestError(f"{class_name} {' '.join(args)} ended with code {code}:\n{printed}")
        return output.decode()

    def start_tool(
        self, class_name: str, *args: str, stderr: int | IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """The running process of Kafka's tool `class_name`, with standard output piped.

        The caller ends it with `koff.kafkatest.reap`.
        """
        return spawn(
            class_command(self.jars, class_name, *args, options=_TOOL_JVM),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )

    def is_up(self, brokers: int) -> bool:
        """Whether the metadata names at least `brokers` brokers and a controller."""
        metadata = self._fetch_metadata()
        return metadata is not None and len(metadata.brokers) >= brokers and metadata.controller_id >= 0

    def _fetch_metadata(self, topic: str | None = None) -> Any:
        """The cluster's metadata; None while no broker responds."""
        try:
            return self.admin.list_topics(topic, timeout=2)
        except KafkaException:
            # The client may have forgotten all brokers (librdkafka issue 5301): make a new one next time.
            self.__dict__.pop("admin", None)
            return None

    def _client_properties(self) -> dict[str, Any]:
        # Log level 2: no line for each lost connection, since tests kill and restart brokers.
        return {"bootstrap.servers": self.bootstrap, "log_level": 2}

"""One Kafka cluster, asked in bulk: its id, its topics, its offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Self

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.admin import OffsetSpec as _Spec  # type: ignore[attr-defined]

from koff.client.closing import Closing
from koff.client.foreign_errors import FATAL_AT_START, connect_error, denied, kafka_error
from koff.client.librdkafka import Silence, new_client
from koff.client.metadata import Metadata, metadata
from koff.errors import Closed, ConnectError


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class OffsetSpec(Enum):
    """Which offset of a partition: its first, or the next one to be written."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Isolation(Enum):
    """What "latest" means: the high watermark, or the last stable offset."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the cluster describes it: its id (22 characters, "" if unknown) and partition count."""

    name: str
    partitions: int
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class ClusterConf:
    """How to reach a cluster. `properties` are librdkafka's, and win over koff's own choices."""

    brokers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # holds secrets
    client_id: str = "koff"
    connect_timeout_s: float = 8.0
    request_timeout_s: float = 10.0

    def librdkafka(self, **defaults: Any) -> dict[str, Any]:
        """The properties for one librdkafka client; `defaults` yield to the user's properties."""
        quiet = {} if "debug" in self.properties else {"log_level": 2}
        return {
            "client.id": self.client_id,
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 5000,
            **quiet,
            **defaults,
            **self.properties,
            "bootstrap.servers": self.brokers,
        }


class Cluster(Closing):
    """A connection for questions about a cluster. A context manager; `close` is safe twice.

    Every method raises `ConnectError` with a line for a human when the cluster does not answer.
    """

    def __init__(self, conf: ClusterConf) -> None:
        self.conf = conf
        self.id = ""
        self._errors: list[KafkaError] = []
        self._admin: AdminClient | None = self._new_admin()
        self._silence = Silence()

    def close(self) -> None:
        """Lets go of the connection."""
        self._admin = None

    def connect(
        self,
        *,
        wait: Callable[[ConnectError], bool] | None = None,
        given_up: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Reaches the cluster and learns its id, or raises `ConnectError` within the connect timeout.

        With `wait`, a failure is handed to it instead, and the next try follows while it says true.
        `given_up` is asked all along: once it says true, the failure so far is raised at once.
        """
        while True:
            try:
                self.id = self._reach(given_up)
            except ConnectError as failure:
                if wait is None or not wait(failure):
                    raise
            else:
                return self

    def saw(self, code: int) -> bool:
        """Whether that error has come up since the last question was asked."""
        return any(error.code() == code for error in self._errors)

    def fetch_topic(self, name: str, *, patience_s: float = 0.0) -> TopicInfo | None:
        """The topic of that name, or None; never creates it. Raises `Denied` if we may not see it.

        Brokers learn of a new topic one after another: with `patience_s` it is asked for that long.
        """
        until = time.monotonic() + patience_s
        while True:
            found = self.describe([name]).get(name)
            if found or time.monotonic() >= until:
                return found
            time.sleep(SPREAD_S / 5)

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of the topics that exist, with their ids, in one request."""
        wanted = list(names)
        if not wanted:
            return {}
        found = {}
        for name, future in self._ask("describe_topics", TopicCollection(wanted)).items():
            try:
                described = future.result(self.conf.request_timeout_s + 1)
            except Exception as failure:
                self._absent(name, failure)
            else:
                found[name] = TopicInfo(name, len(described.partitions), _uuid(described.topic_id))
        self._silence.broken()
        return found

    def topics(self) -> dict[str, int]:
        """All topics that we may see, with their partition counts, in one request."""
        listed = self._listed()
        return {name: len(topic.partitions) for name, topic in listed.topics.items() if topic.error is None}

    def metadata(self) -> Metadata:
        """The brokers, and all topics that we may see with their leaders, in one request."""
        return metadata(self._listed())

    def _listed(self) -> Any:
        try:
            listed = self._client().list_topics(timeout=self.conf.request_timeout_s)
        except KafkaException as failure:
            raise self._failed(failure) from failure
        self._silence.broken()
        return listed

    def topic_configs(self, topic: str) -> dict[str, str]:
        """The topic's settings, its brokers' defaults too. Raises `Denied` without DESCRIBE_CONFIGS."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        future = self._ask("describe_configs", [resource])[resource]
        try:
            told = future.result(self.conf.request_timeout_s + 1)
        except KafkaException as failure:
            error = kafka_error(failure)
            if error and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise denied(topic, self.conf.brokers, "DESCRIBE_CONFIGS") from failure
            raise self._failed(failure) from failure
        return {name: entry.value for name, entry in told.items() if entry.value is not None}

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec | int = OffsetSpec.LATEST,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int | str]:
        """The offset of each partition, or the reason (a text) why that one cannot be had, in one call.

        `spec` may be a time in ms: then the first offset at or after it, -1 where there is none.
        """
        of = _spec(spec)
        level = getattr(IsolationLevel, isolation.name)
        wanted = {confluent_kafka.TopicPartition(topic, partition): of for topic, partition in partitions}
        answers: dict[TopicPartition, int | str] = {}
        if not wanted:
            return answers
        patience_s = timeout_s or self.conf.request_timeout_s
        asked = self._ask("list_offsets", wanted, isolation_level=level, request_timeout=patience_s)
        for at, future in asked.items():
            partition = TopicPartition(at.topic, at.partition)
            try:
                offset = future.result(patience_s + 1).offset
                # A broker that hangs: librdkafka may say OFFSET_INVALID (-1001), and no error.
                answers[partition] = "_TIMED_OUT" if offset == confluent_kafka.OFFSET_INVALID else offset
            except KafkaException as failure:
                error = kafka_error(failure)
                answers[partition] = error.name() if error else str(failure)
        if all(answer in _UNREACHABLE for answer in answers.values()):
            raise self._unreached(was_up=True)
        self._silence.broken()
        if not _STALE.isdisjoint(answers.values()):
            self._listed()  # librdkafka does not look again by itself: the next question is to have an answer
        return answers

    def _reach(self, given_up: Callable[[], bool]) -> str:
        client, deadline = self._client(), time.monotonic() + self.conf.connect_timeout_s
        self._errors.clear()
        patience_s = 2.0
        while True:
            patience_s = min(patience_s, self.conf.connect_timeout_s)
            future, until = client.describe_cluster(request_timeout=patience_s), time.monotonic() + patience_s
            while not future.done() and time.monotonic() < until:
                futures.wait([future], 0.05)
                client.poll(0)
                hopeless = any(error.code() in FATAL_AT_START for error in self._errors)
                if hopeless or time.monotonic() > deadline or given_up():
                    raise self._unreached()
            try:
                return str(future.result(0).cluster_id)
            except (KafkaException, TimeoutError) as failure:
                client.poll(0)
                error = kafka_error(failure)
                if time.monotonic() > deadline or (error and error.name() != "_TIMED_OUT"):
                    raise self._failed(failure) from failure
            # librdkafka asks the controller it was told of, and waits for it even when that has died since;
            # this, which costs more, any broker may answer.
            with suppress(KafkaException):
                known = client.list_topics(timeout=patience_s / 2).cluster_id
                if known:
                    return str(known)
            patience_s *= 2

    def _ask(self, method: str, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        client = self._client()
        client.poll(0)
        self._errors.clear()
        try:
            answer: dict[Any, Any] = getattr(client, method)(
                *args, **{"request_timeout": self.conf.request_timeout_s, **kwargs}
            )
        except KafkaException as failure:
            raise self._failed(failure) from failure
        return answer

    def _absent(self, name: str, failure: BaseException) -> None:
        """A topic that does not exist is no failure; all else is."""
        error = kafka_error(failure)
        code = error.code() if error else None
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise denied(name, self.conf.brokers, "DESCRIBE") from failure
        if code not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            raise self._failed(failure) from failure

    def _failed(self, failure: BaseException) -> ConnectError:
        if self._admin is not None:
            self._admin.poll(0)
        error = kafka_error(failure)
        return self._unreached(*([error] if error else []), was_up=bool(self.id))

    def _unreached(self, *errors: KafkaError, was_up: bool = False) -> ConnectError:
        """Why, in a line. After a long silence the next question goes out by a new client: see `cut_off`."""
        if self._silence.long and self._admin is not None:
            self._admin = self._new_admin()
            self._silence.broken()
        return connect_error(self.conf.brokers, [*self._errors, *errors], was_up=was_up)

    def _new_admin(self) -> AdminClient:
        admin: AdminClient = new_client(AdminClient, self.conf.librdkafka(), error_cb=self._note)
        return admin

    def _client(self) -> AdminClient:
        if self._admin is None:
            raise Closed(f"the connection to {self.conf.brokers} is closed")
        return self._admin

    def _note(self, error: KafkaError) -> None:
        del self._errors[:-50]
        self._errors.append(error)


def _spec(spec: OffsetSpec | int) -> Any:
    if isinstance(spec, int):
        return _Spec.for_timestamp(spec)
    return _Spec.earliest() if spec is OffsetSpec.EARLIEST else _Spec.latest()  # type: ignore[no-untyped-call]


def _uuid(given: object) -> str:
    """A topic id as Kafka prints it: URL-safe base64, which librdkafka's is not."""
    return str(given).rstrip("=").replace("+", "-").replace("/", "_")


SPREAD_S = 1.0
"""How long a new topic may take to be known to all brokers."""
_STALE = frozenset({"FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "_NOENT"})
_UNREACHABLE = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_AUTHENTICATION", "_RESOLVE", "_SSL")

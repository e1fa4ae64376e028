"""`Cluster` fetches the id, the topics and the offsets of one Kafka cluster, many in one call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Self, TypeVar

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.admin import OffsetSpec as _KafkaOffsetSpec

from koff.client import librdkafka, msk_iam
from koff.client.closing import Closing
from koff.client.foreign_errors import (
    FATAL_AT_START,
    convert_foreign_error,
    describe_error,
    extract_kafka_error,
    make_connect_error,
    make_denied_error,
    make_probe_error,
    map_foreign_errors,
)
from koff.client.librdkafka import new_client
from koff.client.log_ins import REFUSALS, check_log_in, note_error, note_success, was_refused
from koff.client.members import parse_member
from koff.client.metadata import Metadata, convert_metadata
from koff.client.probe import Probe
from koff.client.secret_file import read_again
from koff.errors import Closed, ConnectError, Denied, KoffError, LogInRefused, copy_error

T = TypeVar("T")


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


class ListedOffset(NamedTuple):
    """An offset of a partition.

    `leader_epoch` is that of the record before it (of the present leader, for the end offset); -1: unknown.
    """

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the cluster describes it: its id (22 characters, "" if unknown) and partition count."""

    name: str
    partitions: int
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class ClusterConf:
    """How to reach a cluster. `properties` are librdkafka's, and override koff's own choices.

    `connect_timeout_s` is of each connection, with TLS and the log-in, and of the first response of the
    cluster. A property that is a `SecretFile` is read again for each connection. `name` is what messages have
    as `cluster`; by default `brokers`.
    """

    brokers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # holds secrets
    client_id: str = "koff"
    connect_timeout_s: float = 8.0
    request_timeout_s: float = 10.0
    name: str = ""

    @property
    def cluster_name(self) -> str:
        """The name of the cluster, or its brokers if it has none."""
        return self.name or self.brokers

    @property
    def uses_tls(self) -> bool:
        """Whether connections speak TLS."""
        return self.properties.get("security.protocol", "").lower().endswith("ssl")

    def read_properties(self) -> dict[str, str]:
        """The properties, with the present content of files."""
        return read_again(self.properties)

    def librdkafka_properties(self, **defaults: Any) -> dict[str, Any]:
        """The properties for one librdkafka client. The user's properties override `defaults`.

        Raises `ConfigError` if a library or a setting of the log-in is missing.
        """
        # Level 2 (critical): koff reports connection errors itself, and librdkafka would repeat them.
        quiet = {} if "debug" in self.properties else {"log_level": 2}
        properties: dict[str, Any] = self.read_properties()
        if msk_iam.uses_iam(properties):
            msk_iam.check(self.brokers)  # librdkafka would only say that it got no token
            properties = {name: value for name, value in properties.items() if name != "sasl.mechanisms"}
            properties |= {
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": msk_iam.TokenCallback(self.brokers),
            }
        return {
            "client.id": self.client_id,
            # librdkafka allows no less than a second.
            "socket.connection.setup.timeout.ms": max(int(self.connect_timeout_s * 1000), 1000),
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 5000,
            # Otherwise a metadata request of a producer or an admin client for an unknown topic creates it.
            "allow.auto.create.topics": False,
            **quiet,
            **defaults,
            **properties,
            "bootstrap.servers": self.brokers,
        }


def check_properties(conf: ClusterConf) -> None:
    """Raises `ConfigError` if librdkafka refuses the properties. Connects to nothing."""
    properties = {**conf.librdkafka_properties(), "bootstrap.servers": ""}
    properties.pop("oauth_cb", None)  # the client would wait for a token
    new_client(AdminClient, properties)


class Cluster(Closing):
    """An admin client of one cluster. A context manager; `close` may be called twice.

    Every method that sends a request raises `ConnectError` (one line of text) when the cluster does not
    respond, and `Closed` after `close`.
    """

    def __init__(self, conf: ClusterConf) -> None:
        self.conf = conf
        self.id = ""
        self._errors: list[KafkaError] = []
        self._log_in = librdkafka.LogIn(conf.properties)
        # A new client connects at once.
        self._admin: AdminClient | None = None if was_refused(conf) else self._new_admin()
        self._closed = False
        self._failing_s: float | None = None
        REFUSALS.add_owner(self)

    def close(self) -> None:
        """Releases the connections."""
        self._closed, self._admin = True, None

    def drop_client(self) -> None:
        """Lets the client go. The next request makes a new one."""
        self._admin = None

    def connect(
        self,
        *,
        wait: Callable[[ConnectError], bool] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Connects, fetches the cluster's id, and returns self. Raises `ConnectError`.

        An attempt takes the connect timeout at the most. If `wait` is given, `connect`
        passes the error of an attempt to `wait`, and tries again if `wait` returns true. `should_stop` is
        called every 0.05 s while DescribeCluster is under way: once it returns true, the attempt ends with
        the error so far.
        """
        while True:
            try:
                self.id = self._fetch_cluster_id(should_stop)
            except ConnectError as error:
                failure = copy_error(error)
            else:
                note_success(self.conf)
                return self
            # The error itself has a traceback with the client, which would go on trying meanwhile.
            if wait is None or not wait(failure):
                raise copy_error(failure)

    def has_seen_error(self, code: int) -> bool:
        """Whether librdkafka has reported this error since the last request was sent."""
        return any(error.code() == code for error in self._errors)

    def fetch_topic(self, name: str, *, patience_s: float = 0.0) -> TopicInfo | None:
        """The topic of that name, None if there is none. Raises `Denied` without DESCRIBE on it.

        Never creates the topic. The brokers learn of a new topic one after another: a topic that is missing
        is requested again until `patience_s` has passed.
        """
        until = time.monotonic() + patience_s
        while True:
            described = self.describe_topics([name]).get(name)
            if described or time.monotonic() >= until:
                return described
            time.sleep(TOPIC_PROPAGATION_S / 5)

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """The named topics that exist, with their ids, by name, in one request. Raises `Denied`."""
        described = {}
        for name, future in self._request_descriptions(list(names)).items():
            try:
                topic = get_result(future, 0)
            except Exception as error:
                self._raise_unless_unknown_topic(name, error)
            else:
                described[name] = TopicInfo(name, len(topic.partitions), _format_topic_id(topic.topic_id))
        self._note_success()
        return described

    def find_denied_topics(self, names: Iterable[str]) -> set[str]:
        """Those of the named topics that this user may not DESCRIBE, whether they exist or not."""
        denied = set()
        for name, future in self._request_descriptions(list(names)).items():
            error = future.exception(0)
            try:
                if error is not None:
                    self._raise_unless_unknown_topic(name, error)
            except Denied:
                denied.add(name)
        self._note_success()
        return denied

    def _request_descriptions(self, names: list[str]) -> dict[str, Any]:
        """A future for each topic. All of them are done."""
        if not names:
            return {}
        with self._map_errors("topics cannot be described"):
            return self._ask_any_broker(lambda admin, timeout_s: self._describe(admin, names, timeout_s))

    def fetch_partition_counts(self) -> dict[str, int]:
        """The partition count of each topic that this user may describe, by topic name, in one request.

        Topics for which the broker returned an error are left out.
        """
        listed = self._list_topics()
        return {name: len(topic.partitions) for name, topic in listed.topics.items() if topic.error is None}

    def fetch_metadata(self) -> Metadata:
        """The brokers, and the topics that this user may describe with their leaders, in one request."""
        return convert_metadata(self._list_topics())

    def _describe(self, admin: AdminClient, names: list[str], timeout_s: float) -> dict[str, Any]:
        described = self._call_admin(
            admin, "describe_topics", TopicCollection(names), request_timeout=timeout_s
        )
        # librdkafka's timeout comes first.
        if futures.wait(described.values(), timeout_s + 1).not_done:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        for future in described.values():
            error = extract_kafka_error(future.exception(0))
            if error is not None and error.code() == KafkaError._TIMED_OUT:
                raise KafkaException(error)
        return described

    def _ask_any_broker(self, request: Callable[[AdminClient, float], T]) -> T:
        """The result of a metadata request, which any broker can answer.

        `request` gets a client and a timeout. A broker that hangs seems usable to librdkafka, which may
        choose it each time. So as long as there is no response, new clients ask, too: they have no connection
        to that broker. The first response counts, and its client is kept.
        """
        deadline_s, pause_s = time.monotonic() + self.conf.request_timeout_s, PATIENCE_S
        admin = self._get_admin()
        asking = {call_in_thread(request, admin, self.conf.request_timeout_s): admin}
        while True:
            for future in self._wait_for_any(asking, pause_s):
                admin, error = asking.pop(future), future.exception()
                if error is None:
                    if not self._closed:
                        self._admin = admin
                    return future.result()
                kafka_error = extract_kafka_error(error)
                if kafka_error is None or kafka_error.code() != KafkaError._TIMED_OUT:
                    raise copy_error(error)
                if not asking and time.monotonic() >= deadline_s:
                    raise copy_error(error)
            for admin in asking.values():
                self._collect_errors(admin)
            self._get_admin()  # raises if it was closed, or the log-in was refused
            left_s = deadline_s - time.monotonic()
            if left_s > 0 or not asking:
                admin = self._new_admin()
                asking[call_in_thread(request, admin, max(left_s, 0.1))] = admin
            pause_s *= 1.5

    def _list_topics(self, *, timeout_s: float | None = None) -> Any:
        with self._map_errors("topics cannot be listed"):
            if timeout_s:
                listed = self._get_admin().list_topics(timeout=timeout_s)
            else:
                listed = self._ask_any_broker(lambda admin, left_s: admin.list_topics(timeout=left_s))
        self._note_success()
        return listed

    def fetch_topic_configs(self, topic: str) -> dict[str, str]:
        """The topic's settings, with the brokers' defaults. Raises `Denied` without DESCRIBE_CONFIGS."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin = self._get_admin()
        future = self._call_admin(admin, "describe_configs", [resource])[resource]
        with self._map_errors(f"the settings of {topic} cannot be fetched"):
            self._wait_for_any([future], self.conf.request_timeout_s + 1)
            try:
                entries = get_result(future, 0)
            except KafkaException as error:
                kafka_error = extract_kafka_error(error)
                if kafka_error and kafka_error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise make_denied_error(topic, self.conf.brokers, "DESCRIBE_CONFIGS") from error
                raise
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def fetch_offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec | int = OffsetSpec.LATEST,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int | str]:
        """The offsets that `list_offsets` returns, without leader epochs."""
        listed = self.list_offsets(partitions, spec, isolation, timeout_s=timeout_s)
        return {at: found if isinstance(found, str) else found.offset for at, found in listed.items()}

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec | int = OffsetSpec.LATEST,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, ListedOffset | str]:
        """The offset of each partition in one call; for a partition without an offset, the error's name.

        `spec` may be a time in ms: then the first offset at or after that time, -1 if there is none. Raises
        `ConnectError` when no partition's leader could be reached. Several threads may call this at once.
        """
        level = getattr(IsolationLevel, isolation.name)
        with self._map_errors("offsets cannot be requested"):
            kafka_spec = _convert_spec(spec)
            requested = {confluent_kafka.TopicPartition(topic, p): kafka_spec for topic, p in partitions}
        listed: dict[TopicPartition, ListedOffset | str] = {}
        if not requested:
            return listed

        # librdkafka sends one request to each leader.
        patience_s = timeout_s or self.conf.request_timeout_s
        admin = self._get_admin()
        responses = self._call_admin(
            admin, "list_offsets", requested, isolation_level=level, request_timeout=patience_s
        )
        deadline = time.monotonic() + patience_s + 1
        for kafka_partition, future in responses.items():
            partition = TopicPartition(kafka_partition.topic, kafka_partition.partition)
            try:
                self._wait_for_any([future], deadline - time.monotonic())
                listed[partition] = _convert_offset(get_result(future, 0))
            except TimeoutError:
                listed[partition] = "_TIMED_OUT"
            except Closed:
                raise
            except Exception as error:
                listed[partition] = describe_error(error)

        if all(found in _UNREACHABLE for found in listed.values()):
            raise self._make_connect_error(was_up=True)
        self._note_success()
        # After these errors librdkafka does not refresh its metadata by itself. Without this metadata
        # request, the next call would go to the same wrong leader. A failure must not lose the other offsets.
        if not _STALE_METADATA.isdisjoint(listed.values()):
            with suppress(ConnectError):
                self._list_topics(timeout_s=_REFRESH_TIMEOUT_S)
        return listed

    def _fetch_cluster_id(self, should_stop: Callable[[], bool]) -> str:
        admin, deadline = self._get_admin(), time.monotonic() + self.conf.connect_timeout_s
        probe, probe_s = None, time.monotonic() + PROBE_S
        self._errors.clear()
        patience_s = 2.0
        while True:
            # Send DescribeCluster, and watch librdkafka's errors while it is under way.
            describe_s = max(0.1, min(patience_s, deadline - time.monotonic()))
            with self._map_errors("the cluster's id cannot be requested"):
                future = admin.describe_cluster(request_timeout=describe_s)
            until = time.monotonic() + describe_s
            while not future.done() and time.monotonic() < until:
                futures.wait([future], 0.05)
                self._collect_errors(admin)
                # Probe the addresses once librdkafka had time to connect, or failed at TLS.
                codes = {error.code() for error in self._errors}
                has_failed_tls = KafkaError._SSL in codes
                if probe is None and (time.monotonic() >= probe_s or has_failed_tls):
                    probe = Probe(self.conf.brokers, tls=self.conf.uses_tls)
                cause = probe.find_cause(wait_s=2 * PROBE_S if has_failed_tls else 0.0) if probe else None
                if cause is not None:
                    raise make_probe_error(self.conf.brokers, cause)
                if codes & FATAL_AT_START or time.monotonic() > deadline or should_stop():
                    raise self._make_connect_error()
            try:
                return str(get_result(future, 0).cluster_id or "")
            except Exception as error:
                self._collect_errors(admin)
                kafka_error = extract_kafka_error(error)
                timed_out = kafka_error is not None and kafka_error.code() == KafkaError._TIMED_OUT
                if not (timed_out or isinstance(error, TimeoutError)):
                    raise self._map_error(error) from error
                if time.monotonic() >= deadline:
                    # That the request has timed out is a consequence, if the connections have an error.
                    raise (self._make_connect_error() if self._errors else self._map_error(error)) from error
            # librdkafka sends DescribeCluster to the controller that it knows, and keeps waiting for that
            # controller even if it has died since. Any broker can respond to a metadata request for all
            # topics, which costs more.
            list_s = max(0.1, min(patience_s / 2, deadline - time.monotonic()))
            with suppress(Exception):  # the next round tries again, and has an error of its own
                cluster_id = admin.list_topics(timeout=list_s).cluster_id
                if cluster_id:
                    return str(cluster_id)
            patience_s *= 2

    def _wait_for_any(
        self, waiting: Collection[futures.Future[T]], timeout_s: float
    ) -> set[futures.Future[T]]:
        """The futures that are done, once one is; none after `timeout_s`. Raises `Closed` after `close`."""
        until = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, until - time.monotonic())
            done = futures.wait(waiting, min(_CLOSED_CHECK_S, left_s), futures.FIRST_COMPLETED).done
            if done or not left_s:
                return done
            self._check_open()

    def _call_admin(self, admin: AdminClient, method: str, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """The futures that a method of the admin client returns. Forgets the errors of earlier requests.

        The caller keeps `admin` until the futures are done: another thread may replace the client, and
        without a reference librdkafka would drop the requests.
        """
        self._collect_errors(admin)  # before `clear`: errors that wait there belong to earlier requests
        self._errors.clear()
        with self._map_errors(f"the request {method} cannot be sent"):
            by_key: dict[Any, Any] = getattr(admin, method)(
                *args, **{"request_timeout": self.conf.request_timeout_s, **kwargs}
            )
        return by_key

    def _raise_unless_unknown_topic(self, name: str, error: BaseException) -> None:
        kafka_error = extract_kafka_error(error)
        code = kafka_error.code() if kafka_error else None
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise make_denied_error(name, self.conf.brokers, "DESCRIBE") from error
        if code not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            raise self._map_error(error) from error

    def _map_errors(self, subject: str) -> AbstractContextManager[None]:
        return map_foreign_errors(subject, self._make_request_error)

    def _map_error(self, error: BaseException) -> KoffError:
        return convert_foreign_error(error, "a request failed", self._make_request_error)

    def _make_request_error(self, errors: Sequence[KafkaError]) -> ConnectError:
        if self._admin is not None:
            self._collect_errors(self._admin)  # the cause may still wait in librdkafka
        return self._make_connect_error(*errors, was_up=bool(self.id))

    def _collect_errors(self, admin: AdminClient) -> None:
        """Runs `_note_error` for the errors that wait in librdkafka."""
        with suppress(Exception):  # of a callback: the request has an error of its own
            admin.poll(0)

    def _make_connect_error(self, *errors: KafkaError, was_up: bool = False) -> ConnectError:
        """The error to raise. If all requests have failed for `SILENCE_S`, also replaces the admin client.

        `has_no_broker` has the reason for the replacement. A client that is new knows only the bootstrap
        servers, so one failure is no reason.
        """
        error = make_connect_error(self.conf.brokers, [*self._errors, *errors], was_up=was_up)
        now = time.monotonic()
        if isinstance(error, LogInRefused):
            self.drop_client()  # it would go on trying
        elif self._failing_s is None:
            self._failing_s = now
        elif now >= self._failing_s + librdkafka.SILENCE_S and self._admin is not None:
            self._admin, self._failing_s = self._new_admin(), None
        return error

    def _note_success(self) -> None:
        self._failing_s = None
        note_success(self.conf)

    def _new_admin(self) -> AdminClient:
        properties = self.conf.librdkafka_properties(**librdkafka.SLOW_RECONNECT)
        admin: AdminClient = new_client(AdminClient, properties, error_cb=self._note_error)
        return admin

    def _get_admin(self) -> AdminClient:
        self._check_open()
        admin = self._admin
        if admin is not None:
            self._collect_errors(admin)
        try:
            check_log_in(self.conf)
        except LogInRefused:
            self.drop_client()
            raise
        if admin is None:
            self._admin = admin = self._new_admin()
        self._log_in.refresh(admin)
        return admin

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the connection to {self.conf.brokers} is closed")

    def _note_error(self, error: KafkaError) -> None:
        del self._errors[:-50]  # the newest are enough for a cause
        self._errors.append(error)
        note_error(self.conf, error)


def call_in_thread(call: Callable[..., T], *args: Any) -> futures.Future[T]:
    """The future result of a call in a daemon thread, for which the end of the process does not wait."""
    future: futures.Future[T] = futures.Future()

    def run() -> None:
        try:
            future.set_result(call(*args))
        except BaseException as error:
            future.set_exception(copy_error(error))

    try:
        threading.Thread(target=run, name="koff-call", daemon=True).start()
    except RuntimeError as error:  # the operating system gives no more threads
        future.set_exception(ConnectError(f"no thread for the request: {error}"))
    return future


def get_result(future: futures.Future[T], timeout_s: float | None = None) -> T:
    """The future's result, as `future.result`, for a caller that has the future in a variable.

    Raises a copy of the future's error: `copy_error` says why.
    """
    error = future.exception(timeout_s)
    if error is not None:
        raise copy_error(error)
    return future.result()


def _convert_spec(spec: OffsetSpec | int) -> Any:
    if isinstance(spec, int):
        return _KafkaOffsetSpec.for_timestamp(spec)
    if parse_member(OffsetSpec, spec, "the offset specification") is OffsetSpec.EARLIEST:
        return _KafkaOffsetSpec.earliest()  # type: ignore[no-untyped-call]  # confluent-kafka: no annotations
    return _KafkaOffsetSpec.latest()  # type: ignore[no-untyped-call]  # confluent-kafka: no annotations


def _convert_offset(info: Any) -> ListedOffset | str:
    # When a broker hangs, librdkafka may return OFFSET_INVALID (-1001) and no error.
    if info.offset == confluent_kafka.OFFSET_INVALID:
        return "_TIMED_OUT"
    return ListedOffset(info.offset, -1 if info.leader_epoch is None else info.leader_epoch)


def _format_topic_id(uuid: object) -> str:
    """A topic id as Kafka prints it: URL-safe base64. librdkafka prints ordinary base64."""
    return str(uuid).rstrip("=").replace("+", "-").replace("/", "_")


PATIENCE_S = 1.0
"""After so long without a response, another broker is asked, too."""
PROBE_S = 1.0
"""So long librdkafka has to connect, before koff looks itself why no address responds."""
TOPIC_PROPAGATION_S = 1.0
"""How long it may take until all brokers know a new topic."""
_REFRESH_TIMEOUT_S = 1.0
_CLOSED_CHECK_S = 0.1
"""How long a call waits for a response before it checks whether the cluster was closed."""
_STALE_METADATA = frozenset(
    {"FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "_NOENT"}
)
"""Errors of a partition whose leader librdkafka does not know, or whose leader has changed."""
_UNREACHABLE = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_AUTHENTICATION", "_RESOLVE", "_SSL")

"""The committed offsets of one group, committed and fetched at the group's coordinator.

koff sends these requests itself: confluent-kafka (2.16.1) appends a zero byte to the metadata that it
commits, and reads past the end of metadata that another client has committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from koff.client.addresses import parse_addresses
from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.closing import Closing
from koff.client.cluster_conf import TOPIC_PROPAGATION_S, ClusterConf, TopicPartition
from koff.client.errors import CoordinatorError, UnknownTopic
from koff.client.offsets.messages import choose_version
from koff.client.topic_names import check_partition
from koff.client.wire.connection import Connection, UnsupportedVersion
from koff.errors import Closed, ConfigError, ConnectError, Denied, KoffError, copy_error
from koff.proto.requests import Api, build_request, build_struct, encode_request, error_name

T = TypeVar("T")

_CONNECT_TIMEOUT_S = 3.0
_VERSIONS = {Api.FIND_COORDINATOR: 3, Api.OFFSET_COMMIT: 7, Api.OFFSET_FETCH: 7}
"""The versions that koff sends. Version 4 of FindCoordinator and version 8 of OffsetFetch are the first ones
for many groups; version 10 of OffsetCommit is the first one with topic ids instead of names."""
_RETRIABLE = frozenset(
    {
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "REQUEST_TIMED_OUT",
        "REBALANCE_IN_PROGRESS",
        "UNSTABLE_OFFSET_COMMIT",
    }
)


class GroupCoordinator(Closing):
    """Commits and fetches the offsets of one group. An `OffsetCoordinator`. Threads may share it.

    Finds the coordinator again when another broker becomes the coordinator. `commit` and `offset` raise

    - `ConnectError` when no coordinator responds within the retries,
    - `Denied` and `UnknownTopic`,
    - `CoordinatorError` when a retry cannot help, for example while the group has members, which alone may
      commit,
    - `ConfigError` when koff's own connections do not support the log-in,
    - `UnsupportedVersion` when the broker is too old,
    - `Closed` after `close`.
    """

    def __init__(self, cluster: ClusterConf, conf: OffsetCoordinatorConf, *, owner: object = None) -> None:
        self.conf = conf
        self._owner = owner  # the connection, which would close itself without a reference
        self._cluster = cluster
        self._request_lock = threading.Lock()
        self._closed = threading.Event()
        self._connection: Connection | None = None  # to the coordinator, or a broker that is asked for it
        self._brokers = list(parse_addresses(cluster.brokers))

    def __del__(self) -> None:
        """Closes the connection of a coordinator that nobody uses any more."""
        if hasattr(self, "_brokers"):  # missing if `__init__` failed
            self.close()

    def close(self) -> None:
        """Closes the connection. A call in progress ends with `Closed`. Safe to call twice."""
        # Without the lock, because a call in progress holds it. Closing the connection ends that call.
        self._closed.set()
        if (connection := self._connection) is not None:
            connection.close()

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Commits `offset`, the offset of the next message that the group has to read.

        Raises `ConfigError` for an offset below 0: Kafka stores it, and readers of the group cannot use it.
        """
        self.commit_offsets({TopicPartition(topic, partition): offset}, metadata)

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commits the offsets of many partitions in one request. Kafka may refuse some and commit the others.

        Then the error is that of the first that was refused, and says how many were. Raises as `commit` does.
        """
        by_topic: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            check_partition(topic, partition)
            if offset < 0:
                raise ConfigError(
                    f"offset {offset} of {topic}/{partition} cannot be committed: use 0 or more"
                )
            commit = _build_struct(
                Api.OFFSET_COMMIT,
                "OffsetCommitRequestPartition",
                partition_index=partition,
                committed_offset=offset,
                committed_metadata=metadata,
            )
            by_topic.setdefault(topic, []).append(commit)
        if not by_topic:
            return

        def check(response: Any) -> None:
            refused = [
                (each.error_code, topic.name, each.partition_index)
                for topic in response.topics
                for each in topic.partitions
                if each.error_code
            ]
            if refused:
                some = f"{len(refused)} of {len(offsets)} offsets" if len(offsets) > 1 else ""
                self._raise_for_code(*refused[0], refused=some)

        # Generation -1 without a member id: a commit from outside the group, as admin tools send it. The
        # field's name depends on kio's version; `build_request` leaves the other name out.
        self._ask_coordinator(
            Api.OFFSET_COMMIT,
            check,
            generation_id_or_member_epoch=-1,
            generation_id=-1,
            member_id="",
            topics=tuple(
                _build_struct(
                    Api.OFFSET_COMMIT, "OffsetCommitRequestTopic", name=topic, partitions=tuple(commits)
                )
                for topic, commits in by_topic.items()
            ),
        )

    def offset(self, topic: str, partition: int) -> tuple[int, str]:
        """The committed offset and its metadata. (-1, "") if the group has committed none."""
        check_partition(topic, partition)
        wanted = TopicPartition(topic, partition)
        return self._fetch_offsets(wanted)[wanted]

    def offsets(self) -> dict[TopicPartition, tuple[int, str]]:
        """All committed offsets of the group, with their metadata, by partition."""
        return self._fetch_offsets()

    def _fetch_offsets(self, wanted: TopicPartition | None = None) -> dict[TopicPartition, tuple[int, str]]:
        """The committed offsets, of one partition or of all."""
        topics = wanted and (
            _build_struct(
                Api.OFFSET_FETCH,
                "OffsetFetchRequestTopic",
                name=wanted.topic,
                partition_indexes=(wanted.partition,),
            ),
        )

        def read(response: Any) -> dict[TopicPartition, tuple[int, str]]:
            # First the error of the whole response, then those of partitions.
            self._raise_for_code(response.error_code, *(wanted or ("", -1)))
            committed = {}
            for topic in response.topics:
                for each in topic.partitions:
                    self._raise_for_code(each.error_code, topic.name, each.partition_index)
                    at = TopicPartition(topic.name, each.partition_index)
                    committed[at] = (each.committed_offset, each.metadata or "")
            if wanted and wanted not in committed:
                raise ConnectError(f"the coordinator returned no offset of {wanted.topic}/{wanted.partition}")
            return committed

        return self._ask_coordinator(Api.OFFSET_FETCH, read, topics=topics)

    def _ask_coordinator(self, api: Api, read: Callable[[Any], T], **fields: Any) -> T:
        """What `read` returns for the coordinator's response.

        After an error that may pass, finds the coordinator and asks it again. Raises `Closed`, or
        `ConnectError` when the retries are used up.
        """
        last_error: KoffError | None = None
        with self._request_lock:
            began = time.monotonic()
            for attempt in range(self.conf.retry_err_limit + 1):
                if attempt and self._closed.wait(self.conf.retry_err_wait_s):
                    break
                try:
                    connection = self._connect_coordinator()
                    return read(_send(connection, api, group_id=self.conf.consumer_group, **fields))
                except Denied:
                    raise
                except (ConnectError, _RetriableError) as error:
                    last_error = copy_error(error)
                    self._disconnect()
                except UnknownTopic as error:
                    # A coordinator may learn of a new topic later than the broker that created it.
                    last_error = copy_error(error)
                    elapsed_s = time.monotonic() - began
                    if elapsed_s >= TOPIC_PROPAGATION_S or attempt == self.conf.retry_err_limit:
                        raise
                except (Closed, UnsupportedVersion):
                    if not self._closed.is_set():
                        raise
                    # Otherwise `close` has closed the connection. `Closed` is raised below.
            if self._closed.is_set():
                self._disconnect()  # `close` may have come before the connection was known
                self._check_open()
        raise ConnectError(
            f"the coordinator of group {self.conf.consumer_group} does not respond: {last_error}; check that "
            "the brokers run"
        ) from last_error

    def _connect_coordinator(self) -> Connection:
        """The open connection to the coordinator; finds the coordinator and connects if there is none."""
        self._check_open()
        if self._connection is None or self._connection.closed:
            return self._connect(*self._find_coordinator())
        return self._connection

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closed(f"the coordinator of {self.conf.consumer_group} is closed")

    def _find_coordinator(self) -> tuple[str, int]:
        """Host and port of the coordinator, from the first broker that responds."""
        last_error: KoffError = ConnectError("no broker address was given: name at least one")
        for host, port in list(self._brokers):  # a copy: the loop reorders the list
            try:
                with self._connect(host, port) as connection:
                    response = _send(
                        connection, Api.FIND_COORDINATOR, key=self.conf.consumer_group, key_type=0
                    )
            except Denied:
                raise
            except ConnectError as error:
                self._brokers.append(self._brokers.pop(0))  # the next search tries this broker last
                last_error = copy_error(error)
            else:
                self._raise_for_code(response.error_code, "", -1)
                address = (response.host, response.port)
                if address not in self._brokers:
                    self._brokers.append(address)
                return address
        raise copy_error(last_error)

    def _connect(self, host: str, port: int) -> Connection:
        """Opens a connection, which `close` closes."""
        timeout_s = min(_CONNECT_TIMEOUT_S, self._cluster.connect_timeout_s)
        self._connection = Connection.connect(self._cluster, host, port, timeout_s=timeout_s)
        self._check_open()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _raise_for_code(self, code: int, topic: str, partition: int, refused: str = "") -> None:
        error, group = error_name(code), self.conf.consumer_group
        if not error:
            return
        # Each class of errors has its own remedy: another try, a permission, an existing topic, or none.
        if error in _RETRIABLE:
            raise _RetriableError(error)
        if error.endswith("AUTHORIZATION_FAILED"):
            raise Denied(
                f"no permission for the offsets of group {group} ({error}): grant this user READ on the "
                f"group and on topic {topic or 'that it commits for'}"
            )
        if error == "UNKNOWN_TOPIC_OR_PARTITION":
            raise UnknownTopic(
                f"no offset of group {group} for {topic}/{partition}: there is no such partition; check "
                "topic and partition"
            )
        subject = f"{topic}/{partition}" if topic else "the request"
        remedy = "stop the group's members first, or commit through them"
        raise CoordinatorError(
            f"the coordinator of group {group} refuses {subject}: {error}"
            + (f" ({refused} were not committed)" if refused else "")
            + (f"; {remedy}" if error in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION") else "")
        )


class _RetriableError(KoffError):
    """Another broker is the coordinator now, or the coordinator is not ready yet."""


def _build_struct(api: Api, kind: str, /, **fields: Any) -> Any:
    return build_struct(api, _VERSIONS[api], kind, **fields)


def _send(connection: Connection, api: Api, /, **fields: Any) -> Any:
    """The response to a request. Raises `UnsupportedVersion` if the broker is too old for it."""
    version = choose_version(connection, api, (_VERSIONS[api], _VERSIONS[api]))
    try:
        request = encode_request(build_request(api, version, **fields))
    except Exception as error:  # one of many of kio, struct and Python
        raise ConfigError(
            f"the request {api.name} cannot be encoded: {error}; check group, offset and metadata"
        ) from error
    (response,) = connection.send_requests([request])
    return response

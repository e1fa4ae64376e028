"""The committed offsets of one group, committed and fetched at the group's coordinator.

koff sends these requests itself: confluent-kafka (2.16.1) appends a zero byte to the metadata that it
commits, and reads past the end of metadata that another client has committed.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.calls import call_in_thread, get_result
from koff.client.closing import Closing
from koff.client.cluster_conf import TOPIC_PROPAGATION_S, ClusterConf, TopicPartition
from koff.client.errors import CoordinatorError, UnknownTopic
from koff.client.offsets.messages import choose_version
from koff.client.patience import Patience
from koff.client.topic_names import check_commit, check_partition
from koff.client.wire.brokers import Brokers
from koff.client.wire.connection import Connection
from koff.client.wire.pool import Address
from koff.errors import Closed, ConfigError, ConnectError, Denied, KoffError, copy_error
from koff.proto.requests import Api, EncodedRequest, build_request, build_struct, encode_request, error_name

T = TypeVar("T")

_CONNECT_TIMEOUT_S = 3.0
_VERSIONS = {Api.FIND_COORDINATOR: 3, Api.OFFSET_COMMIT: 7, Api.OFFSET_FETCH: 7, Api.OFFSET_DELETE: 0}
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
_HAS_MEMBERS = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "NON_EMPTY_GROUP", "GROUP_SUBSCRIBED_TO_TOPIC")


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
        self._closed: futures.Future[None] = futures.Future()
        self._timeout_s, self._patience_s = cluster.request_timeout_s, cluster.patience_s
        self._coordinator: Address | None = None
        self._members: set[Address] = set()  # brokers that were coordinators
        connect_timeout_s = min(_CONNECT_TIMEOUT_S, cluster.connect_timeout_s)
        self._brokers = Brokers(replace(cluster, connect_timeout_s=connect_timeout_s))

    def __del__(self) -> None:
        """Closes the connections of a coordinator that nobody uses any more."""
        is_made = hasattr(self, "_brokers")  # it is missing if `__init__` failed
        if is_made and not self._closed.done() and not self.is_of_other_process:
            call_in_thread(self._brokers.close)  # not here: the garbage collector may call this anywhere

    def close(self) -> None:
        """Closes the connections. A call in progress ends with `Closed`. Safe to call twice."""
        with suppress(futures.InvalidStateError):  # it is closed already
            self._closed.set_result(None)
        self._brokers.close()

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Commits `offset`, the offset of the next message that the group has to read.

        Raises `ConfigError` for an offset below 0.
        """
        self.commit_offsets({TopicPartition(topic, partition): offset}, metadata)

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commits the offsets of many partitions in one request. Kafka may refuse some and commit the others.

        Then the error is that of the first that was refused, and says how many were. Raises as `commit` does.
        """
        for (topic, partition), offset in offsets.items():
            check_commit(topic, partition, offset)
        if not offsets:
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

        # Without a member id, and with the generation -1, which is Kafka's default: a commit from outside the
        # group, as admin tools send it.
        self._request_from_coordinator(
            Api.OFFSET_COMMIT,
            check,
            member_id="",
            topics=_build_topics(
                Api.OFFSET_COMMIT,
                {
                    at: {"committed_offset": offset, "committed_metadata": metadata}
                    for at, offset in offsets.items()
                },
            ),
        )

    def delete_offsets(self, partitions: Iterable[TopicPartition]) -> None:
        """Deletes the commits of these partitions in one request. Raises as `commit_offsets` does."""
        topics = _build_topics(Api.OFFSET_DELETE, {at: {} for at in partitions})
        if not topics:
            return

        def check(response: Any) -> None:
            self._raise_for_code(response.error_code, "", -1)
            for topic in response.topics:
                for each in topic.partitions:
                    self._raise_for_code(each.error_code, topic.name, each.partition_index)

        self._request_from_coordinator(Api.OFFSET_DELETE, check, topics=topics)

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

        return self._request_from_coordinator(Api.OFFSET_FETCH, read, topics=topics)

    def _request_from_coordinator(self, api: Api, read: Callable[[Any], T], **fields: Any) -> T:
        """What `read` returns for the coordinator's response.

        After an error that may pass, finds the coordinator again and repeats the request. Raises `Closed`, or
        `ConnectError` when the retries are used up.
        """
        self.check_process()
        began = time.monotonic()
        patience = Patience(self._patience_s, self.conf.retry_err_limit)

        def request() -> T:
            try:
                return read(self._send(api, fields, patience.until))
            except (ConnectError, _RetriableError):
                self._coordinator = None
                raise
            except UnknownTopic as error:
                # A coordinator may learn of a new topic later than the broker that created it.
                if time.monotonic() < began + TOPIC_PROPAGATION_S:
                    raise _NewTopic(str(error)) from None
                raise

        try:
            return patience.retry(
                request, self.conf.retry_err_wait_s, self._pause, (ConnectError, _RetriableError, _NewTopic)
            )
        except Denied:
            raise
        except (ConnectError, _RetriableError) as error:
            raise ConnectError(
                f"the coordinator of group {self.conf.consumer_group} does not respond: {error}; check that "
                "the brokers run"
            ) from copy_error(error)

    def _pause(self, wait_s: float) -> None:
        futures.wait([self._closed], wait_s)

    def _send(self, api: Api, fields: Mapping[str, Any], until: float) -> Any:
        """The response to one request. Raises `Closed` as soon as the coordinator is closed."""
        if not self._closed.done():
            sending = call_in_thread(self._send_to_coordinator, api, fields, until)
            futures.wait([sending, self._closed], return_when=futures.FIRST_COMPLETED)
        if self._closed.done():
            raise Closed(f"the coordinator of {self.conf.consumer_group} is closed")
        return get_result(sending)

    def _send_to_coordinator(self, api: Api, fields: Mapping[str, Any], until: float) -> Any:
        group, address = self.conf.consumer_group, self._coordinator
        deadline = min(time.monotonic() + self._timeout_s, until)
        if address is None:
            find = partial(_build_request, Api.FIND_COORDINATOR, key=group, key_type=0)
            _, found = self._brokers.send_to_any(find, deadline=deadline)
            self._raise_for_code(found.error_code, "", -1)
            self._coordinator = address = (found.host, found.port)
            self._members = self._members | {address}
            self._brokers.set_members(self._members)
        build = partial(_build_request, api, group_id=group, **fields)
        return self._brokers.send_request(address, build, deadline=deadline)

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
            + (f"; {remedy}" if error in _HAS_MEMBERS else "")
        )


class _RetriableError(KoffError):
    """Another broker is the coordinator now, or the coordinator is not ready yet."""


class _NewTopic(UnknownTopic):
    """There is no such topic, as far as the coordinator knows yet."""


def _build_struct(api: Api, kind: str, /, **fields: Any) -> Any:
    return build_struct(api, _VERSIONS[api], kind, **fields)


def _build_topics(api: Api, partitions: Mapping[TopicPartition, Mapping[str, Any]]) -> tuple[Any, ...]:
    """The topics of a request, with these partitions and the fields of each."""
    kind, by_topic = f"Offset{api.name.removeprefix('OFFSET_').title()}RequestTopic", dict[str, list[Any]]()
    for (topic, number), fields in partitions.items():
        partition = _build_struct(api, kind.replace("Topic", "Partition"), partition_index=number, **fields)
        by_topic.setdefault(topic, []).append(partition)
    return tuple(
        _build_struct(api, kind, name=topic, partitions=tuple(of_topic))
        for topic, of_topic in by_topic.items()
    )


def _build_request(api: Api, connection: Connection, /, **fields: Any) -> EncodedRequest[Any]:
    version = choose_version(connection, api, (_VERSIONS[api], _VERSIONS[api]))
    try:
        return encode_request(build_request(api, version, **fields))
    except Exception as error:  # one of many of kio, struct and Python
        raise ConfigError(
            f"the request {api.name} cannot be encoded: {error}; check group, offset and metadata"
        ) from error

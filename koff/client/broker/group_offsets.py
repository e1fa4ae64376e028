"""The committed offsets of one group, written and read at its coordinator, wherever that is.

By requests of koff's own: confluent-kafka (2.16.1) ends the metadata that it commits with a zero byte, and
reads past the end of metadata that another client committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.closing import Closing
from koff.client.cluster import SPREAD_S, ClusterConf
from koff.client.errors import CoordinatorError, UnknownTopic
from koff.client.wire.connection import Connection, Unanswerable
from koff.client.wire.credentials import addresses
from koff.client.wire.requests import Api, build, error_name, part, question
from koff.errors import Closed, ConnectError, Denied, KoffError

T = TypeVar("T")

_ANSWER_S = 3.0
_LAST = {Api.FIND_COORDINATOR: 3, Api.OFFSET_COMMIT: 7, Api.OFFSET_FETCH: 7}
"""Versions that are about one group, with topics by name, which every broker since 2.4 has."""
_PASSING = frozenset(
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
    """Commits and reads one group's offsets; an `OffsetCoordinator`. Threads may share it.

    Raises `ConnectError` when no coordinator answers within the retries, `Denied`, `UnknownTopic`, and
    `CoordinatorError` for what another try will not mend, such as members that own the group's offsets.
    """

    def __init__(self, cluster: ClusterConf, conf: OffsetCoordinatorConf) -> None:
        self.conf = conf
        self._cluster = cluster
        self._asking = threading.Lock()
        self._closed = threading.Event()
        self._wire: Connection | None = None
        self._known = list(addresses(cluster.brokers))

    def close(self) -> None:
        """Lets go of the connection; a call under way ends with `Closed`. Safe to call twice."""
        self._closed.set()
        wire = self._wire
        if wire is not None:
            wire.close()

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Has the offset, that of the message to be read next, written down."""

        def ask(wire: Connection) -> None:
            at = self._part(
                wire,
                Api.OFFSET_COMMIT,
                "OffsetCommitRequestPartition",
                partition_index=partition,
                committed_offset=offset,
                committed_metadata=metadata,
            )
            topics = self._part(
                wire, Api.OFFSET_COMMIT, "OffsetCommitRequestTopic", name=topic, partitions=(at,)
            )
            answer = self._request(
                wire,
                Api.OFFSET_COMMIT,
                group_id=self.conf.consumer_group,
                generation_id_or_member_epoch=-1,
                generation_id=-1,
                member_id="",
                topics=(topics,),
            )
            self._judge(answer.topics[0].partitions[0].error_code, topic, partition)

        self._patiently(ask)

    def offset(self, topic: str, partition: int) -> tuple[int, str]:
        """The committed offset and its metadata; (-1, "") where there is none."""

        def ask(wire: Connection) -> tuple[int, str]:
            topics = self._part(
                wire, Api.OFFSET_FETCH, "OffsetFetchRequestTopic", name=topic, partition_indexes=(partition,)
            )
            answer = self._request(
                wire, Api.OFFSET_FETCH, group_id=self.conf.consumer_group, topics=(topics,)
            )
            self._judge(getattr(answer, "error_code", 0), topic, partition)
            (at,) = answer.topics[0].partitions
            self._judge(at.error_code, topic, partition)
            return at.committed_offset, at.metadata or ""

        return self._patiently(ask)

    def _patiently(self, ask: Callable[[Connection], T]) -> T:
        """The answer of the coordinator, looked for again as often as the configuration says."""
        last: KoffError | None = None
        with self._asking:
            began = time.monotonic()
            for attempt in range(self.conf.retry_err_limit + 1):
                if attempt and self._closed.wait(self.conf.retry_err_wait_s):
                    break
                try:
                    return ask(self._coordinator())
                except Denied:
                    raise
                except (ConnectError, _Elsewhere) as failure:
                    last = failure
                    self._forget()
                except UnknownTopic as failure:
                    last = failure
                    if time.monotonic() - began >= SPREAD_S or attempt == self.conf.retry_err_limit:
                        raise
                except (Closed, Unanswerable):
                    if not self._closed.is_set():
                        raise
            if self._closed.is_set():
                raise Closed(f"the coordinator of {self.conf.consumer_group} is closed") from last
        raise ConnectError(
            f"the coordinator of group {self.conf.consumer_group} does not answer: {last}"
        ) from last

    def _coordinator(self) -> Connection:
        """The connection to the coordinator; looked for when there is none."""
        if self._closed.is_set():
            raise Closed(f"the coordinator of {self.conf.consumer_group} is closed")
        if self._wire is None or self._wire.closed:
            self._wire = self._connected(*self._found())
        return self._wire

    def _found(self) -> tuple[str, int]:
        """Where the coordinator is, as the first broker says that answers."""
        last: KoffError | None = None
        for host, port in list(self._known):
            try:
                with self._connected(host, port) as wire:
                    answer = self._request(
                        wire, Api.FIND_COORDINATOR, key=self.conf.consumer_group, key_type=0
                    )
            except Denied:
                raise
            except ConnectError as failure:
                self._known.append(self._known.pop(0))  # who does not answer comes last
                last = failure
            else:
                self._judge(answer.error_code, "", -1)
                at = (answer.host, answer.port)
                if at not in self._known:
                    self._known.append(at)
                return at
        raise last or ConnectError("no broker is named")

    def _connected(self, host: str, port: int) -> Connection:
        patience = min(_ANSWER_S, self._cluster.connect_timeout_s)
        return Connection.connect(self._cluster, host, port, timeout_s=patience)

    def _forget(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    @staticmethod
    def _request(wire: Connection, api: Api, **fields: Any) -> Any:
        (answer,) = wire.ask([question(build(api, _version(wire, api), **fields))])
        return answer

    @staticmethod
    def _part(wire: Connection, api: Api, kind: str, /, **fields: Any) -> Any:
        return part(api, _version(wire, api), kind, **fields)

    def _judge(self, code: int, topic: str, partition: int) -> None:
        error, group = error_name(code), self.conf.consumer_group
        if not error:
            return
        if error in _PASSING:
            raise _Elsewhere(error)
        if error.endswith("AUTHORIZATION_FAILED"):
            raise Denied(
                f"no permission for the offsets of group {group} ({error}): grant this user READ on the "
                f"group and on topic {topic or 'that it commits for'}"
            )
        if error == "UNKNOWN_TOPIC_OR_PARTITION":
            raise UnknownTopic(f"group {group} cannot commit for {topic}/{partition}: there is none")
        cure = "stop its members first, or commit through them"
        raise CoordinatorError(
            f"the coordinator of group {group} refuses {topic}/{partition}: {error}"
            + (f"; {cure}" if error in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION") else "")
        )


class _Elsewhere(KoffError):
    """The coordinator is another by now, or not ready yet."""


def _version(wire: Connection, api: Api) -> int:
    version = wire.version(api)
    if version is None:
        raise Unanswerable(f"Kafka at {wire.address} has no {api.name} that koff knows")
    return min(version, _LAST[api])

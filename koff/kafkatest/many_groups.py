"""Thousands of groups that commit and have no members: `koff demo --groups 2000 --partitions 20000`."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf, TopicPartition
from koff.client.wire.connection import Connection
from koff.errors import KoffError
from koff.proto.requests import Api, EncodedRequest, build_request, build_struct, encode_request

_TOPICS = 20
_ROUND_S = 5.0
_BROKER_S = 30.0
_VERSION = 8
"""Of OffsetCommit; later ones name topics by their ids."""
_PACES = {0: 0.0, 1: 0.5, 2: 0.9}
"""Of each hundred groups, these commit only that share of what is written."""


@dataclass(frozen=True, slots=True)
class NumberedGroup:
    """Reads the first partitions of one topic."""

    number: int
    partitions: int

    @property
    def name(self) -> str:
        return f"group-{self.number:05}"

    @property
    def topic(self) -> str:
        return f"topic-{self.number % _TOPICS:02}"

    def choose_offset(self, first: int, end: int) -> int:
        """What the group commits when the partition's end offset was first `first`, and is now `end`."""
        return first + int((end - first) * _PACES.get(self.number % 100, 1.0))


def share_out(groups: int, partitions: int) -> list[NumberedGroup]:
    """So many groups, which read that many partitions together."""
    each, more = divmod(max(partitions, groups), groups)
    return [NumberedGroup(number, each + (number < more)) for number in range(groups)]


def list_topics(groups: list[NumberedGroup]) -> dict[str, int]:
    """The topics that the groups read, and how many partitions they have."""
    topics: dict[str, int] = {}
    for group in groups:
        topics[group.topic] = max(topics.get(group.topic, 0), group.partitions)
    return topics


class ManyGroups:
    """Commits for `groups` every five seconds, inside `with`. Their topics exist."""

    def __init__(self, bootstrap: str, groups: list[NumberedGroup]) -> None:
        self._conf, self._groups = ClusterConf(bootstrap), groups
        self._first: dict[TopicPartition, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="many-groups", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        topics = list_topics(self._groups).items()
        partitions = [TopicPartition(name, number) for name, count in topics for number in range(count)]
        with Cluster(self._conf) as cluster:
            while not self._stopping.is_set():
                began_s = time.monotonic()
                with suppress(KoffError):  # the next round commits what this one did not
                    listed = cluster.fetch_offsets(partitions)
                    ends = {at: found for at, found in listed.items() if isinstance(found, int)}
                    self._commit(cluster, ends)
                self._stopping.wait(began_s + _ROUND_S - time.monotonic())

    def _commit(self, cluster: Cluster, ends: Mapping[TopicPartition, int]) -> None:
        self._first = {**ends, **self._first}

        def send(connection: Connection) -> None:
            for _ in connection.send_requests(self._encode_commits(ends)):
                pass

        (broker,) = cluster.fetch_metadata().brokers
        cluster.brokers.lend((broker.host, broker.port), send, deadline=time.monotonic() + _BROKER_S)

    def _encode_commits(self, ends: Mapping[TopicPartition, int]) -> Iterator[EncodedRequest[Any]]:
        """A commit of each group until this ends."""
        for group in self._groups:
            if self._stopping.is_set():
                return
            at = [TopicPartition(group.topic, number) for number in range(group.partitions)]
            offsets = {
                each: group.choose_offset(self._first[each], ends[each]) for each in at if each in ends
            }
            yield encode_request(_build_commit(group, offsets))


def _build_commit(group: NumberedGroup, offsets: Mapping[TopicPartition, int]) -> Any:
    """A commit from outside the group, as admin tools send it."""

    def build(kind: str, /, **fields: Any) -> Any:
        return build_struct(Api.OFFSET_COMMIT, _VERSION, f"OffsetCommitRequest{kind}", **fields)

    committed = tuple(
        build("Partition", partition_index=at.partition, committed_offset=offset, committed_metadata="")
        for at, offset in offsets.items()
    )
    topics = (build("Topic", name=group.topic, partitions=committed),)
    return build_request(Api.OFFSET_COMMIT, _VERSION, group_id=group.name, member_id="", topics=topics)

"""Offsets in ZooKeeper, where Kafka's old tools look for them."""

from __future__ import annotations

from collections.abc import Mapping

from koff.client.cluster import TopicPartition
from koff.client.zookeeper.errors import ClaimLost
from koff.client.zookeeper.offset_manager import GroupHandle, OffsetManagerConf, PeriodicOffsets
from koff.client.zookeeper.session import BadVersion, NodeExists, NoNode
from koff.errors import ConnectError, KoffError


class ZooKeeperOffsetManager(PeriodicOffsets):
    """Keeps the offsets of `group` in `/consumers/GROUP/offsets`.

    A node's version fences: who begins with a partition writes the node anew, and whoever had it before
    knows an older version, with which nothing is written any more.
    """

    def __init__(self, group: GroupHandle, conf: OffsetManagerConf | None = None) -> None:
        self._session, self._paths = group.session, group.paths
        self._versions: dict[TopicPartition, int] = {}
        super().__init__(group.holds, conf or OffsetManagerConf(group.commit_interval_s))

    def _load(self, at: TopicPartition) -> int | None:
        path = self._paths.offset(*at)
        while True:
            try:
                data, stat = self._session.call("get", path)
                following = _number(data, path)
                self._versions[at] = self._session.call("set", path, data, version=stat.version).version
            except BadVersion:
                continue  # the one before us wrote just now
            except NoNode:
                self._versions.pop(at, None)
                return None
            return following

    def _store(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
        failed: dict[TopicPartition, KoffError] = {}
        for at, following in offsets.items():
            try:
                self._write(at, following)
            except KoffError as failure:
                failed[at] = failure
        return failed

    def _forget(self, at: TopicPartition) -> None:
        self._versions.pop(at, None)

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `PeriodicOffsets`."""
        for at, following in offsets.items():
            self._put(at, following, -1)

    def _write(self, at: TopicPartition, following: int) -> None:
        for _ in range(3):  # a tool may write while we do
            try:
                self._versions[at] = self._put(at, following, self._versions.get(at))
            except (BadVersion, NodeExists, NoNode):
                if not self._holds(*at):
                    raise ClaimLost(f"{at.topic}/{at.partition} is another instance's by now") from None
                self._learn_version(at)
            else:
                return
        raise ConnectError(f"{self._paths.offset(*at)} is written by others all the time: is a tool at work?")

    def _put(self, at: TopicPartition, following: int, version: int | None) -> int:
        """The node's version when it says that; None: it is to be made."""
        path, data = self._paths.offset(*at), str(following).encode()
        if version is not None:
            try:
                return int(self._session.call("set", path, data, version=version).version)
            except NoNode:
                if version != -1:
                    raise
        self._session.call("create", path, data, makepath=True)
        return 0

    def _learn_version(self, at: TopicPartition) -> None:
        found = self._session.call("exists", self._paths.offset(*at))
        if found is None:
            self._versions.pop(at, None)
        else:
            self._versions[at] = found.version


def _number(data: bytes, path: str) -> int:
    try:
        return int(data)
    except ValueError as failure:
        raise KoffError(
            f"{path} holds {data!r} instead of an offset: set it right, or delete it"
        ) from failure

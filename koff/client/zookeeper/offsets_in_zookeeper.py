"""An offset manager that commits to ZooKeeper, where Kafka's first consumers kept their offsets."""

from __future__ import annotations

from collections.abc import Mapping

from koff.client.cluster_conf import TopicPartition
from koff.client.zookeeper.errors import ClaimLost
from koff.client.zookeeper.offset_manager import GroupHandle, OffsetManagerConf, PeriodicOffsets
from koff.client.zookeeper.session import BadVersion, NodeExists, NoNode
from koff.errors import ConnectError, KoffError, copy_error

_WRITE_ATTEMPTS = 3


class ZooKeeperOffsetManager(PeriodicOffsets):
    """Keeps the group's offsets in `/consumers/GROUP/offsets`.

    The version of a partition's node fences earlier owners: a new owner writes the node once when it starts,
    and each commit names the version that it expects. An earlier owner expects an older version, so ZooKeeper
    refuses its commit. A partition without a node has no fence until the first commit.
    """

    def __init__(self, group: GroupHandle, conf: OffsetManagerConf | None = None) -> None:
        self._session, self._paths = group.session, group.paths
        self._versions: dict[TopicPartition, int] = {}
        super().__init__(group.owns, conf or OffsetManagerConf(group.commit_interval_s))

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `PeriodicOffsets`."""
        for partition, next_offset in offsets.items():
            for _ in range(_WRITE_ATTEMPTS):
                try:
                    self._write_node(partition, next_offset, -1)
                    break
                except (NodeExists, NoNode):
                    continue  # another client created or deleted the node in between
            else:
                raise self._make_changed_error(partition)

    def _load_offset(self, partition: TopicPartition) -> int | None:
        path = self._paths.offset(*partition)
        while True:
            try:
                data, stat = self._session.call("get", path)
                next_offset = _parse_offset(data, path)
                # Write the same offset again: from now on, ZooKeeper refuses commits of the earlier owner.
                written = self._session.call("set", path, data, version=stat.version)
                self._versions[partition] = written.version
            except BadVersion:
                continue  # the earlier owner committed between `get` and `set`: read its offset
            except NoNode:
                self._versions.pop(partition, None)
                return None
            return next_offset

    def _store_offsets(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
        failed: dict[TopicPartition, KoffError] = {}
        for partition, next_offset in offsets.items():
            try:
                self._store_offset(partition, next_offset)
            except KoffError as error:
                failed[partition] = copy_error(error)
        return failed

    def _forget_partition(self, partition: TopicPartition) -> None:
        self._versions.pop(partition, None)

    def _store_offset(self, partition: TopicPartition, next_offset: int) -> None:
        # Another version does not prove that the claim is lost: a tool may have written the node, or the
        # response to an earlier write of this member was lost. Only the owner node proves it.
        for _ in range(_WRITE_ATTEMPTS):
            try:
                version = self._write_node(partition, next_offset, self._versions.get(partition))
                self._versions[partition] = version
            except (BadVersion, NodeExists, NoNode):
                if not self._owns(*partition):
                    raise ClaimLost(
                        f"{partition.topic}/{partition.partition} is owned by another member now"
                    ) from None
                self._read_version(partition)
            else:
                return
        raise self._make_changed_error(partition)

    def _make_changed_error(self, partition: TopicPartition) -> ConnectError:
        return ConnectError(
            f"cannot commit: {self._paths.offset(*partition)} was changed by another client at each of "
            f"{_WRITE_ATTEMPTS} attempts; check whether a tool sets this group's offsets"
        )

    def _write_node(self, partition: TopicPartition, next_offset: int, version: int | None) -> int:
        """Writes the offset to the node at that `version`, and returns the node's new version.

        -1: any version, and a missing node is created. None: the node is created.
        """
        path, data = self._paths.offset(*partition), str(next_offset).encode()
        if version is not None:
            try:
                return int(self._session.call("set", path, data, version=version).version)
            except NoNode:
                if version != -1:
                    raise
        self._session.call("create", path, data, makepath=True)
        return 0  # the version of a new node

    def _read_version(self, partition: TopicPartition) -> None:
        stat = self._session.call("exists", self._paths.offset(*partition))
        if stat is None:
            self._versions.pop(partition, None)
        else:
            self._versions[partition] = stat.version


def _parse_offset(data: bytes, path: str) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise KoffError(
            f"{path} holds {data!r} instead of an offset: correct the node's data, or delete the node"
        ) from error

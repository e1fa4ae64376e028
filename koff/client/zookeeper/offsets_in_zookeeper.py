"""An offset manager that commits to ZooKeeper, where Kafka's first consumers kept their offsets."""

from collections.abc import Callable, Mapping

from koff.client.cluster_conf import TopicPartition
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
        """The version that the next commit expects; a partition without one has no node."""
        super().__init__(group, conf)

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `PeriodicOffsets`."""
        for partition, next_offset in offsets.items():
            self._write_offset(partition, next_offset, lambda _: None)

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

    def _store_offset(self, partition: TopicPartition, next_offset: int) -> None:
        # Another version does not prove that the claim is lost: a tool may have written the node, or the
        # response to an earlier write of this member was lost. Only the owner node proves it.
        self._write_offset(partition, next_offset, self._check_owner)

    def _write_offset(
        self, partition: TopicPartition, next_offset: int, check: Callable[[TopicPartition], None]
    ) -> None:
        """Writes the offset. Calls `check` before it replaces an offset that another client has written."""
        path, data = self._paths.offset(*partition), str(next_offset).encode()
        for _ in range(_WRITE_ATTEMPTS):
            version = self._versions.get(partition)
            try:
                if version is None:
                    self._session.call("create", path, data, makepath=True)
                    self._versions[partition] = 0  # the version of a new node
                else:
                    self._versions[partition] = self._session.call("set", path, data, version=version).version
                return
            except (BadVersion, NodeExists, NoNode):
                check(partition)
                self._read_version(partition)
        raise ConnectError(
            f"cannot commit: {path} was changed by another client at each of {_WRITE_ATTEMPTS} attempts; "
            "check whether a tool sets this group's offsets"
        )

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

"""An offset manager that commits to Kafka, for a group that is coordinated through ZooKeeper."""

from collections.abc import Mapping
from dataclasses import replace

from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.cluster_conf import TopicPartition
from koff.client.zookeeper.offset_manager import GroupHandle, OffsetManagerConf, PeriodicOffsets
from koff.errors import ConnectError, Denied, KoffError, copy_error

_RETRY_S = 0.2


class KafkaOffsetManager(PeriodicOffsets):
    """Keeps the group's offsets in `__consumer_offsets`, as offsets of a group without members.

    Kafka does not know which member owns a partition in ZooKeeper, and does not refuse the commit of an
    earlier owner. So the manager checks the owner in ZooKeeper right before each commit.
    """

    def __init__(self, group: GroupHandle, conf: OffsetManagerConf | None = None) -> None:
        patient = replace(group.cluster, patience_s=group.cluster.request_timeout_s)
        conf_of_group = OffsetCoordinatorConf(group.name, retry_err_wait_s=_RETRY_S)
        self._coordinator = GroupCoordinator(patient, conf_of_group)
        super().__init__(group, conf)

    def close(self) -> None:
        """See `OffsetManager`."""
        try:
            super().close()
        finally:
            self._coordinator.close()

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `PeriodicOffsets`."""
        self._coordinator.commit_offsets(offsets)

    def _load_offset(self, partition: TopicPartition) -> int | None:
        offset, _ = self._coordinator.offset(*partition)
        return offset if offset >= 0 else None

    def _store_offsets(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
        failed: dict[TopicPartition, KoffError] = {}
        for partition in offsets:
            try:
                self._check_owner(partition)
            except KoffError as error:
                failed[partition] = copy_error(error)
        owned = {partition: offset for partition, offset in offsets.items() if partition not in failed}
        try:
            self._coordinator.commit_offsets(owned)
        except KoffError as error:
            # Kafka may have refused some offsets and committed the others: one by one, each has its error.
            if len(owned) > 1 and (isinstance(error, Denied) or not isinstance(error, ConnectError)):
                for partition, offset in owned.items():
                    failed |= self._store_offsets({partition: offset})
            else:
                failed |= dict.fromkeys(owned, copy_error(error))
        return failed

"""An offset manager that commits to Kafka, for a group that is coordinated through ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer

from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.cluster_conf import TopicPartition
from koff.client.foreign_errors import (
    convert_foreign_error,
    extract_kafka_error,
    make_connect_error,
)
from koff.client.librdkafka import close_consumer, has_no_broker, new_client
from koff.client.zookeeper.errors import ClaimLost
from koff.client.zookeeper.offset_manager import GroupHandle, OffsetManagerConf, PeriodicOffsets
from koff.errors import ConnectError, KoffError, copy_error

_RETRY_S = 0.2


class KafkaOffsetManager(PeriodicOffsets):
    """Keeps the group's offsets in `__consumer_offsets`, as offsets of a group without members.

    Kafka does not know which member owns a partition in ZooKeeper, and does not refuse the commit of an
    earlier owner. So the manager asks ZooKeeper right before each commit.
    """

    def __init__(self, group: GroupHandle, conf: OffsetManagerConf | None = None) -> None:
        cluster = group.cluster
        self._make_error = partial(make_connect_error, cluster.brokers)
        self._timeout_s = cluster.request_timeout_s
        self._properties = {
            **cluster.librdkafka_properties(),
            "group.id": group.name,
            "enable.auto.commit": "false",
        }
        self._consumer: Any = new_client(Consumer, self._properties)
        # confluent-kafka reads past the end of metadata that another client has committed.
        self._coordinator = GroupCoordinator(
            cluster, OffsetCoordinatorConf(group.name, retry_err_limit=2, retry_err_wait_s=_RETRY_S)
        )
        super().__init__(group.owns, conf or OffsetManagerConf(group.commit_interval_s))

    def close(self) -> None:
        """See `OffsetManager`."""
        try:
            super().close()
        finally:
            close_consumer(self._consumer)
            self._coordinator.close()

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `PeriodicOffsets`."""
        for error in self._commit_to_kafka(offsets).values():
            raise error  # the first one

    def _load_offset(self, partition: TopicPartition) -> int | None:
        offset, _ = self._coordinator.offset(*partition)
        return offset if offset >= 0 else None

    def _store_offsets(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
        failed: dict[TopicPartition, KoffError] = {}
        owned = {}
        for partition, next_offset in offsets.items():
            try:
                if self._owns(*partition):
                    owned[partition] = next_offset
                else:
                    failed[partition] = ClaimLost(
                        f"{partition.topic}/{partition.partition} is owned by another member now"
                    )
            except ConnectError as error:
                failed[partition] = copy_error(error)
        return {**failed, **self._commit_to_kafka(owned)}

    def _commit_to_kafka(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
        """Commits the offsets in one request; returns the error of each partition that failed."""
        if not offsets:
            return {}
        requested = [
            confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()
        ]
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                committed = self._consumer.commit(offsets=requested, asynchronous=False)
            except Exception as error:
                cause = extract_kafka_error(error)
                if cause is not None and cause.retriable() and time.monotonic() < deadline:
                    time.sleep(_RETRY_S)
                    continue  # for example, the coordinator is still loading
                self._replace_consumer_without_brokers(requested[0].topic)
                failure = convert_foreign_error(error, "the offsets cannot be committed", self._make_error)
                return dict.fromkeys(offsets, failure)
            # The commit as a whole may succeed while single partitions have errors.
            return {
                TopicPartition(response.topic, response.partition): self._make_error([response.error])
                for response in committed
                if response.error is not None
            }

    def _replace_consumer_without_brokers(self, topic: str) -> None:
        """Makes a new consumer if the present one has forgotten all brokers (librdkafka issue 5301)."""
        if has_no_broker(self._consumer, topic):
            close_consumer(self._consumer)
            self._consumer = new_client(Consumer, self._properties)

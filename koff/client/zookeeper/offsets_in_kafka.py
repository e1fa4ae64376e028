"""Offsets in Kafka, for a group whose instances meet in ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException

from koff.client.cluster import TopicPartition
from koff.client.foreign_errors import connect_error, kafka_error
from koff.client.librdkafka import cut_off, new_client
from koff.client.zookeeper.errors import ClaimLost
from koff.client.zookeeper.offset_manager import GroupHandle, OffsetManagerConf, PeriodicOffsets
from koff.errors import ConnectError, KoffError

_RETRY_S = 0.2


class KafkaOffsetManager(PeriodicOffsets):
    """Keeps the offsets of `group` in `__consumer_offsets`, as those of a group without members.

    Kafka does not know whose a partition is in ZooKeeper: that is asked right before each commit.
    """

    def __init__(self, group: GroupHandle, conf: OffsetManagerConf | None = None) -> None:
        cluster = group.cluster
        self._brokers, self._timeout_s = cluster.brokers, cluster.request_timeout_s
        self._properties = {**cluster.librdkafka(), "group.id": group.name, "enable.auto.commit": "false"}
        self._consumer: Any = new_client(Consumer, self._properties)
        super().__init__(group.holds, conf or OffsetManagerConf(group.commit_interval_s))

    def close(self) -> None:
        """See `OffsetManager`."""
        try:
            super().close()
        finally:
            self._consumer.close()

    def _load(self, at: TopicPartition) -> int | None:
        asked = [confluent_kafka.TopicPartition(*at)]
        try:
            (found,) = self._consumer.committed(asked, timeout=self._timeout_s)
        except KafkaException as failure:
            self._look_after(at.topic)
            raise self._failed(failure) from failure
        if found.error is not None:
            raise self._failed(KafkaException(found.error))
        return found.offset if found.offset >= 0 else None

    def _store(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
        failed: dict[TopicPartition, KoffError] = {}
        ours = {}
        for at, following in offsets.items():
            try:
                if self._holds(*at):
                    ours[at] = following
                else:
                    failed[at] = ClaimLost(f"{at.topic}/{at.partition} is another instance's by now")
            except ConnectError as failure:
                failed[at] = failure
        return {**failed, **self._commit_now(ours)}

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `PeriodicOffsets`."""
        for failure in self._commit_now(offsets).values():
            raise failure

    def _commit_now(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
        if not offsets:
            return {}
        asked = [confluent_kafka.TopicPartition(*at, offset) for at, offset in offsets.items()]
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                told = self._consumer.commit(offsets=asked, asynchronous=False)
            except KafkaException as failure:
                error = kafka_error(failure)
                if error is not None and error.retriable() and time.monotonic() < deadline:
                    time.sleep(_RETRY_S)
                    continue
                self._look_after(asked[0].topic)
                return dict.fromkeys(offsets, self._failed(failure))
            return {
                TopicPartition(each.topic, each.partition): self._failed(KafkaException(each.error))
                for each in told
                if each.error is not None
            }

    def _look_after(self, topic: str) -> None:
        if cut_off(self._consumer, topic):
            self._consumer.close()
            self._consumer = new_client(Consumer, self._properties)

    def _failed(self, failure: KafkaException) -> ConnectError:
        error = kafka_error(failure)
        return connect_error(self._brokers, [error] if error else [], was_up=True)

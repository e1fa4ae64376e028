"""A connection to a cluster: producers, consumers and coordinators come from here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from confluent_kafka import KafkaError

from koff.client.broker.conf import (
    START_OFFSET_NEWEST,
    START_OFFSET_OLDEST,
    BrokerConf,
    ConsumerConf,
    OffsetCoordinatorConf,
    ProducerConf,
)
from koff.client.broker.consumer import PartitionConsumer
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.broker.producer import PartitionProducer
from koff.client.closing import Closing
from koff.client.cluster import SPREAD_S, Cluster, ClusterConf, OffsetSpec, TopicPartition
from koff.client.errors import UnknownTopic
from koff.client.feed.shared_feed import SharedFeed, absent
from koff.client.feed.source import FeedConf
from koff.client.metadata import Metadata
from koff.errors import Closed, ConfigError, ConnectError, Denied

T = TypeVar("T")


def dial(addresses: str | Sequence[str], conf: BrokerConf | None = None) -> Broker:
    """A connection to the cluster that has one of these "host:port" addresses, once it has told its metadata.

    Raises `ConnectError` when that fails as often as `conf` allows, `Denied` at once.
    """
    conf = conf or BrokerConf()
    reach = conf.cluster(addresses if isinstance(addresses, str) else ",".join(addresses))
    for _ in range(conf.dial_retry_limit):
        try:
            return _dialled(reach, conf)
        except Denied:
            raise
        except ConnectError:
            time.sleep(conf.dial_retry_wait_s)
    return _dialled(reach, conf)


def _dialled(reach: ClusterConf, conf: BrokerConf) -> Broker:
    cluster = Cluster(reach)  # anew for each try: librdkafka tells only once that all brokers are down
    try:
        cluster.connect(given_up=lambda: cluster.saw(KafkaError._ALL_BROKERS_DOWN))
        cluster.metadata()
    except BaseException:
        cluster.close()
        raise
    return Broker(cluster, conf)


class Broker(Closing):
    """A cluster that was reached; a `Client`. A context manager; threads may share it.

    `close` closes all that came from it. Every call after that raises `Closed`, on those too.
    """

    def __init__(self, cluster: Cluster, conf: BrokerConf) -> None:
        self.conf = conf
        self.id = cluster.id
        self._cluster = cluster
        self._making = threading.RLock()
        self._closed = threading.Event()
        self._counts: dict[str, int] = {}
        self._feeds: dict[FeedConf, list[SharedFeed]] = {}
        self._producers: dict[ProducerConf, PartitionProducer] = {}
        self._coordinators: list[GroupCoordinator] = []

    def __repr__(self) -> str:
        return f"<Broker at {self._cluster.conf.brokers}{', closed' if self._closed.is_set() else ''}>"

    def close(self) -> None:
        """Closes all connections. Safe to call twice."""
        with self._making:
            self._closed.set()
            parts: list[_Closable] = [*self._producers.values(), *self._coordinators]
            parts += [feed for feeds in self._feeds.values() for feed in feeds]
            self._producers, self._coordinators, self._feeds = {}, [], {}
        for part in parts:
            part.close()
        self._cluster.close()

    def metadata(self) -> Metadata:
        """The brokers and topics of the cluster as they are now."""
        return self._patiently(self._cluster.metadata)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has, asked anew. Raises `UnknownTopic`; never creates it."""
        described = self._patiently(lambda: self._cluster.fetch_topic(topic, patience_s=SPREAD_S))
        if described is None:
            self._counts.pop(topic, None)
            raise UnknownTopic(f"there is no topic {topic} at {self._cluster.conf.brokers}: check its name")
        self._counts[topic] = described.partitions
        return described.partitions

    def offset_earliest(self, topic: str, partition: int) -> int:
        """The oldest offset of the partition."""
        at = TopicPartition(topic, partition)
        return self.offsets([at], OffsetSpec.EARLIEST)[at]

    def offset_latest(self, topic: str, partition: int) -> int:
        """The offset that the partition's next message will have."""
        at = TopicPartition(topic, partition)
        return self.offsets([at], OffsetSpec.LATEST)[at]

    def offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec | int = OffsetSpec.LATEST
    ) -> dict[TopicPartition, int]:
        """The offset of every partition, asked for together; leaders that do not answer are asked again.

        `spec` may be a time in ms: the first offset at or after it, -1 where there is none. Raises
        `UnknownTopic`, or `ConnectError` that names the partitions without an answer.
        """
        wanted = [TopicPartition(*at) for at in partitions]
        found: dict[TopicPartition, int] = {}

        def ask() -> None:
            left = [at for at in wanted if at not in found]
            answers = self._cluster.offsets(left, spec)
            found.update({at: answer for at, answer in answers.items() if isinstance(answer, int)})
            missing = {at: answer for at, answer in answers.items() if isinstance(answer, str)}
            for at, reason in missing.items():
                if absent(self._cluster, at, reason):
                    raise UnknownTopic(f"there is no {at.topic}/{at.partition}: check topic and partition")
            if missing:
                reasons = ", ".join(f"{at.topic}/{at.partition} ({why})" for at, why in missing.items())
                raise ConnectError(f"no offset of {reasons}: check that the leaders run")

        self._patiently(ask)
        return found

    def producer(self, conf: ProducerConf | None = None) -> PartitionProducer:
        """A producer; those of the same configuration are one."""
        conf = conf or ProducerConf()
        with self._open():
            if conf not in self._producers:
                check = _nothing if self.conf.allow_topic_creation else self._check
                self._producers[conf] = PartitionProducer(self._conf(), conf, check)
            return self._producers[conf]

    def consumer(self, conf: ConsumerConf) -> PartitionConsumer:
        """A reader of one partition, from the start offset on. Raises `UnknownTopic`."""
        self._check_open()
        self._check(conf.topic, conf.partition)
        start = conf.start_offset
        if start < START_OFFSET_OLDEST:
            raise ConfigError(
                f"start_offset {start}: say an offset, START_OFFSET_OLDEST or START_OFFSET_NEWEST"
            )
        if start == START_OFFSET_NEWEST:
            start = self.offset_latest(conf.topic, conf.partition)
        leader_s = self.conf.leader_retry_limit * self.conf.leader_retry_wait_s
        patience_s = conf.retry_err_limit * (conf.retry_err_wait_s + leader_s)
        feed_conf = _feed_conf(conf)
        with self._open():
            for feed in self._feeds.setdefault(feed_conf, []):
                lane = feed.open(conf.topic, conf.partition, start)
                if lane is not None:
                    return PartitionConsumer(feed, lane, conf, patience_s=patience_s)
            feed = SharedFeed(self._cluster, feed_conf)
            self._feeds[feed_conf].append(feed)
            lane = feed.open(conf.topic, conf.partition, start)
            assert lane is not None
            return PartitionConsumer(feed, lane, conf, patience_s=patience_s)

    def offset_coordinator(self, conf: OffsetCoordinatorConf) -> GroupCoordinator:
        """Whoever keeps the offsets of the group."""
        with self._open():
            coordinator = GroupCoordinator(self._conf(), conf)
            self._coordinators.append(coordinator)
            return coordinator

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Room to make things in, which nobody closes meanwhile."""
        with self._making:
            self._check_open()
            yield

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closed(f"the connection to {self._cluster.conf.brokers} is closed")

    def _conf(self) -> ClusterConf:
        return self._cluster.conf

    def _check(self, topic: str, partition: int) -> None:
        """Raises `UnknownTopic` unless there is that partition; what was there is taken to be there still."""
        if not 0 <= partition < self._counts.get(topic, 0):
            count = self.partition_count(topic)
            if not 0 <= partition < count:
                raise UnknownTopic(f"{topic} has no partition {partition}: it has {count}, from 0 on")

    def _patiently(self, ask: Callable[[], T]) -> T:
        """The answer, asked for as often as the leader's retries allow."""
        self._check_open()
        for _ in range(self.conf.leader_retry_limit):
            try:
                return ask()
            except Denied:
                raise
            except ConnectError:
                if self._closed.wait(self.conf.leader_retry_wait_s):
                    break
        return ask()


class _Closable(Protocol):
    def close(self) -> None: ...


def _feed_conf(conf: ConsumerConf) -> FeedConf:
    return FeedConf(
        queue_kib=16_384,
        fetch_bytes=conf.max_fetch_bytes,
        fetch_max_bytes=max(16 << 20, conf.max_fetch_bytes),
        fetch_min_bytes=conf.min_fetch_bytes,
        fetch_wait_ms=int(conf.request_timeout_s * 1000),
        error_backoff_ms=int(conf.retry_err_wait_s * 1000),
        isolation=conf.isolation.value,
    )


def _nothing(topic: str, partition: int) -> None:
    """The cluster decides."""

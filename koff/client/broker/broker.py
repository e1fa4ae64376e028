"""A connection to a cluster, which makes producers, consumers and offset coordinators."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from koff.client.addresses import check_addresses
from koff.client.broker.conf import BrokerConf, ConsumerConf, OffsetCoordinatorConf, ProducerConf
from koff.client.broker.consumer import PartitionConsumer
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.broker.producer import PartitionProducer
from koff.client.calls import call_in_thread
from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.client.cluster_conf import TOPIC_PROPAGATION_S, Isolation, OffsetSpec, TopicPartition
from koff.client.errors import UnknownTopic
from koff.client.feed.shared_feed import SharedFeed
from koff.client.feed.source import FeedConf
from koff.client.metadata import Metadata
from koff.client.patience import Patience
from koff.client.start_offset import StartOffset
from koff.client.topic_names import check_partition
from koff.errors import Closed, ConfigError, ConnectError

T = TypeVar("T")


def dial(addresses: str | Sequence[str], conf: BrokerConf | None = None) -> Broker:
    """A connection to a cluster, after its metadata was fetched once.

    `addresses` are "host:port" of some brokers: one text with commas, or a sequence. The caller closes the
    connection. Raises `ConfigError` without an address, `ConnectError` when no broker could be reached within
    `conf.patience_s`, and `Denied`, without retries, when the cluster refuses the log-in.
    """
    chosen = conf or BrokerConf()
    brokers = addresses if isinstance(addresses, str) else ",".join(addresses)
    check_addresses(brokers)
    cluster_conf = chosen.cluster_conf(brokers)

    def dial_once() -> Broker:
        cluster = Cluster(cluster_conf)
        try:
            cluster.connect()
            cluster.fetch_metadata()
        except BaseException:
            cluster.close()
            raise
        return Broker(cluster, chosen)

    return Patience(chosen.patience_s, chosen.dial_retry_limit).retry(dial_once, chosen.dial_retry_wait_s)


class Broker(Closing):
    """A connection to one Kafka cluster, made by `dial`. Threads may share it.

    It makes producers, consumers and offset coordinators, and fetches metadata and offsets. It is a context
    manager and a `Client`. `close` also closes everything that the connection made. After that, every call
    on the connection and on these objects raises `Closed`. These objects keep the connection: only when all
    are garbage without a `close`, the connection closes itself, with a `ResourceWarning`.

    `id` is the cluster's id, `conf` the configuration that `dial` was given.
    """

    def __init__(self, cluster: Cluster, conf: BrokerConf) -> None:
        self.conf = conf
        self.id = cluster.id
        self._cluster = cluster
        self._lock = threading.RLock()
        """Guards the dictionaries and the list below, and keeps `close` out while an object is made."""
        self._closed = threading.Event()
        self._partition_counts: dict[str, int] = {}
        self._feeds: dict[FeedConf, SharedFeed] = {}
        self._producers: dict[ProducerConf, PartitionProducer] = {}
        self._coordinators: weakref.WeakSet[GroupCoordinator] = weakref.WeakSet()

    def __repr__(self) -> str:  # names no properties: they hold secrets
        return f"<Broker at {self._cluster.conf.brokers}{', closed' if self._closed.is_set() else ''}>"

    def __del__(self) -> None:
        """Closes a connection that nobody closed, once nobody uses what it made either."""
        closed = getattr(self, "_closed", None)  # missing if `__init__` failed
        if closed is None or closed.is_set() or self.is_of_other_process:
            return
        warning = f"{self!r} was not closed"
        # Not here: the garbage collector may call this anywhere, and closing may wait for a broker.
        call_in_thread(self.close)
        warnings.warn(warning, ResourceWarning, source=self, stacklevel=2)

    def close(self) -> None:
        """Closes all connections, producers, consumers and coordinators. Safe to call twice."""
        with self._lock:
            self._closed.set()
            closables: list[Closing] = [
                *self._producers.values(),
                *self._coordinators,
                *self._feeds.values(),
            ]
            self._producers, self._feeds = {}, {}
            self._coordinators.clear()
        # Close them without the lock: a feed's `close` waits for threads that are fetching.
        for closable in closables:
            closable.close()
        self._cluster.close()

    def metadata(self) -> Metadata:
        """The brokers and topics of the cluster as they are now. Raises `ConnectError`."""
        return self._with_leader_retries(self._cluster.fetch_metadata)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has now. Never creates the topic.

        Raises `UnknownTopic` after one second: the brokers learn of a new topic one after another.
        """
        check_partition(topic)
        described = self._with_leader_retries(
            lambda: self._cluster.fetch_topic(topic, patience_s=TOPIC_PROPAGATION_S)
        )
        if described is None:
            self._partition_counts.pop(topic, None)
            raise UnknownTopic(
                f"there is no topic {topic} at {self._cluster.conf.brokers}: check its name, or create it"
            )
        self._partition_counts[topic] = described.partitions
        return described.partitions

    def offset_earliest(self, topic: str, partition: int) -> int:
        """The log start offset: the oldest offset that the partition still has. Raises as `offsets` does."""
        requested = TopicPartition(topic, partition)
        return self.offsets([requested], OffsetSpec.EARLIEST)[requested]

    def offset_latest(self, topic: str, partition: int) -> int:
        """The end offset: the offset of the next message of the partition. Raises as `offsets` does."""
        requested = TopicPartition(topic, partition)
        return self.offsets([requested], OffsetSpec.LATEST)[requested]

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec | int = OffsetSpec.LATEST,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        """The offset of every partition, fetched together.

        LATEST is the high watermark, or with READ_COMMITTED the last stable offset.
        `spec` may be a time in ms since the epoch: then the first offset at or after that time, -1 if there
        is none. A request to a leader that does not respond is repeated for `patience_s`. After
        that, raises `ConnectError` with the names of the partitions without an offset. Raises `UnknownTopic`
        for a partition that does not exist.
        """
        requested = [TopicPartition(*partition) for partition in partitions]
        for each in requested:
            check_partition(*each)
        if isinstance(spec, int) and not 0 <= spec < 1 << 63:
            raise ConfigError(f"{spec} is no time in ms since the epoch: use 0 or more")
        offsets: dict[TopicPartition, int] = {}

        def fetch_missing() -> None:
            # A retry requests only the offsets that are still missing.
            results = self._cluster.fetch_offsets([p for p in requested if p not in offsets], spec, isolation)
            offsets.update({p: offset for p, offset in results.items() if isinstance(offset, int)})
            missing = {p: reason for p, reason in results.items() if isinstance(reason, str)}
            for p, reason in missing.items():
                if self._cluster.lacks_partition(p, reason):
                    raise UnknownTopic(f"there is no {p.topic}/{p.partition}: check topic and partition")
            # `_with_leader_retries` catches this error and calls again.
            if missing:
                reasons = ", ".join(f"{p.topic}/{p.partition} ({reason})" for p, reason in missing.items())
                raise ConnectError(f"cannot fetch offsets of {reasons}: check that the leaders run")

        self._with_leader_retries(fetch_missing)
        return offsets

    def producer(self, conf: ProducerConf | None = None) -> PartitionProducer:
        """A producer. Two calls with the same configuration return the same producer."""
        conf = conf or ProducerConf()
        with self._keep_open():
            if conf not in self._producers:
                creates_topics = self.conf.allow_topic_creation
                # With `allow_topic_creation` the cluster decides whether the partition exists.
                check = check_partition if creates_topics else self._check_partition
                self._producers[conf] = PartitionProducer(
                    self._cluster.conf, conf, check, creates_topics=creates_topics
                )
            return self._producers[conf]

    def consumer(self, conf: ConsumerConf) -> PartitionConsumer:
        """A consumer of one partition, which reads from `conf.start_offset`.

        The caller closes it; otherwise `close` of this connection does. A consumer that is garbage before
        that causes a `ResourceWarning`. Raises `UnknownTopic` and `ConnectError`.
        """
        self._check_open()
        self._check_partition(conf.topic, conf.partition)
        # The start offset. OLDEST (-2) stays: librdkafka's OFFSET_BEGINNING has the same value.
        start = conf.start_offset
        if start == StartOffset.NEWEST:
            # Now, not at the first `consume`. With READ_COMMITTED that is the last stable offset.
            newest = TopicPartition(conf.topic, conf.partition)
            start = self.offsets([newest], OffsetSpec.LATEST, conf.isolation)[newest]
        # How long fetches may fail: with a limit, each failed fetch costs one retry wait.
        limit = conf.retry_err_limit
        patience_s = self.conf.patience_s if limit is None else limit * conf.retry_err_wait_s
        feed_conf = _build_feed_conf(conf)
        with self._keep_open():
            if feed_conf not in self._feeds:
                self._feeds[feed_conf] = SharedFeed(self._cluster, feed_conf, self._keep_one_idle)
            feed = self._feeds[feed_conf]
            buffer = feed.open_buffer(conf.topic, conf.partition, start)
            return PartitionConsumer(feed, buffer, conf, patience_s=patience_s, owner=self)

    def _keep_one_idle(self, idle: SharedFeed) -> None:
        """Closes the feeds that are not used any more, except the one that became idle last.

        It is kept, because a program may open one consumer after another. Called in a thread of its own:
        `close` of a feed may wait for a fetch.
        """
        with self._lock:
            unused = {c: feed for c, feed in self._feeds.items() if feed.is_idle and feed is not idle}
            for conf in unused:
                del self._feeds[conf]
        for feed in unused.values():
            feed.close()

    def offset_coordinator(self, conf: OffsetCoordinatorConf) -> GroupCoordinator:
        """A client of the group's coordinator, which commits and fetches the group's offsets."""
        with self._keep_open():
            coordinator = GroupCoordinator(self._cluster.conf, conf, owner=self)
            self._coordinators.add(coordinator)
            return coordinator

    @contextmanager
    def _keep_open(self) -> Iterator[None]:
        """Holds the lock, so that no thread closes the connection meanwhile. Raises `Closed`."""
        self.check_process()  # before the lock: in a forked process it may be held for ever
        with self._lock:
            self._check_open()
            yield

    def _check_open(self) -> None:
        self.check_process()
        if self._closed.is_set():
            raise Closed(f"the connection to {self._cluster.conf.brokers} is closed")

    def _check_partition(self, topic: str, partition: int) -> None:
        """Raises `UnknownTopic` unless the partition exists.

        Sends no request if the partition existed before: Kafka removes partitions only with their topic.
        """
        check_partition(topic, partition)
        if not 0 <= partition < self._partition_counts.get(topic, 0):
            count = self.partition_count(topic)
            if not 0 <= partition < count:
                raise UnknownTopic(f"{topic} has no partition {partition}: it has {count}, numbered from 0")

    def _with_leader_retries(self, call: Callable[[], T]) -> T:
        """The result of `call`, which raises `Closed` once the connection is closed."""

        def wait(wait_s: float) -> None:
            self._closed.wait(wait_s)
            self._check_open()

        self._check_open()
        patience = Patience(self.conf.patience_s, self.conf.leader_retry_limit)
        return patience.retry(call, self.conf.leader_retry_wait_s, wait)


def _build_feed_conf(conf: ConsumerConf) -> FeedConf:
    return FeedConf(
        queue_kib=16_384,
        fetch_bytes=conf.max_fetch_bytes,
        fetch_max_bytes=max(16 << 20, conf.max_fetch_bytes),  # of all partitions in a fetch
        fetch_min_bytes=conf.min_fetch_bytes,
        fetch_wait_ms=int(conf.request_timeout_s * 1000),
        error_backoff_ms=int(conf.retry_err_wait_s * 1000),
        isolation=conf.isolation.value,
    )

"""A consumer group whose instances meet in ZooKeeper, as Kafka's first consumers did."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType

import structlog

from koff.client.closing import Closing
from koff.client.cluster import Cluster, ClusterConf, TopicPartition
from koff.client.message import Message
from koff.client.zookeeper.claims import Claim
from koff.client.zookeeper.conf import ConsumerGroupConf
from koff.client.zookeeper.delivery import Delivery
from koff.client.zookeeper.errors import AlreadyClosing, PartitionError, UncleanClose
from koff.client.zookeeper.intake import INITIAL, Intake
from koff.client.zookeeper.membership import Membership
from koff.client.zookeeper.offset_manager import OffsetManager, PeriodicOffsets
from koff.client.zookeeper.offsets_in_zookeeper import ZooKeeperOffsetManager
from koff.client.zookeeper.session import NoNode, Session
from koff.client.zookeeper.znodes import BROKERS, GroupPaths, Registration, bootstrap, new_member_id
from koff.errors import ConfigError, ConnectError, KoffError

_ERRORS = 1000
"""So many errors wait to be read; the oldest go first. All are in the log."""
_RETRY_S = 0.2


def join_consumer_group(
    name: str,
    topics: Sequence[str],
    zookeeper: str | Sequence[str],
    config: ConsumerGroupConf | None = None,
) -> ConsumerGroup:
    """An instance of the group, registered at `zookeeper` (`host:port,...[/chroot]`); the caller closes it.

    Raises `ConnectError` when ZooKeeper or Kafka cannot be reached, `ConfigError` when no brokers are known.
    """
    conf = config or ConsumerGroupConf()
    if not name or "/" in name or not topics:
        raise ConfigError(
            f"a group needs a name without a slash and at least one topic: {name!r}, {list(topics)}"
        )
    group = ConsumerGroup(name, topics, zookeeper, conf)
    try:
        group.join()
    except BaseException:
        group.abandon()
        raise
    return group


class ConsumerGroup(Closing):
    """One instance of a group; made by `join_consumer_group`. A context manager.

    Leaving it by an exception does not wait for messages that are out.
    """

    def __init__(
        self, name: str, topics: Sequence[str], zookeeper: str | Sequence[str], conf: ConsumerGroupConf
    ) -> None:
        self.name = name
        self.topics = tuple(dict.fromkeys(topics))
        self.conf = conf
        self.id = new_member_id(name)
        self.paths = GroupPaths(name)
        self.log = structlog.get_logger(component="client.zookeeper", group=name, member=self.id)
        self._wake, self._done, self._stopping = threading.Event(), threading.Event(), threading.Event()
        self._closing = threading.Lock()
        self._errors: deque[KoffError] = deque(maxlen=_ERRORS)
        self._errors_come = threading.Condition()
        self._unclean: list[PartitionError] = []
        self._partitions: dict[str, int] = {}
        self._intakes: dict[str, Intake] = {}
        self._threads: list[threading.Thread] = []
        self._drain_s = conf.processing_timeout_s
        self._membership: Membership | None = None
        self._offsets: OffsetManager | None = None
        self._cluster: Cluster | None = None
        self._delivery = Delivery(
            limit=conf.buffer_messages,
            max_redeliveries=conf.max_redeliveries,
            trusted=self._trusted,
            processed=self._processed,
            failed=self._fail,
        )
        self.session = Session(
            zookeeper,
            timeout_s=conf.session_timeout_s,
            connect_timeout_s=conf.connect_timeout_s,
            changed=self._changed,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is not None:
            self._drain_s = 0.0
        try:
            self.close()
        except AlreadyClosing:
            self._done.wait()
        except KoffError:
            if kind is None:
                raise

    @property
    def cluster(self) -> ClusterConf:
        """How to reach the brokers, given or looked up."""
        assert self._cluster is not None
        return self._cluster.conf

    @property
    def commit_interval_s(self) -> float:
        """How often offsets are committed."""
        return self.conf.commit_interval_s

    @property
    def closed(self) -> bool:
        """Whether it has been shut down."""
        return self._done.is_set()

    def wait_closed(self, timeout_s: float | None = None) -> bool:
        """Whether it has been shut down, waiting for that."""
        return self._done.wait(timeout_s)

    @property
    def claims(self) -> dict[TopicPartition, int]:
        """The partitions that this instance has now, each with the zxid of its claim.

        Of two claims of a partition the later has the higher one, whichever instances made them.
        """
        claims = list(self._membership.claims.values()) if self._membership else []
        return {TopicPartition(*claim.at): claim.czxid for claim in claims}

    def messages(self) -> Iterator[Message]:
        """The messages of this instance's partitions, as they come; ends when the group is closed.

        In order within a partition, but for those that failed. Each is to be acknowledged, by itself or by
        `commit_up_to`.
        """
        while (message := self._delivery.take()) is not None:
            yield message

    def errors(self) -> Iterator[KoffError]:
        """What went wrong, as it comes; ends when the group is closed. `PartitionError` names its partition.

        Nobody needs to read them: all are logged, and the latest thousand are kept.
        """
        while True:
            with self._errors_come:
                while not self._errors:
                    if self.closed:
                        return
                    self._errors_come.wait(_RETRY_S)
                error = self._errors.popleft()
            yield error

    def commit_up_to(self, message: Message) -> None:
        """Marks the message and all before it in its partition as processed; they are committed soon.

        Raises `ClaimLost` when the partition is another instance's by now.
        """
        claims = self._membership.claims if self._membership else {}
        self._delivery.up_to(claims.get((message.topic, message.partition)), message)

    def flush_offsets(self) -> None:
        """Commits what was processed, now. Raises `KoffError` when that fails."""
        if self._offsets is not None:
            self._offsets.flush()

    def instance_registered(self) -> bool:
        """Whether ZooKeeper knows this instance. Raises `ConnectError` when it does not answer."""
        stat = self.session.call("exists", self.paths.member(self.id))
        return stat is not None and stat.ephemeralOwner == self.session.id

    def holds(self, topic: str, partition: int) -> bool:
        """Whether the partition is this instance's, asked of ZooKeeper. Raises `ConnectError`."""
        return self._membership is not None and self._membership.holds((topic, partition))

    def close(self) -> None:
        """Leaves the group: waits for what is out to be processed, commits, gives up all claims.

        Raises `AlreadyClosing` the second time, `UncleanClose` when not all offsets were committed.
        """
        if not self._closing.acquire(blocking=False):
            raise AlreadyClosing(f"the consumer group {self.name} is already shutting down")
        try:
            self._delivery.end()
            self._stopping.set()
            self._wake.set()
            for thread in self._threads:
                thread.join()
            self._leave()
        finally:
            self.abandon()
        if self._unclean:
            raise UncleanClose(
                f"not all offsets of {self.name} were committed before shutdown was completed: "
                + "; ".join(map(str, self._unclean))
            ) from self._unclean[0]

    def join(self) -> None:
        """Connects, registers and begins; called once, by `join_consumer_group`."""
        self.session.connect(make_chroot=True)
        self._cluster = Cluster(self.conf.cluster or self._look_up_brokers()).connect()
        self._look_at_topics()
        make = self.conf.offset_manager or ZooKeeperOffsetManager
        self._offsets = make(self)
        if self.conf.reset_offsets:
            self._reset_offsets()
        for topic in self.topics:
            self._intakes[topic] = Intake(
                topic, self._cluster, self.conf, self._delivery, self._offsets, self._fail, self._wake.set
            )
        self._membership = Membership(
            self.session,
            self.paths,
            self.id,
            Registration(dict.fromkeys(self.topics, 1)),
            self._delivery,
            self._intakes,
            lambda: self._partitions,
            self.conf.processing_timeout_s,
        )
        self._membership.round()
        for work in (self._do_rounds, self._keep_looking_at_topics):
            thread = threading.Thread(target=work, name=f"koff-group-{self.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def abandon(self) -> None:
        """Lets go of everything, without a word to anybody. Safe to call twice."""
        self._stopping.set()
        self._delivery.end()
        for intake in self._intakes.values():
            intake.close()
        self._close_offsets()
        self.session.close()
        if self._cluster is not None:
            self._cluster.close()
        self._done.set()
        with self._errors_come:
            self._errors_come.notify_all()

    def _do_rounds(self) -> None:
        assert self._membership is not None
        while not self._stopping.is_set():
            pause_s = self._round(self._membership)
            self._wake.wait(pause_s)
            self._wake.clear()

    def _round(self, membership: Membership) -> float:
        try:
            return membership.round()
        except ConnectError as failure:
            self.log.debug("round not finished", why=str(failure))
        except NoNode as failure:  # somebody removes the group's nodes while we use them
            self.log.warning("a node is gone", why=repr(failure))
        return _RETRY_S

    def _leave(self) -> None:
        """Gives everything up in order, as long as the messages that are out may take."""
        membership = self._membership
        if membership is None:
            return
        membership.leaving = True
        deadline = time.monotonic() + self._drain_s
        membership.stop_all(deadline)
        while membership.claims or membership.registered:
            try:
                membership.leave()
                membership.round()
            except (ConnectError, NoNode) as failure:
                if time.monotonic() >= deadline:
                    self.log.warning("left without a word", why=str(failure))
                    for at in membership.claims:
                        self._fail(PartitionError(*at, f"given up without a commit: {failure}"))
                    membership.give_up()
                    break
            self._wake.wait(0.02)
            self._wake.clear()

    def _close_offsets(self) -> None:
        offsets, self._offsets = self._offsets, None
        if offsets is not None:
            try:
                offsets.close()
            except KoffError as failure:
                self.log.warning("offsets are not all committed", why=str(failure))

    def _reset_offsets(self) -> None:
        """Sets the group to the initial offset, unless another instance is at work."""
        others = self.session.children(self.paths.ids)
        if others:
            self.log.warning("offsets are not reset: other instances are registered", others=len(others))
            return
        if not isinstance(self._offsets, PeriodicOffsets):
            raise ConfigError("reset_offsets: this offset manager knows no reset; reset its offsets there")
        assert self._cluster is not None
        wanted = [TopicPartition(t, p) for t, count in self._partitions.items() for p in range(count)]
        found = self._cluster.offsets(wanted, INITIAL[self.conf.initial_offset])
        failed = {at: why for at, why in found.items() if isinstance(why, str)}
        if failed:
            raise ConnectError(f"offsets are not reset: no offset of {next(iter(failed.items()))}")
        self._offsets.reset({at: offset for at, offset in found.items() if isinstance(offset, int)})

    def _look_up_brokers(self) -> ClusterConf:
        numbers = self.session.children(BROKERS)
        found = bootstrap([self.session.call("get", f"{BROKERS}/{each}")[0] for each in numbers])
        if not found:
            raise ConfigError(
                f"ZooKeeper at {self.session.hosts} knows no brokers (in {BROKERS}): name them in the "
                "config's cluster, or add Kafka's chroot to the address"
            )
        return ClusterConf(found)

    def _look_at_topics(self) -> None:
        assert self._cluster is not None
        all_ = self._cluster.topics()  # describing them would need the controller, which may be gone just now
        found = {topic: all_[topic] for topic in self.topics if topic in all_}
        if found != self._partitions:
            missing = [topic for topic in self.topics if topic not in found]
            if missing:
                self.log.warning("topics are not there yet, or may not be described", topics=missing)
            self._partitions = found
            self._changed()

    def _keep_looking_at_topics(self) -> None:
        while not self._stopping.wait(self.conf.metadata_interval_s):
            try:
                self._look_at_topics()
            except ConnectError as failure:
                self.log.warning("topics are not known anew", why=str(failure))

    def _trusted(self, claim: Claim) -> bool:
        """Whether ZooKeeper surely keeps the claim for now. Once it does not, it is never again."""
        return (
            claim.session_number == self.session.number
            and self.session.trusted
            and not self._stopping.is_set()
        )

    def _processed(self, claim: Claim, offset: int) -> None:
        if self._offsets is not None:
            self._offsets.mark_as_processed(*claim.at, offset)

    def _changed(self) -> None:
        if self._membership is not None:
            self._membership.dirty.set()
        self._wake.set()

    def _fail(self, failure: PartitionError) -> None:
        self.log.warning("trouble", topic=failure.topic, partition=failure.partition, why=str(failure))
        if self._stopping.is_set() and failure.message is None:
            self._unclean.append(failure)
        with self._errors_come:
            self._errors.append(failure)
            self._errors_come.notify()

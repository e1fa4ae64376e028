"""A consumer group whose members coordinate through ZooKeeper, as Kafka's first consumers did."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf, TopicPartition
from koff.client.message import Message
from koff.client.redelivery.conf import RedeliveryCounts
from koff.client.redelivery.dead_letters import DeadLetters
from koff.client.redelivery.errors import ErrorQueue, PartitionError
from koff.client.topic_names import find_topic_fault
from koff.client.zookeeper.brokers import find_brokers
from koff.client.zookeeper.claims import Claim
from koff.client.zookeeper.conf import ConsumerGroupConf
from koff.client.zookeeper.delivery import Delivery
from koff.client.zookeeper.errors import (
    AlreadyClosing,
    UncleanClose,
    ZooKeeperLost,
    make_koff_error,
)
from koff.client.zookeeper.intake import Intake
from koff.client.zookeeper.membership import Membership
from koff.client.zookeeper.offset_manager import OffsetManager
from koff.client.zookeeper.offset_reset import reset_offsets
from koff.client.zookeeper.offsets_in_zookeeper import ZooKeeperOffsetManager
from koff.client.zookeeper.session import NoNode, Session
from koff.client.zookeeper.znodes import GroupPaths, Registration, new_member_id
from koff.errors import ConfigError, ConnectError, KoffError, copy_error
from koff.logs import get_logger

_RETRY_S = 0.2
_CLOSE_GRACE_S = 10.0
"""How much longer than the drain timeout `close` waits for an offset manager that does not return."""
_LEAVE_PAUSE_S = 0.02
"""The pause between rounds while the member leaves: acknowledgements do not wake the leaving thread."""


def join_consumer_group(
    name: str,
    topics: Sequence[str],
    zookeeper: str | Sequence[str],
    config: ConsumerGroupConf | None = None,
) -> ConsumerGroup:
    """A new member of the group, registered at `zookeeper` (`host:port,...[/chroot]`); the caller closes it.

    Raises `ConnectError` when ZooKeeper or Kafka cannot be reached, and `ConfigError` when `config` names no
    cluster and no broker is registered in ZooKeeper.
    """
    conf = config or ConsumerGroupConf()
    if not name or "/" in name or not topics:
        raise ConfigError(
            f"a group needs a name without a slash, and at least one topic: got {name!r} and {list(topics)}"
        )
    group = ConsumerGroup(name, topics, zookeeper, conf)
    try:
        group.join()
    except BaseException as error:
        group.abandon()
        if isinstance(error, KoffError) or not isinstance(error, Exception):
            raise
        # Another client deleted a node of the group, or an offset manager of the application failed.
        raise make_koff_error(f"the group {name} cannot be joined", error) from error
    return group


class ConsumerGroup(Closing):
    """One member of a consumer group, made by `join_consumer_group`. A context manager.

    When the `with` block ends by an exception, the member leaves without waiting until handed-out messages
    are processed.
    """

    def __init__(
        self, name: str, topics: Sequence[str], zookeeper: str | Sequence[str], conf: ConsumerGroupConf
    ) -> None:
        self.name = name
        self.topics = tuple(dict.fromkeys(topics))
        for fault in filter(None, map(find_topic_fault, self.topics)):
            raise ConfigError(fault)
        self.conf = conf
        self.id = new_member_id(name)
        self.paths = GroupPaths(name)
        self.log = get_logger("client.zookeeper", group=name, member=self.id)
        # The shutdown: `_stopping` is set at its start, `_closed` at its end; the first `close` takes
        # `_closing` and never releases it.
        self._wake, self._closed, self._stopping = threading.Event(), threading.Event(), threading.Event()
        self._closing = threading.Lock()
        self._iterating: dict[object, int] = {}
        """The thread of each iterator of `messages` that has not ended."""
        # The errors for `errors`, and for the end of the shutdown.
        self._errors = ErrorQueue()
        self._close_errors: list[KoffError] = []
        """Errors since the shutdown began, for `UncleanClose`."""
        # The parts that `join` makes.
        self._partition_counts: dict[str, int] = {}
        self._intakes: dict[str, Intake] = {}
        self._threads: list[threading.Thread] = []
        self._drain_timeout_s = conf.processing_timeout_s
        self._session_number = 0
        self._outage_reported = False
        self._membership: Membership | None = None
        self._offsets: OffsetManager | None = None
        self._cluster: Cluster | None = None
        # The parts that exist from the start.
        self._delivery = Delivery(
            limit=conf.buffer_messages,
            max_redeliveries=conf.max_redeliveries,
            redelivery=conf.redelivery,
            is_trusted=self._is_trusted,
            on_processed=self._mark_processed,
            on_error=self._report_error,
            write_dead_letter=self._write_dead_letter if conf.redelivery.dead_letter_topic else None,
        )
        self._dead_letters: DeadLetters | None = None
        self.session = Session(
            zookeeper,
            timeout_s=conf.session_timeout_s,
            connect_timeout_s=conf.connect_timeout_s,
            login=conf.zookeeper_login,
            on_change=self._request_rebalance,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is not None:
            self._drain_timeout_s = 0.0
        # Unlike `close`, always waits: the block is left, so no message of it is being processed.
        if self._closing.acquire(blocking=False):
            self._shut_down()
        self._closed.wait()
        if kind is None:
            self._raise_close_errors()

    @property
    def cluster(self) -> ClusterConf:
        """How to reach the brokers: as configured, or as found in ZooKeeper."""
        assert self._cluster is not None
        return self._cluster.conf

    @property
    def commit_interval_s(self) -> float:
        """How often offsets are committed."""
        return self.conf.commit_interval_s

    @property
    def closed(self) -> bool:
        """Whether the shutdown is completed."""
        return self._closed.is_set()

    def wait_closed(self, timeout_s: float | None = None) -> bool:
        """Waits until the shutdown is completed; returns whether it is."""
        return self._closed.wait(timeout_s)

    @property
    def claims(self) -> dict[TopicPartition, int]:
        """The partitions that this member owns, each with the zxid of its claim.

        Of two claims of a partition, the later claim has the higher zxid, also when two members made them.
        """
        claims = list(self._membership.claims.values()) if self._membership else []
        return {claim.topic_partition: claim.czxid for claim in claims}

    def messages(self) -> Iterator[Message]:
        """The messages of this member's partitions, as they arrive; ends when `close` is called.

        Messages of a partition come in order, except redelivered messages. The application acknowledges each
        message, by its `ack` or by `commit_up_to`.
        """
        iterator = object()
        try:
            while True:
                self._iterating[iterator] = threading.get_ident()
                message = self._delivery.take_message()
                if message is None:
                    return
                yield message
        finally:
            self._iterating.pop(iterator, None)

    def errors(self) -> Iterator[KoffError]:
        """The errors of this member, as they occur; ends when the shutdown is completed.

        A `PartitionError` names its partition. The application need not read the errors: all are logged, and
        the latest 1,000 are kept.
        """
        while True:
            error = self._errors.take_error(lambda: self.closed)
            if error is None:
                return
            yield error

    @property
    def redelivery_counts(self) -> RedeliveryCounts:
        """How often this member delivered a message again after `nack`, and passed one over."""
        return self._delivery.counts

    def commit_up_to(self, message: Message) -> None:
        """Marks the message, and all before it in its partition, as processed; the next commit includes them.

        Raises `ClaimLost` when this member has lost the claim under which it handed out the message, also if
        it owns the partition again since: another member may have owned the partition in between.
        """
        self._delivery.mark_processed_up_to(message)

    def flush_offsets(self) -> None:
        """Commits the offsets of all processed messages now. Raises `KoffError` when that fails."""
        if self._offsets is None:
            return
        try:
            self._offsets.flush()
        except KoffError:
            raise
        except Exception as error:  # of an offset manager of the application
            raise make_koff_error("the offsets cannot be committed", error) from error

    def instance_registered(self) -> bool:
        """Whether this member is registered: asks ZooKeeper. Raises `ConnectError` without a response."""
        stat = self.session.call("exists", self.paths.member(self.id))
        return stat is not None and stat.ephemeralOwner == self.session.id

    def owns(self, topic: str, partition: int) -> bool:
        """Whether this member owns the partition: asks ZooKeeper. Raises `ConnectError`."""
        return self._membership is not None and self._membership.owns(TopicPartition(topic, partition))

    def close(self) -> None:
        """Leaves the group: waits until handed-out messages are processed, commits, and releases all claims.

        Raises `AlreadyClosing` at the second call, and `UncleanClose` when not all offsets were committed. A
        claim that was lost with the session is not counted: the next owner gets the uncommitted messages.

        A thread that iterates over `messages` (a signal handler runs in the main thread) cannot wait for the
        message that it is processing itself. So there `close` returns at once: the iterator ends after that
        message, and the end of the `with` block waits for the shutdown and raises its errors.
        """
        if not self._closing.acquire(blocking=False):
            raise AlreadyClosing(f"the consumer group {self.name} is already shutting down")
        if threading.get_ident() in self._iterating.values():
            # Not a daemon: the interpreter waits for the last commit before it exits.
            threading.Thread(target=self._shut_down, name=f"koff-close-{self.name}", daemon=False).start()
            return
        self._shut_down()
        self._raise_close_errors()

    def _shut_down(self) -> None:
        try:
            # End the background threads first: only one thread may run rounds, and `_leave` runs them now.
            self._delivery.close()
            self._stopping.set()
            self._wake.set()
            for thread in self._threads:
                thread.join()
            self._leave()
        except Exception as error:
            self._report_error(make_koff_error("the shutdown failed", error))
        finally:
            self.abandon()

    def _raise_close_errors(self) -> None:
        if self._close_errors:
            raise UncleanClose(
                f"not all offsets of {self.name} were committed before shutdown was completed: "
                + "; ".join(map(str, self._close_errors))
            ) from self._close_errors[0]

    def join(self) -> None:
        """Connects, registers and starts to consume; `join_consumer_group` calls it once."""
        # Connect to ZooKeeper, then to Kafka.
        self.session.connect(make_chroot=True)
        cluster = self.conf.cluster or ClusterConf("")
        self._cluster = Cluster(cluster if cluster.brokers else find_brokers(self.session, cluster)).connect()
        self._delivery.cluster_name = self._cluster.conf.cluster_name
        self._dead_letters = DeadLetters(self.cluster, self.conf.redelivery.dead_letter_topic, self.name)
        self._refresh_topics()
        # Prepare the offsets. A reset comes before this member is registered, so that `_reset_offsets` sees
        # only other members.
        make_offset_manager = self.conf.offset_manager or ZooKeeperOffsetManager
        self._offsets = make_offset_manager(self)
        if self.conf.reset_offsets:
            reset_offsets(
                self.session, self.paths, self._cluster, self._partition_counts, self._offsets, self.conf
            )
        # Register and claim partitions, then keep doing so in the background.
        for topic in self.topics:
            self._intakes[topic] = Intake(
                topic,
                self._cluster,
                self.conf,
                self._delivery,
                self._offsets,
                self._report_error,
                self._wake.set,
            )
        self._membership = Membership(
            self.session,
            self.paths,
            self.id,
            Registration(dict.fromkeys(self.topics, 1)),
            self._delivery,
            self._intakes,
            lambda: self._partition_counts,
            self.conf.processing_timeout_s,
        )
        self._membership.run_round()
        for target in (self._run_rounds, self._run_topic_refresh):
            thread = threading.Thread(target=target, name=f"koff-group-{self.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def abandon(self) -> None:
        """Closes everything without draining: the claims end with the session. Safe to call twice."""
        self._stopping.set()
        self._delivery.close()
        try:
            for intake in self._intakes.values():
                intake.close(_CLOSE_GRACE_S)
            self._close_offsets()  # before the session, which it needs for a last commit
        finally:
            self.session.close()
            if self._dead_letters is not None:
                self._dead_letters.close()
            if self._cluster is not None:
                self._cluster.close()
            self._closed.set()
            self._errors.wake_all()

    def _run_rounds(self) -> None:
        assert self._membership is not None
        while not self._stopping.is_set():
            pause_s = self._try_round(self._membership)
            self._wake.wait(pause_s)
            self._wake.clear()

    def _try_round(self, membership: Membership) -> float:
        """Runs a round; returns the pause until the next round, in seconds."""
        try:
            pause_s = membership.run_round()
            self._watch_lease()
            return pause_s
        except ConnectError as error:
            self.log.debug("round not completed: trying again", why=str(error))
        except NoNode as error:
            self.log.warning("another client deleted a node of the group: trying again", why=repr(error))
        except Exception as error:  # the thread must not end: it renews the session's lease
            self._report_error(make_koff_error("a round of the group failed", error))
        self._watch_lease()
        return _RETRY_S

    def _watch_lease(self) -> None:
        """Reports when the session's lease ends, once for each outage: no message is handed out since."""
        if self.session.number != self._session_number:
            self._session_number = self.session.number
            self._report_error(
                ZooKeeperLost(
                    f"the session with ZooKeeper at {self.session.hosts} has ended, and all claims with it: "
                    "other members get the messages that are not committed"
                )
            )
        if self.session.trusted:
            self._outage_reported = False
        elif not self._outage_reported and not self._stopping.is_set():
            self._outage_reported = True
            self._report_error(
                ZooKeeperLost(
                    f"ZooKeeper at {self.session.hosts} has not confirmed the session for "
                    f"{self.session.timeout_s:g} s: no message is handed out until it does; check that it "
                    "runs and that its port is open"
                )
            )

    def _leave(self) -> None:
        """Releases all claims in order: drains them, commits, and deletes the owner nodes.

        When ZooKeeper does not respond until the drain timeout, the claims are dropped without a commit.
        """
        membership = self._membership
        if membership is None:
            return
        membership.leaving = True
        deadline = time.monotonic() + self._drain_timeout_s
        membership.start_draining(deadline)
        # After the deadline, a claim is finalized at once, unless its offset manager hangs.
        while membership.claims or membership.registered:
            error: Exception = KoffError("the offset manager has not returned in time")
            end = deadline + _CLOSE_GRACE_S
            try:
                membership.unregister()
                membership.run_round()
            except Exception as round_error:
                error, end = round_error, deadline
            if time.monotonic() >= end:
                self.log.warning("left the group without releasing its claims", why=str(error))
                for partition in membership.claims:
                    self._report_error(PartitionError(*partition, f"released without a commit: {error}"))
                membership.lose_all_claims()
                break
            self._wake.wait(_LEAVE_PAUSE_S)
            self._wake.clear()

    def _close_offsets(self) -> None:
        """Closes the offset manager; an error counts for `UncleanClose`. Gives it up if it hangs."""
        offsets, self._offsets = self._offsets, None
        if offsets is None:
            return
        closed: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

        def close() -> None:
            try:
                offsets.close()
            except Exception as error:
                closed.put(copy_error(error))
            else:
                closed.put(None)

        threading.Thread(target=close, name=f"koff-offsets-{self.name}", daemon=True).start()
        try:
            error = closed.get(timeout=_CLOSE_GRACE_S + self.session.timeout_s)
        except queue.Empty:
            error = KoffError("its close has not returned in time")
        if error is not None:
            self._report_error(make_koff_error("the offset manager is not closed", error))

    def _refresh_topics(self) -> None:
        """Fetches the partition counts; a change requests a rebalance. Raises `ConnectError`."""
        assert self._cluster is not None
        # List all topics: librdkafka sends a request for single topics to the controller, which may be down.
        requested_at = time.monotonic()
        all_counts = self._cluster.fetch_partition_counts()
        for intake in self._intakes.values():
            intake.note_response(requested_at)
        counts = {topic: all_counts[topic] for topic in self.topics if topic in all_counts}
        if counts != self._partition_counts:
            missing = [topic for topic in self.topics if topic not in counts]
            if missing:
                self.log.warning(
                    "topics do not exist yet, or this user may not describe them", topics=missing
                )
            self._partition_counts = counts
            self._request_rebalance()

    def _run_topic_refresh(self) -> None:
        while not self._stopping.wait(self.conf.metadata_interval_s):
            try:
                self._refresh_topics()
            except Exception as error:  # the thread must not end
                self.log.warning("partition counts are not refreshed: trying again", why=str(error))

    def _is_trusted(self, claim: Claim) -> bool:
        """Whether ZooKeeper certainly keeps the claim now.

        A claim of an earlier session is never trusted again.
        """
        return (
            claim.session_number == self.session.number
            and self.session.trusted
            and not self._stopping.is_set()
        )

    def _mark_processed(self, claim: Claim, offset: int) -> None:
        if self._offsets is not None:
            self._offsets.mark_as_processed(*claim.topic_partition, offset)

    def _write_dead_letter(self, raw: Any, deliveries: int, cause: BaseException | None) -> None:
        assert self._dead_letters is not None
        self._dead_letters.write_message(raw, deliveries, cause)

    def _request_rebalance(self) -> None:
        if self._membership is not None:
            self._membership.rebalance_needed.set()
        self._wake.set()

    def _report_error(self, error: KoffError) -> None:
        """Logs the error and queues it for `errors`."""
        self.log.warning("error of the group", why=str(error))
        # An error with a message is about a message that was passed over: its offset is still committed.
        passed_over = isinstance(error, PartitionError) and error.message is not None
        if self._stopping.is_set() and not passed_over:
            self._close_errors.append(error)
        self._errors.put_error(error)

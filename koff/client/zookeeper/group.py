"""A consumer group whose members coordinate through ZooKeeper, as Kafka's first consumers did."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType

from koff.client.calls import call_in_thread, get_result
from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf, TopicPartition
from koff.client.delivery.conf import FailureRule, RedeliveryCounts
from koff.client.delivery.dead_letters import DeadLetters
from koff.client.delivery.delivery import Delivery
from koff.client.delivery.errors import ErrorQueue, PartitionError
from koff.client.message import Message
from koff.client.patience import Patience
from koff.client.start_offset import StartOffset
from koff.client.zookeeper.brokers import find_brokers
from koff.client.zookeeper.claim_intake import ClaimIntake, fetch_initial_offsets
from koff.client.zookeeper.claims import Claim, find_claim
from koff.client.zookeeper.conf import ConsumerGroupConf, list_topics
from koff.client.zookeeper.errors import AlreadyClosing, make_koff_error, raise_close_errors
from koff.client.zookeeper.membership import Membership
from koff.client.zookeeper.offsets_in_zookeeper import ZooKeeperOffsetManager
from koff.client.zookeeper.session import Session
from koff.client.zookeeper.znodes import GroupPaths, new_member_id
from koff.errors import Closed, ConfigError, KoffError
from koff.logs import get_logger

_RETRY_S = 0.5
_CLOSE_GRACE_S = 10.0
"""How much longer than the drain timeout `close` waits for an offset manager that does not return."""


def join_consumer_group(
    name: str,
    topics: str | Sequence[str],
    zookeeper: str | Sequence[str],
    config: ConsumerGroupConf | None = None,
) -> ConsumerGroup:
    """A new member of the group, registered at `zookeeper` (`host:port,...[/chroot]`); the caller closes it.

    `topics` are the names of the topics that it reads, or one name.
    Raises `ConnectError` when ZooKeeper or Kafka cannot be reached, and `ConfigError` when `config` names no
    cluster and no broker is registered in ZooKeeper.
    """
    conf = config or ConsumerGroupConf()
    group = ConsumerGroup(name, list_topics(name, topics), zookeeper, conf)
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
        self.topics = tuple(topics)
        self.conf = conf
        self.cluster = conf.cluster or ClusterConf("")
        """How to reach the brokers: as configured, or as found in ZooKeeper."""
        self.commit_interval_s = conf.commit_interval_s
        self.id = new_member_id(name)
        self.paths = GroupPaths(name)
        self.log = get_logger("client.zookeeper", group=name, member=self.id)
        # The shutdown: `_stopping` is set at its start, `_closed` at its end; the first `close` takes
        # `_closing` and never releases it.
        self._closed, self._stopping, self._closing = threading.Event(), threading.Event(), threading.Lock()
        self._drain_timeout_s = conf.processing_timeout_s
        self._iterating: dict[object, int] = {}
        """The thread of each iterator of `messages` that has not ended."""
        self._errors = ErrorQueue()
        # The parts. `join` makes those that need ZooKeeper.
        self.session = Session(
            zookeeper,
            timeout_s=conf.session_timeout_s,
            connect_timeout_s=conf.connect_timeout_s,
            login=conf.zookeeper_login,
        )
        self._rule = FailureRule(conf.redelivery, conf.max_redeliveries)
        self._delivery: Delivery[Claim] = Delivery(
            is_ready=self._is_trusted, on_processed=self._mark_processed, on_error=self._report_error
        )
        self._intake: ClaimIntake | None = None
        self._membership = Membership(
            self.session,
            self.paths,
            self.id,
            self.topics,
            self._delivery,
            conf.processing_timeout_s,
            start_claim=self._start_claim,
            on_error=self._report_error,
            fetch_leaders=self._fetch_leaders,
        )
        self.session.on_change = self._membership.request_rebalance
        self._parts = ExitStack()
        """Closes the parts, the last one first."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self.is_of_other_process:
            return
        if kind is not None:
            self._drain_timeout_s = 0.0
        # Unlike `close`, always waits: the block is left, so no message of it is being processed.
        if self._closing.acquire(blocking=False):
            self._shut_down()
        self._closed.wait()
        if kind is None:
            raise_close_errors(self.name, self._errors.at_close)

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
        return {claim.topic_partition: claim.assignment for claim in list(self._membership.claims.values())}

    def messages(self) -> Iterator[Message]:
        """The messages of this member's partitions, as they arrive; ends when `close` is called.

        Messages of a partition come in order, except redelivered messages. The application acknowledges each
        message, by its `ack` or by `commit_up_to`.
        """
        self.check_process()
        iterator = object()
        try:
            while True:
                self._iterating[iterator] = threading.get_ident()
                yield from self._delivery.take(1)
        except Closed:
            return
        finally:
            self._iterating.pop(iterator, None)

    def poll_message(self) -> Message | None:
        """The next message, None if there is none now. Raises `Closed` once the shutdown has begun."""
        self.check_process()
        if self._stopping.is_set():
            raise Closed(f"the consumer group {self.name} is closed")
        return next(iter(self._delivery.poll(1)), None)

    def wait_for_message(self, timeout_s: float | None = None) -> bool:
        """Waits until `poll_message` has a message or raises. Returns whether it does after `timeout_s`."""
        return self._delivery.wait_for_messages(timeout_s)

    def errors(self) -> Iterator[KoffError]:
        """The errors of this member, as they occur; ends when the shutdown is completed.

        A `PartitionError` names its partition. The application need not read the errors: all are logged, and
        the latest 1,000 are kept.
        """
        self.check_process()
        return self._errors.take_errors(lambda: self.closed)

    @property
    def redelivery_counts(self) -> RedeliveryCounts:
        """How often this member delivered a message again after `nack`, and passed one over."""
        return self._rule.counts

    def commit_up_to(self, message: Message) -> None:
        """Marks the message, and all before it in its partition, as processed; the next commit includes them.

        Raises `ClaimLost` when this member has lost the claim under which it handed out the message, also if
        it owns the partition again since: another member may have owned the partition in between.
        """
        self.check_process()
        with self._delivery.lock:
            claim = find_claim(self._membership.claims, message)
            self._delivery.mark_processed_up_to(claim, message.offset)

    def flush_offsets(self) -> None:
        """Commits the offsets of all processed messages now. Raises `KoffError` when that fails."""
        self.check_process()
        if self.closed:
            return
        try:
            self._offsets.flush()
        except KoffError:
            raise
        except Exception as error:  # of an offset manager of the application
            raise make_koff_error("the offsets cannot be committed", error) from error

    def instance_registered(self) -> bool:
        """Whether this member is registered, as ZooKeeper says now. Raises `ConnectError`."""
        return self.session.find_own_node(self.paths.member(self.id)) is not None

    def owns(self, topic: str, partition: int) -> bool:
        """Whether this member owns the partition, as ZooKeeper says now. Raises `ConnectError`."""
        return self._membership.owns(TopicPartition(topic, partition))

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
        raise_close_errors(self.name, self._errors.at_close)

    def _shut_down(self) -> None:
        try:
            self._delivery.close()
            self._stopping.set()
            self._membership.leave(self._drain_timeout_s, _CLOSE_GRACE_S)
        except Exception as error:
            self._report_error(make_koff_error("the shutdown failed", error))
        finally:
            self.abandon()

    def join(self) -> None:
        """Connects, registers and starts to consume; `join_consumer_group` calls it once."""
        # Connect to ZooKeeper, then to Kafka.
        self._parts.enter_context(self.session).connect(make_chroot=True)
        if not self.cluster.brokers:
            self.cluster = find_brokers(self.session, self.cluster)
        self._cluster = self._parts.enter_context(Cluster(self.cluster))
        Patience(self.cluster.patience_s).retry(self._cluster.connect, _RETRY_S, self._stopping.wait)
        if topic := self.conf.redelivery.dead_letter_topic:
            letters = self._parts.enter_context(DeadLetters(self.cluster, topic, self.name))
            self._rule.write_dead_letter = letters.write_message
        self._refresh_topics()
        # Prepare the offsets. A reset comes before this member is registered, so that `_reset_offsets` sees
        # only other members.
        make_offset_manager = self.conf.offset_manager or ZooKeeperOffsetManager
        self._offsets = make_offset_manager(self)
        self._parts.callback(self._close_offsets)
        if self.conf.reset_offsets:
            self._reset_offsets()
        # Register and claim partitions, then keep doing so in the background.
        wake = self._membership.wake.set
        self._intake = ClaimIntake(
            self._cluster, self.conf, self._delivery, self._offsets, self._report_error, wake
        )
        self._intake.start()
        self._parts.callback(self._intake.close, _CLOSE_GRACE_S)
        self._parts.callback(self._membership.stop)
        self._membership.start()
        if self.conf.initial_offset is StartOffset.NEWEST:
            self._intake.wait_for_starts(self.cluster.patience_s, retry=True)
        refresh = threading.Thread(
            target=self._run_topic_refresh, name=f"koff-topics-{self.name}", daemon=True
        )
        refresh.start()
        self._parts.callback(refresh.join)

    def _start_claim(self, at: TopicPartition, session_number: int, czxid: int) -> Claim:
        """Reads a partition that this member owns from now on."""
        assert self._intake is not None
        cluster = self.cluster.cluster_name
        claim = Claim(*at, czxid, cluster, self._rule, session_number=session_number)
        self._intake.add(claim)
        return claim

    def abandon(self) -> None:
        """Closes everything without draining: the claims end with the session. Safe to call twice."""
        self._stopping.set()
        self._delivery.close()
        try:
            self._parts.close()
        finally:
            self._closed.set()
            self._errors.wake_all()

    def _reset_offsets(self) -> None:
        """Sets the group's offsets to the initial offset, unless a member is registered."""
        others = self.session.list_children(self.paths.ids)
        if others:
            self.log.warning("offsets are not reset: other members are registered", others=len(others))
            return
        reset = getattr(self._offsets, "reset", None)
        if reset is None:
            raise ConfigError(
                "reset_offsets: the configured offset manager cannot reset offsets; give it a method reset, "
                "or reset the offsets in its store"
            )
        # Fetch the initial offset of each partition. If one is missing, no offset is reset.
        partitions = [
            TopicPartition(topic, partition)
            for topic, count in self._membership.partition_counts.items()
            for partition in range(count)
        ]
        reset(fetch_initial_offsets(self._cluster, self.conf, partitions))

    def _close_offsets(self) -> None:
        """Closes the offset manager; an error counts for `UncleanClose`. Gives it up if it hangs."""
        closing = call_in_thread(self._offsets.close)
        try:
            get_result(closing, _CLOSE_GRACE_S + self.session.timeout_s)
        except Exception as error:
            late = KoffError("the offset manager is not closed: its close has not returned in time")
            failure = make_koff_error("the offset manager is not closed", error) if closing.done() else late
            self._report_error(failure)

    def _refresh_topics(self) -> None:
        """Fetches the partition counts; a change requests a rebalance. Raises `ConnectError`."""
        # List all topics: librdkafka sends a request for single topics to the controller, which may be down.
        requested_at = time.monotonic()
        all_topics = self._cluster.fetch_metadata().topics
        if self._intake is not None:
            self._intake.note_response(requested_at)
        counts = {topic: len(all_topics[topic]) for topic in self.topics if topic in all_topics}
        if counts != self._membership.partition_counts:
            missing = [topic for topic in self.topics if topic not in counts]
            if missing:
                self.log.warning(
                    "topics do not exist yet, or this user may not describe them", topics=missing
                )
            self._membership.partition_counts = counts
            self._membership.request_rebalance()

    def _fetch_leaders(self) -> dict[str, list[int]]:
        topics = self._cluster.fetch_metadata().topics
        return {topic: [each.leader for each in topics[topic]] for topic in self.topics if topic in topics}

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
        return claim.session_number == self.session.number and self.session.trusted

    def _mark_processed(self, claim: Claim, offset: int) -> None:
        self._offsets.mark_as_processed(*claim.topic_partition, offset)

    def _report_error(self, error: KoffError) -> None:
        """Logs the error and queues it for `errors`."""
        self.log.warning("error of the group", why=str(error))
        # An error with a message is about a message that was passed over: its offset is still committed.
        passed_over = isinstance(error, PartitionError) and error.message is not None
        self._errors.put_error(error, at_close=self._stopping.is_set() and not passed_over)

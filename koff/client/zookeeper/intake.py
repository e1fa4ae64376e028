"""Reads the claimed partitions of one topic, in a thread that also loads and finalizes their offsets."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.feed.feed import Feed
from koff.client.redelivery.errors import PartitionError
from koff.client.start_offset import StartOffset
from koff.client.topic_watch import TopicWatch
from koff.client.zookeeper.claims import Claim, ClaimState
from koff.client.zookeeper.conf import ConsumerGroupConf
from koff.client.zookeeper.delivery import Delivery
from koff.client.zookeeper.errors import ClaimLost
from koff.client.zookeeper.offset_manager import OffsetManager
from koff.errors import ConnectError, Denied, KoffError
from koff.logs import get_logger

log = get_logger("client.zookeeper")
_FETCH_MAX_MESSAGES = 500
_FETCH_S = 0.1
_RETRY_S = 0.3
_REPORT_AFTER_S = 5.0
"""An error that is retried is reported only after this long: leaders move, topics are being created."""


class Intake(Closing):
    """Passes the messages of each claim to `delivery`, until the claim ends.

    `on_error` gets the errors of single partitions. `on_finalized` is called when a claim is `finalized`
    or `failed`. Both are called from the intake's thread.
    """

    # Every KoffError is retried; at the end of a claim only a ConnectError, until the claim's deadline. Any
    # other error (TimeoutError, an error of the user's offset manager) makes its claim `failed`: the member
    # then releases the claim. No error ends the thread.

    def __init__(
        self,
        topic: str,
        cluster: Cluster,
        conf: ConsumerGroupConf,
        delivery: Delivery,
        offsets: OffsetManager,
        on_error: Callable[[PartitionError], None],
        on_finalized: Callable[[], None],
    ) -> None:
        self._cluster, self._conf = cluster, conf
        self._delivery, self._offsets = delivery, offsets
        self._on_error, self._on_finalized = on_error, on_finalized
        self._feed = Feed(cluster.conf, topic, conf.feed)
        self._topic_watch = TopicWatch(cluster.fetch_topic_ids)
        self._watched = self._topic_watch.watch(topic)
        self._recreations = 0
        self._claims: list[Claim] = []
        self._half_buffer = max(1, conf.buffer_messages // 2)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"koff-intake-{topic}", daemon=True)
        self._thread.start()

    def add_claim(self, claim: Claim) -> None:
        """Reads the claim's partition after the group's last processed offset. Returns at once.

        When the claim is ENDING or LOST, its offsets are finalized, and it becomes `finalized`.
        """
        self._claims.append(claim)

    def note_response(self, requested_at: float) -> None:
        """Notes that the cluster has responded to a request that was sent at that monotonic time."""
        self._feed.note_response(requested_at)

    def close(self, timeout_s: float | None = None) -> None:
        """Stops reading. Waits up to `timeout_s` for a call of the offset manager that is under way."""
        self._closing.set()
        self._thread.join(timeout_s)
        self._feed.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            # Each wait is short, so that new claims and the ends of claims are handled soon.
            try:
                self._topic_watch.check_if_due()
                self._note_recreation()
                self._advance_claims(list(self._claims))
                reading = self._find_reading()
                if not reading:
                    self._closing.wait(_FETCH_S / 2)
                elif any(map(self._has_room, reading.values())):
                    self._fetch(reading)
                else:
                    # librdkafka fetches ahead meanwhile, up to the limits of its own queue.
                    self._delivery.wait_for_change(_FETCH_S)
            except Exception as error:
                for claim in self._find_reading().values():
                    self._handle_error(claim, error)
                self._closing.wait(_RETRY_S)

    def _note_recreation(self) -> None:
        """Stops reading the old log of a topic that was created again."""
        found = self._watched.recreations
        if found == self._recreations:
            return
        self._recreations = found
        for claim in self._claims:
            if claim.position is not None:
                claim.is_recreated = True
                claim.deadline = time.monotonic() + self._conf.processing_timeout_s
                self._stop_reading(claim)
                self._delivery.drop_messages(claim)

    def _find_reading(self) -> dict[int, Claim]:
        """The claims whose partitions are read, by partition."""
        return {claim.partition: claim for claim in self._claims if claim.is_read}

    def _has_room(self, claim: Claim) -> bool:
        return self._delivery.room(claim) >= self._half_buffer

    def _advance_claims(self, claims: list[Claim]) -> None:
        """Takes the next step of each claim that has no error to wait for."""
        # First the ends: the offset manager knows one claim of a partition at a time, and so does the feed. A
        # lost claim does not wait, because this member may own the partition again.
        now = time.monotonic()
        for claim in claims:
            if claim.state is not ClaimState.READING:
                self._stop_reading(claim)
            if claim.state is ClaimState.LOST or (claim.state is ClaimState.ENDING and now >= claim.retry_at):
                self._end_claim(claim)
        idle = [claim for claim in claims if claim.state is ClaimState.READING and not claim.is_read]
        due = [claim for claim in idle if now >= claim.retry_at and not claim.failed]
        self._start_reading([claim for claim in due if self._has_room(claim) and self._may_start(claim)])

    def _may_start(self, claim: Claim) -> bool:
        """Whether no message of an old log is in progress: its acknowledgement would count in the new log."""
        is_over = time.monotonic() >= claim.deadline
        return not claim.is_recreated or is_over or self._delivery.is_drained(claim)

    def _start_reading(self, claims: list[Claim]) -> None:
        """Starts to read each partition. Many start together: one request is for all of them."""
        starts: dict[Claim, int] = {}
        fresh = []
        for claim in claims:
            with self._handle_errors(claim):
                start = self._find_start(claim)
                if start is None:
                    fresh.append(claim)
                else:
                    starts[claim] = start
        if fresh:
            with self._handle_errors(*fresh):
                for claim, offset in self._fetch_initial_offsets(fresh).items():
                    with self._handle_errors(claim):
                        starts[claim] = check_offset(claim.topic_partition, "initial", offset)
        if starts:
            with self._handle_errors(*starts):
                self._feed.add({claim.partition: start for claim, start in starts.items()})
                for claim, start in starts.items():
                    claim.position, claim.is_read, claim.out_of_range = start, True, False
                    log.debug("reading started", **_names(claim), offset=start)

    def _find_start(self, claim: Claim) -> int | None:
        """The offset to read from: where reading stopped, or after the last offset of the group.

        None: at the initial offset.
        """
        if claim.is_recreated:
            return self._restart_in_new_log(claim)
        if claim.position is not None:
            return self._find_resume_offset(claim, claim.position) if claim.out_of_range else claim.position
        last_offset = self._offsets.initialize_partition(*claim.topic_partition)
        claim.initialized = True
        return None if last_offset is None else last_offset + 1

    def _fetch_initial_offsets(self, claims: list[Claim]) -> dict[Claim, int | str]:
        """The offset at which the group starts in each claim's partition, or a text with the reason."""
        offsets = fetch_initial_offsets(self._cluster, self._conf, [each.topic_partition for each in claims])
        # The newest offset is committed at once. Otherwise the next owner would start at an offset that is
        # newer still, and skip the messages in between. A failed flush does not tell which partitions are
        # committed, so the claims are initialized again: that returns an offset for each committed partition.
        if self._conf.initial_offset is StartOffset.NEWEST:
            for partition, offset in offsets.items():
                if isinstance(offset, int):
                    self._offsets.mark_as_processed(*partition, offset - 1)
            self._offsets.flush()
        return {claim: offsets[claim.topic_partition] for claim in claims}

    def _restart_in_new_log(self, claim: Claim) -> int:
        """The log start offset of a topic that was created again. Commits it, and reports the change."""
        at = claim.topic_partition
        start = check_offset(at, "first", self._cluster.fetch_offsets([at], OffsetSpec.EARLIEST)[at])
        reset = getattr(self._offsets, "reset", None)
        if reset is not None:
            reset({at: start})
            self._offsets.initialize_partition(*at)
        self._delivery.forget_delivered(claim)
        claim.is_recreated = False
        text = f"the topic was deleted and created again: reading resumes at offset {start} of the new topic"
        self._report_error(claim, KoffError(text))
        return start

    def _find_resume_offset(self, claim: Claim, position: int) -> int:
        """The offset in the partition's log that is nearest to `position`; reports a gap."""
        at = claim.topic_partition
        log_start, log_end = (
            check_offset(at, spec.value, self._cluster.fetch_offsets([at], spec)[at])
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        )
        start = min(max(position, log_start), log_end)
        if start > position:
            text = (
                f"offsets {position} to {start - 1} left the log before they were read: check the topic's "
                "retention and this group's lag"
            )
            self._report_error(claim, KoffError(text))
        elif start < position:
            text = (
                f"the log ends at {log_end}, before {position}: it was truncated, or the topic was deleted "
                f"and created again; reading resumes at {start}"
            )
            self._report_error(claim, KoffError(text))
        return start

    def _stop_reading(self, claim: Claim) -> None:
        if claim.is_read:
            claim.is_read, claim.failing_since = False, None
            with suppress(KoffError):  # the feed itself may be what failed
                self._feed.remove([claim.partition])

    def _fetch(self, reading: dict[int, Claim]) -> None:
        # The feed has one queue for all partitions. The messages of a quiet partition can lie behind those
        # of a busy one, so a full buffer of the busy one must not end the fetching: the intake stops reading
        # it. librdkafka then drops its queued messages, and fetches them again later. With half a buffer of
        # room as the limit for fetching and for reading again, that happens rarely.
        for claim in reading.values():
            if self._delivery.room(claim) <= 0:
                self._stop_reading(claim)
        fetched = self._feed.fetch(min(_FETCH_MAX_MESSAGES, self._half_buffer), _FETCH_S)
        for run in fetched.runs:
            receiver = reading.get(run.partition)
            if receiver is not None and receiver.is_read:
                self._delivery.put_messages(receiver, run.messages)
                receiver.position = run.next_offset
        if fetched.lost:  # perhaps because the topic was created again
            self._topic_watch.check_now()
            self._note_recreation()
        for lost in fetched.lost:
            if lost.partition in reading:
                reading[lost.partition].out_of_range = True
                self._stop_reading(reading[lost.partition])
        for claim in reading.values():
            if self._feed.unreachable is None:
                claim.failing_since = None
            else:
                self._report_lasting_error(claim, self._feed.unreachable)

    def _end_claim(self, claim: Claim) -> None:
        """Finalizes the claim's offsets, or leaves it to be ended again after `_RETRY_S`."""
        lost = claim.state is ClaimState.LOST
        remaining_s = 0.0 if lost else max(0.0, claim.deadline - time.monotonic())
        try:
            if claim.initialized:
                at = claim.topic_partition
                self._offsets.finalize_partition(*at, claim.last_delivered, remaining_s)
        except Exception as error:
            if isinstance(error, ConnectError) and not isinstance(error, Denied) and remaining_s > 0:
                self._handle_error(claim, error)
                return
            # A lost claim is no error: the partition's next owner delivers the uncommitted messages again.
            if isinstance(error, ClaimLost) or (lost and isinstance(error, KoffError)):
                log.info("claim lost before its last commit", **_names(claim), why=str(error))
            else:
                self._report_error(claim, error)
        self._claims.remove(claim)
        claim.finalized = True
        self._on_finalized()

    @contextmanager
    def _handle_errors(self, *claims: Claim) -> Iterator[None]:
        """Handles an error of the block as that of each of the claims."""
        try:
            yield
        except Exception as error:
            for claim in claims:
                self._handle_error(claim, error)

    def _handle_error(self, claim: Claim, error: Exception) -> None:
        """Has the claim's step tried again after a `KoffError`; any other error ends the claim's reading."""
        claim.retry_at = time.monotonic() + _RETRY_S
        if isinstance(error, KoffError):
            self._report_lasting_error(claim, error)
            return
        log.warning("claim failed", **_names(claim), exc_info=error)
        self._stop_reading(claim)
        if claim.state is ClaimState.READING:
            self._report_error(claim, error)
        claim.failed = True
        self._on_finalized()

    def _report_lasting_error(self, claim: Claim, error: KoffError) -> None:
        """Reports an error that is retried: once, after the claim has failed for `_REPORT_AFTER_S`.

        A `Denied` is reported at once: the feed raises it once only, and it does not pass by itself.
        """
        now = time.monotonic()
        claim.failing_since = claim.failing_since or now
        if now >= claim.failing_since + (0.0 if isinstance(error, Denied) else _REPORT_AFTER_S):
            claim.failing_since = math.inf
            self._report_error(claim, error)

    def _report_error(self, claim: Claim, error: Exception) -> None:
        text = str(error) if isinstance(error, KoffError) else repr(error)
        partition_error = PartitionError(claim.topic, claim.partition, text)
        partition_error.__cause__ = error
        self._on_error(partition_error)


def fetch_initial_offsets(
    cluster: Cluster, conf: ConsumerGroupConf, partitions: list[TopicPartition]
) -> dict[TopicPartition, int | str]:
    """The offset at which the group starts in each partition, or a text with the reason why it is unknown."""
    spec = OffsetSpec.EARLIEST if conf.initial_offset is StartOffset.OLDEST else OffsetSpec.LATEST
    # The newest offset is the last stable one: messages of open transactions are still to come.
    return cluster.fetch_offsets(partitions, spec, Isolation(conf.feed.isolation))


def check_offset(partition: TopicPartition, kind: str, offset: int | str) -> int:
    """The offset. Raises `ConnectError` if it is a text with the reason why it is unknown."""
    if isinstance(offset, str):
        topic, number = partition
        raise ConnectError(
            f"cannot fetch the {kind} offset of {topic}/{number}: {offset}; check that its leader runs"
        )
    return offset


def _names(claim: Claim) -> dict[str, Any]:
    """The fields of a log line about the claim."""
    return {"topic": claim.topic, "partition": claim.partition}

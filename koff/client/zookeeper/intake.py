"""Reads the claimed partitions of one topic, in a thread that also loads and finalizes their offsets."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.feed.feed import Feed
from koff.client.log_reader import PartitionLost
from koff.client.redelivery.errors import PartitionError
from koff.client.start_offset import StartOffset
from koff.client.zookeeper.claims import Claim, ClaimState
from koff.client.zookeeper.conf import ConsumerGroupConf
from koff.client.zookeeper.delivery import Delivery
from koff.client.zookeeper.errors import ClaimLost
from koff.client.zookeeper.offset_manager import OffsetManager
from koff.errors import ConnectError, KoffError
from koff.logs import get_logger

log = get_logger("client.zookeeper")
_FETCH_MAX_MESSAGES = 500
_FETCH_S = 0.1
_RETRY_S = 0.3
_REPORT_AFTER_S = 5.0
"""An error that is retried is reported only after this long: leaders move, topics are being created."""
INITIAL = {StartOffset.OLDEST: OffsetSpec.EARLIEST, StartOffset.NEWEST: OffsetSpec.LATEST}


class Intake(Closing):
    """Passes the messages of each claim to `delivery`, between `start_claim` and `end_claim`.

    `on_error` gets the errors of single partitions. `on_finalized` is called when a claim is `finalized`
    or `failed`. Both are called from the intake's thread.
    """

    # Every ConnectError is retried, and also every KoffError while a claim is initialized. A KoffError at the
    # end of a claim is reported. Any other error (TimeoutError, an error of the user's offset manager) makes
    # its claim `failed`: the member then releases the claim. No error ends the thread.

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
        self._requests: queue.SimpleQueue[tuple[Callable[[Claim], None], Claim]] = queue.SimpleQueue()
        self._retries: list[tuple[float, Callable[[Claim], None], Claim]] = []
        """When the retry is due (monotonic), the step, and its claim."""
        self._reading: dict[int, Claim] = {}  # by partition
        self._next_offsets: dict[int, int] = {}  # by partition
        self._parked: set[int] = set()
        """Partitions of `_reading` that the feed does not read now, because their buffers are full."""
        self._failing_since: dict[Claim, float] = {}
        self._reported: set[Claim] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"koff-intake-{topic}", daemon=True)
        self._thread.start()

    def start_claim(self, claim: Claim) -> None:
        """Starts to read the claim's partition after the group's last processed offset. Returns at once."""
        self._requests.put((self._start_claim, claim))

    def end_claim(self, claim: Claim) -> None:
        """Stops reading the claim's partition and finalizes its offsets.

        Returns at once; `finalized` of the claim becomes true later.
        """
        self._requests.put((self._end_claim, claim))

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
            # Each wait is short, so that new requests are handled soon.
            try:
                self._handle_requests()
                if not self._reading:
                    self._closing.wait(_FETCH_S / 2)
                elif self._make_room():
                    self._fetch()
                else:
                    # librdkafka fetches ahead meanwhile, up to the limits of its own queue.
                    self._delivery.wait_for_change(_FETCH_S)
            except ConnectError as error:
                for claim in self._reading.values():
                    self._report_lasting_error(claim, error)
                self._closing.wait(_RETRY_S)
            except Exception as error:
                for claim in list(self._reading.values()):
                    self._fail_claim(claim, error)
                self._closing.wait(_RETRY_S)

    def _make_room(self) -> bool:
        """Whether to fetch: some partition has room. Parks the partitions whose buffers are full."""
        # The feed has one queue for all partitions. The messages of a quiet partition can lie behind those
        # of a busy one, so a full buffer of the busy one must not end the fetching: its partition is parked.
        # librdkafka then drops its queued messages, and fetches them again later. With half a buffer of room
        # as the limit for both decisions, that happens rarely.
        enough = max(1, self._conf.buffer_messages // 2)
        room = {partition: self._delivery.room(claim) for partition, claim in self._reading.items()}
        resumed = {p: self._next_offsets[p] for p in self._parked if room[p] >= enough}
        if resumed:
            self._feed.add(resumed)
            self._parked -= resumed.keys()
        active = self._reading.keys() - self._parked
        if not any(room[partition] >= enough for partition in active):
            return False
        full = [partition for partition in active if room[partition] <= 0]
        if full:
            self._feed.remove(full)
            self._parked.update(full)
        return True

    def _fetch(self) -> None:
        limit = min(_FETCH_MAX_MESSAGES, max(1, self._conf.buffer_messages // 2))
        fetched = self._feed.fetch(limit, _FETCH_S)
        for run in fetched.runs:
            claim = self._reading.get(run.partition)
            if claim is not None and run.partition not in self._parked:
                self._delivery.put_messages(claim, run.messages)
                self._next_offsets[run.partition] = run.next_offset
        for lost in fetched.lost:
            self._handle_partition_lost(lost)
        for claim in self._reading.values():
            if self._feed.unreachable is None:
                self._clear_error(claim)
            else:
                self._report_lasting_error(claim, self._feed.unreachable)

    def _handle_requests(self) -> None:
        # Collect the retries that are due and all requests of `start_claim` and `end_claim`.
        now = time.monotonic()
        due = [(step, claim) for due_at, step, claim in self._retries if due_at <= now]
        self._retries = [retry for retry in self._retries if retry[0] > now]
        while not self._requests.empty():
            due.append(self._requests.get())
        # Run each step. Claims that start are collected first, so that their offsets are fetched in one call.
        last_offsets: dict[Claim, int | None] = {}
        for step, claim in due:
            try:
                if step == self._start_claim:  # `==`: each access makes a new bound method, so `is` fails
                    self._initialize_claim(claim, last_offsets)
                else:
                    step(claim)
            except ConnectError as error:
                self._schedule_retry(step, claim, error)
            except Exception as error:
                self._fail_claim(claim, error)
        # Start to read the partitions of all claims that were initialized.
        try:
            self._start_reading(last_offsets)
        except Exception as error:
            for claim in last_offsets:
                self._fail_claim(claim, error)

    def _schedule_retry(self, step: Callable[[Claim], None], claim: Claim, error: KoffError) -> None:
        self._report_lasting_error(claim, error)
        self._retries.append((time.monotonic() + _RETRY_S, step, claim))

    def _start_claim(self, claim: Claim) -> None:
        """Marks a request to start a claim; never called.

        `_initialize_claim` and `_start_reading` carry it out, for many claims at a time.
        """

    def _initialize_claim(self, claim: Claim, last_offsets: dict[Claim, int | None]) -> None:
        """Adds the claim to `last_offsets`, with the offset that the group processed last (None: none)."""
        if claim.state is not ClaimState.READING:
            return
        try:
            last_offset = self._offsets.initialize_partition(*claim.topic_partition)
        except ConnectError:
            raise  # a KoffError too, but `_handle_requests` retries it
        except KoffError as error:
            self._schedule_retry(self._start_claim, claim, error)
            return
        claim.initialized = True
        last_offsets[claim] = last_offset

    def _start_reading(self, last_offsets: dict[Claim, int | None]) -> None:
        """Starts to read each partition: after its last offset, or at the initial offset if that is None."""
        last_offsets = {c: last for c, last in last_offsets.items() if c.state is ClaimState.READING}
        initial: dict[TopicPartition, int | str] = {}
        fresh = [claim for claim, last_offset in last_offsets.items() if last_offset is None]
        try:
            initial = self._fetch_initial_offsets(fresh)
        except Exception as error:  # the claims with a committed offset start all the same
            for claim in fresh:
                del last_offsets[claim]
                if isinstance(error, KoffError):
                    self._schedule_retry(self._start_claim, claim, error)
                else:
                    self._fail_claim(claim, error)
        starts: dict[int, int] = {}
        for claim, last_offset in last_offsets.items():
            start = initial.get(claim.topic_partition) if last_offset is None else last_offset + 1
            if isinstance(start, int):
                starts[claim.partition] = start
                self._reading[claim.partition], self._next_offsets[claim.partition] = claim, start
                log.debug("reading started", topic=claim.topic, partition=claim.partition, offset=start)
            else:
                missing = ConnectError(
                    f"cannot fetch the initial offset of {_partition_name(claim)}: {start}"
                )
                self._schedule_retry(self._start_claim, claim, missing)
        if starts:
            self._feed.add(starts)

    def _fetch_initial_offsets(self, claims: list[Claim]) -> dict[TopicPartition, int | str]:
        """The offset at which the group starts in each claim's partition, or a text with the reason."""
        if not claims:
            return {}
        spec = INITIAL[self._conf.initial_offset]
        # The newest offset is the last stable one: messages of open transactions are still to come.
        isolation = Isolation(self._conf.feed.isolation)
        offsets = self._cluster.fetch_offsets([claim.topic_partition for claim in claims], spec, isolation)
        # The newest offset is committed at once. Otherwise the next owner would start at an offset that is
        # newer still, and skip the messages in between. A failed flush does not tell which partitions are
        # committed, so the claims are initialized again: that returns an offset for each committed partition.
        if spec is OffsetSpec.LATEST:
            for partition, offset in offsets.items():
                if isinstance(offset, int):
                    self._offsets.mark_as_processed(*partition, offset - 1)
            self._offsets.flush()
        return offsets

    def _fetch_offset(self, claim: Claim, spec: OffsetSpec) -> int:
        offset = self._cluster.fetch_offsets([claim.topic_partition], spec)[claim.topic_partition]
        if isinstance(offset, str):
            raise ConnectError(f"cannot fetch the {spec.value} offset of {_partition_name(claim)}: {offset}")
        return offset

    def _clear_error(self, claim: Claim) -> None:
        self._failing_since.pop(claim, None)
        self._reported.discard(claim)

    def _stop_reading(self, claim: Claim) -> None:
        # If this member has a newer claim of the same partition, the intake continues to read that claim.
        if self._reading.get(claim.partition) is claim:
            del self._reading[claim.partition], self._next_offsets[claim.partition]
            self._remove_from_feed(claim.partition)
        self._retries = [retry for retry in self._retries if retry[2] is not claim]
        self._clear_error(claim)

    def _remove_from_feed(self, partition: int) -> None:
        if partition in self._parked:
            self._parked.discard(partition)
        else:
            self._feed.remove([partition])

    def _fail_claim(self, claim: Claim, error: Exception) -> None:
        """Reports the error, and stops reading the claim's partition; the member then releases the claim."""
        log.warning("claim failed", topic=claim.topic, partition=claim.partition, exc_info=error)
        try:
            self._stop_reading(claim)
        except Exception as feed_error:  # the feed itself may be what failed
            log.warning("feed failed", topic=claim.topic, partition=claim.partition, why=repr(feed_error))
        if claim.state is ClaimState.READING:
            self._report_error(claim, error)
        claim.failed = True
        self._on_finalized()

    def _end_claim(self, claim: Claim) -> None:
        try:
            self._stop_reading(claim)
            if claim.initialized:
                self._finalize_partition(claim)
        except ConnectError:
            raise  # `_handle_requests` retries it
        except Exception as error:
            self._report_error(claim, error)
        claim.finalized = True
        self._on_finalized()

    def _finalize_partition(self, claim: Claim) -> None:
        remaining_s = max(0.0, claim.deadline - time.monotonic())
        lost = claim.state is ClaimState.LOST
        try:
            self._offsets.finalize_partition(
                *claim.topic_partition, claim.last_delivered, 0.0 if lost else remaining_s
            )
        except KoffError as error:
            # A lost claim is no error: the partition's next owner delivers the uncommitted messages again.
            if lost or isinstance(error, ClaimLost):
                log.info(
                    "claim lost before its last commit",
                    topic=claim.topic,
                    partition=claim.partition,
                    why=str(error),
                )
            elif isinstance(error, ConnectError) and remaining_s > 0:
                raise  # `_handle_requests` retries it until the deadline
            else:
                self._report_error(claim, error)

    def _handle_partition_lost(self, lost: PartitionLost) -> None:
        """Stops reading the partition, and requests `_resume_reading` for its claim."""
        claim = self._reading.get(lost.partition)
        if claim is None:
            return
        position = self._next_offsets[lost.partition]
        self._remove_from_feed(lost.partition)
        del self._reading[lost.partition]
        # Scheduled like a retry, because `_handle_requests` retries a ConnectError of a scheduled step.
        self._retries.append((time.monotonic(), lambda claim: self._resume_reading(claim, position), claim))

    def _resume_reading(self, claim: Claim, position: int) -> None:
        """Reads the partition from the offset in its log that is nearest to `position`; reports a gap."""
        if claim.state is not ClaimState.READING:
            return
        log_start = self._fetch_offset(claim, OffsetSpec.EARLIEST)
        log_end = self._fetch_offset(claim, OffsetSpec.LATEST)
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
        self._feed.add({claim.partition: start})
        self._reading[claim.partition], self._next_offsets[claim.partition] = claim, start

    def _report_lasting_error(self, claim: Claim, error: KoffError) -> None:
        """Reports an error that is retried: once, after the claim has failed for `_REPORT_AFTER_S`."""
        since = self._failing_since.setdefault(claim, time.monotonic())
        if time.monotonic() > since + _REPORT_AFTER_S and claim not in self._reported:
            self._reported.add(claim)
            self._report_error(claim, error)

    def _report_error(self, claim: Claim, error: Exception) -> None:
        text = str(error) if isinstance(error, KoffError) else repr(error)
        partition_error = PartitionError(claim.topic, claim.partition, text)
        partition_error.__cause__ = error
        self._on_error(partition_error)


def _partition_name(claim: Claim) -> str:
    return f"{claim.topic}/{claim.partition}"

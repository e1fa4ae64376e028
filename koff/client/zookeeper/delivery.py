"""Hands fetched messages to the application, and processes their acknowledgements."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog

from koff.client.message import Message
from koff.client.zookeeper.claims import Claim, ClaimState
from koff.client.zookeeper.errors import ClaimLost, PartitionError

log = structlog.get_logger(component="client.zookeeper")
_LEASE_CHECK_S = 0.1
"""How often a waiting `take_message` checks the session's lease: it gets no notification of a change."""
_TIMESTAMP_NOT_AVAILABLE = 0
"""librdkafka's type of the timestamp of a message that has none."""


class Delivery:
    """A bounded buffer of messages, each of a partition that this member owns.

    `is_trusted` returns whether the member certainly owns a claim's partition now. `on_processed` gets each
    claim's new `processed_up_to`, and `on_error` gets each message that is passed over.
    """

    # One buffer serves all partitions, first in, first out. So messages of a slow partition wait behind the
    # messages of a fast one, and if the claim of the first message is not trusted, all messages wait.

    def __init__(
        self,
        *,
        limit: int,
        max_redeliveries: int,
        is_trusted: Callable[[Claim], bool],
        on_processed: Callable[[Claim, int], None],
        on_error: Callable[[PartitionError], None],
    ) -> None:
        self._limit, self._max_redeliveries = limit, max_redeliveries
        self._is_trusted, self._on_processed, self._on_error = is_trusted, on_processed, on_error
        # Threads of the application and of the intakes wait on the same condition. Each wait has a short time
        # limit, so a notification that wakes the wrong thread only delays the right thread.
        self._lock = threading.Condition()
        self._buffer: deque[tuple[Claim, Any]] = deque()
        self._closed = False

    def close(self) -> None:
        """Drops the buffer and hands out no more messages: waiting calls of `take_message` return None."""
        with self._lock:
            self._closed = True
            self._buffer.clear()
            self._lock.notify_all()

    def wait_for_room(self, timeout_s: float) -> int:
        """How many messages fit into the buffer; waits up to `timeout_s` while none fits."""
        with self._lock:
            if len(self._buffer) >= self._limit:
                self._lock.wait(timeout_s)
            return self._limit - len(self._buffer)

    def put_messages(self, claim: Claim, raws: list[Any]) -> None:
        """Buffers confluent-kafka's messages of one partition, in log order.

        Drops them unless the claim is READING. The limit is not enforced: see `wait_for_room`.
        """
        with self._lock:
            if claim.state is ClaimState.READING and not self._closed:
                self._buffer.extend((claim, raw) for raw in raws)
                self._lock.notify(len(raws))

    def take_message(self) -> Message | None:
        """The next message; waits for it. None after `close`."""
        with self._lock:
            while not self._closed:
                if self._buffer and self._is_trusted(self._buffer[0][0]):
                    claim, raw = self._buffer.popleft()
                    claim.deliver(raw.offset(), raw)
                    self._lock.notify_all()
                    return self._make_message(claim, raw)
                self._lock.wait(_LEASE_CHECK_S)
            return None

    def start_draining(self, claim: Claim, *, deadline: float) -> None:
        """Hands out no more messages of the claim. Until `deadline`, earlier ones may be acknowledged."""
        self._change_state(claim, ClaimState.DRAINING)
        claim.deadline = deadline

    def mark_lost(self, claim: Claim) -> None:
        """Hands out no more messages of the claim, and ignores acknowledgements of handed-out messages."""
        self._change_state(claim, ClaimState.LOST)

    def is_drained(self, claim: Claim) -> bool:
        """Whether each handed-out message of the claim was acknowledged, or failed."""
        with self._lock:
            return claim.drained

    def mark_processed_up_to(self, claim: Claim | None, message: Message) -> None:
        """Marks the message and all before it as processed.

        Raises `ClaimLost` if there is no claim, or if it was lost.
        """
        with self._lock:
            if claim is None or claim.state is ClaimState.LOST:
                raise ClaimLost(
                    f"{message.topic}/{message.partition} is not owned by this member any more: offset "
                    f"{message.offset} is not marked as processed, and the next owner resumes from the "
                    "committed offset"
                )
            processed = claim.mark_processed_up_to(message.offset)
            self._lock.notify_all()
        if processed is not None:
            self._on_processed(claim, processed)

    def _change_state(self, claim: Claim, state: ClaimState) -> None:
        """Sets the claim's state and drops its buffered messages."""
        with self._lock:
            claim.state = state
            self._buffer = deque(entry for entry in self._buffer if entry[0] is not claim)
            self._lock.notify_all()

    def _make_message(self, claim: Claim, raw: Any) -> Message:
        timestamp_type, timestamp_ms = raw.timestamp()
        return Message(
            value=raw.value(),
            key=raw.key(),
            topic=claim.topic,
            partition=claim.partition,
            offset=raw.offset(),
            headers=tuple(raw.headers() or ()),
            timestamp_ms=None if timestamp_type == _TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
            on_ack=lambda message: self._ack(claim, message.offset),
            on_nack=lambda message, cause: self._nack(claim, message, cause),
        )

    def _ack(self, claim: Claim, offset: int) -> None:
        with self._lock:
            if claim.state is ClaimState.LOST:
                log.debug(
                    "acknowledgement ignored: the claim is lost",
                    topic=claim.topic,
                    partition=claim.partition,
                    offset=offset,
                )
                return
            processed = claim.mark_processed(offset)
            self._lock.notify_all()
        # Called without the lock, because the offset manager has locks of its own. So two threads may report
        # in the wrong order: `mark_as_processed` ignores an offset that is lower than an earlier one.
        if processed is not None:
            self._on_processed(claim, processed)

    def _nack(self, claim: Claim, message: Message, cause: BaseException | None) -> None:
        """Hands out the message again; after its last redelivery, reports it and counts it as processed."""
        with self._lock:
            failed = claim.mark_failed(message.offset)
            if failed is None or claim.state is ClaimState.LOST:
                return
            raw, deliveries = failed
            if deliveries <= self._max_redeliveries:
                # Redelivered at once, without a delay: an application that calls `nack` in a loop uses up all
                # redeliveries within milliseconds. While the claim drains, the next owner gets the message.
                if claim.state is ClaimState.READING:
                    self._buffer.appendleft((claim, raw))
                self._lock.notify_all()
                return
            processed = claim.mark_processed(message.offset)
            self._lock.notify_all()
        text = f"offset {message.offset} failed {deliveries} times and is passed over: {cause!r}"
        error = PartitionError(claim.topic, claim.partition, text, message)
        error.__cause__ = cause
        self._on_error(error)
        if processed is not None:
            self._on_processed(claim, processed)

"""Hands fetched messages to the application, and processes their acknowledgements."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from koff.client.message import Message, read_timestamp
from koff.client.redelivery.acknowledgements import Acknowledgements, WriteDeadLetter
from koff.client.redelivery.conf import RedeliveryCounts
from koff.client.redelivery.errors import PartitionError
from koff.client.zookeeper.claims import Claim, ClaimState
from koff.client.zookeeper.conf import ConsumerGroupConf
from koff.client.zookeeper.errors import ClaimLost
from koff.errors import KoffError

_CHECK_S = 0.1
"""How often a waiting `take_message` looks for failed messages that are due, and at the session's lease.

It gets no notification of either."""


@dataclass(slots=True, eq=False)
class ClaimedMessage(Message):
    """A message that a member of the group handed out, with the claim under which it was handed out."""

    claim: Claim | None = field(default=None, repr=False)


class Delivery:
    """The fetched messages of each partition that this member owns; the partitions take turns.

    `is_trusted` returns whether the member certainly owns a claim's partition now. `on_processed` gets each
    claim's new `processed_up_to`, and `on_error` gets each message that is passed over. `write_dead_letter`
    writes such a message before that, and raises `KoffError` if it cannot. `counts` has what became of
    messages that failed.
    """

    # `_turns` has each claim with a message once: so a partition with many messages, or with a claim that is
    # not trusted, does not delay the others.

    def __init__(
        self,
        conf: ConsumerGroupConf,
        *,
        is_trusted: Callable[[Claim], bool],
        on_processed: Callable[[Claim, int], None],
        on_error: Callable[[PartitionError], None],
        write_dead_letter: WriteDeadLetter | None = None,
        clock: Callable[[], float] = time.monotonic,
        lock: threading.Condition | None = None,
    ) -> None:
        self.cluster_name = ""
        """What messages have as `cluster`: known once the member has joined."""
        self._conf, self._clock, self._is_trusted = conf, clock, is_trusted
        # Threads of the application and of the intakes wait on the same condition. Each wait has a short time
        # limit, so a notification that wakes the wrong thread only delays the right thread.
        self._lock = lock or threading.Condition()
        # The lock is kept until the offset manager has noted an offset. Otherwise the claim could be lost
        # meanwhile, and the partition claimed again: the offset would count for the newer claim.
        self._acknowledgements: Acknowledgements[Claim] = Acknowledgements(
            self._lock,
            max_redeliveries=conf.max_redeliveries,
            redelivery=conf.redelivery,
            is_lost=lambda claim: claim.state is ClaimState.LOST,
            delay=self._delay,
            on_processed=on_processed,
            on_error=on_error,
            on_change=self._lock.notify_all,
            write_dead_letter=write_dead_letter,
        )
        self._turns: deque[Claim] = deque()
        self._closed = False

    @property
    def counts(self) -> RedeliveryCounts:
        """What became of messages that failed."""
        return self._acknowledgements.counts

    def close(self) -> None:
        """Hands out no more messages: waiting calls of `take_message` return None."""
        with self._lock:
            self._closed = True
            self._turns.clear()
            self._lock.notify_all()

    def room(self, claim: Claim) -> int:
        """How many more messages of the claim may be buffered; negative if too many are."""
        with self._lock:
            return self._conf.buffer_messages - len(claim.buffered) - len(claim.delayed)

    def wait_for_change(self, timeout_s: float) -> None:
        """Waits until a message is handed out or acknowledged, at most `timeout_s`."""
        with self._lock:
            self._lock.wait(timeout_s)

    def put_messages(self, claim: Claim, raws: list[Any]) -> None:
        """Buffers confluent-kafka's messages of one partition, in log order.

        Drops them unless the claim is READING. The caller looks at `room` first.
        """
        with self._lock:
            if self._may_deliver(claim):
                claim.buffered.extend(raws)
                self._lock.notify(len(raws))

    def take_message(self) -> Message | None:
        """The next message; waits for it. None after `close`."""
        with self._lock:
            while not self._closed:
                message = self.poll_message()
                if message is not None:
                    return message
                self._lock.wait(_CHECK_S)
            return None

    def wait_for_message(self, timeout_s: float | None = None) -> bool:
        """Waits until there is a message, or `close`. Returns whether there is one after `timeout_s`."""
        until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            while not (self._closed or self.has_message()):
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return False
                self._lock.wait(min(left_s, _CHECK_S))
            return True

    def has_message(self) -> bool:
        """Whether there is a message that may be handed out now."""
        now = self._clock()
        with self._lock:
            return any(
                self._is_trusted(claim) and (claim.buffered or any(due <= now for due, _ in claim.delayed))
                for claim in self._turns
            )

    def poll_message(self) -> Message | None:
        """The next message. None if there is none now."""
        with self._lock:
            for _ in range(len(self._turns)):
                claim = self._turns.popleft()
                raw = self._pop_due(claim) if self._is_trusted(claim) else None
                if claim.buffered or claim.delayed:
                    self._turns.append(claim)
                if raw is not None:
                    message = _make_message(self.cluster_name, claim, raw)
                    self._acknowledgements.hand_out(claim, message, raw)
                    self._lock.notify_all()
                    return message
            return None

    def change_state(self, claim: Claim, state: ClaimState) -> None:
        """Sets the claim's state, which is not READING: hands out no more messages of the claim."""
        with self._lock:
            claim.state = state
            self.drop_messages(claim)

    def drop_messages(self, claim: Claim) -> None:
        """Hands out no message of the claim that was fetched before."""
        with self._lock:
            claim.buffered.clear()
            claim.delayed.clear()
            if claim in self._turns:
                self._turns.remove(claim)
            self._lock.notify_all()

    def forget_delivered(self, claim: Claim) -> None:
        """Lets acknowledgements of messages that were handed out before have no effect."""
        with self._lock:
            claim.forget()

    def is_drained(self, claim: Claim) -> bool:
        """Whether each handed-out message of the claim was acknowledged, or failed."""
        with self._lock:
            return claim.drained

    def mark_processed_up_to(self, message: Message) -> None:
        """Marks the message and all before it as processed, under the claim that handed it out.

        Raises `ClaimLost` if that claim was lost, also if this member has a newer claim of the partition.
        """
        claim = message.claim if isinstance(message, ClaimedMessage) else None
        if claim is None:
            raise KoffError(
                f"offset {message.offset} of {message.topic}/{message.partition} is not marked as processed: "
                "pass a message that this member handed out"
            )
        with self._lock:
            if claim.state is ClaimState.LOST:
                raise ClaimLost(
                    f"{claim.topic}/{claim.partition} was lost after offset {message.offset} was handed out: "
                    "the offset is not marked as processed, and the owner resumes from the committed offset"
                )
            self._acknowledgements.mark_processed_up_to(claim, message.offset)

    def _may_deliver(self, claim: Claim) -> bool:
        """Whether more messages of the claim may be handed out. If so, it gets a turn."""
        if claim.state is not ClaimState.READING or self._closed:
            return False
        if claim not in self._turns:
            self._turns.append(claim)
        return True

    def _delay(self, claim: Claim, raw: Any, delay_s: float) -> None:
        # While the claim drains, the next owner gets the message.
        if self._may_deliver(claim):
            claim.delayed.append((self._clock() + delay_s, raw))
        self._lock.notify_all()

    def _pop_due(self, claim: Claim) -> Any:
        """The message of the claim that is next; None if the claim has none that is due."""
        # Failed messages that are due go back to the buffer, which stays in the order of offsets.
        now = self._clock()
        due = [raw for due_at, raw in claim.delayed if due_at <= now]
        if due:
            claim.delayed = [each for each in claim.delayed if each[0] > now]
            claim.buffered = deque(sorted([*due, *claim.buffered], key=_read_offset))
        while claim.buffered:
            raw = claim.buffered.popleft()
            if not claim.was_processed(raw.offset()):  # by `commit_up_to`, since it failed
                return raw
        return None


def _read_offset(raw: Any) -> int:
    offset: int = raw.offset()
    return offset


def _make_message(cluster_name: str, claim: Claim, raw: Any) -> Message:
    return ClaimedMessage(
        value=raw.value(),
        key=raw.key(),
        topic=claim.topic,
        partition=claim.partition,
        offset=raw.offset(),
        headers=tuple(raw.headers() or ()),
        timestamp_ms=read_timestamp(raw),
        cluster=cluster_name,
        claim=claim,
    )

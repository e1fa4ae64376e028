"""From the feeds to whoever iterates, and the word of what became of each message on its way back."""

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
_LOOK_S = 0.1
"""How often those who wait look whether the session's lease has come or gone."""
_TIMESTAMP_NOT_AVAILABLE = 0


class Delivery:
    """A bounded buffer of messages, each of a claim that is ours.

    `trusted` says whether a claim can be believed in now; `processed` and `failed` are told what comes back.
    """

    def __init__(
        self,
        *,
        limit: int,
        max_redeliveries: int,
        trusted: Callable[[Claim], bool],
        processed: Callable[[Claim, int], None],
        failed: Callable[[PartitionError], None],
    ) -> None:
        self._limit, self._max_redeliveries = limit, max_redeliveries
        self._trusted, self._processed, self._failed = trusted, processed, failed
        self._lock = threading.Condition()
        self._buffer: deque[tuple[Claim, Any]] = deque()
        self._ended = False

    def end(self) -> None:
        """Nothing is handed out any more: who waits in `take` gets None."""
        with self._lock:
            self._ended = True
            self._buffer.clear()
            self._lock.notify_all()

    def room(self, timeout_s: float) -> int:
        """How many messages may be put, waiting for that to be more than none."""
        with self._lock:
            if len(self._buffer) >= self._limit:
                self._lock.wait(timeout_s)
            return self._limit - len(self._buffer)

    def put(self, claim: Claim, raws: list[Any]) -> None:
        """Takes confluent-kafka's messages of one partition, in log order; drops them unless READING."""
        with self._lock:
            if claim.state is ClaimState.READING and not self._ended:
                self._buffer.extend((claim, raw) for raw in raws)
                self._lock.notify(len(raws))

    def take(self) -> Message | None:
        """The next message, when there is one; None once it ended."""
        with self._lock:
            while not self._ended:
                if self._buffer and self._trusted(self._buffer[0][0]):
                    claim, raw = self._buffer.popleft()
                    claim.deliver(raw.offset(), raw)
                    self._lock.notify_all()
                    return self._message(claim, raw)
                self._lock.wait(_LOOK_S)
            return None

    def stop(self, claim: Claim, *, deadline: float) -> None:
        """Hands out no more of that partition; what is out may still be acknowledged until `deadline`."""
        self._leave(claim, ClaimState.DRAINING)
        claim.deadline = deadline

    def lose(self, claim: Claim) -> None:
        """Hands out no more of that partition, and what is out does not count any more."""
        self._leave(claim, ClaimState.LOST)

    def drained(self, claim: Claim) -> bool:
        """Whether all that was handed out came back."""
        with self._lock:
            return claim.drained

    def up_to(self, claim: Claim | None, message: Message) -> None:
        """Marks the message and all before it as processed. Raises `ClaimLost`."""
        with self._lock:
            if claim is None or claim.state is ClaimState.LOST:
                raise ClaimLost(
                    f"{message.topic}/{message.partition} was given to another instance, which goes on "
                    f"from what was committed; offset {message.offset} was not"
                )
            processed = claim.done_up_to(message.offset)
            self._lock.notify_all()
        if processed is not None:
            self._processed(claim, processed)

    def _leave(self, claim: Claim, state: ClaimState) -> None:
        with self._lock:
            claim.state = state
            self._buffer = deque(each for each in self._buffer if each[0] is not claim)
            self._lock.notify_all()

    def _message(self, claim: Claim, raw: Any) -> Message:
        kind, timestamp_ms = raw.timestamp()
        return Message(
            value=raw.value(),
            key=raw.key(),
            topic=claim.topic,
            partition=claim.partition,
            offset=raw.offset(),
            headers=tuple(raw.headers() or ()),
            timestamp_ms=None if kind == _TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
            on_ack=lambda message: self._ack(claim, message.offset),
            on_nack=lambda message, cause: self._nack(claim, message, cause),
        )

    def _ack(self, claim: Claim, offset: int) -> None:
        with self._lock:
            if claim.state is ClaimState.LOST:
                log.debug("too late", topic=claim.topic, partition=claim.partition, offset=offset)
                return
            processed = claim.done(offset)
            self._lock.notify_all()
        if processed is not None:
            self._processed(claim, processed)

    def _nack(self, claim: Claim, message: Message, cause: BaseException | None) -> None:
        """Delivers it again, soon; or gives it up, tells why, and goes on behind it."""
        with self._lock:
            out = claim.failed(message.offset)
            if out is None or claim.state is ClaimState.LOST:
                return
            raw, deliveries = out
            if deliveries <= self._max_redeliveries:
                if claim.state is ClaimState.READING:  # else it comes to the next owner
                    self._buffer.appendleft((claim, raw))
                self._lock.notify_all()
                return
            processed = claim.done(message.offset)
            self._lock.notify_all()
        text = f"offset {message.offset} failed {deliveries} times and is passed over: {cause!r}"
        failure = PartitionError(claim.topic, claim.partition, text, message)
        failure.__cause__ = cause
        self._failed(failure)
        if processed is not None:
            self._processed(claim, processed)

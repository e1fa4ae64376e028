"""A partition that is ours for a while, and how far its messages were processed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class ClaimState(Enum):
    """READING: messages are handed out. DRAINING: those that are out are waited for. LOST: nothing counts."""

    READING = "reading"
    DRAINING = "draining"
    LOST = "lost"


@dataclass(slots=True)
class _Out:
    raw: Any
    deliveries: int = 0
    in_hands: bool = False
    done: bool = False


@dataclass(slots=True, eq=False)
class Claim:
    """Ours in the session of that `session_number`, by the owner's node that `czxid` made.

    Not safe for threads: whoever uses `deliver` and what follows it holds the deliveries' lock.
    """

    topic: str
    partition: int
    session_number: int
    czxid: int
    state: ClaimState = ClaimState.READING
    deadline: float = 0.0
    """When draining ends, whatever is out."""
    begun: bool = False
    """Whether it is known where the group left off: before that nothing is committed."""
    finished: bool = False
    """Whether the offsets are finalized, well or not: the owner's node may go."""
    last_delivered: int | None = None
    processed: int | None = None
    """The last offset up to which all that was delivered was processed."""
    _order: deque[int] = field(default_factory=deque)
    _out: dict[int, _Out] = field(default_factory=dict)

    @property
    def at(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def drained(self) -> bool:
        """Whether nothing is in anybody's hands."""
        return not any(out.in_hands for out in self._out.values())

    def deliver(self, offset: int, raw: Any) -> int:
        """How often this message was handed out, with this time."""
        out = self._out.get(offset)
        if out is None:
            out = self._out[offset] = _Out(raw)
            self._order.append(offset)
            self.last_delivered = offset
        out.deliveries += 1
        out.in_hands = True
        return out.deliveries

    def done(self, offset: int) -> int | None:
        """Notes that one message was processed; `processed`, if that moved on."""
        out = self._out.get(offset)
        if out is not None:
            out.done, out.in_hands = True, False
        return self._advance()

    def done_up_to(self, offset: int) -> int | None:
        """Notes that all messages up to that offset were processed; `processed`, if that moved on."""
        for each in self._order:
            if each > offset:
                break
            out = self._out[each]
            out.done, out.in_hands = True, False
        return self._advance()

    def failed(self, offset: int) -> tuple[Any, int] | None:
        """The message as it came and how often it was delivered; None when it is no longer out."""
        out = self._out.get(offset)
        if out is None or out.done:
            return None
        out.in_hands = False
        return out.raw, out.deliveries

    def _advance(self) -> int | None:
        before = self.processed
        while self._order and self._out[self._order[0]].done:
            self.processed = self._order.popleft()
            del self._out[self.processed]
        return self.processed if self.processed != before else None

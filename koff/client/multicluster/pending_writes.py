"""Messages of a writer that no cluster has acknowledged yet, and the calls that they belong to."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from koff.client.message import Message
from koff.client.multicluster.errors import WriteError, WriteErrors


class WriteCall:
    """The messages of one `write_messages` call, and the result of each.

    `timeout_s`: after this time from `started_at` (monotonic) the call is given up. `given_up` is why it was;
    from then on, none of its messages may be sent. "": it is not.
    """

    def __init__(self, messages: Sequence[Message], started_at: float, timeout_s: float | None) -> None:
        self.messages = messages
        self.started_at = started_at
        self.timeout_s = timeout_s
        self.given_up = ""
        self.writes: Sequence[PendingWrite] = ()
        self.errors: list[WriteError | None] = [None] * len(messages)
        self.unsettled = len(messages)
        self.done = threading.Event()

    def left_s(self) -> float | None:
        """How long the call may still take; None: without limit."""
        if self.timeout_s is None:
            return None
        return max(self.started_at + self.timeout_s - time.monotonic(), 0.0)

    def is_given_up(self) -> bool:
        """Whether the call was given up, or has to be: its time has passed."""
        if not self.given_up and self.left_s() == 0:
            self.given_up = f"timeout_s ({self.timeout_s:g} s) has passed"
        return bool(self.given_up)

    def build_errors(self) -> WriteErrors | None:
        """The errors of the call, None if all messages were written."""
        return WriteErrors(self.errors) if any(self.errors) else None


@dataclass(slots=True, eq=False)
class PendingWrite:
    """A message that no cluster has acknowledged yet.

    - `sequence`: its number among all messages of the writer; `index`: its index in its `call`.
    - `in_librdkafka`: librdkafka has it, and has not reported its result. `given_at` is since when, and
      `attempt_until` until when (monotonic). `purges`: how often the target was purged before.
    - `in_doubt`: a cluster may have written it, but its acknowledgement did not arrive.
    - `refused_by`: clusters that will never take it.
    - `settled`: its call has its result; what comes later does not count.
    """

    message: Message
    sequence: int
    index: int
    call: WriteCall
    started_at: float
    attempts: int = 0
    given_at: float = 0.0
    attempt_until: float = 0.0
    purges: int = 0
    in_librdkafka: bool = False
    in_doubt: bool = False
    settled: bool = False
    reason: str = ""
    last_target: object = None  # the `WriteTarget` that sent it last
    refused_by: set[object] = field(default_factory=set)

"""A message as the client stack hands it out and takes it in, whichever part of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Headers = tuple[tuple[str, bytes | None], ...]
NO_OFFSET = -1
"""Of a message that is not in a log yet, or whose place there was not told."""


@dataclass(slots=True, eq=False)
class Message:
    """A message of a topic, on its way to or from there. `key` and `value` may be changed in place.

    `timestamp_ms` is since the epoch, None where there is none; `cluster` names the cluster that it came
    from, "" where there is but one. `ack` and `nack` tell whoever handed it out how it went, once: the first
    word counts, and from a source that keeps no account of its messages neither means anything.
    """

    value: bytes | None = None
    key: bytes | None = None
    topic: str = ""
    partition: int = -1
    offset: int = NO_OFFSET
    headers: Headers = ()
    timestamp_ms: int | None = None
    cluster: str = ""
    on_ack: Callable[[Message], None] | None = field(default=None, repr=False)
    on_nack: Callable[[Message, BaseException | None], None] | None = field(default=None, repr=False)

    def ack(self) -> None:
        """It was processed."""
        done, self.on_ack, self.on_nack = self.on_ack, None, None
        if done is not None:
            done(self)

    def nack(self, cause: BaseException | None = None) -> None:
        """It could not be processed, because of `cause`: it will come again, a bounded number of times."""
        failed, self.on_ack, self.on_nack = self.on_nack, None, None
        if failed is not None:
            failed(self, cause)

"""`Message`: the message type of every producer, consumer and reader of the client stack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Headers = tuple[tuple[str, bytes | None], ...]
NO_OFFSET = -1
"""The offset of a message that is not in a log yet, or whose offset the broker did not return."""


def read_timestamp(raw: Any) -> int | None:
    """The timestamp of confluent-kafka's message; None if it has none.

    librdkafka's type 0 says that there is none. A producer may also have written -1 (Kafka's NO_TIMESTAMP).
    """
    kind, timestamp_ms = raw.timestamp()
    return timestamp_ms if kind and timestamp_ms >= 0 else None


@dataclass(slots=True, eq=False)
class Message:
    """A message that was read from a topic, or that will be written to it.

    `key` and `value` may be changed in place. `timestamp_ms` counts from the epoch; it is None if the
    message has no timestamp, and such a message is written with the present time. (0 is written as 1:
    librdkafka cannot write 0.) `cluster` names the cluster that the message was read from, or that a writer
    of many clusters has written it to: by the name in the configuration, or else by the addresses of its
    brokers. It is "" if the source of the message does not know that.

    The application calls `ack` or `nack` once to report the result to the source of the message; a second
    call has no effect. Consumer groups on ZooKeeper and readers with `ReaderConf.redelivery` track their
    messages: both calls have no effect on messages of other sources.

    `assignment` numbers the assignments of partitions to the group's member that read the message; 0 without
    a group. So a commit can tell whether the partition was revoked since then.
    """

    value: bytes | None = None
    key: bytes | None = None
    topic: str = ""
    partition: int = -1
    offset: int = NO_OFFSET
    headers: Headers = ()
    timestamp_ms: int | None = None
    cluster: str = ""
    assignment: int = field(default=0, repr=False, kw_only=True)
    on_ack: Callable[[Message], None] | None = field(default=None, repr=False)
    on_nack: Callable[[Message, BaseException | None], None] | None = field(default=None, repr=False)

    def ack(self) -> None:
        """Reports that the application has processed the message."""
        on_ack, self.on_ack, self.on_nack = self.on_ack, None, None  # both: only the first call counts
        if on_ack is not None:
            on_ack(self)

    def nack(self, cause: BaseException | None = None) -> None:
        """Reports that the application could not process the message, because of `cause`.

        The source delivers the message again, a bounded number of times.
        """
        on_nack, self.on_ack, self.on_nack = self.on_nack, None, None
        if on_nack is not None:
            on_nack(self, cause)

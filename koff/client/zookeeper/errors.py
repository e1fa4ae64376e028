"""What can go wrong with a group on ZooKeeper."""

from __future__ import annotations

from koff.client.message import Message
from koff.errors import Closed, ConnectError, KoffError


class ZooKeeperLost(ConnectError):
    """ZooKeeper does not answer, or the session with it has ended. What was asked may yet be done."""


class AlreadyClosing(Closed):
    """The consumer group is already shutting down."""


class UncleanClose(KoffError):
    """Not all offsets were committed before shutdown was completed."""


class ClaimLost(KoffError):
    """The partition is not ours any more: whoever has it now will process the message (again)."""


class PartitionError(KoffError):
    """Something failed in one partition; the cause is chained. `message` is the one it is about, if any."""

    def __init__(self, topic: str, partition: int, text: str, message: Message | None = None) -> None:
        super().__init__(f"{topic}/{partition}: {text}")
        self.topic = topic
        self.partition = partition
        self.message = message

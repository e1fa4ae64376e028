"""The error of one partition that a reader or a group's member reports."""

from __future__ import annotations

from koff.client.message import Message
from koff.errors import KoffError


class PartitionError(KoffError):
    """An error in one partition; its cause is chained. `message` is the message that failed, if any."""

    def __init__(self, topic: str, partition: int, text: str, message: Message | None = None) -> None:
        super().__init__(f"{topic}/{partition}: {text}")
        self.topic = topic
        self.partition = partition
        self.message = message

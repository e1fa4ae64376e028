"""The log of one partition, in memory."""

from koff.client.cluster_conf import OffsetSpec
from koff.client.message import Message
from koff.client.start_offset import StartOffset


class PartitionLog:
    """The messages of one partition, from the log start offset on."""

    def __init__(self) -> None:
        self.start = 0
        self.messages: list[Message] = []

    @property
    def end(self) -> int:
        """The end offset: that of the next message."""
        return self.start + len(self.messages)

    def read(self, offset: int, max_messages: int) -> list[Message]:
        """The messages from the offset on."""
        return self.messages[offset - self.start :][:max_messages]

    def resolve(self, offset: int) -> int:
        """The offset, or the one for which a `StartOffset` stands."""
        places: dict[int, int] = {StartOffset.OLDEST: self.start, StartOffset.NEWEST: self.end}
        return places.get(offset, offset)

    def delete_before(self, offset: int) -> None:
        """Deletes the messages before the offset."""
        offset = min(offset, self.end)
        self.messages = self.messages[max(offset - self.start, 0) :]
        self.start = max(offset, self.start)

    def find_offset(self, spec: OffsetSpec | int) -> int:
        """The log start offset, the end offset, or the first offset at or after a time in ms (-1: none)."""
        if isinstance(spec, int):
            return next((m.offset for m in self.messages if (m.timestamp_ms or 0) >= spec), -1)
        return self.start if spec is OffsetSpec.EARLIEST else self.end

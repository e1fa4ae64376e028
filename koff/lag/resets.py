"""What it means for a group that its committed offset is replaced: what it skips, and what it reads again."""

from typing import NamedTuple


class LogRange(NamedTuple):
    """The log start offset and the end offset of a partition."""

    start: int
    end: int

    def clamp(self, offset: int) -> int:
        """The nearest offset that the group can continue from, as Kafka's own tool chooses it."""
        return min(max(offset, self.start), self.end)


def count_skipped(log: LogRange, *, before: int, after: int) -> int:
    """How many offsets that the log still has come before `after`, and were not committed."""
    return max(0, log.clamp(after) - log.clamp(before))


def count_read_again(log: LogRange, *, before: int, after: int) -> int:
    """How many offsets that the log still has were committed, and come from `after` on."""
    return max(0, log.clamp(before) - log.clamp(after))

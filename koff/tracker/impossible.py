"""What no broker can mean: a partition below 0, and a name that is longer than Kafka's strings.

Any client may write such values into assignments and commits. They are left out and counted; the rest of the
record is used.
"""

from collections import Counter
from collections.abc import Iterable

MAX_NAME_BYTES = 32767
"""Names have an int16 length. But each invalid byte is read as U+FFFD, which has three bytes."""
_SURELY_SHORT = MAX_NAME_BYTES // 4
"""So many characters fit, whatever they are."""
PARTITION, NAME = "partition", "name"
"""The keys of `Tracker.impossible_counts`."""


def is_possible_name(name: str) -> bool:
    """Whether a group or topic can have this name."""
    return len(name) <= _SURELY_SHORT or len(name.encode(errors="replace")) <= MAX_NAME_BYTES


def possible_partitions(partitions: tuple[int, ...]) -> tuple[int, ...]:
    """The partitions that are not below 0: usually the same object."""
    if min(partitions, default=0) >= 0:
        return partitions
    return tuple(partition for partition in partitions if partition >= 0)


def count_impossible(counts: Counter[str], parts: Iterable[tuple[str, tuple[int, ...]]]) -> None:
    """Adds to `counts` what is impossible in the parts of an assignment: topics with partitions."""
    for name, partitions in parts:
        # Nothing is written into `counts` in the usual case: a counter would show a count of 0.
        if min(partitions, default=0) < 0:
            counts[PARTITION] += len(partitions) - len(possible_partitions(partitions))
        if not is_possible_name(name):
            counts[NAME] += 1

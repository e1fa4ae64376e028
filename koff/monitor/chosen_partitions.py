"""Which partitions of the offsets topic a monitor reads, if not all of them."""

from dataclasses import dataclass

from koff.records.placement import group_partition


@dataclass(frozen=True, slots=True)
class ChosenPartitions:
    """Every `count`-th partition from `number` on (0 to `count` - 1), or of these only that of `group`.

    Several processes with the same `count` and different numbers have all partitions, each of them once.
    """

    number: int = 0
    count: int = 1
    group: str | None = None

    def includes(self, partition: int, partition_count: int) -> bool:
        """Whether that partition of a topic with so many partitions is read."""
        if self.group is not None and partition != group_partition(self.group, partition_count):
            return False
        return partition % self.count == self.number

"""A log of some records, and all that a reader has returned of it."""

from __future__ import annotations

from collections.abc import Callable

from koff.client.log_reader import LogRead, LogReader, LogStart, PartitionLost
from koff.kafkatest import wait_until
from tests.record_batches import batch

TOPIC = "t"


def log(count: int, first: int = 0) -> bytes:
    return b"".join(batch(at, min(10, count - at)) for at in range(first, count, 10))


class Reading:
    """All that a reader has returned."""

    def __init__(self, reader: LogReader, *partitions: int, first: int = 0) -> None:
        self.reader, self.first = reader, first
        self.offsets: dict[int, list[int]] = {partition: [] for partition in partitions}
        self.positions: dict[int, int] = {}
        self.lost: dict[int, PartitionLost] = {}
        reader.add(dict.fromkeys(partitions, LogStart(first)))

    def fetch(self) -> LogRead:
        read = self.reader.fetch(0.05)
        for run in read.runs:
            offsets = list(run.offsets)
            assert list(run.keys) == [b"k%d" % offset for offset in offsets]
            assert list(run.values) == [b"v%d" % offset for offset in offsets]
            self.offsets[run.partition].extend(offsets)
        self.positions |= read.positions
        for lost in read.lost:
            assert lost.partition not in self.lost
            self.lost[lost.partition] = lost
        return read

    def until(self, is_done: Callable[[], bool]) -> Reading:
        def look() -> bool:
            self.fetch()
            return is_done()

        wait_until(look, every_s=0.001, what="records")
        return self

    def until_read(self, **ends: int) -> Reading:
        """Reads until these positions. Checks that no record is missing or came twice."""
        wanted = {int(name[1:]): end for name, end in ends.items()}
        self.until(lambda: all(self.positions.get(p) == end for p, end in wanted.items()))
        for partition, end in wanted.items():
            assert self.offsets[partition] == list(range(self.first, end))
        return self

    def until_lost(self, partition: int) -> PartitionLost:
        return self.until(lambda: partition in self.lost).lost[partition]

    def begin(self, partition: int = 0) -> Reading:
        """Reads some of the records."""
        return self.until(lambda: len(self.offsets[partition]) >= 60)

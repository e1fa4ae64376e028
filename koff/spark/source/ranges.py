"""Which offsets to read, and how to split them among tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from koff.spark.tables.coverage import Intervals, subtract_intervals

WORTH_A_TASK = 50_000
"""To read fewer offsets than this takes less time than to start another task."""


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The offsets of a partition from `start` up to `end`, without `end`."""

    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def make_ranges(starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Range]:
    """The range of each partition from its start (0 if not given) to its end; empty ranges are left out."""
    return [Range(p, starts.get(p, 0), end) for p, end in sorted(ends.items()) if end > starts.get(p, 0)]


def drop_covered(ranges: Iterable[Range], covered: Intervals) -> list[Range]:
    """The offsets of the ranges that are not in `covered`."""
    return [
        Range(range_.partition, start, end)
        for range_ in ranges
        for start, end in subtract_intervals([(range_.start, range_.end)], covered.get(range_.partition, ()))
    ]


def limit_offsets(counts: Mapping[int, int], most: int) -> dict[int, int]:
    """How many of each partition's offsets to read: `most` in all, or all of them if there are fewer.

    No partition gets fewer than another one unless it has no more.
    """
    limited, left = {}, most
    # Smallest first: what a small partition does not use is shared by the others.
    for place, partition in enumerate(sorted(counts, key=lambda partition: counts[partition])):
        limited[partition] = min(counts[partition], left // (len(counts) - place))
        left -= limited[partition]
    return limited


def split_ranges(ranges: Iterable[Range], tasks: int) -> list[list[Range]]:
    """Splits ranges into at most `tasks` shares of about equal size; large ranges are cut into pieces.

    There are fewer shares if a share would be smaller than `WORTH_A_TASK`.
    """
    ranges = list(ranges)
    total = sum(map(len, ranges))
    share = max(-(-total // tasks), WORTH_A_TASK)  # -(-a // b) is a / b rounded up
    pieces = [piece for range_ in ranges for piece in _cut_range(range_, share)]

    # Largest piece first, each to the share that is smallest so far.
    shares: list[list[Range]] = [[] for _ in range(min(max(-(-total // share), 1), len(pieces)))]
    sizes = [0] * len(shares)
    for piece in sorted(pieces, key=len, reverse=True):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(piece)
        sizes[smallest] += len(piece)
    return [sorted(pieces) for pieces in shares if pieces]


def _cut_range(whole: Range, share: int) -> list[Range]:
    """Pieces of equal size, none much larger than `share`."""
    count = max(round(len(whole) / share), 1)
    edges = [whole.start + len(whole) * i // count for i in range(count + 1)]
    return [Range(whole.partition, a, b) for a, b in pairwise(edges)]

"""Which offsets are to be read, and how they are dealt out to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

WORTH_A_TASK = 50_000
"""Fewer offsets than these are read sooner than another task is set up."""


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Offsets of a partition: from `start` to before `end`."""

    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def between(starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Range]:
    """The ranges from those starts to those ends; none where there is nothing between."""
    return [Range(p, starts.get(p, 0), end) for p, end in sorted(ends.items()) if end > starts.get(p, 0)]


def dealt(ranges: Iterable[Range], tasks: int) -> list[list[Range]]:
    """The ranges in up to so many shares of about equal size, the large ones cut."""
    ranges = list(ranges)
    total = sum(map(len, ranges))
    share = max(-(-total // tasks), WORTH_A_TASK)
    pieces = [piece for each in ranges for piece in _cut(each, share)]
    shares: list[list[Range]] = [[] for _ in range(min(max(-(-total // share), 1), len(pieces)))]
    sizes = [0] * len(shares)
    for piece in sorted(pieces, key=len, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(piece)
        sizes[least] += len(piece)
    return [sorted(each) for each in shares if each]


def _cut(whole: Range, share: int) -> list[Range]:
    """Pieces of equal size, none much larger than a share."""
    count = max(round(len(whole) / share), 1)
    edges = [whole.start + len(whole) * i // count for i in range(count + 1)]
    return [Range(whole.partition, a, b) for a, b in pairwise(edges)]

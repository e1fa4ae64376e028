"""Spans of offsets of the offsets topic, and how to split them among tasks. Imports no Spark."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

WORTH_A_TASK = 50_000
"""To read fewer offsets than this takes less time than to start another task."""


class Span(NamedTuple):
    """The offsets of a partition from `start` up to `end`, without `end`."""

    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end - self.start


def make_spans(starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Span]:
    """The span of each partition from its start (0 if not given) to its end; empty spans are left out."""
    return [Span(p, starts.get(p, 0), end) for p, end in sorted(ends.items()) if end > starts.get(p, 0)]


def count_offsets(spans: Iterable[Span]) -> int:
    """How many offsets the spans have."""
    return sum(span.size for span in spans)


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


def split_spans(spans: Iterable[Span], tasks: int) -> list[list[Span]]:
    """Splits spans into at most `tasks` shares of about equal size; large spans are cut into pieces.

    There are fewer shares if a share would be smaller than `WORTH_A_TASK`.
    """
    spans = list(spans)
    total = count_offsets(spans)
    share = max(-(-total // tasks), WORTH_A_TASK)  # -(-a // b) is a / b rounded up
    pieces = [piece for span in spans for piece in _cut_span(span, share)]
    return [sorted(pieces) for pieces in share_out(pieces, max(-(-total // share), 1))]


def _cut_span(whole: Span, share: int) -> list[Span]:
    """Pieces of equal size, none much larger than `share`."""
    count = max(round(whole.size / share), 1)
    edges = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [Span(whole.partition, a, b) for a, b in pairwise(edges)]


class Sized(Protocol):
    """Something of which a task reads an amount."""

    @property
    def size(self) -> int: ...


Piece = TypeVar("Piece", bound=Sized)


def share_out(pieces: Iterable[Piece], count: int) -> list[list[Piece]]:
    """The pieces in at most `count` shares of about equal size; no share is empty."""
    shares: list[list[Piece]] = [[] for _ in range(count)]
    sizes = [0] * count
    # Largest piece first, each to the share that is smallest so far.
    for piece in sorted(pieces, key=lambda piece: -piece.size):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(piece)
        sizes[smallest] += piece.size
    return [share for share in shares if share]

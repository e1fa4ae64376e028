"""One log, cut into batches in any way: the state at its end is the same, windows and counts included."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from koff.proto.buffers import Binary
from koff.records import decode, encode
from koff.tracker import Tracker
from koff.tracker.recent_commits import TICK_MS
from tests.unit.builders import Pair, commit
from tests.unit.lives import history

NOW_MS = 1_790_000_000_000
SEEN_AT_MS = NOW_MS - 60_000


def log(seed: int) -> list[tuple[bytes | None, bytes | None]]:
    """Commits in every spelling, deletions, lives of groups, and bytes that mean nothing."""
    rng = random.Random(seed)
    lives = [encode(message.record) for message in history(seed)]
    pairs: list[tuple[bytes | None, bytes | None]] = []
    for step in range(900):
        pairs.append(odd(rng, plain(rng, NOW_MS - 2_000_000 + step * rng.choice((1, TICK_MS, 2 * TICK_MS)))))
        if lives and rng.random() < 0.2:
            pairs.append(lives.pop(0))
    return pairs


def plain(rng: random.Random, at_ms: int) -> Pair:
    group, topic = f"g{rng.randrange(4)}", rng.choice(("t", "u", "\ufffd"))
    offset = rng.choice((None, -1, *range(100, 120)))
    version = rng.randrange(5)
    return commit(
        group, topic, rng.randrange(3), offset, at=at_ms, version=version, type=rng.choice((0, 1, 1))
    )


def odd(rng: random.Random, pair: Pair) -> tuple[bytes | None, bytes | None]:
    key, value = pair
    match rng.randrange(30):
        case 0:
            return key + b"more", value
        case 1:
            return key, value and value[:-3]
        case 2:
            return key, b""
        case 3:
            return None, value
        case 4:
            return b"\x7f\xff", value
        case 5:
            return key.replace("\ufffd".encode(), b"\xff\xff\xff"), value
    return pair


def interleave(pairs: list[tuple[bytes | None, bytes | None]]) -> tuple[Binary, Binary]:
    """The keys and the values in one buffer, as they are in a record batch, with bytes between them."""
    parts = [part for pair in pairs for part in pair]
    lengths = np.array([len(part or b"") for part in parts], np.int64)
    starts = np.cumsum(lengths + 1) - lengths
    data = np.frombuffer(b"".join(b"\xff" + (part or b"") for part in parts), np.uint8)
    valid = np.array([part is not None for part in parts], np.bool_)
    return (
        Binary(data, starts[0::2], lengths[0::2], valid[0::2]),
        Binary(data, starts[1::2], lengths[1::2], valid[1::2] if not valid[1::2].all() else None),
    )


def replay(
    pairs: list[tuple[bytes | None, bytes | None]], size: Callable[[], int], *, in_buffer: bool = False
) -> Tracker:
    tracker, at = Tracker(), 0
    tracker.add_samples(
        ends={(topic, p): 110 for topic in ("t", "u", "\ufffd") for p in range(3)}, at_ms=NOW_MS - 100_000
    )
    while at < len(pairs):
        batch = pairs[at : at + (step := size())]
        keys, values = interleave(batch) if in_buffer else zip(*batch, strict=True)
        tracker.apply(0, keys, values, seen_at_ms=SEEN_AT_MS)
        at += step
    return tracker


def facts(tracker: Tracker) -> tuple[Any, ...]:
    """All that is known, in an order of its own."""
    snapshot = tracker.take_snapshot(NOW_MS)
    (part,) = snapshot.shards.values()
    features = (part.features.first_ms, part.features.last_ms, part.features.commits, part.features.marks)
    columns = (part.committed, part.committed_at, part.topic_id, part.seen_at, *features)
    places = [
        (part.groups[group].name, snapshot.partitions.topic[at], snapshot.partitions.partition[at])
        for group, at in zip(part.group.tolist(), part.partition.tolist(), strict=True)
    ]
    rows = sorted(
        zip(places, np.stack([column.astype(np.int64) for column in columns], 1).tolist(), strict=True)
    )
    groups = sorted((group.name, repr(group)) for group in snapshot.groups())
    return rows, groups, tracker.record_counts


@pytest.mark.parametrize("seed", range(10))
def test_batches_of_any_size_end_in_the_same_state(seed):
    pairs = log(seed)
    rng = random.Random(seed)
    whole = facts(replay(pairs, lambda: len(pairs)))
    assert len(whole[0]) > 5
    assert whole[2]["Undecodable"] > 5
    for size in (lambda: 1, lambda: rng.randrange(1, 12), lambda: rng.randrange(1, 90), lambda: 300):
        assert facts(replay(pairs, size)) == whole
    for size in (lambda: rng.randrange(1, 90), lambda: len(pairs)):
        assert facts(replay(pairs, size, in_buffer=True)) == whole


def test_the_log_has_what_it_takes():
    pairs = [pair for seed in range(10) for pair in log(seed)]
    kinds = {type(decode(key, value).record).__name__ for key, value in pairs}
    assert {"OffsetCommit", "Undecodable", "Unknown", "GroupMetadata", "ConsumerGroupMetadata"} <= kinds

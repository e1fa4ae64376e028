"""What any client may write, and no broker can mean: it is left out and counted, and the rest is used."""

import random
import struct

import pytest

from koff.records import encode
from koff.tracker import Group, Member, Tracker
from koff.tracker.commit_columns import CommitColumns
from tests.group_records import Consumer, Share, Streams
from tests.unit.builders import apply, classic_group, commit

LONG = b"\xff" * 22_000
"""22,000 bytes that are not UTF-8: read as U+FFFD, they are a name of 66,000 bytes."""
MANY = 12
"""So many times three records are a batch that is applied in columns."""
HELD = (-1, 0, -(2**31), 2)


def text(raw: bytes) -> bytes:
    return struct.pack(">h", len(raw)) + raw


def commit_key(group: bytes, topic: bytes, partition: int = 0) -> bytes:
    return b"\0\1" + text(group) + text(topic) + struct.pack(">i", partition)


def assignment(*topics: tuple[bytes, tuple[int, ...]]) -> bytes:
    """A classic member's assignment blob."""
    parts = b"".join(text(name) + struct.pack(f">i{len(held)}i", len(held), *held) for name, held in topics)
    return b"\0\0" + struct.pack(">i", len(topics)) + parts + b"\xff\xff\xff\xff"


def partitions(tracker: Tracker) -> list[tuple[str, int]]:
    """All partitions that come out, of rows too."""
    rows = {(row.topic, row.partition) for row in tracker.take_snapshot().rows()}
    assert rows <= set(tracker.watched_partitions())
    return tracker.watched_partitions()


@pytest.mark.parametrize("times", [1, MANY])
@pytest.mark.parametrize("value", [commit("g", "t", 0, 1)[1], None])
def test_names_that_are_longer_than_kafkas_strings_are_skipped_and_counted(times, value):
    tracker = Tracker()
    records = [(commit_key(LONG, b"t"), value), (commit_key(b"g", LONG), value), commit("g", "t", 0, 5)]
    apply(tracker, *(records * times))
    assert [(row.group, row.committed) for row in tracker.take_snapshot().rows()] == [("g", 5)]
    assert tracker.impossible_counts == {"name": 2 * times}
    assert tracker.record_counts == {"OffsetCommit": 3 * times}


@pytest.mark.parametrize("times", [1, MANY])
@pytest.mark.parametrize("partition", [-1, -(2**31)])
def test_commits_of_negative_partitions_are_skipped_and_counted(times, partition):
    tracker = Tracker()
    records = [
        commit("g", "t", partition, 3),
        commit("g", "t", 2**31 - 1, 5),
        commit("g", "t", partition, None),
    ]
    apply(tracker, *(records * times))
    assert partitions(tracker) == [("t", 2**31 - 1)]
    assert tracker.impossible_counts == {"partition": 2 * times}


def test_a_group_with_a_long_name_and_members_is_skipped_and_counted():
    tracker = Tracker()
    value = classic_group("g", {"m": assignment((b"t", (0,)))})[1]
    apply(tracker, (b"\0\2" + text(LONG), value), classic_group("ok", {}))
    assert [group.name for group in tracker.take_snapshot().groups()] == ["ok"]
    assert tracker.impossible_counts == {"name": 1}
    assert tracker.save_partition(0) is not None


def test_the_rest_of_a_classic_assignment_is_used():
    tracker = Tracker()
    blob = assignment((b"t", HELD), (b"none", (-7,)), (LONG, (3,)), (b"u", (1,)))
    apply(tracker, classic_group("g", {"m": blob}))
    assert partitions(tracker) == [("t", 0), ("t", 2), ("u", 1)]
    assert tracker.impossible_counts == {"partition": 3, "name": 1}


@pytest.mark.parametrize("kind", [Consumer, Share, Streams])
def test_the_rest_of_an_assignment_of_the_newer_kinds_is_used(kind):
    tracker = Tracker()
    tracker.identify_topics(dict(zip("tu", Consumer.places, strict=True)))
    first, second = kind.places
    records = [kind.own("g", 1), kind.member("g", "m"), kind.target("g", "m", {first: HELD})]
    records.append(kind.current("g", "m", 1, {first: HELD}, {second: (-3, 4)}))
    if kind is Streams:
        records.append(kind.topology("g"))
    apply(tracker, *map(encode, records))
    (group,) = tracker.take_snapshot().groups()
    (member,) = group.members
    for held in (member.assigned, member.revoking, member.target or {}):
        assert all(partition >= 0 for topic in held.values() for partition in topic)
    at = sorted({partition for _, partition in partitions(tracker)})
    assert at == ([0, 2] if kind is Share else [0, 2, 4])
    assert tracker.impossible_counts == {"partition": 4 if kind is Share else 5}


def test_a_description_of_a_coordinator_brings_no_negative_partition_in():
    tracker = Tracker()
    member = Member("m", "c", "h", assigned={"t": (-1, 0)})
    seed = CommitColumns.from_offsets({("g", "t", -5): 1, ("g", "t", 1): 2})
    tracker.seed_partitions(seed, {"g": Group("g", "classic", members=(member,))}, 1, [0])
    assert partitions(tracker) == [("t", 0), ("t", 1)]


@pytest.mark.parametrize("seed", range(4))
def test_no_record_of_random_numbers_and_names_raises_or_harms_another_group(seed):
    rng = random.Random(seed)
    extreme = (0, 1, -1, 2**31 - 1, -(2**31), 7)
    wide = (*extreme, 2**63 - 1, -(2**63), 2**62)
    tracker = Tracker()
    for step in range(15):
        records = [commit("good", "t", 0, step, at=1_790_000_000_000 + step * 1000)]
        for _ in range(rng.choice((1, 17))):
            name = rng.choice((LONG, b"g", b"", b"\xff\xfe", b"x" * 32767, "\U0001f600".encode()))
            topic = rng.choice((LONG, b"t", b"", b"\xff\xfe", b"x" * 32767))
            value = rng.choice((None, _value(rng.choice(wide), rng.choice(wide)), rng.randbytes(12)))
            key = commit_key(name, topic, rng.choice(extreme))
            records.append((rng.choice((key, key[:2], b"\0\0" + key[2:])), value))
            blob = assignment((topic, tuple(rng.choices(extreme, k=3))))
            records.append((b"\0\2" + text(name), classic_group("g", {"m": blob})[1]))
        apply(tracker, *records)
        tracker.add_samples(
            ends=dict.fromkeys(tracker.watched_partitions(), rng.choice(wide)), at_ms=1_790_000_000_000 + step
        )
        snapshot = tracker.take_snapshot(rng.choice((0, 1, 1_790_000_000_000, 2**45)))
        rows = list(snapshot.rows())
        assert len(snapshot.totals()) == len(
            {*(row.group for row in rows), *(g.name for g in snapshot.groups())}
        )
        assert all(row.partition >= 0 for row in rows)
        assert [row.committed for row in rows if row.group == "good"] == [step]
        assert tracker.save_partition(0) is not None


def _value(offset: int, at_ms: int) -> bytes:
    return struct.pack(">hqihq", 3, offset, -1, 0, at_ms)

"""A tracker that began with what coordinators said, and a tail: the same as one that read everything."""

import copy
import random
from dataclasses import replace
from typing import Any

import pytest

from koff.lag import UNKNOWN
from koff.records import GroupMetadataValue, OffsetCommit, decode, encode
from koff.records.placement import group_partition
from koff.tracker import Tracker
from koff.tracker.commit_columns import CommitColumns
from koff.tracker.groups import Described, Group
from tests.unit.builders import Pair, apply, commit
from tests.unit.lives import history, replayed
from tests.unit.tracker.test_saved_state import shown, windows

START_MS = 1_790_000_000_000
NOW_MS = START_MS + 10_000_000
Row = tuple[str, str, int]
Log = list[tuple[int, Pair]]
"""Records with their offsets."""


def log_of(seed: int) -> Log:
    """Of the one partition that there is: groups of every kind live, commit, and lose their commits."""
    rng = random.Random(seed)
    log: list[Pair] = []
    for message in history(seed, groups=4, steps=60):
        key, value = encode(message.record)
        assert key is not None
        log.append((key, value))
        for _ in range(rng.randrange(3)):
            group, topic = f"g{rng.randrange(7)}", rng.choice(("t", "u", "größer"))
            offset = None if rng.random() < 0.15 else rng.randrange(1000)
            log.append(commit(group, topic, rng.randrange(3), offset, at=START_MS + len(log) * 1000))
    return list(enumerate(log))


def compacted(log: Log, upto: int, *, tombstones: bool) -> Log:
    """What the cleaner leaves of it when it has cleaned up to that offset."""
    last = {pair[0]: offset for offset, pair in log if offset < upto}
    kept = [(at, pair) for at, pair in log if at >= upto or last[pair[0]] == at]
    return [(at, pair) for at, pair in kept if at >= upto or tombstones or pair[1] is not None]


def read(tracker: Tracker, log: Log, rng: random.Random) -> None:
    """In batches of any size."""
    while log:
        size = rng.randrange(1, 60)
        apply(tracker, *(pair for _, pair in log[:size]))
        log = log[size:]


def whole(log: Log) -> Tracker:
    tracker = Tracker()
    apply(tracker, *(pair for _, pair in log))
    return tracker


def rows_of(log: Log) -> dict[Row, int]:
    rows: dict[Row, int] = {}
    for _, pair in log:
        record = decode(*pair).record
        if isinstance(record, OffsetCommit):
            at = (record.group, record.topic, record.partition)
            rows.pop(at, None)
            if record.value is not None:
                rows[at] = record.value.offset
    return rows


def groups_of(log: Log) -> dict[str, Described]:
    """All groups, as a coordinator that leaves nothing out would describe them."""
    table = replayed([decode(*pair) for _, pair in log])
    found: dict[str, Described] = {}
    for name in table.names():
        group = table._groups[name]
        view = table.get(name)
        assert view is not None
        if view.type in {"classic", "simple"}:
            found[name] = view
        else:
            assert not isinstance(group, GroupMetadataValue)
            found[name] = copy.deepcopy(group)
    return found | {at[0]: Group(at[0]) for at in rows_of(log) if at[0] not in found}


def committed(tracker: Tracker) -> dict[Row, int | None]:
    return {
        (row.group, row.topic, row.partition): row.committed
        for row in tracker.take_snapshot().rows()
        if row.committed is not None
    }


def told(log: Log) -> Tracker:
    """One that knows no more than what coordinators say at the end of that log."""
    tracker = Tracker()
    tracker.seed_partitions(CommitColumns.from_offsets(rows_of(log)), groups_of(log), 1, [0])
    return tracker


def groups(tracker: Tracker) -> dict[str, Group]:
    return {group.name: group for group in tracker.take_snapshot().groups()}


def points(seed: int, log: Log) -> tuple[random.Random, int, int, int]:
    """Where the tail begins, when the coordinators answer, and how far the tail has come."""
    rng = random.Random(seed)
    begin, asked, now = sorted(rng.randrange(len(log) + 1) for _ in range(3))
    return rng, begin, asked, now


@pytest.mark.parametrize("seed", range(40))
def test_a_tail_from_before_the_answers_ends_in_the_state_of_the_log(seed):
    log = log_of(seed)
    rng, begin, asked, now = points(seed, log)
    tracker = told(log[:asked])
    assert committed(tracker) == committed(whole(log[:asked]))
    read(tracker, log[begin:now], rng)
    full = whole(log[:now])
    assert committed(tracker) == committed(full)
    described = groups_of(log[:asked])
    known = {
        name: replace(group, state="Unknown") if group == Group(name) and name not in described else group
        for name, group in groups(full).items()
    }
    assert {name: group for name, group in groups(tracker).items() if name in known} == known
    assert all(group == Group(group.name) for name, group in groups(tracker).items() if name not in known)


@pytest.mark.parametrize("seed", range(20))
def test_of_what_the_tail_has_said_the_time_is_known_and_of_nothing_else(seed):
    log = log_of(seed)
    rng, begin, asked, now = points(seed, log)
    tracker = told(log[:asked])
    read(tracker, log[begin:now], rng)
    said = rows_of(log[begin:now])
    expected = windows(whole(log[:now]))
    for at, (offsets, _, times, committed_at, _, seen_at) in windows(tracker).items():
        assert seen_at == UNKNOWN
        if at in said:
            assert committed_at == expected[at][3]
            assert offsets == expected[at][0][-len(offsets) :]
        else:
            assert (committed_at, offsets, times) == (UNKNOWN, [], [])


@pytest.mark.parametrize("seed", range(40))
def test_a_backfill_at_any_point_leaves_nothing_that_a_replay_would_not_give(seed):
    log = log_of(seed)
    rng, begin, asked, now = points(seed, log)
    tracker = told(log[:asked])
    read(tracker, log[begin:now], rng)
    aside = tracker.create_shard()
    for part, counted in ((log[:begin], True), (log[begin:now], False)):
        pairs = [pair for _, pair in part]
        aside.apply([key for key, _ in pairs], [value for _, value in pairs], counted=counted)
    tracker.replace_shard(0, aside)
    read(tracker, log[now:], rng)
    full = whole(log)
    assert shown(tracker, NOW_MS) == shown(full, NOW_MS)
    assert tracker.record_counts == full.record_counts


@pytest.mark.parametrize("tombstones", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_compaction_changes_neither_tail_nor_backfill(seed, tombstones):
    log = log_of(seed)
    rng, begin, asked, now = points(seed, log)
    cleaned = compacted(log, begin, tombstones=tombstones)
    tracker = told(log[:asked])
    read(tracker, compacted([each for each in log if begin <= each[0] < now], asked, tombstones=True), rng)
    assert committed(tracker) == committed(whole(log[:now]))
    aside = tracker.create_shard()
    pairs = [pair for offset, pair in cleaned if offset < now]
    aside.apply([key for key, _ in pairs], [value for _, value in pairs])
    tracker.replace_shard(0, aside)
    read(tracker, log[now:], rng)
    full = whole(log)
    assert (committed(tracker), groups(tracker)) == (committed(full), groups(full))


def test_the_logs_hold_what_it_takes():
    logs = [log_of(seed) for seed in range(5)]
    groups_ = [
        group for log in logs for at in range(0, len(log), 27) for group in groups(whole(log[:at])).values()
    ]
    assert {group.type for group in groups_} == {"classic", "consumer", "share", "streams", "simple"}
    deleted = [pair for log in logs for _, pair in log if pair[1] is None]
    assert {type(decode(*pair).record) for pair in deleted} > {OffsetCommit}


def seeded(rows: dict[Row, int], partitions: int, only: list[int], **described: Any) -> Tracker:
    tracker = Tracker()
    tracker.seed_partitions(CommitColumns.from_offsets(rows), described, partitions, only)
    return tracker


def test_answers_go_to_the_partitions_that_their_groups_live_in():
    rows = {(f"g{number}", "t", number % 3): number for number in range(100)}
    tracker = seeded(rows, 7, list(range(7)))
    assert committed(tracker) == rows
    for partition in range(7):
        homes = {group_partition(name, 7) for name in tracker.group_names(partition)}
        assert homes == {partition}


def unmoved_since_ms(tracker: Tracker) -> int:
    return tracker.take_snapshot(10_000).shards[0].unmoved_since_ms


def test_what_coordinators_said_has_not_moved_since_the_first_commits_that_were_read_after_that():
    tracker = Tracker()
    tracker.seed_partitions(CommitColumns.from_offsets({("g", "t", 0): 5, ("g", "t", 1): 7}), {}, 1, [0])
    assert unmoved_since_ms(tracker) == UNKNOWN
    # Of many commits, a few may have a time that is long ago.
    times = [1, 2, 3, 4, *range(1_000, 1_100)]
    commits = [commit("h", "t", partition, 9, at=at) for partition, at in enumerate(times)]
    apply(tracker, *commits)
    assert unmoved_since_ms(tracker) == 1_000
    apply(tracker, commit("h", "t", 0, 10, at=2_000))
    assert unmoved_since_ms(tracker) == 1_000
    tracker.shards[0].overwrite(CommitColumns.from_offsets({("g", "t", 0): 6}), {}, ())
    assert unmoved_since_ms(tracker) == UNKNOWN


def test_what_the_log_alone_told_has_its_own_times():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 10, at=2_000))
    assert unmoved_since_ms(tracker) == UNKNOWN


def test_a_group_that_coordinators_did_not_describe_has_no_total_before_its_history_is_known():
    tracker = Tracker()
    described = CommitColumns.from_offsets({("told", "t", 0): 5})
    tracker.seed_partitions(described, {"told": Group("told")}, 1, [0])
    apply(tracker, *(commit(group, "t", 1, 7) for group in ("told", "other")))
    tracker.add_samples(ends={("t", 0): 9, ("t", 1): 9}, at_ms=NOW_MS)
    totals = {total.group.name: total for total in tracker.take_snapshot(NOW_MS).totals()}
    assert (totals["told"].lag, totals["told"].group.state) == (6, "Empty")
    assert (totals["other"].lag, totals["other"].group.state) == (None, "Unknown")
    tracker.shards[0].overwrite(described, None, {"other"}, seen_at_ms=NOW_MS, kept_topics=())
    totals = {total.group.name: total for total in tracker.take_snapshot(NOW_MS).totals()}
    assert (totals["other"].lag, totals["other"].group.state) == (2, "Empty")

"""What a tracker saved and another restored: the same state, and the same life from there on."""

import json
import random
from typing import Any

import numpy as np
import pytest

from koff.lag import EndHistory
from koff.records import OffsetCommit, OffsetCommitValue, encode
from koff.tracker import Snapshot, State, Tracker
from koff.tracker.clock_skew import ClockSkew
from koff.tracker.commit_keys import commit_key, key_hashes
from koff.tracker.saved_ends import restore_ends, save_ends
from tests.group_records import Share
from tests.unit.builders import apply, commit, save
from tests.unit.lives import history
from tests.unit.tracker.share_groups import share, snapshot_of

START_MS = 1_790_000_000_000
IDS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")
TOPICS = ("t", "u", "in-a", "again", "größer")

Batch = list[tuple[bytes | None, bytes | None]]


@pytest.fixture(autouse=True)
def no_skew(monkeypatch):
    """The clock skew is not saved, because another process has another clock. It would differ."""
    monkeypatch.setattr(ClockSkew, "measure_ms", lambda self: None)


def random_commit(rng: random.Random, group: str, at_ms: int) -> tuple[bytes, bytes | None]:
    value = None
    if rng.random() > 0.1:
        version = rng.randrange(5)
        value = OffsetCommitValue(
            version=version,
            offset=rng.choice([rng.randrange(1000), rng.randrange(1000), rng.randrange(1 << 45), -1]),
            metadata=rng.choice(["", "x" * 50]),
            commit_timestamp=at_ms + rng.randrange(5000),
            topic_id=rng.choice(IDS) if version == 4 else "AAAAAAAAAAAAAAAAAAAAAA",
        )
    topic, partition = rng.choice(TOPICS), rng.choice([0, 1, 2, 2**31 - 1])
    return encode(
        OffsetCommit(group=group, topic=topic, partition=partition, value=value, type=rng.randrange(2))
    )


def batches(seed: int) -> list[Batch]:
    """A partition's log in batches: groups of every kind live, and commit, and lose their commits."""
    rng = random.Random(seed)
    records = [encode(message.record) for message in history(seed, groups=4, steps=80)]
    log: list[Batch] = []
    while records:
        size = rng.choice([2, 12, 60])
        batch, records = records[:size], records[size:]
        batch += [
            random_commit(rng, f"g{rng.randrange(7)}", START_MS + len(log) * 1000)
            for _ in range(rng.choice([1, 12, 60]))
        ]
        rng.shuffle(batch)
        log.append(batch)
    return log


def sample(tracker: Tracker, number: int) -> None:
    ends = {(topic, p): 1000 + 10 * number * p for topic in TOPICS for p in range(3)}
    at_ms = START_MS + number * 1000
    tracker.add_samples(ends=ends, starts=dict.fromkeys(ends, 5), stables=ends, at_ms=at_ms)


def live(tracker: Tracker, log: list[Batch], first: int = 0, *, partition: int = 0) -> None:
    """Applies batches a second apart, and samples ends every few of them."""
    for number, batch in enumerate(log, first):
        now_ms = START_MS + number * 1000
        apply(tracker, *batch, partition=partition, seen_at_ms=now_ms)
        if number % 3 == 0:
            sample(tracker, number)


def windows(tracker: Tracker) -> dict[tuple[str, str, int], list[Any]]:
    """What no snapshot shows: every window of commits, and every column of its row."""
    found: dict[tuple[str, str, int], list[Any]] = {}
    for number, shard in tracker.shards.items():
        snapshot = tracker.take_snapshot()
        layout: Any = snapshot.shards[number]
        places = snapshot.partitions
        rows = layout.layout.rows
        window = shard.rows.windows.get(rows)
        for i, row in enumerate(rows.tolist()):
            count = int(window.count[i])
            slots = [part[i, len(part[i]) - count :].tolist() for part in (window.offset, window.lag)]
            times = window.time_ms[i, 10 - count :].tolist()
            columns = [
                int(getattr(shard.rows, name)[row]) for name in ("committed_at", "topic_id", "seen_at")
            ]
            group = layout.groups[layout.group[i]].name
            at = int(layout.partition[i])
            found[group, places.topic[at], places.partition[at]] = [*slots, times, *columns]
    return found


def shown(tracker: Tracker, now_ms: int) -> tuple[Any, ...]:
    """All that a tracker shows and knows, whatever the order of its rows."""
    snapshot: Snapshot = tracker.take_snapshot(now_ms)
    groups = sorted(snapshot.groups(), key=lambda group: group.name)
    rows = sorted(snapshot.rows(), key=lambda row: (row.group, row.topic, row.partition))
    return groups, rows, snapshot.totals(), windows(tracker)


def through_json(state: State) -> State:
    """The state as it comes back from a file: nothing is the same object, no column can be written to."""
    columns = {name: np.frombuffer(c.tobytes(), c.dtype) for name, c in state.columns.items()}
    return State(json.loads(json.dumps(dict(state.facts))), columns)


def restarted(tracker: Tracker) -> Tracker:
    """Another tracker that knows what this one saved. Its names have other numbers."""
    other = Tracker()
    other.apply(9, *([part] for part in commit("before", "all", 0, 1)))
    other.reset_partition(9)
    for partition in tracker.shards:
        other.restore_partition(partition, through_json(save(tracker, partition)))
    restore_ends(other.partitions, through_json(save_ends(tracker.partitions)))
    return other


@pytest.mark.parametrize("seed", range(30))
def test_a_restored_tracker_shows_what_the_saved_one_did_and_both_go_on_alike(seed):
    log = batches(seed)
    cut = random.Random(seed).randrange(1, len(log))
    whole = Tracker()
    live(whole, log[:cut])
    half = restarted(whole)
    for tracker in (whole, half):
        sample(tracker, cut)
    now_ms = START_MS + cut * 1000
    assert shown(half, now_ms) == shown(whole, now_ms)
    live(whole, log[cut:], cut)
    live(half, log[cut:], cut)
    now_ms = START_MS + (len(log) + 100) * 1000
    assert shown(half, now_ms) == shown(whole, now_ms)


def test_a_topic_created_anew_while_nobody_looked_has_none_of_the_old_ones_history():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 1000, at=START_MS))
    tracker.identify_topics({"t": IDS[0]})
    for second in range(0, 300, 5):
        tracker.add_samples(ends={("t", 0): 10 * second}, at_ms=START_MS + second * 1000)
    now_ms = START_MS + 300_000
    same, other = restarted(tracker), restarted(tracker)
    for after, topic_id in ((same, IDS[0]), (other, IDS[1])):
        after.identify_topics({"t": topic_id})
        after.add_samples(ends={("t", 0): 3000}, at_ms=now_ms)
    assert [row.time_lag_s for row in same.take_snapshot(now_ms).rows()] == [pytest.approx(200, abs=1)]
    assert [row.time_lag_s for row in other.take_snapshot(now_ms).rows()] == [0]


@pytest.mark.parametrize("seed", range(10))
def test_a_history_of_many_ends_goes_on_as_if_nothing_had_been(seed):
    """Longer than a curve has points, partitions that come later, ends that go back, gaps."""
    rng = np.random.default_rng(seed)
    whole, rows = EndHistory(), np.arange(40)
    ends = rng.integers(0, 1000, 40)

    def sample(number: int, *curves_of: tuple[EndHistory, Any]) -> None:
        nonlocal ends
        ends = np.where(rng.random(40) < 0.01, 5, ends + rng.integers(0, 50, 40) * (rng.random(40) < 0.6))
        known = rows[(rng.random(40) < 0.9) & (rows <= number)]
        for each, places in curves_of:
            back = 5 if 300 <= number < 304 else 0  # by so much the clock was set, right after the restart
            each.add_samples(places[known], ends[known], START_MS + (number - back) * 1000)

    for number in range(300):
        sample(number, (whole, rows))
    curves = whole.save(rows)
    assert curves is not None
    restored, moved = EndHistory(), rng.permutation(60)[:40]
    restored.restore(moved, curves)
    for number in range(300, 400):
        at_ms = START_MS + int(rng.integers(0, number)) * 1000
        assert restored.newest_ends(moved).tolist() == whole.newest_ends(rows).tolist()
        assert restored.oldest_ends(moved).tolist() == whole.oldest_ends(rows).tolist()
        assert restored.ends_at(moved, at_ms).tolist() == whole.ends_at(rows, at_ms).tolist()
        for part, other in zip(restored.growth(moved, 60), whole.growth(rows, 60), strict=True):
            assert part.tolist() == other.tolist()
        sample(number, (whole, rows), (restored, moved))


def test_a_tracker_that_never_sampled_saves_a_history_that_changes_nothing():
    tracker, after = Tracker(), Tracker()
    apply(tracker, commit("g", "t", 0, 1))
    restore_ends(after.partitions, through_json(save_ends(tracker.partitions)))
    after.add_samples(ends={("t", 0): 5}, at_ms=START_MS)
    assert after.watched_partitions() == [("t", 0)]


def test_partitions_of_a_history_that_comes_too_late_are_sampled_once_groups_use_them():
    saved = Tracker()
    apply(saved, commit("g", "t", 0, 1))
    saved.add_samples(ends={("t", 0): 5}, at_ms=START_MS)
    tracker = Tracker()
    apply(tracker, commit("g", "u", 0, 1))
    tracker.add_samples(ends={("u", 0): 5}, at_ms=START_MS)
    assert tracker.watched_partitions() == [("u", 0)]
    with pytest.raises(ValueError, match="sampled already"):
        restore_ends(tracker.partitions, save_ends(saved.partitions))
    apply(tracker, commit("g", "t", 0, 1))
    assert tracker.watched_partitions() == [("t", 0), ("u", 0)]


def test_what_was_saved_stays_as_it_was_whatever_comes_after():
    log = batches(7)
    tracker = Tracker()
    live(tracker, log[:20])
    state = save(tracker)
    kept = through_json(state)
    live(tracker, log[20:], 20)
    assert json.dumps(dict(state.facts)) == json.dumps(dict(kept.facts))
    assert all(np.array_equal(column, kept.columns[name]) for name, column in state.columns.items())


def test_the_version_changes_with_every_batch_with_a_restore_and_when_all_is_forgotten():
    tracker = Tracker()
    versions = [tracker.version(0)]
    live(tracker, [[commit("g", "t", 0, 1)]])
    versions.append(tracker.version(0))
    live(tracker, [[commit("g", "t", 0, 1)]], partition=1)
    assert tracker.version(0) == versions[-1]
    live(tracker, [[commit("g", "t", 0, 1)]])
    versions.append(tracker.version(0))
    state = save(tracker)
    assert tracker.version(0) == versions[-1]
    tracker.reset_partition(0)
    live(tracker, [[commit("g", "t", 0, 1)]])
    versions.append(tracker.version(0))
    tracker.restore_partition(0, state)
    versions.append(tracker.version(0))
    assert len(set(versions)) == 5


# share groups: what __share_group_state says is read anew, and so never saved


def sharing(group: str) -> Tracker:
    """One that knows of share state only: the group stands at 4 of partition 0 of t."""
    tracker = Tracker()
    tracker.identify_topics({"t": IDS[0]})
    share(tracker, 0, snapshot_of(group, 4, topic_id=IDS[0]))
    tracker.set_offsets_partitions(1)
    return tracker


def test_what_a_share_group_has_done_is_read_anew_and_not_restored():
    tracker = sharing("g")
    live(tracker, [[encode(Share.own("g", 1)), commit("other", "t", 0, 7)]])
    assert {(row.group, row.committed) for row in tracker.take_snapshot().rows()} == {("g", 4), ("other", 7)}
    after = Tracker()
    after.restore_partition(0, save(tracker))
    assert [(row.group, row.committed) for row in after.take_snapshot().rows()] == [("other", 7)]
    assert {group.type for group in after.take_snapshot().groups()} == {"share", "simple"}


def test_share_state_that_is_known_already_goes_into_a_restored_partition():
    tracker = sharing("g")
    live(tracker, [[encode(Share.own("g", 1))]])
    tracker.restore_partition(0, save(tracker))
    tracker.set_offsets_partitions(1)
    assert [(row.group, row.committed) for row in tracker.take_snapshot().rows()] == [("g", 4)]


# keys


@pytest.mark.parametrize(
    ("group", "topic", "partition"),
    [("g", "t", 0), ("größer", "ü", 2**31 - 1), ("", "", -1), ("x" * 32767, "\U0001f600", 255)],
)
def test_keys_are_rebuilt_as_brokers_write_them(group, topic, partition):
    written = encode(OffsetCommit(group=group, topic=topic, partition=partition, value=None))[0]
    assert commit_key(group, topic, partition) == written
    zero = np.zeros(1, np.int32)
    hashes = key_hashes([group], [topic], zero, zero, np.array([partition], np.int32))
    assert hashes.tolist() == [hash(written)]


@pytest.mark.parametrize("times", [1, 100])
def test_a_name_that_is_no_utf8_is_found_again_after_a_restart_under_each_of_its_spellings(times):
    """Java reads each of them as one U+FFFD, of three bytes as they are themselves."""
    bad = [b"\xed\xa0\x80", b"\xed\xa0\x81", b"\xff", "\ufffd".encode()]
    keys = []
    for raw in bad:
        keys.append(b"\0\1" + len(raw).to_bytes(2, "big") + raw + b"\0\1t" + bytes(4))
    value = commit("g", "t", 0, 1)[1]
    tracker = Tracker()
    for key in keys:
        tracker.apply(0, [key] * times, [value] * times)
    assert [row.group for row in tracker.take_snapshot().rows()] == ["\ufffd"]
    after = restarted(tracker)
    for offset, key in enumerate(keys):
        after.apply(0, [key] * times, [commit("g", "t", 0, offset)[1]] * times)
        assert [(row.group, row.committed) for row in after.take_snapshot().rows()] == [("\ufffd", offset)]
    after.apply(0, [keys[0]] * times, [None] * times)
    assert list(after.take_snapshot().rows()) == []

"""Groups and topics that come and go: what is known stays right, and does not grow."""

import random
from typing import Any

import numpy as np
import pytest

from koff.proto.primitives import format_uuid
from koff.records import encode
from koff.tracker import Snapshot, Tracker, topic_id_names
from koff.tracker import registry as shared
from koff.tracker.shard import Shard
from koff.tracker.topic_ids import fold_topic_id
from koff.tracker.topic_partitions import KEEP_UNUSED_MS
from koff.tracker.tracker import RELEASE_INTERVAL_MS
from tests.group_records import Consumer
from tests.unit.builders import apply, commit
from tests.unit.tracker.share_groups import share, snapshot_of

START_MS = 1_790_000_000_000
ROUND_MS = 60_000


def state(snapshot: Snapshot) -> list[tuple[str, str, int, int | None, int | None]]:
    rows = snapshot.rows()
    return sorted((row.group, row.topic, row.partition, row.committed, row.end) for row in rows)


def sizes(tracker: Tracker) -> dict[str, int]:
    """How much there is of all that could grow."""
    shared = tracker._registry
    shards: list[Any] = list(shared.shards)
    return {
        "groups": len(shared.names.groups.names),
        "topics": len(shared.names.topics.names),
        "prefixes": shared.names.prefix_count,
        "name sizes": sum(map(len, shared._name_sizes.values())),
        "partitions": shared.partitions.numbers.room,
        "history": len(shared.partitions.history),
        "topic ids": len(shared.partitions.topic_ids),
        "topic names": len(tracker._topic_names.names),
        "rows": sum(len(each.rows.hash) for each in shards),
        "index": sum(len(each.rows.index._rows) for each in shards),
    }


def churn(tracker: Tracker, round_: int, *, groups: int = 60) -> None:
    """A minute: groups of two offsets on topics that only this minute has, all deleted at its end."""
    at_ms = START_MS + round_ * ROUND_MS
    pairs = [
        commit(f"g{round_}-{n}", f"t{round_}-{n}", p, n, at=at_ms) for n in range(groups) for p in range(2)
    ]
    apply(tracker, commit("stays", "here", 0, round_, at=at_ms), *pairs)
    tracker.identify_topics({topic: topic_id(topic) for topic, _ in tracker.watched_partitions()})
    tracker.add_samples(ends=dict.fromkeys(tracker.watched_partitions(), 1000), at_ms=at_ms)
    apply(tracker, *((key, None) for key, _ in pairs))
    tracker.partitions.forget_offsets(
        [at for at in tracker.watched_partitions() if at[0] != "here" and round_ % 2]
    )


def topic_id(topic: str) -> str:
    return format_uuid(topic.encode().rjust(16, b"-"))


def test_two_hours_of_groups_and_topics_that_come_and_go_leave_no_trace_but_room(monkeypatch):
    monkeypatch.setattr(shared, "_SPARE", 500)
    monkeypatch.setattr(topic_id_names, "SPARE", 500)
    tracker, seen = Tracker(), []
    for round_ in range(120):
        churn(tracker, round_)
        seen.append(sizes(tracker))
    for name in seen[0]:
        assert max(each[name] for each in seen[60:]) <= 1.3 * max(each[name] for each in seen[:60]), name
    assert max(seen[-1].values()) < 5_000
    assert state(tracker.take_snapshot()) == [("stays", "here", 0, 119, 1000)]


def test_a_log_of_churn_that_is_replayed_at_once_does_not_grow_either():
    tracker = Tracker()
    for round_ in range(40):
        pairs = [commit(f"g{round_}-{n}", f"t{round_}-{n}", 0, n) for n in range(1000)]
        apply(tracker, *(*pairs, *((key, None) for key, _ in pairs)))
    found = sizes(tracker)
    assert max(found["groups"], found["topics"], found["prefixes"], found["partitions"]) < 12_000


def test_old_groups_on_ever_other_topics_do_not_grow():
    tracker = Tracker()
    for round_ in range(150):
        pairs = [commit(f"g{n}", f"t{(n + round_) % 200}", 0, n) for n in range(200)]
        apply(tracker, *(*pairs, *((key, None) for key, _ in pairs)))
    assert sizes(tracker)["prefixes"] < 12_000


@pytest.mark.parametrize("seed", range(6))
def test_who_tidies_up_all_the_time_knows_the_same(seed, monkeypatch):
    rng = random.Random(seed)
    untidy = Tracker()
    with monkeypatch.context() as patch:
        patch.setattr(shared, "_SPARE", 0)
        tidy = Tracker()
    earlier: list[tuple[Snapshot, list]] = []
    for step in range(80):
        pairs = [
            commit(f"g{rng.randrange(9)}", f"t{rng.randrange(5)}", rng.randrange(3), rng.choice([None, 1, 2]))
            for _ in range(rng.randrange(1, 12))
        ]
        ends = {(f"t{n}", p): 10 * step + n for n in range(5) for p in range(3) if rng.random() < 0.3}
        at_ms, partition = START_MS + step * ROUND_MS, rng.randrange(2)
        with monkeypatch.context() as patch:
            for tracker, spare in ((untidy, 8192), (tidy, 0)):
                patch.setattr(shared, "_SPARE", spare)
                apply(tracker, *pairs, partition=partition)
                tracker.add_samples(ends=ends, at_ms=at_ms if tracker is tidy else -1)
                if step % 40 == 39:
                    tracker.reset_partition(partition)
        earlier.append((snapshot := tidy.take_snapshot(at_ms), rows := state(snapshot)))
        assert [row[:4] for row in rows] == [row[:4] for row in state(untidy.take_snapshot())]
        for group, topic, number, _, end in rows:
            assert end is None or end % 10 == int(topic[1:]), (group, topic, number)
    assert all(state(snapshot) == then for snapshot, then in earlier)
    assert len(tidy._registry.names.groups.names) <= 2 * 9 + 12


def test_the_history_of_ends_outlives_a_group_that_comes_back_soon_and_no_other():
    tracker = Tracker()
    for minutes in range(0, 40, 2):
        at_ms = START_MS + minutes * ROUND_MS
        tracker.add_samples(ends={("t", 0): 100 * minutes}, at_ms=at_ms)
        if minutes in (4, 10):
            apply(tracker, commit("g", "t", 0, 0))
        if minutes in (6, 12):
            apply(tracker, commit("g", "t", 0, None))
        if minutes == 10:
            (row,) = tracker.take_snapshot(at_ms).rows()
            assert row.time_lag_s == pytest.approx(600, abs=5)
    assert KEEP_UNUSED_MS == 10 * ROUND_MS
    apply(tracker, commit("g", "t", 0, 0))
    (row,) = tracker.take_snapshot(START_MS + 40 * ROUND_MS).rows()
    assert row.time_lag_s is not None
    assert row.time_lag_s < 40 * 60 - 600


def test_partitions_that_are_only_assigned_are_watched_for_as_long():
    tracker = Tracker()
    tracker.identify_topics({"t": Consumer.places[0]})
    held = {Consumer.places[0]: (0, 1)}
    records = [Consumer.own("g", 1), Consumer.member("g", "m"), Consumer.current("g", "m", 1, held)]
    pairs = [encode(record) for record in records]
    apply(tracker, *pairs)
    for minutes in range(60):
        watched = tracker.watched_partitions()
        assert watched == [("t", 0), ("t", 1)]
        tracker.add_samples(ends=dict.fromkeys(watched, minutes), at_ms=START_MS + minutes * ROUND_MS)
    apply(tracker, commit("g", "t", 1, 0))
    row = next(row for row in tracker.take_snapshot(START_MS + 60 * ROUND_MS).rows() if row.partition == 1)
    assert row.time_lag_s == pytest.approx(3600, abs=61)
    apply(tracker, *((key, None) for key, _ in reversed(pairs)), commit("g", "t", 1, None))
    for minutes in range(60, 75):
        watched = tracker.watched_partitions()
        tracker.add_samples(ends=dict.fromkeys(watched, minutes), at_ms=START_MS + minutes * ROUND_MS)
    assert tracker.watched_partitions() == []


def test_a_shard_that_is_still_being_filled_keeps_its_names(monkeypatch):
    monkeypatch.setattr(shared, "_SPARE", 0)
    tracker = Tracker()
    filling = Shard(tracker._registry)
    pairs = [commit(f"g{n}", f"t{n}", 0, n) for n in range(50)]
    filling.apply([key for key, _ in pairs], [value for _, value in pairs])
    for number in range(100):
        apply(tracker, commit(f"h{number}", f"u{number}", 0, 1))
        apply(tracker, commit(f"h{number}", f"u{number}", 0, None))
    tracker.shards[1] = filling
    expected = sorted((f"g{n}", f"t{n}", 0, n, None) for n in range(50))
    assert state(tracker.take_snapshot()) == expected
    del filling
    tracker.reset_partition(1)
    for number in range(110):
        apply(tracker, commit(f"last{number}", "t", 0, 1), commit(f"last{number}", "t", 0, None))
    assert len(tracker._registry.shards) == 1
    assert tracker._registry.names.groups.count < 20


def test_topics_that_were_created_anew_again_and_again_have_one_name_each():
    tracker = Tracker()
    tracker.set_offsets_partitions(50)
    share(tracker, 0, snapshot_of("s", 4, topic_id=topic_id("t0")))
    for number in range(5000):
        tracker.identify_topics({"t": topic_id(f"t{number}"), "u": topic_id("u")})
    assert len(tracker._topic_names.names) < 2500
    assert {topic_id("t0"), topic_id("t4999"), topic_id("u")} <= tracker._topic_names.names.keys()


def test_names_from_coordinators_make_no_present_id_forgotten():
    tracker = Tracker()
    tracker.identify_topics({f"u{number}": topic_id(f"u{number}") for number in range(900)})
    for number in range(5000):
        tracker.name_topics({"t": topic_id(f"t{number}")})
    names = tracker._topic_names
    assert len(names.names) < 4000
    assert "t" not in names.present
    assert all(names.is_present(topic_id(f"u{number}")) for number in range(900))


def test_a_topic_that_exists_keeps_its_id_while_no_group_uses_it(monkeypatch):
    monkeypatch.setattr(shared, "_SPARE", 0)
    tracker = Tracker()
    tracker.identify_topics({"t": topic_id("t")})
    for number in range(20):
        apply(tracker, commit("g", f"u{number}", 0, 1))
        apply(tracker, commit("g", f"u{number}", 0, None))
    apply(tracker, commit("g", "t", 0, 1))
    partitions = tracker._registry.partitions.take_snapshot()
    assert partitions.topic_id[partitions.topic.index("t")] == fold_topic_id(topic_id("t"))


def test_the_parts_of_a_sample_cause_one_search_for_unused_partitions(monkeypatch):
    tracker, calls = Tracker(), []
    apply(tracker, *(commit("g", "t", number, 1) for number in range(10)))

    def find_used(self):
        calls.append(self)
        return np.ones(10, bool)

    monkeypatch.setattr(shared.Registry, "used_partitions", find_used)
    for second in (0, 1, 2, RELEASE_INTERVAL_MS // 1000):
        for number in range(10):
            tracker.add_samples(ends={("t", number): second}, at_ms=START_MS + second * 1000)
    assert len(calls) == 2
    tracker.add_samples(ends={("t", 0): 9}, at_ms=START_MS - 3_600_000)  # the clock was set
    assert len(calls) == 3


def test_share_state_of_a_topic_that_nobody_can_name_goes_with_its_tombstone():
    tracker = Tracker()
    tracker.set_offsets_partitions(50)
    share(tracker, 0, snapshot_of("s", 4, topic_id=Consumer.places[1]))
    assert tracker.unnamed_topic_ids() == {Consumer.places[1]}
    share(tracker, 0, snapshot_of("s", None, topic_id=Consumer.places[1]))
    assert tracker.unnamed_topic_ids() == set()


def test_a_topic_does_not_inherit_the_id_of_one_that_was_forgotten(monkeypatch):
    monkeypatch.setattr(shared, "_SPARE", 0)
    tracker = Tracker()
    for number in range(20):
        apply(tracker, commit("g", f"t{number}", 0, 1))
        tracker.identify_topics({f"t{number}": topic_id(f"t{number}")})
        apply(tracker, commit("g", f"t{number}", 0, None))
    assert len(tracker._registry.names.topics.names) < 10
    apply(tracker, *(commit("g", f"u{number}", 0, 1) for number in range(8)))
    topics = tracker._registry.partitions.take_snapshot()
    ids = dict(zip(topics.topic, topics.topic_id.tolist(), strict=True))
    assert {ids[f"u{number}"] for number in range(8)} == {0}

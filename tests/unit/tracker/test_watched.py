"""The partitions to sample, and the topics to name: kept up to date group by group."""

import random

import pytest

from koff.records import encode
from koff.tracker import Rule, ShownNames, Tracker
from koff.tracker.topic_partitions import KEEP_UNUSED_MS
from koff.tracker.tracker import RELEASE_INTERVAL_MS
from tests.group_records import Consumer
from tests.unit.builders import ASSIGNED_T_0_1, apply, classic_group, commit

FIRST, SECOND = Consumer.places
START_MS = 1_790_000_000_000


def consumer(group: str, held: dict[str, tuple[int, ...]]) -> list:
    records = [Consumer.own(group, 1), Consumer.member(group, "m"), Consumer.current(group, "m", 1, held)]
    return [encode(record) for record in records]


def test_the_list_is_the_same_object_until_a_partition_comes():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 1), classic_group("g", {"m": ASSIGNED_T_0_1}))
    before = tracker.watched_partitions()
    apply(tracker, commit("g", "t", 0, 2), classic_group("g", {"n": ASSIGNED_T_0_1}))
    tracker.add_samples(ends=dict.fromkeys(before, 10), at_ms=START_MS)
    assert tracker.watched_partitions() is before
    apply(tracker, commit("g", "a", 0, 2))
    assert tracker.watched_partitions() == [("a", 0), ("t", 0), ("t", 1)]
    assert before == [("t", 0), ("t", 1)]


def test_partitions_by_topic_id_are_watched_once_the_topic_has_a_name():
    tracker = Tracker()
    apply(tracker, *consumer("g", {FIRST: (1,), SECOND: (2,)}))
    assert (tracker.watched_partitions(), tracker.unnamed_topic_ids()) == ([], {FIRST, SECOND})
    tracker.identify_topics({"t": FIRST})
    assert (tracker.watched_partitions(), tracker.unnamed_topic_ids()) == ([("t", 1)], {SECOND})
    tracker.identify_topics({"t": FIRST, "u": SECOND})
    assert (tracker.watched_partitions(), tracker.unnamed_topic_ids()) == ([("t", 1), ("u", 2)], set())


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_the_list_is_that_of_a_tracker_that_is_asked_for_the_first_time(seed):
    rng = random.Random(seed)
    log: list = []
    asked, names = Tracker(), dict[str, str]()
    for step in range(60):
        name, partition = f"g{rng.randrange(5)}", rng.randrange(3)
        topic = rng.choice("tuvw")
        pairs = rng.choice(
            (
                [commit(name, topic, rng.randrange(3), rng.choice((None, step)))],
                consumer(name, {rng.choice((FIRST, SECOND)): (rng.randrange(9),)}),
                [(key, None) for key, _ in reversed(consumer(name, {}))],
                [classic_group(name, rng.choice((None, {}, {"m": ASSIGNED_T_0_1})))],
            )
        )
        log.append(("apply", partition, pairs))
        if rng.random() < 0.1:
            log.append(("reset", partition, []))
        if rng.random() < 0.1:
            names |= rng.choice(({"t": FIRST}, {"u": SECOND}))
            log.append(("identify", 0, [dict(names)]))
        fresh = Tracker()
        for tracker, part in ((asked, log[-3:]), (fresh, log)):
            # `asked` has seen all but the end of the log already; it is the same when it is applied again.
            for kind, at, what in part:
                if kind == "apply":
                    apply(tracker, *what, partition=at)
                elif kind == "reset":
                    tracker.reset_partition(at)
                else:
                    tracker.identify_topics(what[0])
        assert asked.unnamed_topic_ids() == fresh.unnamed_topic_ids()
        # A partition that is not used any more is watched for some time.
        for tracker in (asked, fresh):
            tracker.add_samples(at_ms=START_MS + step * RELEASE_INTERVAL_MS)
        assert asked.watched_partitions() == fresh.watched_partitions()


def test_kept_partitions_are_watched_and_stay_although_no_group_uses_them():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 1))
    tracker.keep_partitions([("t", 0), ("t", 1), ("idle", 0)])
    assert tracker.watched_partitions() == [("idle", 0), ("t", 0), ("t", 1)]
    apply(tracker, commit("g", "t", 0, None))
    for period in range(3):
        tracker.add_samples(ends={("idle", 0): 7}, at_ms=START_MS + period * (KEEP_UNUSED_MS + 1))
    assert tracker.watched_partitions() == [("idle", 0), ("t", 0), ("t", 1)]
    tracker.keep_partitions([("t", 1)])
    for period in range(3, 6):
        tracker.add_samples(ends={("t", 1): 7}, at_ms=START_MS + period * (KEEP_UNUSED_MS + 1))
    assert tracker.watched_partitions() == [("t", 1)]


def test_kept_partitions_are_watched_although_only_hidden_groups_use_them():
    tracker = Tracker()
    apply(tracker, commit("hidden", "t", 0, 1), commit("hidden", "u", 0, 1), commit("g", "v", 0, 1))
    tracker.show(ShownNames((Rule.parse("exclude:hidden"),)))
    assert tracker.watched_partitions() == [("v", 0)]
    tracker.keep_partitions([("t", 0), ("v", 0)])
    assert tracker.watched_partitions() == [("t", 0), ("v", 0)]

"""Groups after whole histories: scripted ones, compacted and saved, and what a broker wrote."""

import json
import random
from typing import Any

import pytest

from koff.errors import KoffError
from koff.records import DecodedMessage
from koff.tracker.groups import GroupTable
from tests.group_records import Consumer, gone
from tests.unit.builders import said
from tests.unit.lives import compacted, history, replayed, views
from tests.unit.records.decoding import golden_messages


@pytest.mark.parametrize("seed", range(40))
def test_a_compacted_log_gives_the_state_of_the_whole(seed):
    log = history(seed)
    whole = replayed(log)
    cut = random.Random(seed).randrange(len(log))
    logs = (
        compacted(log),
        compacted(log, tombstones=False),
        compacted(log[:cut]) + log[cut:],
        compacted(log[:cut], tombstones=False) + log[cut:],
    )
    for other in map(replayed, logs):
        assert views(other) == views(whole)
        assert other.contradictions == whole.contradictions == 0


@pytest.mark.parametrize("seed", range(40, 60))
def test_a_table_that_was_saved_and_restored_goes_on_as_if_nothing_had_been(seed):
    log = history(seed)
    cut = random.Random(seed).randrange(len(log))
    half = replayed(log[:cut])
    restored = GroupTable.from_state(json.loads(json.dumps(half.to_state())))
    assert views(restored) == views(half)
    assert restored.to_state() == half.to_state()
    for message in log[cut:]:
        restored.apply(message)
    assert views(restored) == views(replayed(log))


def test_a_saved_state_is_no_part_of_the_table():
    made = replayed([said(Consumer.own("g", 1)), said(Consumer.member("g", "m"))])
    before = made.to_state()
    kept = json.dumps(before)
    made.apply(said(Consumer.own("g", 9)))
    made.apply(said(gone(Consumer.member("g", "m"))))
    assert json.dumps(before) == kept


def test_a_state_of_another_schema_is_refused():
    with pytest.raises(KoffError, match="schema 99"):
        GroupTable.from_state(GroupTable().to_state() | {"schema": 99})


# what a broker wrote


def golden_group(name: str) -> list[DecodedMessage]:
    return [message for message in golden_messages() if message.consumer == name]


def test_golden_groups_end_as_they_did_on_the_broker():
    made = replayed(golden_messages())
    assert {name: f"{each.type} {each.state} {each.epoch}" for name, each in views(made).items()} == {
        "rec-classic": "classic Empty 4",
        "rec-classic-coop": "classic Empty 5",
        "rec-mark-java": "classic Empty 2",
        "rec-share": "share Empty 12",
        "rec-txn": "classic Empty 6",
    }
    assert made.contradictions == 0


def test_the_golden_classic_group_hands_partitions_from_one_member_to_two():
    made, seen = GroupTable(), []
    for message in golden_group("rec-classic"):
        made.apply(message)
        found = made.get("rec-classic")
        seen.append((found.epoch, found.state, len(found.members)))
        assigned = [
            (topic, each) for one in found.members for topic in one.assigned for each in one.assigned[topic]
        ]
        assert len(assigned) == len(set(assigned))
        assert all(one.subscription.topics for one in found.members)
    assert [*dict.fromkeys(seen)] == [
        (0, "Empty", 0),
        (1, "Stable", 1),
        (2, "Stable", 2),
        (3, "Stable", 1),
        (4, "Empty", 0),
    ]


def test_golden_members_move_and_leave_and_the_static_one_is_absent_before_it_is_gone():
    made, seen = GroupTable(), []
    t1, t2 = "Lt0Eht-HRa2GCmvQvFtJdg", "O2YpEJ5YRNm1fWQ9UOdtBQ"
    for message in golden_group("rec-consumer2"):
        made.apply(message)
        if message.record.type == 8 and not message.tombstone:
            found = made.get("rec-consumer2")
            members = [
                (one.id[:2], one.epoch, one.present, one.assigned, one.revoking) for one in found.members
            ]
            seen.append((found.state, found.protocol, *members))
    two: tuple[Any, ...] = ("Xn", 3, True, {t2: (0, 1), t1: (2,)}, {})
    assert seen == [
        ("Stable", "range", ("SK", 2, True, {t1: (0, 1, 2)}, {})),
        ("Assigning", "range", ("SK", 2, True, {t1: (0, 1, 2)}, {}), ("Xn", 2, True, {}, {})),
        ("Reconciling", "range", ("SK", 2, True, {t1: (0, 1, 2)}, {t1: (2,)}), ("Xn", 2, True, {}, {})),
        ("Reconciling", "range", ("SK", 3, True, {t1: (0, 1)}, {}), ("Xn", 2, True, {}, {})),
        ("Stable", "range", ("SK", 3, True, {t1: (0, 1)}, {}), two),
        ("Assigning", "range", ("SK", -2, False, {t1: (0, 1)}, {})),
    ]
    assert "rec-consumer2" not in made


def test_the_golden_streams_group_becomes_ready_and_reads_its_repartition_topic():
    made, seen = GroupTable(), []
    reading: dict[str, Any] = {}
    for message in golden_group("rec-streams"):
        made.apply(message)
        found = made.get("rec-streams")
        if found is None:
            continue
        seen.append(found.state)
        if found.state == "Stable" and found.epoch == 4:
            reading = reading or {one.id: one.assigned for one in found.members}
    assert reading == {
        "CcM3xzrASse2BRVJxjRTdw": {"rec-t1": (1,), "rec-streams-cnt-repartition": (0, 2)},
        "q28nd_rQSxqW7modcP6e-g": {"rec-t1": (0, 2), "rec-streams-cnt-repartition": (1,)},
    }
    assert {"NotReady", "Assigning", "Reconciling", "Stable", "Empty"} == set(seen)
    assert "rec-streams" not in made

"""Groups of every kind, record by record, by docs/records-format.md 4.5 to 4.8."""

import random
from dataclasses import replace
from typing import Any

import pytest

from koff.records import DecodedMessage, decode, encode
from koff.tracker.groups import Group, GroupSubscription, GroupTable, Member, ShareTopic, Tasks
from tests.group_records import Consumer, Share, Streams, gone
from tests.unit.builders import ASSIGNED_T_0_1, classic_group, commit, said
from tests.unit.lives import classic, partition_metadata, replayed, share_topics, views

T, U = Consumer.places
KINDS = pytest.mark.parametrize("kind", [Consumer, Share, Streams], ids=lambda kind: kind.kind)


def table(*records) -> GroupTable:
    """What the records, as they come off the wire, make."""
    return replayed([said(record) for record in records])


def group(*records) -> Group:
    found = table(*records).get("g")
    assert found is not None
    return found


def member(*records) -> Member:
    (found,) = group(*records).members
    return found


def running(kind, *, epoch: int = 3, members: str = "m"):
    """The records of a group whose members hold partition 0 of a place, as their target says."""
    held = {kind.places[0]: (0,)}
    records = [kind.own("g", epoch), kind.assigned("g", epoch)]
    if kind is Streams:
        records.append(Streams.topology("g"))
    for name in members:
        records += [kind.member("g", name), kind.target("g", name, held)]
        records.append(kind.current("g", name, epoch, held, state=kind.stable))
    return records


# classic groups


def test_a_classic_value_replaces_the_whole_group():
    before, after = classic("g", 1, "a", "b"), classic("g", 2, "c")
    found = group(before, after)
    assert (found.type, found.state, found.epoch) == ("classic", "Stable", 2)
    assert (found.protocol_type, found.protocol, found.state_timestamp_ms) == ("consumer", "range", 2000)
    assert [each.id for each in found.members] == ["c"]


def test_a_classic_member_says_what_it_asked_for_and_got():
    found = GroupTable()
    found.apply(decode(*classic_group("g", {"app": ASSIGNED_T_0_1})))
    (one,) = found.get("g").members
    assert one == Member(
        "app-id", "app", "/10.0.0.1", None, {"t": (0, 1)}, subscription=GroupSubscription(("t",)), epoch=7
    )


# what consumer, share and streams groups have in common


@KINDS
def test_a_group_runs_once_its_members_are_where_they_should_be(kind):
    found = group(*running(kind))
    assert (found.type, found.state, found.epoch, found.assignment_epoch) == (kind.kind, "Stable", 3, 3)
    assert found.protocol_type == kind.kind
    (one,) = found.members
    assert (one.id, one.client_id, one.epoch, one.state, one.present) == ("m", "m-client", 3, "Stable", True)
    assert one.target == one.assigned
    assert (one.awaited, one.revoking) == ({}, {})


@KINDS
def test_the_order_of_records_does_not_matter_as_compaction_moves_them(kind):
    records, rng = running(kind, members="abc"), random.Random(4)
    expected = group(*records)
    for _ in range(10):
        rng.shuffle(records)
        assert group(*records) == expected


@KINDS
def test_tombstones_of_what_never_was_make_nothing(kind):
    records = [gone(record) for record in running(kind)]
    made = table(*records, gone(classic("g", 1)))
    assert (len(made), made.names(), made.contradictions) == (0, [], 0)
    made = table(kind.own("g", 1), gone(kind.current("g", "m", 1, {})), gone(kind.member("g", "m")))
    assert made.get("g").members == ()


@KINDS
def test_the_groups_own_tombstone_drops_all_of_it(kind):
    made = table(*running(kind), gone(kind.own("g", 3)))
    assert made.get("g") is None
    assert "g" not in made
    made.apply(said(kind.own("g", 4)))
    assert made.get("g").members == ()


@KINDS
def test_a_member_without_a_current_assignment_remains_until_its_own_tombstone(kind):
    left = [*running(kind, members="mn"), gone(kind.current("g", "m", 3, {}))]
    first, other = group(*left).members
    assert (first.id, first.epoch, first.present, first.assigned) == ("m", -1, False, {})
    assert other.present
    assert [each.id for each in group(*left, gone(kind.member("g", "m"))).members] == ["n"]


@KINDS
def test_a_current_assignment_alone_makes_a_member_and_a_target_alone_does_not(kind):
    assert group(kind.target("g", "m", {kind.places[0]: (0,)})).members == ()
    assert member(kind.current("g", "m", 3, {})).client_id == ""


@KINDS
def test_the_target_is_where_a_member_should_go(kind):
    here, there = ({kind.places[0]: (0, 1)}, {kind.places[0]: (1, 2)})
    records = [*running(kind), kind.current("g", "m", 3, here, state=kind.stable)]
    one = member(*records, kind.target("g", "m", there))
    topics = ["in-a", "in-b"] if kind is Streams else [kind.places[0]]
    assert one.assigned == dict.fromkeys(topics, (0, 1))
    assert one.awaited == dict.fromkeys(topics, (2,))
    assert one.target == dict.fromkeys(topics, (1, 2))
    assert member(*records, gone(kind.target("g", "m", there))).target is None


@KINDS
def test_a_view_is_the_same_object_until_the_group_changes(kind):
    made = table(*running(kind))
    before = made.get("g")
    made.apply(said(kind.own("other", 1)))
    assert made.get("g") is before
    made.apply(said(kind.own("g", 4)))
    assert made.get("g") is not before
    assert before.epoch == 3


@pytest.mark.parametrize("kind", [Consumer, Streams], ids=lambda kind: kind.kind)
def test_the_state_is_computed_as_kafka_does(kind):
    records = running(kind, members="mn")
    assert group(*records).state == "Stable"
    behind = kind.current("g", "n", 2, {}, state=kind.stable)
    assert group(*records, behind).state == "Reconciling"
    for state in (1, 2, 9):
        busy = kind.current("g", "n", 3, {}, state=kind.stable + state)
        assert group(*records, busy).state == "Reconciling"
    assert group(*records, behind, kind.own("g", 4)).state == "Assigning"
    left = [gone(kind.member("g", name)) for name in "mn"]
    assert group(*records, kind.own("g", 4), *left).state == "Empty"


# consumer groups


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "Stable"), (1, "UnrevokedPartitions"), (2, "UnreleasedPartitions"), (7, "Unknown")],
)
def test_states_of_members_have_names(number, name):
    assert member(Consumer.current("g", "m", 3, {}, state=number)).state == name
    assert member(Share.current("g", "m", 3, {}, state=number)).state == name


def test_states_of_streams_members_have_other_numbers():
    names = [member(Streams.current("g", "m", 3, {}, state=number)).state for number in range(4)]
    assert names == ["Unknown", "Stable", "UnrevokedTasks", "UnreleasedTasks"]


def test_a_static_member_that_left_for_a_while_stays_and_is_absent():
    found = group(*running(Consumer), Consumer.current("g", "m", -2, {T: (0,)}))
    (one,) = found.members
    assert (one.epoch, one.present, one.assigned, one.client_id) == (-2, False, {T: (0,)}, "m-client")
    assert found.state == "Reconciling"


def test_the_assignor_is_the_one_most_members_name():
    named = [Consumer.member("g", name, server_assignor="range") for name in "ab"]
    other = Consumer.member("g", "c", server_assignor="uniform")
    assert group(other, *named, Consumer.member("g", "d")).protocol == "range"
    assert group(Consumer.member("g", "d")).protocol == ""


def test_patterns_stand_for_topics_until_their_tombstone():
    records = [Consumer.pattern("g", "t.*", "t1", "t2"), Consumer.pattern("g", "u.*")]
    assert group(*records).patterns == {"t.*": ("t1", "t2"), "u.*": ()}
    assert group(*records, gone(records[0])).patterns == {"u.*": ()}


def test_partition_metadata_of_4_0_makes_a_group_and_says_nothing():
    assert group(partition_metadata("g")) == Group(
        "g", "consumer", "Empty", 0, "consumer", assignment_epoch=0
    )
    assert table(gone(partition_metadata("g"))).names() == []


def test_records_of_kafka_3_7_say_by_what_is_pending_where_a_member_stands():
    record: Any = said(Consumer.current("g", "m", 3, {T: (0,)}, {T: (1,)})).record
    early = replace(record, value=replace(record.value, layout="3.7", state=127))
    assert replayed([DecodedMessage("g", early)]).get("g").members[0].state == "UnrevokedPartitions"
    settled = replace(early, value=replace(early.value, partitions_pending_revocation=()))
    assert replayed([DecodedMessage("g", settled)]).get("g").members[0].state == "Stable"


# share groups


def test_a_share_group_with_members_is_stable_whatever_its_epochs():
    assert group(Share.own("g", 5), Share.member("g", "m")).state == "Stable"
    assert group(Share.own("g", 5)).state == "Empty"


def test_a_share_group_says_which_topics_have_state():
    records = [*running(Share), share_topics("g", "initializing")]
    assert group(*records).share_topics == (ShareTopic(T, "t", (0, 1), "initializing"),)
    assert group(*records, share_topics("g", "initialized")).share_topics[0].stage == "initialized"
    deleting = share_topics("g", "deleting")
    assert group(*records, deleting).share_topics == (ShareTopic(T, "t", (), "deleting"),)
    assert group(*records, gone(deleting)).share_topics == ()


# streams groups


def test_tasks_read_the_topics_of_their_subtopology():
    held, standby = {"0": (0, 2), "1": (1,)}, {"1": (0,)}
    one = member(*running(Streams), Streams.current("g", "m", 3, held, standby=standby))
    assert one.assigned == {"in-a": (0, 2), "in-b": (0, 2), "again": (1,)}
    assert one.tasks == Tasks(active=held, standby=standby)
    assert one.process_id == "p"
    assert one.subscription.topics == ("again", "in-a", "in-b")


def test_the_topology_says_what_lag_is_computed_over():
    topology = group(*running(Streams)).topology
    assert topology.epoch == 0
    assert topology.topics == ("again", "in-a", "in-b")


def test_tasks_of_an_unknown_topology_read_nothing_that_is_known():
    one = member(*running(Streams), gone(Streams.topology("g")))
    assert (one.assigned, one.tasks.active) == ({}, {"0": (0,)})


def test_a_streams_group_is_not_ready_until_its_topology_is_validated():
    records = running(Streams)
    assert group(*records, Streams.own("g", 3, validated=-1)).state == "NotReady"
    assert group(*records, Streams.topology("g", epoch=1)).state == "NotReady"
    assert group(*records, gone(Streams.topology("g"))).state == "NotReady"
    left = [Streams.own("g", 3, validated=-1), gone(Streams.member("g", "m"))]
    assert group(*records, *left).state == "Empty"


def test_the_topologys_tombstone_after_the_groups_makes_no_group():
    assert len(table(*running(Streams), gone(Streams.own("g", 3)), gone(Streams.topology("g")))) == 0


# one kind of group becoming another


@KINDS
def test_the_last_writer_wins_a_contradiction_which_is_counted(kind):
    made = table(classic("g", 1, "a"), *running(kind))
    assert (made.get("g").type, made.contradictions) == (kind.kind, 1)
    made.apply(said(classic("g", 1, "a")))
    assert (made.get("g").type, made.contradictions) == ("classic", 2)


@KINDS
def test_tombstones_of_another_type_leave_a_group_alone(kind):
    other = Share if kind is Consumer else Consumer
    made = table(*running(kind), gone(classic("g", 1)), *(gone(each) for each in running(other)))
    assert views(made) == views(table(*running(kind)))
    assert made.contradictions == 0


def test_what_is_no_record_about_groups_is_left_alone():
    made = GroupTable()
    for pair in (
        (b"\x00\x63", b"x"),
        (None, b"x"),
        (encode(Consumer.own("g", 1))[0], b""),
        commit("g", "t", 0, 1),
    ):
        made.apply(decode(*pair))
    assert len(made) == 0

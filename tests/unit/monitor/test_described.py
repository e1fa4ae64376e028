"""What coordinators describe, in the tracker: as if the records had built it."""

from typing import Any

import pytest

from koff.client.groups.responses import DescribedGroup, DescribedMember
from koff.monitor.described import build_group
from koff.records import decode, encode
from koff.tracker.groups import Group, GroupSubscription, GroupTable, Member
from tests.group_records import Consumer, Held, Share, Streams, gone

A, B = Consumer.places
IDS = {"a": A, "b": B}


def table_of(group: DescribedGroup, ids: dict[str, str] | None = None) -> GroupTable:
    table = GroupTable()
    table.put(group.name, build_group(group, IDS if ids is None else ids))
    return table


def view(group: DescribedGroup, ids: dict[str, str] | None = None) -> Group:
    found = table_of(group, ids).get(group.name)
    assert found is not None
    return found


def built(*records: Any) -> Group:
    """The group g that these records build."""
    table = GroupTable()
    say(table, *records)
    found = table.get("g")
    assert found is not None
    return found


def say(table: GroupTable, *records: Any) -> None:
    for record in records:
        table.apply(decode(*encode(record)))


def a_member(id_: str, host: str, assigned: Held, **more: Any) -> DescribedMember:
    return DescribedMember(
        id_, f"{id_}-client", host, None, assigned, **{"subscribed": ("t",), "epoch": 3, **more}
    )


def a_group(kind: str, *members: DescribedMember, **more: Any) -> DescribedGroup:
    about: dict[str, Any] = {"epoch": 3, "assignment_epoch": 3, "state": "Stable"} | more
    return DescribedGroup("g", kind, about.pop("state"), "consumer", members=members, **about)


def of_a_consumer(held: Held, target: Held, **more: Any) -> DescribedMember:
    return a_member("m", "/10.0.0.2", held, target=target, **more)


def test_a_consumer_group_is_what_its_records_would_have_made_it():
    group = a_group("consumer", of_a_consumer({"a": (0, 1), "b": (2,)}, {"a": (0, 1), "b": (2,)}))
    held = {A: (0, 1), B: (2,)}
    assert view(group) == built(
        Consumer.member("g", "m"),
        Consumer.own("g", 3),
        Consumer.target("g", "m", held),
        Consumer.assigned("g", 3),
        Consumer.current("g", "m", 3, held),
    )


def test_a_topic_whose_id_nobody_tells_goes_by_its_name():
    group = a_group("consumer", of_a_consumer({"a": (0,)}, {"a": (0,)}))
    assert view(group, {}).members[0].assigned == {"a": (0,)}


@pytest.mark.parametrize(
    ("epoch", "assignment_epoch", "member_epoch", "held", "target", "state"),
    [
        (3, 3, 3, {"a": (0,)}, {"a": (0,)}, "Stable"),
        (4, 3, 3, {"a": (0,)}, {"a": (0,)}, "Assigning"),
        (4, 4, 3, {"a": (0,)}, {"a": (0,)}, "Reconciling"),
        (4, 4, 4, {}, {"a": (0,)}, "Reconciling"),
        (4, 4, 4, {}, {}, "Stable"),
    ],
)
def test_the_state_follows_from_epochs_and_assignments(
    epoch, assignment_epoch, member_epoch, held, target, state
):
    member = of_a_consumer(held, target, epoch=member_epoch)
    group = a_group("consumer", member, epoch=epoch, assignment_epoch=assignment_epoch, state=state)
    assert view(group).state == state


def test_a_member_that_waits_for_partitions_says_so():
    (member,) = view(a_group("consumer", of_a_consumer({}, {"a": (0,)}))).members
    assert (member.state, member.assigned, member.target) == ("UnreleasedPartitions", {}, {A: (0,)})


def test_patterns_and_classic_members_of_a_consumer_group_are_known():
    member = of_a_consumer({}, {}, subscribed=(), pattern="t.*", classic=True, rack_id="r")
    (found,) = view(a_group("consumer", member)).members
    assert (found.subscription, found.classic, found.rack_id) == (GroupSubscription((), "t.*"), True, "r")


def test_records_go_on_to_build_a_described_consumer_group():
    table = table_of(a_group("consumer", of_a_consumer({"a": (0, 1)}, {"a": (0, 1)})))
    joined = (Consumer.member("g", "n"), Consumer.own("g", 4))
    say(table, *joined)
    assert [(m.id, m.assigned) for m in table.get("g").members] == [("m", {A: (0, 1)}), ("n", {})]
    assert table.get("g").state == "Assigning"
    say(table, gone(Consumer.current("g", "m", 0, {})), gone(Consumer.member("g", "m")))
    assert [m.id for m in table.get("g").members] == ["n"]
    say(table, gone(Consumer.own("g", 0)))
    assert "g" not in table
    assert table.contradictions == 0


def test_a_share_group_is_what_its_records_would_have_made_it():
    member = a_member("m", "/10.0.0.3", {"a": (0, 1)})
    held = {A: (0, 1)}
    found = view(a_group("share", member))
    expected = built(
        Share.member("g", "m"), Share.own("g", 3), Share.assigned("g", 3), Share.current("g", "m", 3, held)
    )
    assert found == expected
    assert (found.type, found.state, found.members[0].target) == ("share", "Stable", None)


def of_streams(held: Held, target: Held, **more: Any) -> DescribedMember:
    return a_member("m", "/10.0.0.4", held, target=target, subscribed=(), process_id="p", **more)


TOPOLOGY: dict[str, Any] = {
    "topology_epoch": 0,
    "topics": {"0": ("in-a", "in-b"), "1": ("again",)},
    "repartition_topics": {"0": (), "1": ("again",)},
}


def test_a_streams_group_is_what_its_records_would_have_made_it():
    held = {"0": (0, 1), "1": (1,)}
    group = a_group("streams", of_streams(held, held), **TOPOLOGY)
    found = view(group)
    assert found == built(
        Streams.member("g", "m"),
        Streams.topology("g"),
        Streams.own("g", 3),
        Streams.target("g", "m", held),
        Streams.assigned("g", 3),
        Streams.current("g", "m", 3, held),
    )
    assert found.members[0].assigned == {"in-a": (0, 1), "in-b": (0, 1), "again": (1,)}
    assert found.state == "Stable"


def test_standby_tasks_come_along():
    held, standby = {"0": (0,)}, {"1": (1,)}
    member = of_streams(held, held, others=(standby, {}), target_others=(standby, {}))
    assert view(a_group("streams", member, **TOPOLOGY)) == built(
        Streams.member("g", "m"),
        Streams.topology("g"),
        Streams.own("g", 3),
        Streams.target("g", "m", held, standby=standby),
        Streams.assigned("g", 3),
        Streams.current("g", "m", 3, held, standby=standby),
    )


def test_a_streams_group_that_is_not_ready_stays_so():
    found = view(a_group("streams", of_streams({}, {}), state="NotReady", **TOPOLOGY))
    assert found.state == "NotReady"


def test_a_streams_group_whose_topology_nobody_tells_has_none():
    found = view(a_group("streams", of_streams({"0": (0,)}, {"0": (0,)})))
    assert found.members[0].assigned == {}


def test_a_classic_group_has_its_members_with_names_of_topics():
    member = DescribedMember(
        "m", "app", "/10.0.0.1", "static", {"t": (0, 1), "u": ()}, subscribed=("t",), rack_id="r"
    )
    group = DescribedGroup("g", "classic", "Stable", "consumer", "range", members=(member,))
    assert view(group) == Group(
        "g",
        "classic",
        "Stable",
        protocol_type="consumer",
        protocol="range",
        members=(Member("m", "app", "/10.0.0.1", "static", {"t": (0, 1)}, "r", GroupSubscription(("t",))),),
    )


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_of_a_classic_group_in_a_rebalance_the_state_is_that_of_its_last_record(state):
    member = DescribedMember("m", "app", "/10.0.0.1", None, {})
    assert view(DescribedGroup("g", "classic", state, "consumer", members=(member,))).state == "Stable"
    assert view(DescribedGroup("g", "classic", state, "consumer")).state == "Empty"


def test_a_group_that_only_commits_is_simple_and_other_frameworks_are_not():
    simple = DescribedGroup("g", "classic", "Empty", "")
    assert build_group(simple, IDS) == Group("g")
    assert table_of(simple).get("g") is None  # it is there only as long as it has commits
    connect = view(DescribedGroup("g", "classic", "Empty", "connect"))
    assert (connect.type, connect.protocol_type) == ("classic", "connect")


def test_a_broker_too_old_to_tell_a_type_has_classic_groups():
    member = DescribedMember("m", "app", "/10.0.0.1", None, {"t": (0,)})
    found = view(DescribedGroup("g", "", "Stable", "consumer", "range", members=(member,)))
    assert (found.type, found.state) == ("classic", "Stable")

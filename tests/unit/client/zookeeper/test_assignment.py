"""Who reads what in a group on ZooKeeper, and how its nodes are understood. Needs no ZooKeeper."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koff.client.zookeeper.znodes import (
    GroupPaths,
    Registration,
    assign_partitions,
    bootstrap_servers,
    find_member,
    new_member_id,
    parse_host,
)

TOPIC = "orders"
NAMES = st.text("abc_-0123456789", min_size=1, max_size=8)


@given(st.dictionaries(NAMES, st.integers(0, 4), max_size=8), st.sets(st.integers(0, 60), max_size=40))
def test_each_partition_has_one_owner_and_threads_have_the_same_share_but_for_one(
    threads: dict[str, int], partitions: set[int]
) -> None:
    members = {id_: Registration({TOPIC: count}) for id_, count in threads.items()}
    shares = assign_partitions(members, TOPIC, sorted(partitions))
    given_out = [p for share in shares.values() for p in share]
    assert sorted(given_out) == (sorted(partitions) if sum(threads.values()) else [])
    each = len(partitions) // max(1, sum(threads.values()))
    for id_, share in shares.items():
        assert each * threads[id_] <= len(share) <= (each + 1) * threads[id_]


def test_a_partition_that_its_member_cannot_read_goes_to_one_that_can() -> None:
    ill = Registration.decode(Registration({TOPIC: 1}, failed={TOPIC: [1]}).encode())
    members = {"a": ill, "b": Registration({TOPIC: 1})}
    assert assign_partitions(members, TOPIC, range(4)) == {"a": [0], "b": [1, 2, 3]}
    assert assign_partitions({"a": ill}, TOPIC, range(2)) == {"a": [0, 1]}


def test_the_division_is_that_of_the_original_tools() -> None:
    members = {"b": Registration({TOPIC: 1}), "a": Registration({TOPIC: 2}), "c": Registration({"other": 1})}
    assert assign_partitions(members, TOPIC, range(7)) == {"a": [0, 1, 2, 3, 4], "b": [5, 6]}


GO_MEMBER = "host:0a1b2c3d-0001-0002-0003-0a1b2c3d4e5f"


def test_beside_a_go_member_partitions_are_divided_by_their_leaders_as_it_does() -> None:
    members = {"group_host-1-0a1b2c3d": Registration({TOPIC: 1}), GO_MEMBER: Registration({TOPIC: 1})}
    leaders = [3, 1, 2, 3, 1]
    assert assign_partitions(members, TOPIC, range(5), leaders) == {
        "group_host-1-0a1b2c3d": [1, 4, 2],
        GO_MEMBER: [0, 3],
    }


def test_without_a_go_member_leaders_change_nothing() -> None:
    members = {new_member_id("g"): Registration({TOPIC: 1}), "g_java-1-2": Registration({TOPIC: 1})}
    shares = assign_partitions(members, TOPIC, range(4), [4, 3, 2, 1])
    assert sorted(shares.values()) == [[0, 1], [2, 3]]


def test_a_registration_reads_as_it_was_written_and_what_is_none_wants_nothing() -> None:
    wants = Registration({"a": 1, "b": 2})
    assert Registration.decode(wants.encode()) == wants
    for data in (b"", b"[]", b"\xff", b'{"subscription": 7}', b'{"subscription": {"a": "x"}}'):
        assert Registration.decode(data).thread_count("a") == 0


@pytest.mark.parametrize(
    ("pattern", "regex", "topic", "threads"),
    [
        ("white_list", "ord.*,pay", "orders", 3),
        ("white_list", "ord.*,pay", "pay", 3),
        ("white_list", "ord.*,pay", "payments", 0),
        ("black_list", "ord.*", "orders", 0),
        ("black_list", "ord.*", "payments", 3),
        ("white_list", "(", "orders", 0),
    ],
)
def test_members_with_a_pattern_have_threads_for_the_topics_that_it_means(
    pattern: str, regex: str, topic: str, threads: int
) -> None:
    told = {"version": 1, "subscription": {regex: 3}, "pattern": pattern, "timestamp": "1"}
    assert Registration.decode(json.dumps(told).encode()).thread_count(topic) == threads


def test_owners_are_members_or_their_threads() -> None:
    members = ["g_host-1-ab", "other"]
    assert find_member("g_host-1-ab", members) == "g_host-1-ab"
    assert find_member("g_host-1-ab-12", members) == "g_host-1-ab"
    assert find_member("g_host-1", members) is None


def test_hosts_are_known_from_ids_of_either_making() -> None:
    assert parse_host("my-group_some-host-1400000000000-0123abcd", "my-group") == "some-host"
    assert parse_host("web-7:0b6ad3f5-5d0e-4c0e-9d7e-0a8b2f3c4d5e", "g") == "web-7"
    assert parse_host("x", "g") == ""
    assert parse_host(new_member_id("g"), "g")


def test_brokers_are_found_by_the_protocol_of_their_listeners() -> None:
    found = [
        {"endpoints": ["SSL://b:9093", "PLAINTEXT://b:9092"], "host": "b", "port": 9092},
        {"endpoints": ["SASL_SSL://c:9094"], "host": None, "port": -1},
        {"endpoints": ["CLIENT://d:9095"], "listener_security_protocol_map": {"CLIENT": "SSL"}},
        {"host": "a", "port": 9092},
    ]
    nodes = [json.dumps(node).encode() for node in found]
    assert bootstrap_servers(nodes) == "a:9092,b:9092"
    assert bootstrap_servers(nodes, "SSL") == "b:9093,d:9095"
    assert bootstrap_servers(nodes, "SASL_SSL") == "c:9094"
    assert bootstrap_servers([b"not json"]) == ""


def test_paths_are_the_classic_ones() -> None:
    paths = GroupPaths("g")
    assert paths.member("m") == "/consumers/g/ids/m"
    assert paths.owner("t", 3) == "/consumers/g/owners/t/3"
    assert paths.offset("t", 3) == "/consumers/g/offsets/t/3"

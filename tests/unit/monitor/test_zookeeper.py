"""Groups of ZooKeeper: fetched over one session, in the core's terms, and beside the groups of Kafka."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from koff.client import TopicPartition
from koff.client.zookeeper.session import NoNode
from koff.client.zookeeper.stored_groups import StoredGroup
from koff.client.zookeeper.znodes import Registration
from koff.errors import ConfigError, ConnectError, Denied
from koff.monitor import zookeeper as zookeeper_module
from koff.monitor.duties.stored_groups import StoredGroupsFetched
from koff.monitor.zookeeper import ZooKeeper, ZooKeeperConf, build_group
from koff.tracker import Group, Member, Tracker

MEMBER = "old_host-1-1512345678901-a1b2c3d4"
WRITTEN_MS = 1_512_345_678_901


class FakeSession:
    """A session with a tree of nodes, by path. `opened` has all sessions, the newest last."""

    opened: list[FakeSession]
    nodes: dict[str, bytes]
    refused: set[str]

    def __init__(self, hosts: str, *, timeout_s: float, connect_timeout_s: float) -> None:
        self.hosts, self.timeouts_s = hosts, (timeout_s, connect_timeout_s)
        self.fault: ConnectError | None = None
        self.is_closed = False

    def connect(self) -> FakeSession:
        type(self).opened.append(self)
        return self

    def close(self) -> None:
        self.is_closed = True

    def list_children(self, path: str) -> list[str]:
        try:
            children: list[str] = self.wait_for_result(self.submit("get_children", path))
        except NoNode:
            return []
        return children

    def submit(self, operation: str, path: str) -> tuple[str, str]:
        if self.fault is not None:
            raise self.fault
        return operation, path

    def wait_for_result(self, pending: tuple[str, str]) -> Any:
        operation, path = pending
        if path in self.refused:
            raise Denied("ZooKeeper at zk:2181 denies access: NoAuthError")
        below = [node[len(path) + 1 :] for node in self.nodes if node.startswith(path + "/")]
        if not below and path not in self.nodes:
            raise NoNode
        if operation == "get_children":
            return sorted({name.partition("/")[0] for name in below})
        return self.nodes.get(path, b""), SimpleNamespace(mtime=WRITTEN_MS, mzxid=1)


@pytest.fixture(autouse=True)
def sessions(monkeypatch):
    FakeSession.opened, FakeSession.nodes, FakeSession.refused = [], {}, set()
    monkeypatch.setattr("koff.client.zookeeper.session.Session", FakeSession)
    return FakeSession.opened


def fetch(zookeeper: ZooKeeper) -> StoredGroupsFetched:
    return StoredGroupsFetched(7, *zookeeper.fetch_groups())


def fetch_tree(nodes: dict[str, bytes]) -> StoredGroupsFetched:
    FakeSession.nodes = {f"/consumers/{path}": data for path, data in nodes.items()}
    with ZooKeeper(ZooKeeperConf("zk:2181")) as zookeeper:
        return fetch(zookeeper)


# --- A group in the tracker's terms ------------------------------------------------------------------------


def test_a_group_has_its_members_with_what_each_owns():
    group = StoredGroup(
        members={MEMBER: Registration({"t": 2}), "another:1": Registration()},
        owners={
            TopicPartition("u", 0): MEMBER,
            TopicPartition("t", 10): MEMBER,
            TopicPartition("t", 9): MEMBER,
        },
    )
    assert build_group("old", group) == Group(
        "old",
        "zookeeper",
        "Stable",
        protocol_type="consumer",
        members=(
            Member("another:1", "another:1", "another"),
            Member(MEMBER, MEMBER, "host-1", assigned={"t": (9, 10), "u": (0,)}),
        ),
    )


def test_a_partition_that_no_topic_can_have_is_left_out_of_what_a_member_owns():
    group = StoredGroup(
        members={MEMBER: Registration()},
        owners={TopicPartition("t", 2**31): MEMBER, TopicPartition("t", 1): MEMBER},
    )
    (member,) = build_group("old", group).members
    assert member.assigned == {"t": (1,)}


# --- A request ----------------------------------------------------------------------------------------------


def test_all_groups_are_fetched_with_their_offsets_and_members():
    fetched = fetch_tree(
        {
            "old/offsets/t/0": b"5",
            "old/offsets/t/1": b"7",
            f"old/ids/{MEMBER}": json.dumps({"subscription": {"t": 1}}).encode(),
            "old/owners/t/0": f"{MEMBER}-0".encode(),
            "idle/offsets/u/3": b"9",
            "nothing/ids": b"",
        }
    )
    assert fetched.id == 7
    assert fetched.offsets == {
        ("old", "t", 0): (5, WRITTEN_MS),
        ("old", "t", 1): (7, WRITTEN_MS),
        ("idle", "u", 3): (9, WRITTEN_MS),
    }
    assert fetched.groups.keys() == {"old", "idle"}
    assert [member.assigned for member in fetched.groups["old"].members] == [{"t": (0,)}]


def test_numbers_that_are_impossible_hide_nothing_else():
    fetched = fetch_tree(
        {
            "old/offsets/t/0": b"5",
            "old/offsets/t/1": b"%d" % 2**63,
            "old/offsets/t/2": b"-1",
            "old/offsets/t/4294967296": b"1",
            f"old/ids/{MEMBER}": b"\xff no JSON",
            "old/owners/t/4294967296": MEMBER.encode(),
        }
    )
    assert fetched.offsets == {("old", "t", 0): (5, WRITTEN_MS)}
    tracker = Tracker()
    tracker.apply_external_commits(-1, fetched.offsets, [], fetched.groups)
    assert [(row.group, row.partition) for row in tracker.take_snapshot().rows()] == [("old", 0)]
    assert tracker.watched_partitions() == [("t", 0)]


def test_the_largest_numbers_that_are_possible_are_used():
    fetched = fetch_tree({f"old/offsets/t/{2**31 - 1}": b"%d" % (2**63 - 1)})
    tracker = Tracker()
    tracker.apply_external_commits(-1, fetched.offsets, [], fetched.groups)
    (row,) = tracker.take_snapshot().rows()
    assert (row.partition, row.committed) == (2**31 - 1, 2**63 - 1)


REFUSABLE = ["ids", f"ids/{MEMBER}", "offsets", "offsets/t", "offsets/t/0", "owners/t", "owners/t/0"]


@pytest.mark.parametrize("node", REFUSABLE)
def test_a_node_that_may_not_be_read_hides_its_group_only_and_is_named_once(node, sessions):
    for group in ("open", "shut"):
        FakeSession.nodes |= {
            f"/consumers/{group}/offsets/t/0": b"5",
            f"/consumers/{group}/offsets/u/0": b"6",
            f"/consumers/{group}/ids/{MEMBER}": b"{}",
            f"/consumers/{group}/owners/t/0": MEMBER.encode(),
        }
    FakeSession.refused = {f"/consumers/shut/{node}"}
    with ZooKeeper(ZooKeeperConf("zk:2181")) as zookeeper:
        fetched = fetch(zookeeper)
        assert fetched.offsets.keys() == {("open", "t", 0), ("open", "u", 0)}
        assert fetched.groups.keys() == {"open"}
        assert fetched.refused == {"shut": f"/consumers/shut/{node}"}
        FakeSession.refused = set()
        assert fetch(zookeeper).groups.keys() == {"open", "shut"}


def test_groups_that_may_not_be_listed_are_denied_with_the_path():
    FakeSession.refused = {"/consumers"}
    with pytest.raises(Denied, match="READ of /consumers is refused"):
        fetch_tree({"old/offsets/t/0": b"5"})


# --- The session --------------------------------------------------------------------------------------------


def test_one_session_serves_all_requests_until_it_is_closed(sessions):
    zookeeper = ZooKeeper(ZooKeeperConf("zk:2181/old", session_timeout_s=3.0, connect_timeout_s=4.0))
    fetch(zookeeper)
    fetch(zookeeper)
    (session,) = sessions
    assert (session.hosts, session.timeouts_s) == ("zk:2181/old", (3.0, 4.0))
    zookeeper.close()
    zookeeper.close()
    assert session.is_closed


def test_a_session_without_a_response_for_long_is_replaced(sessions, monkeypatch):
    zookeeper = ZooKeeper(ZooKeeperConf("zk:2181"))
    fetch(zookeeper)
    sessions[0].fault = ConnectError("no connection")
    with pytest.raises(ConnectError):
        fetch(zookeeper)
    assert not sessions[0].is_closed  # kazoo connects again by itself
    monkeypatch.setattr(zookeeper_module, "NEW_SESSION_S", -1.0)
    with pytest.raises(ConnectError):
        fetch(zookeeper)
    assert sessions[0].is_closed
    assert not fetch(zookeeper).offsets
    assert len(sessions) == 2


def test_a_session_that_cannot_be_opened_is_tried_again_at_the_next_request(sessions, monkeypatch):
    zookeeper = ZooKeeper(ZooKeeperConf("zk:2181"))

    def fail(session: FakeSession) -> FakeSession:
        raise ConnectError("no session in time")

    with monkeypatch.context() as patched:
        patched.setattr(FakeSession, "connect", fail)
        with pytest.raises(ConnectError):
            fetch(zookeeper)
    fetch(zookeeper)
    assert len(sessions) == 1


def test_without_kazoo_the_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kazoo", None)
    ZooKeeperConf()
    with pytest.raises(ConfigError, match=r"koff\[zookeeper\]"):  # before any connection
        ZooKeeperConf("zk:2181")

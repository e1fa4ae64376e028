"""Rounds of a member beside a ZooKeeper that fails at times. Needs no ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from koff.client.zookeeper import membership as membership_module
from koff.client.zookeeper.claims import Claim
from koff.client.zookeeper.membership import Membership
from koff.client.zookeeper.znodes import GroupPaths, Registration
from koff.errors import ConnectError


class FakeSession:
    """Every node exists and is of this session. `fault` is raised when the members are listed."""

    number, id, timeout_s = 0, 1, 1000.0
    fault: ConnectError | None = None

    def __init__(self, *others: str) -> None:
        self.members = ["member", *others]
        self.owned: set[int] = set()
        """Partitions that have an owner."""

    def renew_lease(self, _path: str) -> bool:
        return True

    def list_children(self, path: str, **_: Any) -> list[str]:
        if path.endswith("/owners/t"):
            return [str(number) for number in self.owned]
        if self.fault:
            raise self.fault
        return self.members

    def call(self, operation: str, path: str, *_: Any, **__: Any) -> Any:
        if "/owners/t/" in path and operation == "create":
            self.owned.add(int(path.rpartition("/")[2]))
        data = Registration({"t": 1}).encode() if "/ids/" in path else b"member"
        return data, SimpleNamespace(ephemeralOwner=1, czxid=1)

    def find_own_node(self, _path: str) -> Any:
        return None

    def on_watch(self, _event: object) -> None:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _always_read_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_module, "_READ_MEMBERS_S", 0.0)


def make_membership(
    session: FakeSession, fetch_leaders: Callable[[], dict[str, list[int]]] = dict
) -> Membership:
    delivery: Any = SimpleNamespace(change_state=lambda claim, state: setattr(claim, "state", state))
    return Membership(
        cast(Any, session),
        GroupPaths("g"),
        "member",
        ["t"],
        delivery,
        60,
        start_claim=lambda at, number, czxid: Claim(*at, czxid, session_number=number),
        on_error=lambda error: None,
        fetch_leaders=fetch_leaders,
    )


def test_new_partitions_are_claimed_though_zookeeper_fails_just_then() -> None:
    session = FakeSession()
    membership = make_membership(session)
    membership.partition_counts = {"t": 1}
    membership._run_round()
    assert membership.claims.keys() == {("t", 0)}
    membership.partition_counts = {"t": 2}
    membership.request_rebalance()
    session.fault = ConnectError("away")
    with pytest.raises(ConnectError):
        membership._run_round()
    session.fault = None
    membership._run_round()
    assert membership.claims.keys() == {("t", 0), ("t", 1)}


def test_beside_go_members_a_partition_in_nobodys_share_is_claimed_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Go member has divided the partitions before a leader has moved, and claims partition 1 only."""
    go = "host:01234567-0123-0123-0123-0123456789ab"
    session = FakeSession(go)
    leaders = [2, 1, 1, 2]  # by these, the Go member has 1 and 2
    membership = make_membership(session, lambda: {"t": leaders})
    membership.partition_counts = {"t": 4}
    session.owned = {1}
    membership._run_round()
    assert membership.claims.keys() == {("t", 0), ("t", 3)}
    membership._run_round()
    assert len(membership.claims) == 2  # a hand-over takes a while
    monkeypatch.setattr(membership_module, "_UNOWNED_S", 0.0)
    membership._run_round()
    assert membership.claims.keys() == {("t", 0), ("t", 2), ("t", 3)}
    leaders.reverse()  # changes no share before the members change
    membership.request_rebalance()
    membership._run_round()
    assert membership._assigned == {("t", 0), ("t", 2), ("t", 3)}
    session.members.remove(go)
    session.owned.clear()
    membership._run_round()
    assert membership.claims.keys() == {("t", number) for number in range(4)}
    assert membership._adopted == set()


def test_without_go_members_nobody_takes_what_others_leave_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_module, "_UNOWNED_S", 0.0)
    session = FakeSession("other")
    membership = make_membership(session)
    membership.partition_counts = {"t": 2}
    for _ in range(3):
        membership._run_round()
    assert membership.claims.keys() == {("t", 0)}

"""Rounds of a member beside a ZooKeeper that fails at times. Needs no ZooKeeper."""

from __future__ import annotations

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

    def renew_lease(self, _path: str) -> bool:
        return True

    def list_children(self, _path: str, **_: Any) -> list[str]:
        if self.fault:
            raise self.fault
        return ["member"]

    def call(self, operation: str, path: str, *_: Any, **__: Any) -> Any:
        data = Registration({"t": 1}).encode() if "/ids/" in path else b"member"
        return data, SimpleNamespace(ephemeralOwner=1, czxid=1)

    def on_watch(self, _event: object) -> None:
        raise NotImplementedError


def test_new_partitions_are_claimed_though_zookeeper_fails_just_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_module, "_READ_MEMBERS_S", 0.0)
    session = FakeSession()
    errors: list[Exception] = []
    membership = Membership(
        cast(Any, session),
        GroupPaths("g"),
        "member",
        ["t"],
        cast(Any, None),
        60,
        start_claim=lambda at, number, czxid: Claim(*at, czxid, session_number=number),
        on_error=errors.append,
        fetch_leaders=dict,
    )
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

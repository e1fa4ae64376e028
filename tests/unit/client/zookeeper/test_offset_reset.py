"""A reset of offsets beside another client of ZooKeeper. Needs no ZooKeeper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from koff.client import TopicPartition
from koff.client.zookeeper import ZooKeeperOffsetManager
from koff.client.zookeeper.session import NodeExists, NoNode
from koff.client.zookeeper.znodes import GroupPaths
from koff.errors import ConnectError


class RacedSession:
    """Another client creates the node between `set` and `create`, as long as `races` is above 0.

    With `deletes`, that client deletes the node again.
    """

    def __init__(self, races: int, *, deletes: bool = False) -> None:
        self.races, self._deletes = races, deletes
        self.data: bytes | None = None

    def call(self, operation: str, path: str, data: bytes = b"", **_: Any) -> Any:
        if operation == "exists":
            return None if self.data is None else SimpleNamespace(version=0)
        if operation == "set":
            if self.data is None:
                raise NoNode
            self.data = data
            return SimpleNamespace(version=1)
        if self.data is not None:
            raise NodeExists
        if self.races:
            self.races -= 1
            self.data = None if self._deletes else b"77"
            raise NodeExists
        self.data = data
        return path


def make_manager(session: RacedSession) -> ZooKeeperOffsetManager:
    group: Any = SimpleNamespace(
        session=session, paths=GroupPaths("g"), commit_interval_s=3600, owns=lambda *_: True
    )
    return ZooKeeperOffsetManager(cast(Any, group))


@pytest.mark.parametrize("deletes", [False, True])
def test_a_reset_overwrites_a_node_that_another_client_creates_meanwhile(deletes: bool) -> None:
    session = RacedSession(1, deletes=deletes)
    with make_manager(session) as offsets:
        offsets.reset({TopicPartition("t", 0): 5})
    assert session.data == b"5"


def test_a_reset_that_another_client_disturbs_each_time_is_an_error_of_koff() -> None:
    with (
        make_manager(RacedSession(99, deletes=True)) as offsets,
        pytest.raises(ConnectError, match="changed by"),
    ):
        offsets.reset({TopicPartition("t", 0): 5})

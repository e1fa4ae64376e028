"""Lags of share groups: what coordinators return, and what is known when they do not."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from koff.client import ClusterConf
from koff.client.cluster import Cluster
from koff.client.cluster_conf import TopicPartition
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import DescribedGroup, FetchedGroups, ShareOffset, join_columns
from koff.client.wire.connection import UnsupportedVersion
from koff.errors import ConnectError
from koff.spark.job import share_lags
from koff.spark.job.cluster_state import ClusterState
from koff.spark.job.share_lags import ShareLags, ShareRow, ShareState, list_share_groups
from koff.spark.rows.newest import split_records
from koff.spark.tables.owners import Owner
from tests.spark.life import CLUSTER, Life

ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def state(group: str, *more: tuple[str, int]) -> ShareState:
    """A share group with t-0 and t-1, in partition 3 of the offsets topic."""
    slots = (("t", 0), ("t", 1), *more)
    return ShareState(group, 3, frozenset((group, *slot) for slot in slots))


def offset(group: str, partition: int, lag: int | None, *, start: int = 5, topic: str = "t") -> ShareOffset:
    return ShareOffset(group, topic, ID, partition, start, 1, lag)


class Coordinators:
    """The double of `fetch_from_coordinators`, and of a cluster whose partitions all end at 20."""

    def __init__(self) -> None:
        self.conf, self.lister = ClusterConf("b:1"), self
        self.offsets: list[ShareOffset] = []
        self.groups = ["g"]
        self.failed: dict[str, str] = {}
        self.incomplete: tuple[str, ...] = ()
        self.error: Exception | None = None
        self.are_leaders_silent = False
        self.asked: list[FetchOptions] = []

    def fetch(self, lister: object, options: FetchOptions) -> FetchedGroups:
        assert lister is self.lister
        self.asked.append(options)
        if self.error is not None:
            raise self.error
        groups = tuple(DescribedGroup(name, "share", "Empty", "share") for name in self.groups)
        return FetchedGroups(
            join_columns([]),
            groups,
            self.failed,
            1,
            0.1,
            share_offsets=tuple(self.offsets),
            incomplete=self.incomplete,
        )

    def list_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        if self.are_leaders_silent:
            raise ConnectError("cannot reach Kafka")
        return {at: SimpleNamespace(offset=20) for at in partitions}


@pytest.fixture
def coordinators(monkeypatch: pytest.MonkeyPatch) -> Coordinators:
    made = Coordinators()
    monkeypatch.setattr(share_lags, "fetch_from_coordinators", made.fetch)
    return made


def fetched(
    coordinators: Coordinators, *groups: ShareState, lags: ShareLags | None = None, **options: Any
) -> dict[tuple[str, str, int], ShareRow]:
    """The rows after a response."""
    lags = lags or ShareLags(cast(Cluster, coordinators), **options)
    lags.load(groups)
    lags.fetch()
    return dict(lags._rows)


def unknown(group: str, topic: str, partition: int) -> ShareRow:
    return ShareRow(group, topic, partition, not_current=True)


def test_coordinators_are_asked_for_the_lags_of_the_share_groups_and_for_no_more(
    coordinators: Coordinators,
) -> None:
    coordinators.offsets = [offset("g", 0, 7), offset("g", 1, 0)]
    assert fetched(coordinators, state("g")) == {
        ("g", "t", 0): ShareRow("g", "t", 0, ID, 7, 20, not_current=False),
        ("g", "t", 1): ShareRow("g", "t", 1, ID, 0, 20, not_current=False),
    }
    (asked,) = coordinators.asked
    assert (asked.share_offsets, asked.describe, asked.partitions) == ("only", False, frozenset({3}))
    assert asked.is_chosen("g")
    assert not asked.is_chosen("other")


def test_a_cluster_without_share_groups_is_not_asked(coordinators: Coordinators) -> None:
    assert fetched(coordinators) == {}
    assert not coordinators.asked


def test_groups_in_a_topic_of_another_name_are_not_asked_for(coordinators: Coordinators) -> None:
    assert fetched(coordinators, state("g"), asks=False) == {
        ("g", "t", 0): unknown("g", "t", 0),
        ("g", "t", 1): unknown("g", "t", 1),
    }
    assert not coordinators.asked


def test_a_group_whose_coordinator_does_not_respond_is_not_current_and_the_others_are(
    coordinators: Coordinators,
) -> None:
    coordinators.offsets = [offset("g", 0, 7)]
    coordinators.incomplete = ("broker 2: no response",)
    rows = fetched(coordinators, state("g"), state("silent", ("u", 2)))
    assert rows["g", "t", 0].lag == 7
    silent = {slot[1:]: row for slot, row in rows.items() if slot[0] == "silent"}
    assert set(silent) == {("t", 0), ("t", 1), ("u", 2)}
    assert all(row.not_current and row.lag is None for row in silent.values())


def test_no_lag_of_the_sample_before_is_kept(coordinators: Coordinators) -> None:
    lags = ShareLags(cast(Cluster, coordinators))
    coordinators.offsets = [offset("g", 0, 7), offset("g", 1, 2)]
    assert fetched(coordinators, state("g"), lags=lags)["g", "t", 0].lag == 7
    coordinators.error = ConnectError("cannot reach Kafka")
    rows = fetched(coordinators, state("g"), lags=lags)
    assert all(row.not_current and row.lag is None for row in rows.values())
    coordinators.error = None
    assert fetched(coordinators, state("g"), lags=lags)["g", "t", 1].lag == 2


def test_coordinators_are_not_asked_while_no_leader_responds(coordinators: Coordinators) -> None:
    coordinators.are_leaders_silent = True
    assert fetched(coordinators, state("g"))["g", "t", 0].not_current
    assert not coordinators.asked


def test_partitions_that_a_response_with_an_error_lacks_are_not_current(coordinators: Coordinators) -> None:
    coordinators.offsets, coordinators.failed = [offset("g", 1, 2)], {"g": "UNKNOWN_SERVER_ERROR"}
    rows = fetched(coordinators, state("g"))
    assert (rows["g", "t", 1].lag, rows["g", "t", 1].not_current) == (2, False)
    assert rows["g", "t", 0].not_current


def test_a_partition_without_state_has_no_row_of_its_own(coordinators: Coordinators) -> None:
    coordinators.offsets = [offset("g", 1, 2)]
    assert set(fetched(coordinators, state("g"))) == {("g", "t", 1)}


def test_a_partition_that_the_group_has_not_read_has_no_lag_and_that_is_known(
    coordinators: Coordinators,
) -> None:
    coordinators.offsets = [offset("g", 0, None, start=-1)]
    assert fetched(coordinators, state("g")) == {
        ("g", "t", 0): ShareRow("g", "t", 0, ID, None, 20, not_current=False)
    }


def test_a_coordinator_that_returns_no_lag_makes_none_up(coordinators: Coordinators) -> None:
    """A broker of 4.1 returns the start offset alone, which is not what the group has done."""
    coordinators.offsets = [offset("g", 0, None, start=5), offset("g", 1, 4)]
    rows = fetched(coordinators, state("g"))
    assert rows["g", "t", 0] == unknown("g", "t", 0)
    assert rows["g", "t", 1].lag == 4


def test_brokers_without_the_request_are_not_asked_at_each_sample(
    coordinators: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    coordinators.error = UnsupportedVersion("the broker is too old")
    lags = ShareLags(cast(Cluster, coordinators))
    for _ in range(3):
        assert fetched(coordinators, state("g"), lags=lags)["g", "t", 0].not_current
    assert len(coordinators.asked) == 1
    now[0] += share_lags.UNSUPPORTED_S
    fetched(coordinators, state("g"), lags=lags)
    assert len(coordinators.asked) == 2


def test_only_topics_that_are_watched_have_rows(coordinators: Coordinators) -> None:
    coordinators.offsets = [offset("g", 0, 7), offset("g", 0, 8, topic="jobs")]
    assert set(fetched(coordinators, state("g"), topics="^jo")) == {("g", "jobs", 0)}


def test_the_share_groups_of_a_tracker_have_what_their_records_and_members_say() -> None:
    state, plan = ClusterState(CLUSTER, 30.0), Life.script(2).plan(1, None, Owner("here 1 1", "n"))
    _, others = split_records(Life.script(2).read(plan))
    list(state.apply_group_records(others.to_pylist(), -1))
    groups = {group.name: group for group in list_share_groups(state.tracker)}
    assert groups
    for group in groups.values():
        assert all(slot[0] == group.name and slot[2] >= 0 for slot in group.slots)

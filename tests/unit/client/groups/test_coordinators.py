"""One broker that is silent, or one group that fails, does not delay the groups of all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from koff.client.groups import coordinators
from koff.client.groups.coordinators import fetch_from_coordinators
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import FetchedGroups
from koff.client.wire.connection import UnsupportedVersion
from koff.records.placement import group_partition
from tests.unit.client.groups.fake_cluster import PARTITIONS, Clock, FakeCluster, FakeConnection, name_in


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    clock = Clock()
    groups = {n: [name_in(p) for p in (n - 1, n + 2)] for n in (1, 2, 3)}
    cluster = FakeCluster(clock, groups=groups)
    monkeypatch.setattr(coordinators, "time", clock)
    return cluster


def fetch(cluster: FakeCluster, **more: Any) -> tuple[FetchedGroups, float]:
    """The groups, and the seconds that it took."""
    began = cluster.clock.now
    lister: Any = cluster
    fetched = fetch_from_coordinators(lister, FetchOptions(**more))
    return fetched, cluster.clock.now - began


def names(fetched: FetchedGroups) -> set[str]:
    return {row.group for row in fetched.offsets.rows()}


def test_all_groups_are_complete_if_all_brokers_respond(cluster: FakeCluster) -> None:
    fetched, seconds = fetch(cluster, patience_s=5.0)
    assert names(fetched) == {name_in(p) for p in range(PARTITIONS)}
    assert (fetched.partition_count, fetched.rounds, seconds) == (PARTITIONS, 1, 0)
    assert fetched.find_incomplete(range(PARTITIONS), PARTITIONS) == {}


@pytest.mark.parametrize("silent", [1, 2, 3])
def test_the_groups_of_the_others_are_here_soon_if_one_broker_is_silent(
    cluster: FakeCluster, silent: int
) -> None:
    cluster.silent = {silent}
    fetched, seconds = fetch(cluster, patience_s=5.0)
    assert seconds < 7
    mine = {silent - 1, silent + 2}
    assert names(fetched) == {name_in(p) for p in range(PARTITIONS) if p not in mine}
    found = fetched.find_incomplete(range(PARTITIONS), PARTITIONS)
    assert found.keys() == mine
    assert f"broker {silent}" in found[silent - 1]


def test_without_patience_koff_tries_until_the_deadline(cluster: FakeCluster) -> None:
    cluster.silent = {2}
    _, seconds = fetch(cluster, deadline_s=30.0)
    assert 20 < seconds <= 30


def test_a_leaderless_partition_delays_the_others_only_a_little(cluster: FakeCluster) -> None:
    cluster.leaders = [1, -1, 3, 1, 2, 3]
    fetched, seconds = fetch(cluster, patience_s=5.0)
    assert seconds <= 5
    assert fetched.find_incomplete(range(PARTITIONS), PARTITIONS) == {1: "it has no leader"}
    assert fetched.find_incomplete([0, 2], PARTITIONS) == {}


def test_a_partition_that_is_not_loaded_is_incomplete_and_no_other_of_its_broker(
    cluster: FakeCluster,
) -> None:
    cluster.loading = {1: "COORDINATOR_LOAD_IN_PROGRESS"}
    cluster.groups[2] = [name_in(4)]
    fetched, seconds = fetch(cluster, patience_s=5.0)
    assert seconds <= 5
    assert fetched.find_incomplete(range(PARTITIONS), PARTITIONS).keys() == {1}


def test_a_partition_that_changes_its_leader_is_fetched_again(cluster: FakeCluster) -> None:
    cluster.next_leaders = [[1, 2, 3, 1, 2, 1]]
    fetched, _ = fetch(cluster, patience_s=5.0)
    assert fetched.rounds > 1
    assert fetched.find_incomplete(range(PARTITIONS), PARTITIONS) == {}


def test_a_partition_that_changes_its_leader_at_the_end_is_incomplete(cluster: FakeCluster) -> None:
    cluster.next_leaders = [[1, 2, 3, 1, 2, 1]]
    fetched, _ = fetch(cluster, patience_s=0.0)
    assert fetched.rounds == 1
    assert fetched.find_incomplete(range(PARTITIONS), PARTITIONS).keys() == {5}


def test_what_was_complete_in_a_round_stays_complete_if_its_broker_fails_later(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.leaders = [1, -1, 3, 1, 2, 3]

    def stall(seconds: float) -> None:
        cluster.silent, cluster.clock.now = {3}, cluster.clock.now + seconds

    monkeypatch.setattr(cluster.clock, "sleep", stall)
    fetched, _ = fetch(cluster, patience_s=5.0)
    assert fetched.find_incomplete(range(PARTITIONS), PARTITIONS).keys() == {1}


def test_every_partition_may_be_incomplete_if_the_leaders_may_not_be_described(cluster: FakeCluster) -> None:
    cluster.leaders, cluster.silent = None, {2}
    fetched, seconds = fetch(cluster, patience_s=5.0)
    assert seconds < 7
    assert fetched.partition_count == 0
    assert fetched.find_incomplete([0, 7], PARTITIONS).keys() == {0, 7}


def test_a_partition_that_brokers_do_not_know_is_incomplete(cluster: FakeCluster) -> None:
    fetched, _ = fetch(cluster, patience_s=5.0)
    assert fetched.find_incomplete([0, PARTITIONS], PARTITIONS + 1).keys() == {PARTITIONS}


def test_every_partition_may_be_incomplete_if_the_brokers_have_another_partition_count(
    cluster: FakeCluster,
) -> None:
    cluster.silent = {2}
    fetched, _ = fetch(cluster, patience_s=5.0)
    assert fetched.find_incomplete([0], 1).keys() == {0}


@pytest.mark.parametrize("patience", [{}, {"patience_s": 5.0}])
def test_a_group_in_the_partition_of_another_broker_does_not_delay_the_others(
    cluster: FakeCluster, patience: Mapping[str, float]
) -> None:
    elsewhere = "hostile" + name_in(0)
    home = group_partition(elsewhere, PARTITIONS) % 3 + 1
    cluster.groups[home % 3 + 1].append(elsewhere)
    fetched, seconds = fetch(cluster, **patience)
    assert seconds < 1
    assert fetched.failed == {elsewhere: "NOT_COORDINATOR"}
    assert fetched.find_incomplete(range(PARTITIONS), PARTITIONS) == {}


def test_a_group_that_is_also_in_the_partition_of_another_broker_is_complete(cluster: FakeCluster) -> None:
    cluster.groups[2].append(name_in(0))
    fetched, _ = fetch(cluster)
    assert not fetched.failed
    assert name_in(0) in names(fetched)


def test_a_group_whose_coordinator_loads_for_seconds_is_waited_for(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.loading = {1: "COORDINATOR_LOAD_IN_PROGRESS"}
    ready_at = cluster.clock.now + 4

    def pause(seconds: float) -> None:
        cluster.clock.now += seconds
        if cluster.clock.now >= ready_at:
            cluster.loading = {}

    monkeypatch.setattr(cluster.clock, "sleep", pause)
    fetched, _ = fetch(cluster)
    assert not fetched.failed
    assert name_in(1) in names(fetched)


def move_group(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, *, loads_s: float) -> str:
    """The leaders are unknown, and a group moves from broker 2 to broker 3. Broker 2 lists it still.

    From the next round on it does not. Broker 3 lists the group once it has begun to load it.
    """
    cluster.leaders, moving, began = None, name_in(1), cluster.clock.now

    def find_error(self: FakeConnection, name: str) -> str | None:
        return "NOT_COORDINATOR" if (self.broker, name) == (2, moving) else None

    def pause(seconds: float) -> None:
        cluster.clock.now += seconds
        cluster.groups[2] = [name_in(4)]
        if cluster.clock.now >= began + loads_s and moving not in cluster.groups[3]:
            cluster.groups[3].append(moving)

    monkeypatch.setattr(FakeConnection, "_error_of", find_error)
    monkeypatch.setattr(cluster.clock, "sleep", pause)
    return moving


def test_a_group_that_moves_is_waited_for_if_the_leaders_are_unknown(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = move_group(cluster, monkeypatch, loads_s=2)
    fetched, seconds = fetch(cluster, patience_s=5.0)
    assert (fetched.failed, fetched.incomplete) == ({}, ())
    assert moving in names(fetched)
    assert seconds < 3


def test_a_group_that_moves_for_long_has_failed_if_the_leaders_are_unknown(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = move_group(cluster, monkeypatch, loads_s=60)
    fetched, seconds = fetch(cluster, patience_s=5.0)
    assert fetched.failed == {moving: "NOT_COORDINATOR"}
    assert names(fetched) == {name_in(p) for p in range(PARTITIONS)} - {moving}
    assert seconds <= 5


def test_a_group_that_was_deleted_meanwhile_has_not_failed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = name_in(1)
    monkeypatch.setattr(
        FakeConnection, "_error_of", lambda self, name: "GROUP_ID_NOT_FOUND" if name == deleted else None
    )
    monkeypatch.setattr(cluster.clock, "sleep", lambda seconds: cluster.groups.update({2: [name_in(4)]}))
    for cluster.leaders in ([1, 2, 3, 1, 2, 3], None):
        cluster.groups[2] = [deleted, name_in(4)]
        fetched, _ = fetch(cluster, patience_s=5.0)
        assert (fetched.failed, fetched.rounds) == ({}, 2)
        assert names(fetched) == {name_in(p) for p in range(PARTITIONS)} - {deleted}


# --- Offsets of share groups ------------------------------------------------------------------------------


def test_offsets_of_share_groups_are_fetched_too_only_or_not(cluster: FakeCluster) -> None:
    cluster.shares = {name_in(0): "", name_in(4): ""}
    everything, _ = fetch(cluster, describe=False)
    assert {each.group for each in everything.share_offsets} == cluster.shares.keys()
    assert names(everything) == {name_in(p) for p in (1, 2, 3, 5)}
    only, _ = fetch(cluster, describe=False, share_offsets="only")
    assert {group.name for group in only.groups} == cluster.shares.keys()
    assert (len(only.share_offsets), names(only)) == (2, set())
    without, _ = fetch(cluster, describe=False, share_offsets="not")
    assert (without.share_offsets, without.failed) == ((), {})
    assert len(without.groups) == PARTITIONS


def test_share_groups_without_an_answer_are_failed(cluster: FakeCluster) -> None:
    cluster.shares = {name_in(0): "UNKNOWN_SERVER_ERROR", name_in(1): "", name_in(2): ""}
    cluster.silent = {3}
    fetched, _ = fetch(cluster, describe=False, share_offsets="only", patience_s=5.0)
    assert fetched.failed == {name_in(0): "UNKNOWN_SERVER_ERROR"}
    assert {each.group for each in fetched.share_offsets} == {name_in(0), name_in(1)}
    assert {group.name for group in fetched.groups} == {name_in(0), name_in(1)}


def test_a_broker_that_cannot_describe_offsets_of_share_groups_is_an_error_if_only_these_are_wanted(
    cluster: FakeCluster,
) -> None:
    cluster.shares, cluster.knows_shares = {name_in(0): ""}, False
    assert fetch(cluster, describe=False)[0].share_offsets == ()
    with pytest.raises(UnsupportedVersion):
        fetch(cluster, describe=False, share_offsets="only")


# --- Brokers that use an earlier partition count ----------------------------------------------------------


def test_groups_are_elsewhere_if_the_broker_that_lists_them_does_not_lead_their_partition(
    cluster: FakeCluster,
) -> None:
    assert fetch(cluster)[0].elsewhere == set()
    mine = frozenset({0, 3})  # the partitions of broker 1
    cluster.groups[1].append(name_in(1))

    def is_mine(group: str) -> bool:
        return group_partition(group, PARTITIONS) in mine

    fetched, _ = fetch(cluster, group_filter=is_mine, partitions=mine)
    assert names(fetched) == {name_in(0), name_in(3)}
    assert fetched.elsewhere == {name_in(1)}
    # All together: the broker does not respond for the group, which therefore is what it has left there.
    assert fetch(cluster)[0].elsewhere == set()


def test_a_group_that_its_broker_has_by_an_earlier_partition_count_is_fetched_and_elsewhere(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.groups[2].remove(name_in(1))
    cluster.groups[1].append(name_in(1))
    monkeypatch.setattr(FakeConnection, "_error_of", lambda self, name: None)
    fetched, _ = fetch(cluster)
    assert names(fetched) == {name_in(p) for p in range(PARTITIONS)}
    assert fetched.elsewhere == {name_in(1)}


def test_a_group_in_an_empty_partition_is_elsewhere(cluster: FakeCluster) -> None:
    fetched, _ = fetch(cluster, empty=frozenset({4}))
    assert names(fetched) == {name_in(p) for p in range(PARTITIONS)}
    assert fetched.elsewhere == {name_in(4)}


def test_a_group_that_a_broker_lists_twice_has_each_row_once(cluster: FakeCluster) -> None:
    once = list(fetch(cluster)[0].offsets.rows())
    cluster.groups[1] += cluster.groups[1]
    assert list(fetch(cluster)[0].offsets.rows()) == once


def test_a_group_that_two_brokers_respond_for_has_each_row_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = sorted(fetch(cluster)[0].offsets.rows())
    monkeypatch.setattr(FakeConnection, "_error_of", lambda self, name: None)
    cluster.groups[1].insert(1, name_in(1))
    assert len(once) > PARTITIONS - 1
    assert sorted(fetch(cluster)[0].offsets.rows()) == once


# --- Groups that were known before -------------------------------------------------------------------------


@pytest.mark.parametrize("knows_leaders", [True, False])
def test_brokers_say_by_name_why_they_do_not_list_a_group(
    cluster: FakeCluster, *, knows_leaders: bool
) -> None:
    if not knows_leaders:
        cluster.leaders = None
    listed, denied, deleted = name_in(0), name_in(1), "deleted"
    cluster.denied = {denied}
    fetched, _ = fetch(cluster, describe=False, known=frozenset({listed, denied, deleted}))
    assert fetched.unlisted == {denied: "GROUP_AUTHORIZATION_FAILED", deleted: "GROUP_ID_NOT_FOUND"}
    assert denied not in fetched.failed


def test_a_group_that_is_not_of_the_wanted_partitions_is_not_explained(cluster: FakeCluster) -> None:
    cluster.denied = {name_in(0), name_in(1)}
    fetched, _ = fetch(
        cluster,
        describe=False,
        known=frozenset(cluster.denied),
        partitions=frozenset({1}),
        group_filter=lambda name: group_partition(name, PARTITIONS) == 1,
    )
    assert fetched.unlisted == {name_in(1): "GROUP_AUTHORIZATION_FAILED"}


def test_a_silent_broker_explains_nothing(cluster: FakeCluster) -> None:
    cluster.silent = {1}
    fetched, _ = fetch(cluster, describe=False, patience_s=2.0, known=frozenset({name_in(0), name_in(1)}))
    assert fetched.unlisted == {}

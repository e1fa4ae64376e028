"""What coordinators return of share groups, in the core's terms."""

from typing import Any

from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import DescribedGroup, FetchedGroups, ShareOffset, join_columns
from koff.monitor.duties.share_lags import FetchShareLags, ShareLagsFetched
from koff.monitor.workers import Workers, WorkersConf
from koff.tracker import ShareLag
from tests.unit.monitor.fakes import FakeCluster, Inbox


def fetch(request: FetchShareLags) -> ShareLagsFetched:
    cluster: Any = FakeCluster()
    inbox = Inbox()
    request.carry_out(Workers(WorkersConf(cluster.conf, ()), cluster, inbox.post))
    (fetched,) = inbox.of_kind(ShareLagsFetched)
    return fetched


def test_groups_without_an_answer_are_missing_and_those_with_half_of_one_are_partial(monkeypatch):
    asked: list[FetchOptions] = []

    def respond(lister: Any, options: FetchOptions) -> FetchedGroups:
        asked.append(options)
        return FetchedGroups(
            offsets=join_columns([]),
            groups=tuple(DescribedGroup(name, "share", "Stable", "share") for name in "abcd"),
            failed={"b": "NOT_COORDINATOR", "c": "UNKNOWN_SERVER_ERROR"},
            brokers=1,
            seconds=0.1,
            share_offsets=(
                ShareOffset("a", "t", "id", 0, 3, 1, 7),
                ShareOffset("a", "t", "id", 1, -1, 1, None),
                ShareOffset("c", "t", "id", 2, 3, 1, 8),
            ),
        )

    monkeypatch.setattr("koff.client.groups.coordinators.fetch_from_coordinators", respond)
    assert fetch(FetchShareLags(5, frozenset({1, 4}), 6)) == ShareLagsFetched(
        5,
        {
            "a": [ShareLag("t", "id", 0, 7), ShareLag("t", "id", 1, None)],
            "c": [ShareLag("t", "id", 2, 8)],
            "d": [],
        },
        frozenset({1, 4}),
        frozenset({"c"}),
        why="b: NOT_COORDINATOR",
    )
    assert asked[-1].partitions == frozenset({1, 4})
    assert asked[-1].share_offsets == "only"
    fetch(FetchShareLags(5, frozenset({0}), 1))  # the offsets topic is hidden
    assert asked[-1].partitions is None


def test_a_group_is_partial_without_the_lag_of_a_partition_that_it_has_read(monkeypatch):
    def respond(lister: Any, options: FetchOptions) -> FetchedGroups:
        return FetchedGroups(
            offsets=join_columns([]),
            groups=(DescribedGroup("a", "share", "Stable", "share"),),
            failed={},
            brokers=1,
            seconds=0.1,
            share_offsets=(
                ShareOffset("a", "t", "id", 0, 3, 1, None),
                ShareOffset("a", "t", "id", 1, 3, 1, 7),
            ),
        )

    monkeypatch.setattr("koff.client.groups.coordinators.fetch_from_coordinators", respond)
    fetched = fetch(FetchShareLags(5, frozenset({0}), 1))
    assert fetched.lags == {"a": [ShareLag("t", "id", 1, 7)]}
    assert fetched.partial == frozenset({"a"})
    assert fetched.why == "a: the coordinator returned no lag, as brokers before Kafka 4.2 do"

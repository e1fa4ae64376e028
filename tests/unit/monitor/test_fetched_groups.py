"""What coordinators return of share groups, in the core's terms."""

from __future__ import annotations

from typing import Any

import pytest

from koff.client.groups.responses import DescribedGroup, FetchedGroups, ShareOffset, join_columns
from koff.monitor import fetched_groups
from koff.monitor.fetched_groups import fetch_share_lags
from koff.monitor.requests import FetchShareLags, ShareLagsFetched
from koff.tracker import ShareLag
from tests.unit.monitor.fakes import FakeCluster


def test_groups_without_an_answer_are_missing_and_those_with_half_of_one_are_partial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted: dict[str, Any] = {}

    def fetch(conf: Any, **options: Any) -> FetchedGroups:
        wanted.update(options)
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

    monkeypatch.setattr(fetched_groups, "fetch_from_coordinators", fetch)
    cluster: Any = FakeCluster()
    request = FetchShareLags(5, frozenset({1, 4}), 6)
    assert fetch_share_lags(cluster, request) == ShareLagsFetched(
        5,
        {
            "a": [ShareLag("t", "id", 0, 7), ShareLag("t", "id", 1, None)],
            "c": [ShareLag("t", "id", 2, 8)],
            "d": [],
        },
        frozenset({1, 4}),
        frozenset({"c"}),
    )
    assert (wanted["partitions"], wanted["share_offsets"]) == ({1, 4}, "only")
    fetch_share_lags(cluster, FetchShareLags(5, frozenset({0}), 1))  # the offsets topic is hidden
    assert wanted["partitions"] is None

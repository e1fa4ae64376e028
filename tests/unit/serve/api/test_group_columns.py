"""Groups as columns: filters and orders are those of the totals, whatever is withheld."""

import random
import re
from dataclasses import replace
from typing import Any

import pytest

from koff.lag.verdict import Verdict
from koff.serve.api.endpoints import ENDPOINTS
from koff.serve.api.group_columns import GroupColumns
from koff.serve.api.group_objects import GROUP
from koff.serve.api.parameters import parse_query
from koff.tracker import GroupTotal, Rule, ShownNames
from koff.view.owners import Owner, Owners
from tests.unit.serve.api.clusters import NOW_MS, Clusters, build_view, fill_tracker, take_view
from tests.unit.tracker.test_selection import take_snapshot

EXPLAINED = dict.fromkeys(("sentence", "causes", "owner"))
SHOWN = [field.name for field in GROUP.fields if field.name not in EXPLAINED]
(PARAMETERS,) = [endpoint.parameters for endpoint in ENDPOINTS if endpoint.path == "/api/v1/groups"]


def find(columns: GroupColumns, query: str) -> list[dict[str, Any]]:
    page = columns.find_page(parse_query(f"limit=1000&{query}".encode(), PARAMETERS))
    assert page.total == len(page.groups)
    return [{name: group[name] for name in SHOWN} for group in page.groups]


def show(totals: list[GroupTotal]) -> list[dict[str, Any]]:
    """The same of totals."""
    return [{name: GROUP.build(total, **EXPLAINED)[name] for name in SHOWN} for total in totals]


def number(total: GroupTotal, key: str) -> Any:
    return {"lag": total.lag, "time_lag_s": total.time_lag_s, "status": int(total.status)}[key]


@pytest.mark.parametrize("seed", range(8))
def test_columns_are_the_numbers_of_the_totals(seed: int):
    view = build_view(take_snapshot(random.Random(seed)))
    totals = sorted(view.snapshot.totals(), key=lambda total: total.group.name)
    columns = GroupColumns([view])
    for key in ("lag", "time_lag_s", "status"):
        known = [total for total in totals if number(total, key) is not None]
        unknown = [total for total in totals if number(total, key) is None]
        for order, sign in (("asc", 1), ("desc", -1)):
            expected = sorted(known, key=lambda total, key=key, sign=sign: sign * number(total, key))  # type: ignore[misc]  # bound at once
            assert find(columns, f"sort={key}&order={order}") == show(expected + unknown)
        assert known
        assert unknown or key == "status"
    above = [total for total in totals if total.lag is not None and total.lag >= 200]
    assert find(columns, "min_lag=200&sort=name") == show(above)
    for verdict in Verdict:
        expected = [total for total in totals if total.status == verdict]
        assert find(columns, f"status={verdict.name}&sort=name") == show(expected)
    for state in ("Stable", "Empty", "Unknown"):
        assert find(columns, f"state={state}&sort=name") == show([t for t in totals if t.state == state])


def test_groups_are_filtered_by_the_labels_that_their_names_give():
    patterns = (re.compile("^(?P<kind>s)(?P<rest>.*)$"), re.compile("^(?P<kind>c)"))
    clusters = Clusters(replace(take_view(), group_labels=patterns))
    found = clusters.get("groups")
    assert found["labels"] == ["kind=c", "kind=s", "rest=hare", "rest=imple"]
    for query, names in (
        ("label=kind=s", ["share", "simple"]),
        ("label=kind=s&label=rest=hare", ["share"]),
        ("label=kind=c&sort=name&order=desc", ["consumer", "classic"]),
        ("label=kind=x", []),
    ):
        found = clusters.get("groups", query=query)
        assert [group["group"] for group in found["groups"]] == names
        assert sum(found["counts"][0][verdict.name] for verdict in Verdict) == len(names)
    assert clusters.request("/api/v1/groups", "label=kind").problem["allowed"] == "LABEL=VALUE"
    assert Clusters(take_view()).get("groups")["labels"] == []


def test_a_group_has_its_owner_by_whom_the_list_can_be_filtered():
    owners = Owners((Owner(re.compile("^s"), "search", "#search"), Owner(re.compile("^si"), "late")))
    clusters = Clusters(replace(take_view(), owners=owners))
    found = clusters.get("groups", query="label=owner=search")
    assert found["labels"] == ["owner=search"]
    owner = {"team": "search", "contact": "#search"}
    assert [(group["group"], group["owner"]) for group in found["groups"]] == [
        ("share", owner),
        ("simple", owner),
    ]
    assert clusters.get("group", query="cluster=c&group=simple")["group"]["owner"] == owner
    assert clusters.get("group", query="cluster=c&group=classic")["group"]["owner"] is None


def test_groups_that_are_not_shown_are_not_counted():
    tracker = fill_tracker()
    tracker.show(ShownNames(groups=(Rule.parse("exclude:^lost$"),)))
    (counts,) = Clusters(build_view(tracker.take_snapshot(NOW_MS))).get("groups")["counts"]
    assert (counts["ERR"], counts["OK"]) == (0, 3)

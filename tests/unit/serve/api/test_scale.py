"""`/api/v1/scale`: what it counts as curable, and when it says nothing."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import yaml

from koff.lag import Reason
from koff.lag.group_verdicts import GroupVerdicts
from koff.lag.late_causes import Cause
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView
from koff.view.scaling import NOT_CURABLE, list_members
from tests.unit.builders import ASSIGNED_T_0_1, classic_group, commit
from tests.unit.serve.api.api_page import build_example
from tests.unit.serve.api.clusters import (
    AWAY,
    NOW_MS,
    Clusters,
    apply,
    build_view,
    fill_tracker,
    take_view,
    withhold,
)

DOC = (Path(__file__).parents[4] / "docs" / "scaling.md").read_text()


def ask(view: ClusterView, query: str = "group=classic", status: int = 200) -> dict[str, Any]:
    """Of classic, which is 100 behind in two partitions, which get a record a second each."""
    found = Clusters(view).request("/api/v1/scale", query)
    assert found.status == status, found.json
    return dict(found.json)


def blame(view: ClusterView, *causes: Cause) -> ClusterView:
    """The view, in which these are the causes of the rows of classic."""
    shards = dict(view.snapshot.shards)
    for number, shard in shards.items():
        if any(group.name == "classic" for group in shard.groups):
            known = shard.verdicts or GroupVerdicts.build_unknown(len(shard.groups), len(shard.group))
            shards[number] = replace(shard, verdicts=replace(known, row_cause=np.array(causes, np.uint8)))
    return replace(view, snapshot=replace(view.snapshot, shards=shards))


def test_it_counts_what_waits_and_what_comes():
    assert ask(take_view()) == {
        "cluster": "c",
        "group": "classic",
        "members_wanted": 1,
        "members": 1,
        "most_members": 2,
        "reason": "capacity_unknown",
        "text": "what a member can do is not known: none was seen for two minutes",
        "lag": 100,
        "curable_lag": 100,
        "causes": [],
        "produce_per_s": 2.133,
        "member_per_s": None,
        "allowance_s": 120.0,
        "seconds": 300,
    }


def test_the_owner_may_say_what_a_member_can_do_and_how_long_it_may_take():
    found = ask(take_view(), "group=classic&member_per_s=1&seconds=60")
    assert (found["members_wanted"], found["seconds"], found["member_per_s"]) == (1, 60, 1)
    assert found["reason"] == "keeps_up"  # 100 records are 100 s of work, and 120 s are allowed
    assert found["text"] == "it keeps up: 2.1 records a second come, and a member does 1.0"


@pytest.mark.parametrize("cause", NOT_CURABLE)
def test_a_lag_that_members_do_not_cure_is_named_and_left_out(cause):
    found = ask(blame(take_view(), cause, Cause.TOO_SLOW))
    assert (found["lag"], found["curable_lag"], found["causes"]) == (100, 50, [cause.label])


@pytest.mark.parametrize(
    "cause", [cause for cause in Cause if cause not in (*NOT_CURABLE, Cause.REBALANCING)]
)
def test_all_other_lag_is_curable(cause):
    assert ask(blame(take_view(), cause, cause))["curable_lag"] == 100


def test_a_group_that_rebalances_often_keeps_its_members():
    assert ask(blame(take_view(), Cause.REBALANCING, Cause.TOO_SLOW), "group=classic&member_per_s=1")[
        "reason"
    ] == ("rebalancing")


def test_records_that_have_left_the_log_wait_for_nobody():
    tracker = fill_tracker()
    apply(tracker, "classic", *(commit("classic", "t", at, 100, at=NOW_MS - 1000) for at in range(2)))
    found = ask(view_of(tracker))
    assert (found["lag"], found["curable_lag"]) == (2 * 1320, 2 * 520)


def view_of(tracker: Tracker) -> ClusterView:
    return build_view(tracker.take_snapshot(NOW_MS))


def test_a_share_group_may_have_any_number_of_members():
    found = ask(take_view(), "group=share&member_per_s=1")
    assert (found["most_members"], found["lag"]) == (None, 20)


def test_topics_that_no_member_reads_any_more_do_not_count():
    tracker = fill_tracker()
    apply(tracker, "classic", commit("classic", "left", 0, 5, at=NOW_MS - 1000))
    tracker.add_samples(ends={("left", 0): 1_000_000}, at_ms=NOW_MS - 1000)
    found = ask(view_of(tracker))
    assert (found["lag"], found["most_members"]) == (100, 2)


def test_a_topic_may_be_chosen():
    assert ask(take_view(), "group=classic&topic=t&topic=u")["lag"] == 100
    assert "no lag of the group is known" in ask(take_view(), "group=classic&topic=u", 503)["detail"]


@pytest.mark.parametrize(
    ("view", "query", "status", "detail"),
    [
        (
            withhold({("classic", "t", 0): Reason.END_NOT_CURRENT}),
            "group=classic",
            503,
            "lags of the group are",
        ),
        (withhold({}, stale_groups=["classic"]), "group=classic", 503, "lags of the group are withheld"),
        (withhold({}, partial_groups=["classic"]), "group=classic", 503, "lags of the group are withheld"),
        (take_view(), "group=simple", 503, "Kafka knows no members of the group: its type is simple"),
        (take_view(), "group=empty", 503, "it has committed nothing"),
        (take_view(), "group=none", 404, "there is no group named 'none'"),
        (AWAY, "group=classic", 503, "is not known: not ready: no broker responds"),
        (take_view(), "", 400, "the parameter group is missing"),
        (take_view(), "group=classic&seconds=0", 400, "the parameter seconds is '0'"),
        (take_view(), "group=classic&cluster=x", 404, "there is no cluster named 'x'"),
    ],
)
def test_it_says_nothing_rather_than_a_guess(view, query, status, detail):
    assert detail in ask(view, query, status)["detail"]


def test_nothing_is_said_of_a_group_that_nobody_has_judged():
    view = take_view()
    shards = {number: replace(shard, verdicts=None) for number, shard in view.snapshot.shards.items()}
    view = replace(view, snapshot=replace(view.snapshot, shards=shards))
    assert ask(view, status=503)["detail"] == "koff has not judged the group yet"


def test_nothing_is_said_while_it_is_not_known_how_fast_records_come():
    tracker = Tracker()
    tracker.set_offsets_partitions(50)
    apply(tracker, "g", classic_group("g", {"m": ASSIGNED_T_0_1}), commit("g", "t", 0, 4, at=NOW_MS - 9_000))
    tracker.add_samples(ends={("t", 0): 10}, at_ms=NOW_MS - 1_000)
    detail = ask(view_of(tracker), "group=g", 503)["detail"]
    assert detail == "it is not known yet how fast records come"


def test_a_cluster_must_be_named_if_there_are_several():
    clusters = Clusters(take_view("a"), take_view("b"))
    refused = clusters.request("/api/v1/scale", "group=classic")
    assert (refused.status, refused.json["detail"]) == (
        404,
        "there are 2 clusters: name one in the parameter cluster",
    )
    assert clusters.request("/api/v1/scale", "group=classic&cluster=b").json["cluster"] == "b"


def test_a_change_of_members_is_of_no_step_alone():
    assert list_members([], 2, 4) == [2, 2, 2, 2]
    assert list_members([(20, 1)], 2, 5) == [1, 1, -1, -1, 2]
    assert list_members([(65, 3), (5, 1)], 2, 6) == [-1, -1, 1, 1, -1, -1]
    assert list_members([(900, 1)], 2, 3) == [2, 2, 2]


# --- The docs -------------------------------------------------------------------------------------------


def test_the_example_of_the_docs_is_what_koff_returns():
    (query,) = re.findall(r"^    curl 'localhost:9850/api/v1/scale\?(.*)'$", DOC, re.MULTILINE)
    (shown,) = re.findall(r"```json\n(.*?)```", DOC, re.DOTALL)
    assert yaml.safe_load(shown) == build_example().request("/api/v1/scale", query).json


def test_the_scaled_object_of_the_docs_reads_a_number_that_koff_returns():
    documents = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)]
    (scaled,) = [each for each in documents if each["kind"] == "ScaledObject"]
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["type"] == "metrics-api"
    url = urlsplit(trigger["metadata"]["url"])
    found = build_example().request(url.path, url.query)
    assert found.status == 200, found.json
    assert isinstance(found.json[trigger["metadata"]["valueLocation"]], int)

"""Groups in the API: lists, pages, and one group."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from koff.cli import lag as lag_command
from koff.lag import Reason
from koff.lag.verdict import Verdict
from koff.monitor.lag_archive import GroupMinute, LagArchive
from koff.records import encode
from koff.serve.api.group_objects import CLUSTER_GROUP, ROW
from koff.tracker import Rule, ShownNames, Tracker
from koff.view.lag_history import STEP_S
from tests.group_records import Streams
from tests.unit.builders import commit
from tests.unit.serve.api.clusters import (
    AWAY,
    EMPTY,
    LAGS,
    NOW_MS,
    ODD,
    Clusters,
    apply,
    build_view,
    fill_tracker,
    take_view,
    withhold,
)

COMMITS, END = Reason.COMMITS_NOT_CURRENT, Reason.END_NOT_CURRENT
LEFT_OUT = {"cluster", "group", "state", "lag_to_stable"}
"""Of the fields of a row in `koff lag`. The last is too old in `koff monitor`."""
ALL = {*LAGS, "empty", "consumer"}
HEALTHY = {ODD, "simple", "classic"}
WITHOUT_HISTORY: dict[str, Any] = {"trend": [], "last_known": None}


def list_names(clusters: Clusters, query: str) -> list[str]:
    return [group["group"] for group in clusters.get("groups", query=query)["groups"]]


def find(objects: list[dict[str, Any]], **members: Any) -> dict[str, Any]:
    (found,) = [each for each in objects if members.items() <= each.items()]
    return found


def test_groups_are_listed_with_the_worst_first(clusters: Clusters):
    found = clusters.get("groups")
    listed = [(group["status"], group["group"]) for group in found["groups"]]
    unknown, well = sorted(ALL - {"lost", *HEALTHY}), sorted(HEALTHY)
    assert listed == [
        ("ERR", "lost"),
        *(("UNKNOWN", name) for name in unknown),
        *(("OK", name) for name in well),
    ]
    assert list_names(clusters, "sort=worst&order=asc") == [*well, *unknown, "lost"]


def test_a_group_has_the_same_hour_of_other_days_and_its_error_budget(tmp_path: Path):
    view = take_view()
    assert view.cluster is not None
    clusters = Clusters(view)
    assert clusters.get("group", query=f"cluster={view.cluster}&group=classic")["earlier"] == []
    archive = view.activity.archive = LagArchive(tmp_path)
    end_ms = NOW_MS // (STEP_S * 1000) * STEP_S * 1000 + STEP_S * 1000
    known = np.array([3.0]), np.array([1.0]), np.zeros(1)
    view.activity.history.add(["classic"], *known, NOW_MS)
    archive.add(end_ms // 1000 - 1 - 86_400, {"classic": GroupMinute(40, 2500, is_late=True)})
    archive.add(NOW_MS // 1000, {"classic": GroupMinute(3, 1000, is_late=False)})
    found = clusters.get("group", query=f"cluster={view.cluster}&group=classic")
    (before,) = found["earlier"]
    assert (before["days"], before["lag"][-1], before["time_lag_s"][-1]) == (1, 40, 2.5)
    assert len(before["lag"]) == len(found["last_hour"]["lag"])
    hour, _, days, month = found["budget"]["windows"]
    assert (hour["late"], days["late"], month["late"]) == (0, 0.5, 0.5)
    assert found["budget"]["left"] == pytest.approx(1 - 0.5 * 2 / 43_200 / 0.01)


def test_late_groups_are_listed_by_their_lateness_and_those_that_are_well_by_name():
    tracker = Tracker()
    lags = {"a": 30, "b": 170, "c": 40, "d": 200, "e": 20}
    for name, late_s in lags.items():
        apply(tracker, name, commit(name, name, 0, 1000 - late_s, at=NOW_MS - 1_000))
    for second in range(400, -1, -10):
        at_ms = NOW_MS - second * 1000
        tracker.add_samples(ends={(name, 0): 1000 - second for name in lags}, at_ms=at_ms)
    clusters = Clusters(build_view(tracker.take_snapshot(NOW_MS)))
    listed = [(group["group"], group["status"]) for group in clusters.get("groups")["groups"]]
    assert listed == [("d", "WARN"), ("b", "WARN"), ("a", "OK"), ("c", "OK"), ("e", "OK")]


COUNTED = ("ERR", "WARN", "UNKNOWN", "OK", "withheld")


def count(clusters: Clusters, query: str) -> dict[str, list[int | None]]:
    found = clusters.get("groups", query=query)["counts"]
    return {each["cluster"]: [each[name] for name in COUNTED] for each in found}


def test_counts_are_of_all_clusters_whatever_their_own_filters_are():
    clusters = Clusters(take_view("a"), AWAY, withhold({("lost", "t", 0): END}), EMPTY)
    whole = {
        "a": [1, 0, 3, 3, 0],
        "away": [None] * 5,
        "c": [0, 0, 4, 3, 1],
        "empty": [0] * 5,
    }
    for query in ("", "status=ERR", "status=OK,WARN&cluster=a", "withheld=true", "cluster=away", "limit=1"):
        assert count(clusters, query) == whole
    assert count(clusters, "name=lost&cluster=c")["a"] == [1, 0, 0, 0, 0]
    assert count(clusters, "min_lag=20&status=OK")["c"][3] == len({"classic"})


def test_a_withheld_group_has_its_newest_known_lag_with_its_age():
    view = withhold({("lost", "t", 0): END})
    history = view.activity.history
    for age_s, lag in ((60, 500.0), (45, 600.0), (15, math.nan), (0, math.nan)):
        history.add(["lost"], np.array([lag]), np.array([math.nan]), np.zeros(1), NOW_MS - age_s * 1000)
    groups = Clusters(view).get("groups")["groups"]
    assert find(groups, group="lost")["last_known"] == {"lag": 600.0, "time_lag_s": None, "age_s": 60}
    assert find(groups, group="classic")["last_known"] is None
    shown = Clusters(view).get("clusters", "c", "groups", "lost")
    assert shown["last_known"] == find(groups, group="lost")["last_known"]


def test_groups_can_be_listed_with_the_largest_lag_first_and_unknown_lags_last(clusters: Clusters):
    found = clusters.get("groups", query="sort=lag")
    assert (found["total"], found["next_offset"], found["unknown"]) == (7, None, 0)
    by_lag = sorted(LAGS, key=lambda name: -LAGS[name])
    assert [(group["group"], group["lag"]) for group in found["groups"]] == [
        *((name, LAGS[name]) for name in by_lag),
        ("consumer", None),
        ("empty", None),
    ]
    reasons = {group["group"]: group["reason"] for group in found["groups"] if group["reason"]}
    assert reasons == {"consumer": "lags_unknown", "empty": "no_partitions"}
    assert clusters.get("clusters", "c", "groups", query="sort=lag") == found


def test_a_group_and_its_rows_have_the_names_and_values_of_koff_lag(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
):
    view = clusters.views[0]
    lag_command._print_json(view, list(view.snapshot.rows()), view.snapshot.totals())
    printed = json.loads(capsys.readouterr().out)
    groups = clusters.get("groups")["groups"]
    for group in printed["groups"]:
        assert find(groups, group=group["group"]) == {"cluster": "c", **group, **WITHOUT_HISTORY}
        shown = clusters.get("clusters", "c", "groups", group["group"])
        assert group.items() <= shown["group"].items()
        for row in [dict(row) for row in printed["partitions"] if row["group"] == group["group"]]:
            mine = find(shown["partitions"], topic=row["topic"], partition=row["partition"])
            assert mine.pop("reasons") == row.pop("reasons").split()
            for name in LEFT_OUT:
                del row[name]
            assert row.items() <= mine.items()
    assert {field.name for field in ROW.fields} > set(lag_command._FIELDS) - LEFT_OUT


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("name=simp", {"simple"}),
        ("name=SIMP", set()),
        ("match=^(simple|lost)$", {"simple", "lost"}),
        ("match=^s&name=are", {"share"}),
        ("type=share&type=consumer", {"share", "consumer"}),
        ("state=Stable", {"classic", "consumer"}),
        ("status=ERR", {"lost"}),
        ("status=ERR,OK&status=WARN", {"lost", *HEALTHY}),
        ("withheld=true", set()),
        ("status=OK&type=simple", {ODD, "simple"}),
        ("min_lag=20", {"classic", "lost", "share"}),
        ("min_lag=0", set(LAGS)),
        ("min_lag=0&max=", None),
    ],
)
def test_groups_are_filtered(clusters: Clusters, query: str, names: set[str] | None):
    if names is None:
        assert clusters.request("/api/v1/groups", query).status == 400
        return
    found = clusters.get("groups", query=query)
    assert {group["group"] for group in found["groups"]} == names
    assert found["total"] == len(names)


def test_groups_that_min_lag_leaves_out_because_their_lag_is_not_known_are_counted():
    clusters = Clusters(withhold({("lost", "t", 0): END}))
    found = clusters.get("groups", query="min_lag=50")
    assert ([group["group"] for group in found["groups"]], found["unknown"]) == (["classic"], 3)


@pytest.mark.parametrize("key", ["lag", "time_lag_s", "status", "name"])
def test_groups_are_sorted_in_both_directions_with_unknown_numbers_last(clusters: Clusters, key: str):
    groups = {group["group"]: group for group in clusters.get("groups")["groups"]}
    ranks = {verdict.name: verdict for verdict in Verdict}

    def number(name: str) -> Any:
        value = groups[name]["group" if key == "name" else key]
        return ranks[value] if key == "status" else value

    known = [name for name in sorted(groups) if number(name) is not None]
    unknown = [name for name in sorted(groups) if number(name) is None]
    ascending = sorted(known, key=number) + unknown
    # Equal numbers are by name in both directions.
    descending = sorted(known, key=number, reverse=True) + unknown
    if key == "name":
        descending = sorted(groups, reverse=True)
    assert list_names(clusters, f"sort={key}&order=asc") == ascending
    assert list_names(clusters, f"sort={key}&order=desc") == descending
    assert list_names(clusters, f"sort={key}") == (ascending if key == "name" else descending)
    assert len({json.dumps(number(name)) for name in groups}) > 2


def test_pages_have_all_groups_once(clusters: Clusters):
    whole, offset, names = list_names(clusters, ""), 0, []
    while offset is not None:
        page = clusters.get("groups", query=f"limit=3&offset={offset}")
        assert page["total"] == 7
        names += [group["group"] for group in page["groups"]]
        offset = page["next_offset"]
    assert names == whole
    assert clusters.get("groups", query="offset=99999999999999")["groups"] == []


def test_one_group_has_members_and_partitions(clusters: Clusters):
    found = clusters.get("clusters", "c", "groups", "classic")
    assert found["group"]["lag"] == 100
    assert found["group"]["epoch"] == 7
    assert (found["group"]["protocol_type"], found["group"]["protocol"]) == ("consumer", "range")
    (member,) = found["members"]
    assert (member["client_id"], member["client_host"]) == ("m", "/10.0.0.1")
    assert member["assigned"] == [{"topic": "t", "topic_id": None, "partitions": [0, 1]}]
    row = find(found["partitions"], partition=0)
    assert (row["committed"], row["start"], row["end"], row["lag"]) == (1370, 900, 1420, 50)
    assert (row["lost"], row["retention_margin"], row["member_id"]) == (0, 470, "m-id")
    assert row["reasons"] == []
    assert row["time_lag_s"] > 0


def test_topics_that_are_not_shown_are_nowhere():
    tracker = fill_tracker()
    tracker.show(ShownNames(topics=(Rule.parse("exclude:^t$"),)))
    clusters = Clusters(build_view(tracker.take_snapshot(NOW_MS), facts=AWAY.facts))
    for name in ("classic", "consumer"):
        found = clusters.get("clusters", "c", "groups", name)
        assert (found["partitions"], found["group"]["partitions"]) == ([], 0)
        (member,) = found["members"]
        assert (member["assigned"], member["revoking"], member["awaited"]) == ([], [], [])
    assert clusters.get("clusters", "c", "topics")["topics"] == []


def test_members_of_new_groups_have_topic_ids_with_names(clusters: Clusters):
    found = clusters.get("clusters", "c", "groups", "consumer")
    (assigned,) = found["members"][0]["assigned"]
    assert (assigned["topic"], assigned["partitions"]) == ("t", [2])
    assert assigned["topic_id"]
    (row,) = found["partitions"]
    assert (row["committed"], row["lag"], row["start"], row["reasons"]) == (None, None, None, ["no_commit"])
    assert row["status"] == "UNKNOWN"


def test_records_that_retention_has_removed_are_lost_and_leave_no_margin(clusters: Clusters):
    (row,) = clusters.get("clusters", "c", "groups", "lost")["partitions"]
    assert (row["lag"], row["readable"], row["lost"], row["retention_margin"]) == (620, 520, 100, 0)
    assert row["reasons"] == ["below_log_start"]


def test_a_group_that_has_caught_up_has_no_margin(clusters: Clusters):
    (row,) = clusters.get("clusters", "c", "groups", ODD)["partitions"]
    assert (row["lag"], row["retention_margin"]) == (0, None)


def test_a_share_group_whose_coordinator_returned_the_lag_has_no_offset(clusters: Clusters):
    found = clusters.get("clusters", "c", "groups", "share")
    (row,) = found["partitions"]
    assert (found["group"]["type"], found["group"]["lag"]) == ("share", 20)
    assert (row["lag"], row["committed"], row["retention_margin"]) == (20, None, None)


def test_a_group_without_rows_has_empty_lists(clusters: Clusters):
    found = clusters.get("clusters", "c", "groups", "empty")
    assert (found["members"], found["partitions"]) == ([], [])
    assert (found["group"]["lag"], found["group"]["partitions"]) == (None, 0)


@pytest.mark.parametrize("bits", [COMMITS, END])
def test_no_sum_has_a_withheld_row_in_it(bits: Reason):
    clusters = Clusters(withhold({("classic", "t", 0): bits}))
    found = clusters.get("clusters", "c", "groups", "classic")
    group, rows = found["group"], found["partitions"]
    sums = ("lag", "time_lag_s", "consume_per_s", "catch_up_s", "never_catches_up")
    assert [group[name] for name in sums] == [None] * 5
    assert (group["reason"], group["withheld"], group["status"]) == ("lags_withheld", 1, "UNKNOWN")
    hidden, shown = find(rows, partition=0), find(rows, partition=1)
    assert (hidden["lag"], hidden["status"], hidden["reasons"]) == (None, "UNKNOWN", list(bits.names))
    assert hidden["retention_margin"] is None
    assert all(hidden[name] is None for name in (("committed",) if bits == COMMITS else ("end", "start")))
    assert (shown["lag"], shown["retention_margin"]) == (50, 470)
    listed = find(clusters.get("groups")["groups"], group="classic")
    assert listed.items() <= {"cluster": "c", **group, **WITHOUT_HISTORY}.items()


def test_members_and_state_of_a_group_that_is_not_current_are_null():
    rows = {("classic", "t", partition): COMMITS for partition in range(2)}
    clusters = Clusters(withhold(rows, ["classic"]))
    found = clusters.get("clusters", "c", "groups", "classic")
    group = found["group"]
    assert found["members"] is None
    unknown = ("type", "state", "members", "lag", "epoch", "protocol", "protocol_type")
    assert [group[name] for name in unknown] == [None] * len(unknown)
    assert group["reason"] == "commits_not_current"
    assert all(row["lag"] is None and row["committed"] is None for row in found["partitions"])
    assert "classic" not in list_names(clusters, "state=Stable")
    assert "classic" not in list_names(clusters, "type=classic")


def test_a_share_group_with_rows_missing_has_no_sum():
    clusters = Clusters(withhold({}, partial_groups=["share"]))
    found = clusters.get("clusters", "c", "groups", "share")
    assert (found["group"]["lag"], found["group"]["reason"]) == (None, "rows_missing")
    assert [row["lag"] for row in found["partitions"]] == [20]


def test_a_group_names_its_coordinator_and_an_open_transaction(clusters: Clusters):
    found = [clusters.get("clusters", "c", "groups", name)["group"] for name in sorted(ALL)]
    assert {group["coordinator"] for group in found} <= {1, 2, None}
    assert not any(group["commits_held_back"] for group in found)
    unlisted = Clusters(build_view(clusters.views[0].snapshot, facts=AWAY.facts))
    assert unlisted.get("clusters", "c", "groups", "simple")["group"]["coordinator"] is None


def test_groups_of_several_clusters_are_listed_together_and_one_that_is_down_has_none():
    clusters = Clusters(take_view("a"), AWAY, EMPTY, take_view("b"))
    found = clusters.get("groups", query="sort=name")
    assert found["total"] == 14
    assert [g["cluster"] for g in found["groups"] if g["group"] == "simple"] == ["a", "b"]
    assert clusters.get("clusters", "b", "groups")["total"] == 7
    for cluster in ("away", "empty"):
        assert clusters.get("clusters", cluster, "groups")["groups"] == []
    problem = clusters.request("/api/v1/clusters/away/groups/simple").problem
    assert (problem["status"], problem.get("known")) == (503, None)
    assert "not ready: no broker responds" in problem["detail"]
    assert clusters.request("/api/v1/clusters/empty/groups/simple").problem["status"] == 404


def test_a_group_is_not_denied_while_a_partition_of_the_offsets_topic_is_not_read():
    view = take_view()
    view = replace(view, stats=replace(view.stats, not_current=1))
    clusters = Clusters(view)
    problem = clusters.request("/api/v1/clusters/c/groups/x").problem
    assert problem["status"] == 503
    assert "1 partitions of internal topics are not current" in problem["detail"]
    assert clusters.get("clusters", "c", "groups", "simple")["group"]["lag"] == 7


def test_groups_of_a_cluster_without_a_name_are_not_listed():
    clusters = Clusters(build_view(take_view().snapshot, None))
    assert clusters.get("groups")["total"] == 0
    assert clusters.get("clusters")["clusters"][0]["cluster"] is None


def test_the_names_of_a_group_are_those_of_its_shape(clusters: Clusters):
    assert set(clusters.get("groups")["groups"][0]) == set(CLUSTER_GROUP["properties"])


def test_a_streams_group_is_assigned_the_partitions_of_its_tasks():
    tracker = Tracker()
    records = [
        Streams.own("s", 2),
        Streams.topology("s"),
        Streams.member("s", "m"),
        Streams.assigned("s", 2),
        Streams.target("s", "m", {"0": (0,)}),
        Streams.current("s", "m", 2, {"0": (0,)}),
    ]
    apply(tracker, "s", *map(encode, records), commit("s", "in-a", 0, 4))
    tracker.add_samples(ends={("in-a", 0): 10, ("in-b", 0): 10})
    found = Clusters(build_view(tracker.take_snapshot(NOW_MS))).get("clusters", "c", "groups", "s")
    assert (found["group"]["type"], found["group"]["lag"], found["group"]["unknown"]) == ("streams", 6, 1)
    (member,) = found["members"]
    assert sorted(a["topic"] for a in member["assigned"]) == ["in-a", "in-b"]
    assert [(row["topic"], row["lag"], row["reasons"]) for row in found["partitions"]] == [
        ("in-a", 6, []),
        ("in-b", None, ["no_commit"]),
    ]

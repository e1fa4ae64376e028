"""What koff says of groups and topics that nobody uses, and when it says nothing."""

from dataclasses import replace

import pytest

from koff.lag import Reason
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterFacts, ClusterView, MonitorStats, Readiness, TopicFacts
from koff.view.unused import (
    Limits,
    TopicLog,
    Unused,
    list_topics_to_check,
    list_unused_groups,
    list_unused_topics,
    measure_commits,
)
from tests.group_records import assign
from tests.unit.builders import apply, classic_group, commit
from tests.unit.serve.views import NOW_MS, build_view, take_view, withhold

DAY_MS = 86_400_000
LIMITS = Limits(3 * 86_400, 100.0, 50)
LOG = TopicLog(7, is_written=False, is_compacted=False)


def find(view: ClusterView, limits: Limits = LIMITS) -> dict[tuple[str, str], Unused]:
    return {(each.kind, each.name): each for each in list_unused_groups(view, limits, {})}


def commit_days_ago(
    days: float, group: str = "g", topic: str = "t", partition: int = 0
) -> tuple[bytes, bytes | None]:
    return commit(group, topic, partition, 4, at=NOW_MS - int(days * DAY_MS))


def fill(*pairs: tuple[bytes, bytes | None]) -> Tracker:
    tracker = Tracker()
    apply(tracker, *pairs)
    tracker.add_samples(ends={("t", 0): 10}, at_ms=NOW_MS)
    return tracker


def test_a_group_without_members_is_named_with_what_it_loses():
    found = find(take_view(fill(commit_days_ago(4))))
    assert found == {
        ("empty_group", "g"): Unused(
            "empty_group",
            "g",
            "has no members, and has committed nothing for 4 d",
            "its offsets in 1 partition; 6 records wait there",
            deletes=True,
            group_type="simple",
        )
    }


@pytest.mark.parametrize(
    "pairs",
    [
        [commit_days_ago(2)],  # not long enough
        [commit_days_ago(4), commit_days_ago(1, partition=1)],
        [commit_days_ago(4), classic_group("g", {"c": assign(("t", (0,)))}, since_ms=NOW_MS - 4 * DAY_MS)],
        [commit_days_ago(4), classic_group("g", {}, since_ms=NOW_MS - DAY_MS)],  # it had members yesterday
        [classic_group("g", {}, since_ms=-1)],  # it is not known since when
    ],
)
def test_a_group_that_somebody_uses_is_not_named(pairs):
    assert find(take_view(fill(*pairs))) == {}


def test_a_group_that_has_committed_nothing_is_idle_since_its_members_left():
    found = find(take_view(fill(classic_group("g", {}, since_ms=NOW_MS - 5 * DAY_MS))))
    assert found["empty_group", "g"].text == "has no members, and has committed nothing for 5 d"
    assert found["empty_group", "g"].loses == "its offsets in 0 partitions"


def test_nothing_is_said_of_a_group_that_is_withheld():
    tracker = fill(commit_days_ago(4))
    assert find(withhold(tracker, {("g", "t", 0): Reason.COMMITS_NOT_CURRENT})) == {}
    assert find(withhold(tracker, {}, stale_groups=["g"])) == {}


def test_a_commit_whose_time_is_unknown_says_nothing_of_idleness():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 4, at=-1))
    assert find(take_view(tracker)) == {}


@pytest.mark.parametrize("members", [{}, {"c": assign(("t", (0,)))}])
def test_offsets_of_deleted_topics_are_named_and_a_group_with_members_stays(members):
    tracker = fill(commit_days_ago(0), classic_group("g", members, since_ms=NOW_MS))
    tracker.partitions.forget_offsets([("t", 0)])
    found = find(take_view(tracker))["deleted_topics", "g"]
    assert found.text == "1 partition of topics that do not exist: t"
    assert found.deletes is not bool(members)


def test_a_group_with_another_topic_is_not_to_be_deleted():
    tracker = fill(commit_days_ago(0), commit_days_ago(0, topic="u"))
    tracker.partitions.forget_offsets([("t", 0)])
    assert not find(take_view(tracker))["deleted_topics", "g"].deletes


def test_a_group_that_commits_too_often_is_named_with_its_rate():
    tracker = fill(commit_days_ago(0), commit_days_ago(0, "new"))
    before = build_view(tracker.take_snapshot(NOW_MS))
    apply(tracker, *(commit("g", "t", 0, each, at=NOW_MS + each) for each in range(450)), seen_at_ms=NOW_MS)
    now = build_view(tracker.take_snapshot(NOW_MS + 2000))
    rates = measure_commits(before, now)
    assert rates == {"g": 225.0, "new": 0.0}
    (found,) = list_unused_groups(now, LIMITS, rates)
    assert (found.kind, found.deletes) == ("frequent_commits", False)
    assert found.text.startswith("commits 225.0 offsets a second")
    assert list_unused_groups(now, replace(LIMITS, commits_per_s=225.0), rates) == []


def test_a_group_on_too_many_topics_is_named():
    pairs = [
        commit_days_ago(0, topic=f"t{number}", partition=each) for number in range(51) for each in (0, 1)
    ]
    view = take_view(fill(*pairs))
    assert find(view)["many_topics", "g"].text.startswith("reads 51 topics")
    assert find(view, replace(LIMITS, topics=51)) == {}


def test_the_longest_idle_group_comes_first():
    view = take_view(fill(*(commit_days_ago(days, f"g{days}") for days in (4, 6, 5))))
    assert [each.name for each in list_unused_groups(view, LIMITS, {})] == ["g6", "g5", "g4"]


# --- Topics ---------------------------------------------------------------------------------------------


def list_topics(view: ClusterView, idle: list[str] | None = None, **logs: TopicLog) -> dict[str, Unused]:
    return {each.name: each for each in list_unused_topics(view, LIMITS, logs, idle or [])}


def test_a_topic_is_named_by_what_it_lacks():
    view = take_view(fill(commit_days_ago(0)))
    written = LOG._replace(is_written=True)
    found = list_topics(view, t=LOG, u=written, v=LOG, w=LOG._replace(offsets=0))
    assert {name: (each.kind, each.text) for name, each in found.items()} == {
        "t": ("unwritten_topic", "its newest record is older than 3 d"),
        "u": ("unread_topic", "no group reads it"),
        "v": ("unused_topic", "no group reads it; its newest record is older than 3 d"),
        "w": ("unused_topic", "no group reads it; it is empty"),
    }
    assert list(found) == ["v", "w", "u", "t"]  # by kind, the largest first
    assert [name for name, each in found.items() if each.deletes] == ["v", "w"]
    assert found["v"].loses == "7 records"
    assert list_topics(view, t=written) == {}


def test_a_topic_that_only_idle_groups_read_is_read_by_nobody():
    view = take_view(fill(commit_days_ago(4)))
    found = list_topics(view, ["g"], t=LOG)["t"]
    assert (found.kind, found.deletes) == ("unused_topic", True)
    assert found.text.startswith("only idle groups read it: g; ")


def test_a_member_that_has_committed_nothing_reads_a_topic():
    view = take_view(fill(classic_group("g", {"c": assign(("t", (0,)))})))
    assert list_topics(view, t=LOG)["t"].kind == "unwritten_topic"


@pytest.mark.parametrize("is_compacted", [True, None])
def test_deleting_a_topic_that_may_be_a_table_is_not_advised(is_compacted):
    found = list_topics(take_view(Tracker()), t=LOG._replace(is_compacted=is_compacted))["t"]
    assert not found.deletes
    assert ("a table" in found.text) is (is_compacted is True)


def with_topics(view: ClusterView, **changes: object) -> ClusterView:
    facts = ClusterFacts(1, {"t": TopicFacts(1, 1), "__consumer_offsets": TopicFacts(50, 1)})
    return replace(view, facts=facts, **changes)  # type: ignore[arg-type]  # any field


def test_topics_of_kafka_itself_are_not_looked_at():
    assert list_topics_to_check(with_topics(take_view(Tracker()))) == ["t"]


@pytest.mark.parametrize(
    "changes",
    [
        {"readiness": Readiness(False, "not ready")},
        {"stats": MonitorStats(not_current=1)},
        {"stats": MonitorStats(missing=("groups",))},
    ],
)
def test_nothing_is_said_of_topics_while_a_group_may_be_missing(changes):
    assert list_topics_to_check(with_topics(take_view(Tracker()), **changes)) is None


def test_nothing_is_said_of_topics_while_rows_of_a_group_may_be_missing():
    tracker = fill(commit_days_ago(0))
    assert list_topics_to_check(with_topics(withhold(tracker, {}, stale_groups=["g"]))) is None
    assert list_topics_to_check(with_topics(build_view(tracker.take_snapshot(NOW_MS)))) == ["t"]

"""Groups and topics that are not shown: their state is kept, and their end offsets are not sampled."""

import pytest

from koff.tracker import Rule, ShownNames, Tracker
from tests.unit.builders import ASSIGNED_T_0_1, classic_group, commit

GROUPS = {"pay": ["orders", "t"], "ship": ["orders"], "other": ["logs"]}


@pytest.fixture
def tracker():
    """Groups in two shards; pay is assigned t-0 and t-1, and has no commit to t-1."""
    tracker = Tracker()
    for number, (group, topics) in enumerate(GROUPS.items()):
        records = [commit(group, topic, 0, 4) for topic in topics]
        records += [classic_group("pay", {"app": ASSIGNED_T_0_1})] if group == "pay" else []
        tracker.apply(number % 2, [key for key, _ in records], [value for _, value in records])
    tracker.add_samples(ends={(topic, 0): 10 for topics in GROUPS.values() for topic in topics})
    return tracker


def show(tracker: Tracker, *, groups: str | None = None, topics: str | None = None) -> None:
    tracker.show(ShownNames(*(() if text is None else (Rule.parse(text),) for text in (groups, topics))))


def list_rows(tracker: Tracker) -> set[tuple[str, str, int | None]]:
    return {
        (row.group, row.topic, row.lag) for row in tracker.take_snapshot().rows() if row.committed is not None
    }


ALL = {("pay", "orders", 6), ("pay", "t", 6), ("ship", "orders", 6), ("other", "logs", 6)}


RULES = (Rule.parse("exclude:^prod-x"), Rule.parse("include:^prod"))


@pytest.mark.parametrize(
    ("rules", "name", "is_shown"),
    [
        ((), "any", True),
        (RULES, "prod-x", False),
        (RULES, "prod-a", True),
        (RULES, "test", False),
        (RULES[:1], "test", True),
        (RULES[::-1], "prod-x", True),
        ((Rule.parse("a:b"),), "xa:by", True),
    ],
)
def test_the_first_rule_that_matches_decides(rules, name, is_shown):
    names = ShownNames(rules, rules)
    assert (names.shows_group(name), names.shows_topic(name)) == (is_shown, is_shown)
    assert [*names.mask_groups([name]), *names.mask_topics([name])] == [is_shown, is_shown]


def test_a_rule_that_is_no_regular_expression_is_refused():
    with pytest.raises(ValueError, match="is not a regular expression: missing"):
        Rule.parse("exclude:(")


def test_only_groups_whose_name_matches_are_shown(tracker):
    assert list_rows(tracker) == ALL
    show(tracker, groups="^(pay|other)$")
    assert list_rows(tracker) == {row for row in ALL if row[0] != "ship"}
    assert {total.group.name for total in tracker.take_snapshot().totals()} == {"pay", "other"}
    show(tracker, groups="^ship$")
    assert list_rows(tracker) == {row for row in ALL if row[0] == "ship"}


def test_only_commits_to_topics_whose_name_matches_are_shown(tracker):
    show(tracker, groups="a|o", topics="^orders$")
    assert list_rows(tracker) == {("pay", "orders", 6)}
    totals = {total.group.name: total.lag for total in tracker.take_snapshot().totals()}
    assert totals == {"pay": 6, "other": None}


def test_end_offsets_of_what_is_hidden_are_not_sampled(tracker):
    everything = [("logs", 0), ("orders", 0), ("t", 0), ("t", 1)]
    assert tracker.watched_partitions() == everything
    show(tracker, groups="^ship$")
    # t-1 was only assigned: it is watched for some time after that, as when a member leaves.
    assert tracker.watched_partitions() == [("orders", 0), ("t", 1)]
    show(tracker, groups="pay")
    assert tracker.watched_partitions() == [("orders", 0), ("t", 0), ("t", 1)]
    show(tracker, topics="^(logs|t)$")
    assert tracker.watched_partitions() == [("logs", 0), ("t", 0), ("t", 1)]
    show(tracker, topics="^orders$")
    assert tracker.watched_partitions() == [("orders", 0)]
    show(tracker)
    assert tracker.watched_partitions() == everything


def test_the_layout_stays_the_same_object_while_nothing_changes(tracker):
    show(tracker, groups="pay")
    first, second = (tracker.take_snapshot().shards[0].layout for _ in range(2))
    assert first is second


def test_what_is_hidden_is_saved(tracker):
    show(tracker, groups="^none$")
    states = {number: tracker.save_partition(number) for number in (0, 1)}
    restored = Tracker()
    for number, state in states.items():
        assert state is not None
        restored.restore_partition(number, state)
    restored.add_samples(ends={(topic, 0): 10 for topic in ("orders", "t", "logs")})
    assert list_rows(restored) == ALL


def test_a_hidden_topic_that_a_member_is_assigned_is_not_shown_as_one_without_a_commit(tracker):
    def list_topics() -> list[tuple[str, int]]:
        rows = tracker.take_snapshot().rows()
        return sorted((row.topic, row.partition) for row in rows if row.group == "pay")

    assert list_topics() == [("orders", 0), ("t", 0), ("t", 1)]
    show(tracker, topics="exclude:^t$")
    assert list_topics() == [("orders", 0)]
    (total,) = [total for total in tracker.take_snapshot().totals() if total.group.name == "pay"]
    assert (total.lag, total.partitions, total.unknown) == (6, 1, 0)

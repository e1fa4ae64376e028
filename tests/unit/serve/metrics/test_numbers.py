"""Counters: what is kept from one scrape to the next."""

from koff.lag import Reason
from koff.serve.metrics.exposition import Exposition
from koff.tracker import Tracker
from tests.unit.builders import apply, commit
from tests.unit.serve.metrics.served import text, two_groups, values
from tests.unit.serve.views import EVERYTHING, NOW_MS, take_view, withhold


def test_counters_have_their_total_and_grow_with_commits_and_records_but_not_with_resets():
    tracker, exposition = Tracker(), Exposition(EVERYTHING)
    consumed, produced = "koff_group_topic_consumed_total", "koff_topic_messages_total"
    seen = []
    for offset, end in ((4, 10), (9, 12), (2, 12), (7, 5), (8, 8)):
        apply(tracker, commit("g", "t", 0, offset), commit("g", "t", 1, 1))
        tracker.add_samples(ends={("t", 0): end, ("t", 1): 1})
        served = text(take_view(tracker), exposition)
        assert text(take_view(tracker), exposition) == served  # another client changes nothing
        seen.append((values(served, consumed)['group="g",topic="t"'], values(served, produced)['topic="t"']))
    assert seen == [(0, 0), (5, 2), (5, 2), (10, 2), (11, 5)]


def test_a_counter_does_not_go_back_after_commits_of_the_largest_offsets():
    tracker, exposition = Tracker(), Exposition(EVERYTHING)
    most, name = (1 << 63) - 1, "koff_group_topic_consumed_total"
    seen = []
    for offset in (0, 5, most, 5, most, 0, 7, most, 1):
        apply(tracker, *(commit("g", "t", partition, offset) for partition in range(4)))
        seen.append(values(text(take_view(tracker), exposition), name)['group="g",topic="t"'])
        rates = values(text(take_view(tracker), exposition), "koff_group_topic_consumed_per_second")
        assert min(rates.values(), default=0) >= 0
    assert seen == [0, 20, 20, 20, 20, 20, 48, 48, 48]


def test_counters_go_on_when_groups_and_topics_come_and_go():
    tracker, exposition = Tracker(), Exposition(EVERYTHING)
    for offset in (0, 10):
        apply(tracker, commit("g", "t", 0, offset))
        tracker.add_samples(ends={("t", 0): offset})
        text(take_view(tracker), exposition)
    apply(tracker, commit("h", "u", 0, 50), commit("g", "t", 0, 11))
    tracker.add_samples(ends={("t", 0): 12, ("u", 0): 60})
    served = text(take_view(tracker), exposition)
    assert values(served, "koff_group_topic_consumed_total") == {
        'group="g",topic="t"': 11,
        'group="h",topic="u"': 0,
    }
    assert values(served, "koff_topic_messages_total") == {'topic="t"': 12, 'topic="u"': 0}


def test_a_counter_catches_up_after_it_was_absent():
    tracker, exposition = two_groups(), Exposition(EVERYTHING)
    text(take_view(tracker), exposition)
    apply(tracker, commit("g", "t", 0, 105, at=NOW_MS))
    tracker.add_samples(ends={("t", 0): 150}, at_ms=NOW_MS)
    hidden = withhold(tracker, {("g", "t", 0): Reason.COMMITS_NOT_CURRENT | Reason.END_NOT_CURRENT})
    served = text(hidden, exposition)
    assert 'group="g",topic="t"' not in values(served, "koff_group_topic_consumed_total")
    assert 'topic="t"' not in values(served, "koff_topic_messages_total")
    served = text(take_view(tracker), exposition)
    assert values(served, "koff_group_topic_consumed_total")['group="g",topic="t"'] == 5
    assert values(served, "koff_topic_messages_total")['topic="t"'] == 10


def test_commits_are_counted_as_they_are_made_but_not_in_the_history():
    tracker, exposition = Tracker(), Exposition(EVERYTHING)
    name, commits = "koff_group_commits_total", [commit("g", "t", p % 3, p) for p in range(100)]
    apply(tracker, *commits, is_live=False)
    assert values(text(take_view(tracker), exposition), name) == {}
    for count in (3, 100):  # few records are applied one by one
        apply(tracker, *commits[:count], seen_at_ms=NOW_MS)
    apply(tracker, commit("g", "t", 0, None), seen_at_ms=NOW_MS)
    assert values(text(take_view(tracker), exposition), name) == {'group="g"': 103}
    assert values(text(withhold(tracker, {}, stale_groups="g"), exposition), name) == {}

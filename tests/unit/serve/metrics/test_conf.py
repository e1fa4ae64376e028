"""Which series are served: families, granularity, and the limit."""

import re
from typing import Any

import pytest

from koff.errors import ConfigError
from koff.lag import Reason
from koff.serve.metrics.conf import MetricsConf
from koff.serve.metrics.exposition import Exposition
from koff.serve.metrics.families import FAMILIES
from koff.serve.metrics.own import SeriesCount
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterFacts, ClusterView, TopicFacts
from tests.unit.builders import apply, commit
from tests.unit.serve.views import NOW_MS, build_view, withhold


def fill_tracker() -> Tracker:
    """Groups a, b and c-test, each on two partitions of t and of u. Their lags differ."""
    tracker = Tracker()
    lags = {"a": (1, 2, 3, 4), "b": (50, 60, 70, 80), "c-test": (9, 9, 9, 900)}
    places = [("t", 0), ("t", 1), ("u", 0), ("u", 1)]
    for partition, (group, own) in enumerate(lags.items()):
        pairs = [commit(group, *place, 1000 - lag) for place, lag in zip(places, own, strict=True)]
        apply(tracker, *pairs, partition=partition)
    ends, starts = dict.fromkeys(places, 1000), dict.fromkeys(places, 5)
    tracker.add_samples(ends=ends, starts=starts, at_ms=NOW_MS)
    return tracker


def take_view(tracker: Tracker | None = None) -> ClusterView:
    view = build_view((tracker or fill_tracker()).take_snapshot(NOW_MS))
    topics = {"t": TopicFacts(2, 1), "u": TopicFacts(2, 1), "idle": TopicFacts(1, 1)}
    return ClusterView("c", view.snapshot, view.readiness, view.stats, ClusterFacts(1, topics))


def render(view: ClusterView | None = None, **conf: Any) -> tuple[set[str], Exposition]:
    """The series, and what rendered them."""
    exposition = Exposition(MetricsConf(**conf))
    text = b"".join(exposition.render_chunks(view or take_view())).decode()
    return {line for line in text.splitlines() if not line.startswith("#")}, exposition


def count(exposition: Exposition) -> SeriesCount:
    return exposition.count_series()["c"]


def left_out(exposition: Exposition) -> int:
    return count(exposition).left_out


def names(series: set[str]) -> set[str]:
    return {line.partition("{")[0] for line in series}


def select(series: set[str], family: str) -> set[str]:
    """The labels, without the cluster, and numbers of a family."""
    return {line.partition(",")[2] for line in series if line.startswith(family + "{")}


def test_by_default_the_default_families_are_served():
    served = names(render()[0])
    expected = {family.name for family in FAMILIES if family.default}
    assert served <= expected
    assert {"koff_group_lag", "koff_group_total_lag", "koff_rows_withheld"} <= served
    assert "koff_group_committed_offset" not in served


def test_families_are_chosen_by_name_and_added_to_the_default():
    one, _ = render(families=("koff_group_committed_offset",))
    assert names(one) == {"koff_group_committed_offset", "koff_rows_withheld", "koff_brokers"}
    more, _ = render(families=("default", "koff_group_committed_offset"))
    assert names(more) == names(render()[0]) | names(one)
    assert names(more) < names(render(families=("all",))[0])


def test_a_granularity_leaves_out_finer_families_and_totals_stay():
    everything, _ = render(families=("all",))
    for granularity, left_out in (("topic", ["partition="]), ("group", ["partition=", "topic="])):
        coarse, _ = render(families=("all",), granularity=granularity)
        assert coarse == {line for line in everything if not any(label in line for label in left_out)}


def test_a_limit_keeps_coarse_series_first_and_then_those_with_the_largest_lags():
    families = ("koff_group_total_lag", "koff_group_topic_lag", "koff_group_lag")
    served, exposition = render(families=families, max_series=3 + 2 + 1)
    assert len(select(served, "koff_group_total_lag")) == 3
    assert select(served, "koff_group_topic_lag") == {
        'group="c-test",topic="u"} 909',
        'group="b",topic="u"} 150',
        'group="b",topic="t"} 110',
    }
    assert select(served, "koff_group_lag") == set()
    served, exposition = render(families=families, max_series=3 + 6 + 2)
    assert select(served, "koff_group_lag") == {
        'group="c-test",topic="u",partition="1"} 900',
        'group="b",topic="u",partition="1"} 80',
    }
    assert left_out(exposition) == 10
    served, exposition = render(families=families, max_series=2)
    assert select(served, "koff_group_total_lag") == {'group="c-test"} 927', 'group="b"} 260'}
    assert left_out(exposition) == 1 + 6 + 12


@pytest.mark.parametrize("limit", [1, 10, 33, 60, 100, 1000])
def test_the_limit_is_never_passed_and_what_is_left_out_is_counted(limit: int):
    of_cluster = 3  # koff_rows_withheld, koff_brokers
    everything, _ = render(families=("all",))
    for view in (take_view(), withhold(fill_tracker_of_one_shard(), {("g", "t", 0): Reason.END_NOT_CURRENT})):
        whole, _ = render(view, families=("all",))
        served, exposition = render(view, families=("all",), max_series=limit)
        assert served <= whole
        assert len(served) - of_cluster <= limit
        assert count(exposition).series == len(served)
        assert count(exposition).series + left_out(exposition) == len(whole)
    assert len(everything) < 1000


def fill_tracker_of_one_shard() -> Tracker:
    tracker = Tracker()
    pairs = [commit("g", topic, partition, 5) for topic in "tu" for partition in range(5)]
    apply(tracker, *pairs)
    places = [(topic, partition) for topic in "tu" for partition in range(5)]
    tracker.add_samples(ends=dict.fromkeys(places, 9), starts=dict.fromkeys(places, 1), at_ms=NOW_MS)
    return tracker


def test_what_is_kept_follows_the_lags():
    tracker, exposition = (
        fill_tracker(),
        Exposition(MetricsConf(families=("koff_group_total_lag",), max_series=1)),
    )
    assert 'group="c-test"} 927\n' in b"".join(exposition.render_chunks(take_view(tracker))).decode()
    apply(tracker, commit("c-test", "u", 1, 1000), partition=2)
    served = b"".join(exposition.render_chunks(take_view(tracker))).decode()
    assert re.findall(r"koff_group_total_lag{.*", served) == [
        'koff_group_total_lag{cluster="c",group="b"} 260'
    ]


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        ({"families": ("koff_group_leg",)}, "koff_group_leg"),
        ({"granularity": "cluster"}, "granularity 'cluster'"),
        ({"max_series": 0}, "below 1"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(conf: dict[str, Any], why: str):
    with pytest.raises(ConfigError, match=why):
        MetricsConf(**conf)

"""Labels that are found in the names of groups."""

import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koff.serve.metrics.conf import MetricsConf
from koff.serve.metrics.exposition import Exposition
from koff.serve.metrics.labels import derive_labels
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView
from koff.view.owners import Owner, Owners
from tests.unit.builders import ASSIGNED_T_0_1, apply, classic_group, commit
from tests.unit.serve.views import take_view

TEAM, CONNECTOR = re.compile(r"^(?P<team>[^.]+)\."), re.compile("^connect-(?P<connector>.+)")
EMPTY = take_view(Tracker())
CONF = MetricsConf(families=("all",), compat=("kminion", "kafka_exporter"))


@pytest.mark.parametrize(
    ("group", "labels"),
    [
        ("billing.invoices", ',team="billing"'),
        ("connect-sink", ',connector="sink"'),
        ("connect-sink.x", ',team="connect-sink"'),
        ("other", ""),
        ('a"\\\n.x', ',team="a\\"\\\\\\n"'),
    ],
)
def test_the_first_pattern_that_is_found_gives_the_labels(group: str, labels: str):
    assert derive_labels(group, replace(EMPTY, group_labels=(TEAM, CONNECTOR))) == labels


def test_a_label_that_would_be_empty_is_absent():
    pattern = re.compile("^(?P<team>[a-z]*)(-(?P<stage>prod|test))?$")
    view = replace(EMPTY, group_labels=(pattern, TEAM))
    assert derive_labels("-prod", view) == ',stage="prod"'
    assert derive_labels("pay", view) == ',team="pay"'


def test_the_first_owner_that_fits_is_a_label_of_each_series_of_a_group():
    owners = Owners((Owner(re.compile(r"^pay\."), 'the "best"'), Owner(re.compile("a"), "second")))
    view = replace(take_labelled(fill_tracker(), TEAM), owners=owners)
    exposition = Exposition(CONF)
    text = b"".join(exposition.render_chunks(view)).decode()
    labels = 'group="pay.x",team="pay",owner="the \\"best\\""'
    assert f'koff_group_lag{{cluster="c",region="eu",{labels},topic="t",partition="0"}} 8\n' in text
    assert list_values(text, "owner") == {("pay.x", 'the "best"'), ("other", None)}
    without = b"".join(exposition.render_chunks(replace(view, owners=Owners()))).decode()
    assert list_values(without, "owner") == {("pay.x", None), ("other", None)}


def take_labelled(tracker: Tracker, *patterns: re.Pattern[str]) -> ClusterView:
    return replace(take_view(tracker), labels={"region": "eu"}, group_labels=patterns)


def fill_tracker() -> Tracker:
    tracker = Tracker()
    pairs = [classic_group(name, {"app": ASSIGNED_T_0_1}) for name in ("pay.x", "other")]
    pairs += [commit(name, "t", 0, 1) for name in ("pay.x", "other")]
    apply(tracker, *pairs, seen_at_ms=1)
    tracker.add_samples(ends={("t", 0): 9})
    return tracker


def list_teams(text: str) -> set[tuple[str, str | None]]:
    return list_values(text, "team")


def list_values(text: str, label: str) -> set[tuple[str, str | None]]:
    """The pairs of group and label of all series with a group; "none" for a label of other series."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    names = ("group", "group_id", "consumergroup")
    return {
        (sample.labels[name], sample.labels.get(label))
        for sample in samples
        for name in names
        if name in sample.labels
    } | {
        ("none", sample.labels[label])
        for sample in samples
        if not set(names) & sample.labels.keys() and label in sample.labels
    }


def test_all_series_of_a_group_have_the_label_and_no_others():
    text = b"".join(Exposition(CONF).render_chunks(take_labelled(fill_tracker(), TEAM))).decode()
    assert list_teams(text) == {("pay.x", "pay"), ("other", None)}
    assert 'koff_group_state{cluster="c",region="eu",group="pay.x",team="pay",state="Stable"} 1\n' in text
    assert 'topic_lag{cluster="c",region="eu",group_id="pay.x",team="pay",topic_name="t"} 8\n' in text


def test_labels_follow_new_patterns_and_new_groups():
    tracker, exposition = fill_tracker(), Exposition(CONF)
    b"".join(exposition.render_chunks(take_labelled(tracker))).decode()
    text = b"".join(exposition.render_chunks(take_labelled(tracker, TEAM))).decode()
    assert list_teams(text) == {("pay.x", "pay"), ("other", None)}
    apply(tracker, commit("new.y", "t", 0, 1))
    text = b"".join(exposition.render_chunks(take_labelled(tracker, TEAM))).decode()
    assert ("new.y", "new") in list_teams(text)
    assert list_teams(b"".join(exposition.render_chunks(take_labelled(tracker))).decode()) == {
        ("pay.x", None),
        ("other", None),
        ("new.y", None),
    }

"""The families of kminion and kafka_exporter: koff's numbers under their names and labels."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from koff.config.label_names import OWN_LABELS
from koff.errors import ConfigError
from koff.lag import Reason
from koff.serve.accepted import OPENMETRICS, PROMETHEUS_TEXT, Format
from koff.serve.metrics.compat import COMPAT_FAMILIES
from koff.serve.metrics.conf import MetricsConf
from koff.serve.metrics.exposition import Exposition
from koff.serve.rendering import Renderer
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterFacts, ClusterView, TopicFacts
from tests.group_records import TOPIC_ID
from tests.unit.builders import ASSIGNED_T_0_1, NOTHING_ASSIGNED, apply, classic_group, commit, consumer_group
from tests.unit.records.decoding import GOLDEN
from tests.unit.serve.metrics.served import values
from tests.unit.serve.metrics.test_families import needs_promtool
from tests.unit.serve.views import NOW_MS, Row, Source, take_view, withhold

BOTH = ("kminion", "kafka_exporter")
NAMES = {family.name for exporter in BOTH for family in COMPAT_FAMILIES[exporter]}

EXPECTED = (GOLDEN / "compat_metrics.prom").read_text()
"""Of topic u, koff samples one of two partitions, so that there is no sum. Its log start is not known."""


def fill_tracker() -> Tracker:
    tracker = Tracker()
    pairs = [
        classic_group("g", {"app": ASSIGNED_T_0_1, "idle": NOTHING_ASSIGNED}),
        commit("g", "t", 0, 4),
        commit("g", "t", 1, 6),
        commit("h", "u", 0, 2),
    ]
    apply(tracker, *pairs, seen_at_ms=NOW_MS)
    ends = {("t", 0): 10, ("t", 1): 5, ("u", 0): 7}
    tracker.add_samples(ends=ends, starts={("t", 0): 1, ("t", 1): 2}, at_ms=NOW_MS)
    return tracker


SIZES = {1: {"t": 10, "u": 1}, 2: {"t": 20}, 5: {"t": 30, "hidden": 7}}
FACTS = ClusterFacts(3, {"t": TopicFacts(2, 3), "u": TopicFacts(2, 1)}, (5,), SIZES)


def view(rows: Mapping[Row, Reason] | None = None, stale_groups: str = "") -> ClusterView:
    return replace(withhold(fill_tracker(), rows or {}, stale_groups), facts=FACTS)


def render(shown: ClusterView | None = None, **conf: Any) -> str:
    """The families of both exporters."""
    conf = {"families": (), "compat": BOTH, **conf}
    text = b"".join(Exposition(MetricsConf(**conf)).render_chunks(shown or view())).decode()
    return text[text.index("# HELP kminion_") :] if "kminion_" in text else ""


def test_every_family_as_it_is_served():
    assert re.sub("# HELP .*\n", "", render()) == EXPECTED


def test_without_the_setting_there_is_no_such_family():
    text = b"".join(Exposition(MetricsConf(families=("all",))).render_chunks(view())).decode()
    assert not re.search("^(kminion|kafka)_", text, re.MULTILINE)
    assert "kafka_" not in render(compat=("kminion",)).replace("kminion_kafka_", "")


def test_an_exporter_that_koff_does_not_know_is_refused():
    with pytest.raises(ConfigError, match="compat 'burrow' is not one of kminion, kafka_exporter"):
        MetricsConf(compat=("burrow",))


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("kminion_kafka_consumer_group_topic_partition_lag", 2),
        ("kafka_consumergroup_lag", 2),
        ("kminion_kafka_consumer_group_topic_lag", 1),
        ("kafka_consumergroup_lag_sum", 1),
        ("kminion_kafka_topic_partition_high_water_mark", 2),
        ("kminion_kafka_topic_partition_low_water_mark", 1),
        ("kminion_kafka_topic_low_water_mark_sum", 0),
        ("kminion_kafka_topic_high_water_mark_sum", 0),
        ("kafka_topic_partition_current_offset", 2),
        ("kafka_topic_partition_oldest_offset", 1),
    ],
)
def test_what_depends_on_an_end_offset_that_is_not_current_is_absent(name: str, left: int):
    assert len(values(render(view({("g", "t", 0): Reason.END_NOT_CURRENT})), name)) == left


def test_what_depends_on_a_commit_that_is_not_current_is_absent():
    text = render(view({("g", "t", 0): Reason.COMMITS_NOT_CURRENT}))
    assert len(values(text, "kafka_consumergroup_current_offset")) == 2
    for name in ("kafka_consumergroup_current_offset_sum", "kminion_kafka_consumer_group_topic_offset_sum"):
        assert list(values(text, name).values()) == [2]


def test_of_a_group_that_is_not_current_nothing_is_served():
    text = render(view(stale_groups="g"))
    served = {line for line in text.splitlines() if re.search('(group|group_id)="g"', line)}
    names = {line.partition("{")[0] for line in served}
    # Rows are withheld one by one; here none of them is.
    assert names == {"kafka_consumergroup_lag", "kminion_kafka_consumer_group_topic_partition_lag"}


def test_the_size_of_a_topic_is_absent_if_that_of_a_broker_is_missing():
    facts = replace(FACTS, log_sizes={1: SIZES[1], 2: SIZES[2]})
    text = render(replace(view(), facts=facts))
    assert values(text, "kminion_kafka_topic_log_dir_size_total_bytes") == {}
    assert len(values(text, "kminion_kafka_broker_log_dir_size_total_bytes")) == 2


def test_partitions_of_groups_with_topic_ids_are_counted():
    tracker = Tracker()
    tracker.identify_topics({"named": TOPIC_ID})
    members = {"a": (5, 0), "b": (5, 0)}
    pairs = [*consumer_group("g", epoch=5, assignment_epoch=5, members=members), commit("g", "named", 3, 1)]
    apply(tracker, *pairs)
    text = render(take_view(tracker))
    for name in ("members", "assigned_partitions"):
        served = values(text, f"kminion_kafka_consumer_group_topic_{name}")
        assert served == {'group_id="g",topic_name="named"': 2}


def test_names_are_escaped_and_static_labels_are_there():
    tracker = Tracker()
    apply(tracker, commit('a"\\\n', 't"', 0, 1))
    tracker.add_samples(ends={('t"', 0): 3})
    text = render(replace(take_view(tracker), labels={"region": "eu"}))
    labels = 'consumergroup="a\\"\\\\\\n",topic="t\\"",partition="0"'
    assert f'kafka_consumergroup_lag{{cluster="c",region="eu",{labels}}} 2\n' in text


def test_labels_follow_new_groups_and_another_name_of_the_cluster():
    tracker, exposition = fill_tracker(), Exposition(MetricsConf(families=(), compat=BOTH))
    b"".join(exposition.render_chunks(take_view(tracker))).decode()
    apply(tracker, commit("new", "v", 0, 1))
    tracker.add_samples(ends={("v", 0): 3})
    shown = replace(take_view(tracker), facts=ClusterFacts(1, {"v": TopicFacts(1, 1)}))
    text = b"".join(exposition.render_chunks(shown)).decode()
    assert 'kafka_consumergroup_lag{cluster="c",consumergroup="new",topic="v",partition="0"} 2\n' in text
    assert 'kminion_kafka_topic_high_water_mark_sum{cluster="c",topic_name="v"} 3\n' in text
    assert 'kafka_topic_partitions{cluster="c",topic="v"} 1\n' in text
    text = b"".join(exposition.render_chunks(replace(shown, labels={"x": "y"}))).decode()
    assert 'cluster="c",x="y",consumergroup="new"' in text
    assert 'cluster="c",consumergroup' not in text


def test_a_granularity_leaves_out_finer_families():
    everything = render().splitlines()
    for granularity, left_out in (
        ("topic", ["partition", "partition_id"]),
        ("group", ["topic", "topic_name"]),
    ):
        served = render(granularity=granularity).splitlines()
        lines = {line for line in everything if not any(f'{label}="' in line for label in left_out)}
        assert {line for line in served if line[0] != "#"} == {line for line in lines if line[0] != "#"}


@pytest.mark.parametrize("limit", [1, 7, 20, 45, 200])
def test_the_limit_is_never_passed_and_what_is_left_out_is_counted(limit: int):
    whole = [line for line in render().splitlines() if line[0] != "#"]
    exposition = Exposition(MetricsConf(families=(), compat=BOTH, max_series=limit))
    text = b"".join(exposition.render_chunks(view())).decode()
    served = [line for line in text.splitlines() if line[0] != "#" and not line.startswith("koff_")]
    of_cluster = 2 + len(SIZES)  # kafka_brokers, kminion_kafka_cluster_info, the sizes of brokers
    count = exposition.count_series()["c"]
    assert set(served) <= set(whole)
    assert len(served) - of_cluster <= limit
    assert len(served) + count.left_out == len(whole)
    assert (count.left_out == 0) == (limit == 200)


def test_a_sum_that_does_not_fit_is_absent():
    tracker, largest = fill_tracker(), 2**63 - 1
    pairs = [commit("g", "t", 0, largest), commit("g", "t", 1, largest)]
    apply(tracker, *pairs, seen_at_ms=NOW_MS)
    tracker.add_samples(ends={("t", 0): largest, ("t", 1): largest}, at_ms=NOW_MS)
    text = render(replace(take_view(tracker), facts=FACTS))
    assert (
        'kminion_kafka_consumer_group_topic_offset_sum{cluster="c",group_id="h",topic_name="u"} 2\n' in text
    )
    assert "} -" not in text
    for name in ("consumer_group_topic_offset_sum", "topic_high_water_mark_sum"):
        assert not re.search(rf'^kminion_kafka_{name}{{.*topic_name="t"', text, re.MULTILINE)
    assert not re.search(r'^kafka_consumergroup_current_offset_sum{.*"g"', text, re.MULTILINE)


def test_no_label_of_a_cluster_may_be_one_of_theirs():
    labels = {label for line in EXPECTED.splitlines() for label in re.findall(r'[{,]([a-z_]+)="', line)}
    assert labels <= OWN_LABELS


def render_body(form: Format) -> bytes:
    conf = MetricsConf(families=("all",), compat=BOTH)
    return b"".join(Renderer(Source(view()), conf).render(form).inflate())


@needs_promtool
def test_promtool_finds_no_fault_but_names_that_end_in_sum():
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=render_body(PROMETHEUS_TEXT).decode(),
        capture_output=True,
        text=True,
        check=False,
    )
    faults = {line.partition(" ")[0] for line in (checked.stdout + checked.stderr).splitlines()}
    assert faults <= {name for name in NAMES if name.endswith("_sum")}


def test_a_parser_of_openmetrics_finds_no_fault():
    families = {family.name: family.type for family in parse_openmetrics(render_body(OPENMETRICS).decode())}
    assert {name.removesuffix("_total") for name in NAMES} <= families.keys()
    assert families["kminion_kafka_consumer_group_offset_commits"] == "counter"

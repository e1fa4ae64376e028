"""The families: the data, docs/metrics.md, what is served, and Prometheus' rules agree."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from koff.serve.accepted import OPENMETRICS, PROMETHEUS_TEXT, Format
from koff.serve.metrics.families import BY_NAME, FAMILIES
from koff.serve.rendering import Renderer
from koff.tracker import Objective, Tracker
from koff.view.cluster_view import (
    ClusterFacts,
    ClusterView,
    LastReload,
    MonitorStats,
    PipelineStats,
    StoredTable,
    TopicFacts,
)
from tests.unit.builders import ASSIGNED_T_0_1, apply, classic_group, commit, note_records
from tests.unit.serve.metrics.metrics_page import BLOCK, PAGE, SIZES
from tests.unit.serve.views import EVERYTHING, NOW_MS, READY, Source, judge

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
)


def test_each_family_is_declared_once_and_has_a_text():
    assert len(BY_NAME) == len(FAMILIES) > 60
    assert [family.name for family in FAMILIES if not family.text or "\n" in family.text] == []


def test_the_page_has_each_table_once():
    page = PAGE.read_text()
    assert [found[2] for found in BLOCK.finditer(page)] == ["partition", "topic", "group", "cluster"]
    assert len(SIZES.findall(page)) == 1


def test_the_page_names_no_family_that_there_is_not():
    named = set(re.findall(r"koff_[a-z_]+[a-z]", PAGE.read_text()))
    assert named <= BY_NAME.keys()


def test_a_query_is_about_its_family():
    assert [family.name for family in FAMILIES if family.name not in family.query] == []


def render_everything(form: Format) -> bytes:
    """A body with a series of every family."""
    tracker = Tracker()
    pairs = [classic_group("g", {"app": ASSIGNED_T_0_1}), commit("g", "u", 0, -1)]
    for offset, at_ms in ((1, NOW_MS - 10_000), (4, NOW_MS)):
        pairs += [commit("g", "t", partition, offset, at=at_ms) for partition in (0, 1)]
        pairs.append(commit("rewound", "t", 0, 10 - offset, at=at_ms))
    apply(tracker, *pairs, seen_at_ms=NOW_MS)
    places = [("t", 0), ("t", 1)]
    for end, at_ms in ((6, NOW_MS - 10_000), (10, NOW_MS)):
        tracker.add_samples(ends=dict.fromkeys(places, end), starts=dict.fromkeys(places, 1), at_ms=at_ms)
    note_records(tracker, NOW_MS, NOW_MS - 300_000)
    stats = MonitorStats(
        records={"OffsetCommit": 7},
        skipped={"record: ValueError": 2},
        behind=3,
        held_back_partitions=frozenset({0}),
        input_ages_s={"end_offsets": 7.5},
        requests={"offsets": 10},
        pipeline=PipelineStats(running=True, last_batch_s=NOW_MS / 1000, last_batch_took_s=2.5),
    )
    facts = ClusterFacts(3, {"t": TopicFacts(2, 1)}, (1,), {1: {"t": 5}})
    snapshot = tracker.take_snapshot(NOW_MS)
    objectives = (Objective(re.compile("^rewound$"), 40.0),)
    view = ClusterView(
        "c",
        snapshot,
        READY,
        stats,
        facts,
        labels={"shard": "0/2"},
        objectives=objectives,
        expected_groups={"g": True},
    )
    source = Source(judge(view))
    source.tables = {"lag": StoredTable(3, 1_000)}
    source.reload = LastReload(successful=True, success_s=1_000.0)
    return b"".join(Renderer(source, EVERYTHING).render(form).inflate())


@needs_promtool
def test_promtool_finds_no_fault_in_names_types_and_units():
    body = render_everything(PROMETHEUS_TEXT)
    missing = [family.name for family in FAMILIES if not re.search(rf"\n{family.name}[{{ ]".encode(), body)]
    assert missing == []
    checked = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr.decode()) == (0, "")


def test_a_parser_of_openmetrics_finds_no_fault():
    families = parse_openmetrics(render_everything(OPENMETRICS).decode())
    types = {family.name: family.type for family in families}
    assert {name: kind for name, kind in types.items() if name.startswith("koff_")} == {
        family.name.removesuffix("_total"): family.kind for family in FAMILIES
    }


@needs_promtool
def test_promtool_can_parse_the_examples(tmp_path: Path):
    rules = [
        {"record": "koff:example", "expr": family.query, "labels": {"f": family.name}} for family in FAMILIES
    ]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "examples", "rules": rules}]}))  # JSON is YAML, too
    checked = subprocess.run(
        ["promtool", "check", "rules", path], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(FAMILIES)} rules found" in checked.stdout


def test_counters_and_units_have_their_suffix():
    for family in FAMILIES:
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        for unit, suffix in (
            ("seconds", "_seconds"),
            ("ratio", "_ratio"),
            ("offsets per second", "_per_second"),
        ):
            assert (family.unit == unit) == family.name.endswith(suffix), family.name

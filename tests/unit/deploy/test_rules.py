"""The Prometheus rules of deploy/: each alert fires, resolves, and does not resolve because koff is blind."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from koff.serve.metrics.families import BY_NAME

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "koff-rules.yml"
REPLICAS = ("a", "b")
CLUSTER = {"cluster": "c"}
GROUP = {**CLUSTER, "group": "g", "team": "t"}
COUNTED = ("status", "reason", "input")
"""The labels that alerts sum over."""

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
)


@dataclass(frozen=True)
class Case:
    """A series that both replicas serve, and at which minutes the alert fires or does not.

    `values` has a sample for each minute; `_` is a minute without: koff is blind, or there is nothing.
    """

    alert: str
    metric: str
    labels: dict[str, str]
    values: str
    fires: dict[int, bool]


def group_case(alert: str, metric: str, values: str, fires: dict[int, bool]) -> Case:
    return Case(alert, metric, GROUP, values, fires)


def cluster_case(alert: str, metric: str, values: str, fires: dict[int, bool], **labels: str) -> Case:
    return Case(alert, metric, CLUSTER | labels, values, fires)


def status_case(alert: str, status: str, values: str, fires: dict[int, bool]) -> Case:
    return Case(alert, "koff_group_status", GROUP | {"status": status}, values, fires)


LOST = "koff_group_lost_records"
MARGIN, REBALANCES = "koff_group_retention_margin_ratio", "koff_group_rebalances_total"
HELD_BACK, UNDECODABLE = "koff_reader_held_back_seconds", "koff_reader_undecodable_total"
LAST_BATCH, STREAM_UP = "koff_pipeline_last_batch_timestamp_seconds", "koff_pipeline_stream_up"
WITHHELD, EXPECTED = "koff_rows_withheld", "koff_expected_group_present"
CASES = [
    status_case("KoffGroupFailing", "ERR", "_x3 1x10 _x60", {3: False, 6: True, 16: True, 30: False}),
    status_case("KoffGroupFailing", "WARN", "1x20", {20: False}),
    status_case("KoffGroupLate", "WARN", "_x3 1x20 _x60", {10: False, 20: True, 26: True, 40: False}),
    status_case("KoffGroupLate", "ERR", "1x30", {30: False}),
    group_case("KoffRecordsLost", LOST, "0x5 7x5 _x40", {4: False, 8: True, 22: True, 50: False}),
    group_case("KoffRecordsLost", LOST, "0x5 7x40", {8: True, 50: False}),
    group_case("KoffRecordsLost", LOST, "9x30", {20: False}),  # lost before, and no more are
    group_case("KoffGroupNearRetention", MARGIN, "0.9x3 0.1x20 0.9x40", {10: False, 20: True, 60: False}),
    group_case("KoffGroupNearRetention", MARGIN, "0.1x20 _x40", {18: True, 34: True, 50: False}),
    group_case("KoffGroupNearRetention", MARGIN, "0.3x30", {30: False}),
    group_case("KoffGroupRebalancesOften", REBALANCES, "0x5 0+1x20 20x60", {6: False, 24: True, 60: False}),
    group_case("KoffGroupRebalancesOften", REBALANCES, "0+1x20 _x40", {20: True, 30: True, 50: False}),
    group_case("KoffGroupRebalancesOften", REBALANCES, "0 1x30", {20: False}),  # a single one
    group_case("KoffExpectedGroupAbsent", EXPECTED, "1x3 0x20 1x60", {6: False, 12: True, 50: False}),
    group_case("KoffExpectedGroupAbsent", EXPECTED, "0x10 _x60", {8: True, 22: True, 40: False}),
    group_case("KoffExpectedGroupAbsent", EXPECTED, "1x20", {20: False}),
    cluster_case("KoffNotReady", "koff_up", "1x3 0x10 1x10", {5: False, 12: True, 16: False}),
    cluster_case("KoffNotReady", "koff_up", "1x20", {20: False}),
    # The metrics of this cluster are gone, also if koff died young. After a day, this is on purpose.
    cluster_case("KoffAbsent", "koff_up", "1x70 _x1500", {70: False, 90: True, 1400: True, 1520: False}),
    cluster_case("KoffAbsent", "koff_up", "1x5 _x30", {8: False, 20: True}),
    cluster_case("KoffAbsent", "koff_up", "0x20", {20: False}),  # that is KoffNotReady
    cluster_case("KoffLagsWithheld", WITHHELD, "0x3 5x20 0x10", {10: False, 18: True, 26: False}, reason="r"),
    cluster_case("KoffLagsWithheld", WITHHELD, "0x5 3x5 0x30", {12: False, 20: False}, reason="r"),
    *(
        cluster_case("KoffBehind", "koff_input_age_seconds", values, fires, input="commits")
        for values, fires in (("1x3 99x20 1x10", {5: False, 12: True, 26: False}), ("30x30", {20: False}))
    ),
    cluster_case("KoffBehind", "koff_input_age_seconds", "99x30", {20: False}, input="topics"),
    cluster_case("KoffHeldBack", HELD_BACK, "0 60+60x10 0x10", {4: False, 8: True, 13: False}),
    cluster_case("KoffHeldBack", HELD_BACK, "20x30", {20: False}),
    # A shard that is down raises an alert, though the other one is healthy (the series of `build_test`).
    cluster_case("KoffAbsent", "koff_up", "1x10 _x30", {10: False, 25: True}, shard="0/2"),
    cluster_case("KoffNotReady", "koff_up", "1x3 0x10 1x10", {5: False, 12: True, 16: False}, shard="0/2"),
    cluster_case("KoffLagsWithheld", WITHHELD, "0x3 5x20", {10: False, 18: True}, reason="r", shard="0/2"),
    cluster_case("KoffHeldBack", HELD_BACK, "0 60+60x10 0x10", {4: False, 8: True, 13: False}, shard="0/2"),
    cluster_case("KoffUndecodable", UNDECODABLE, "0x5 2x90", {4: False, 10: True, 80: False}),
    # At minute n, the time is 60 n seconds: a batch each minute, then none, then one again.
    cluster_case("KoffPipelineLate", LAST_BATCH, "0+60x5 300x25 1860x9", {8: False, 25: True, 36: False}),
    cluster_case(
        "KoffPipelineStreamDown", "koff_pipeline_stream_up", "1x3 0x30 1x9", {8: False, 20: True, 40: False}
    ),
    cluster_case("KoffUndecodable", UNDECODABLE, "2x90", {80: False}),  # from before Prometheus saw koff
]


def read_rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in read_rules() if "alert" in rule}


def format_series(name: str, labels: dict[str, str]) -> str:
    pairs = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{pairs}}}"


def build_test(case: Case) -> dict[str, Any]:
    """promtool's test of a case. Two replicas give one alert."""
    firing = {"alertname": case.alert, "alertstate": "firing"}
    kept = {name: value for name, value in case.labels.items() if name not in COUNTED}
    alert = format_series("ALERTS", firing | kept | ALERTS[case.alert]["labels"])
    # Metrics of another cluster, for which `absent` is false, and those of the healthy other shard.
    others = [{"series": 'koff_up{cluster="other"}', "values": "1x2000"}]
    if "shard" in case.labels:
        healthy = case.labels | {"shard": "1/2", "instance": "c"}
        value = 1 if case.metric == "koff_up" else 0
        others.append({"series": format_series(case.metric, healthy), "values": f"{value}x200"})
    return {
        "name": f"{case.alert} with {case.metric} {case.values}",
        "interval": "1m",
        "input_series": [
            {"series": format_series(case.metric, case.labels | {"instance": name}), "values": case.values}
            for name in REPLICAS
        ]
        + others,
        "promql_expr_test": [
            {
                "expr": format_series("ALERTS", firing | {"alertname": case.alert}),
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": alert, "value": 1}] if fires else [],
            }
            for minute, fires in case.fires.items()
        ],
    }


def run_promtool(*args: str | Path) -> None:
    ended = subprocess.run(["promtool", *args], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    run_promtool("check", "rules", RULES)


@needs_promtool
def test_each_alert_fires_and_resolves_and_not_because_koff_is_blind(tmp_path: Path) -> None:
    path = tmp_path / "tests.yml"
    tests = [build_test(case) for case in CASES]
    # No koff at all: an alert that names no cluster.
    absent = 'ALERTS{alertname="KoffAbsent",alertstate="firing",severity="critical"}'
    expected = {
        "expr": 'ALERTS{alertstate="firing"}',
        "eval_time": "10m",
        "exp_samples": [{"labels": absent, "value": 1}],
    }
    tests.append({"interval": "1m", "promql_expr_test": [expected]})
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    run_promtool("test", "rules", path)


@needs_promtool
def test_two_replicas_that_see_the_same_group_count_once(tmp_path: Path) -> None:
    series = [
        {"series": format_series("koff_group_topic_consumed_total", labels), "values": "0+600x20"}
        for topic in ("t", "u")
        for labels in [GROUP | {"topic": topic, "instance": name} for name in REPLICAS]
    ]
    rate = {"labels": format_series("cluster_group:koff_consumed:rate5m", GROUP), "value": 20}
    expected = {"expr": "cluster_group:koff_consumed:rate5m", "eval_time": "10m", "exp_samples": [rate]}
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [expected]}
    path = tmp_path / "tests.yml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]})
    )
    run_promtool("test", "rules", path)


def test_each_alert_is_tested_firing_and_silent_and_those_of_groups_blind() -> None:
    for alert, rule in ALERTS.items():
        cases = [case for case in CASES if case.alert == alert]
        assert {fires for case in cases for fires in case.fires.values()} == {True, False}, alert
        if "keep_firing_for" in rule:
            assert any("_" in case.values for case in cases), alert


def test_rules_use_default_metrics_and_alerts_have_a_runbook() -> None:
    for rule in read_rules():
        named = {BY_NAME[name] for name in re.findall(r"(?<!:)\bkoff_[a-z_]+", rule["expr"])}
        assert named
        assert [family.name for family in named if not family.default] == []
    for alert, rule in ALERTS.items():
        assert rule["annotations"]["summary"]
        page = ROOT / rule["annotations"]["runbook"]
        assert page.stem == alert
        assert page.read_text().startswith(f"# {alert}\n")

"""What the chart makes for Prometheus, Grafana and their operators."""

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.unit.deploy.chart import needs_helm, render_objects
from tests.unit.deploy.test_chart import VALUES
from tests.unit.deploy.test_manifests import ROOT
from tests.unit.deploy.test_rules import RULES, run_promtool


@needs_helm
def test_monitors_in_another_namespace_find_the_pods_in_that_of_the_release(tmp_path: Path):
    objects = render_objects(VALUES["all that others look at"], tmp_path)
    for kind in ("ServiceMonitor", "PodMonitor", "VMServiceScrape"):
        assert objects[kind]["metadata"]["namespace"] == "monitoring"
        assert objects[kind]["spec"]["namespaceSelector"] == {"matchNames": ["n"]}


@needs_helm
def test_dashboards_are_those_of_the_repository(tmp_path: Path):
    objects = render_objects(VALUES["all that others look at"], tmp_path)
    files = {path.name: path.read_text() for path in (ROOT / "grafana").glob("*.json")}
    assert objects["ConfigMap k-koff-dashboards"]["data"] == files
    assert objects["ConfigMap k-koff-dashboards"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    operators = [document for kind, document in objects.items() if kind.startswith("GrafanaDashboard")]
    assert sorted(each["spec"]["json"] for each in operators) == sorted(files.values())


@needs_helm
def test_the_rules_have_the_values_and_the_changes_of_single_alerts(tmp_path: Path):
    def read(values: dict[str, Any]) -> list[dict[str, Any]]:
        given = {"prometheusRule": {"enabled": True, **values}}
        groups = render_objects(given, tmp_path)["PrometheusRule"]["spec"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    assert read({}) == [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
    changed = read(
        {
            "runbookUrl": "https://wiki/koff",
            "keepLabels": [],
            "objectiveRatio": 0.999,
            "extraLabels": {"team": "kafka"},
            "alerts": {
                "KoffGroupLate": {"for": "30m", "severity": "critical", "labels": {"team": "billing"}},
                "KoffRecordsLost": {"enabled": False},
            },
        }
    )
    alerts = {rule["alert"]: rule for rule in changed if "alert" in rule}
    late = alerts["KoffGroupLate"]
    assert (late["for"], late["labels"]) == ("30m", {"severity": "critical", "team": "billing"})
    assert {rule["annotations"]["runbook_url"] for rule in alerts.values()} == {
        f"https://wiki/koff#{name.lower()}" for name in alerts
    }
    assert "KoffRecordsLost" not in alerts
    assert alerts["KoffAbsent"]["labels"] == {"severity": "critical", "team": "kafka"}
    assert "(1 - 0.999)" in alerts["KoffObjectiveMissed"]["expr"]
    # Without labels to be kept, the rules are right, too.
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "koff", "rules": changed}]}))
    if shutil.which("promtool"):
        run_promtool("check", "rules", file)

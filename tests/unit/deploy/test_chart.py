"""The Helm chart in deploy/helm: what it makes of values, and which values it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from koff.version import VERSION
from tests.unit.deploy.test_manifests import KUBERNETES, ROOT, check, check_config, check_koff, find_koffs
from tests.unit.deploy.test_rules import RULES

CHART = ROOT / "deploy" / "helm" / "koff"

HELM = shutil.which("helm") or shutil.which("helm", path=str(Path.home() / "go" / "bin"))
needs_helm = pytest.mark.skipif(HELM is None, reason="needs helm: go install helm.sh/helm/v3/cmd/helm@latest")

VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "two replicas": {"replicas": 2, "networkPolicy": {"enabled": True}},
    "shards with state": {"shards": 3, "state": {"enabled": True, "size": "2Gi", "storageClassName": "fast"}},
    "the Prometheus operator": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "p"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "p"}},
    },
    "TLS and users": {
        "existingSecret": "koff",
        "webConfig": {"key": "web.yml", "tls": True},
        "serviceMonitor": {"enabled": True, "tlsConfig": {"insecureSkipVerify": True}},
    },
    "everything that a pod may have": {
        "image": {"repository": "registry.example/koff", "tag": "1", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "env": [
            {"name": "KOFF_PROPERTY_SASL_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "k", "key": "p"}}}
        ],
        "extraArgs": ["--families", "all"],
        "serviceAccount": {"annotations": {"role": "r"}},
        "podAnnotations": {"a": "1"},
        "podLabels": {"l": "1"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "priorityClassName": "high",
        "service": {"annotations": {"s": "1"}},
        "podDisruptionBudget": {"enabled": False},
    },
}


def render(values: dict[str, Any], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    given = tmp_path / "values.yaml"
    given.write_text(yaml.safe_dump(values))
    command = [str(HELM), "template", "k", str(CHART), "--kube-version", "1.33.0", "--values", str(given)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_helm
def test_helm_finds_no_fault_in_the_chart() -> None:
    linted = subprocess.run(
        [str(HELM), "lint", "--strict", CHART], capture_output=True, text=True, check=False
    )
    assert linted.returncode == 0, linted.stdout


@needs_helm
@pytest.mark.parametrize("name", VALUES)
def test_the_chart_makes_objects_that_run_koff(name: str, tmp_path: Path) -> None:
    rendered = render(VALUES[name], tmp_path)
    assert rendered.returncode == 0, rendered.stderr
    documents = [document for document in yaml.safe_load_all(rendered.stdout) if document]
    for document in documents:
        for kubernetes in KUBERNETES:
            check(document, kubernetes)
        if document["kind"] == "ConfigMap":
            check_config(document, tmp_path)
    (container,) = [container for document in documents for container in find_koffs(document)]
    check_koff(container)
    # Services, budgets and monitors find the pods.
    (workload,) = [d for d in documents if d["kind"] in ("Deployment", "StatefulSet")]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    for document in documents:
        selector = (
            document.get("spec", {}).get("selector") or document.get("spec", {}).get("podSelector") or {}
        )
        assert selector.get("matchLabels", selector).items() <= labels.items(), document["kind"]


@needs_helm
@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"replicas": 2, "shards": 2}, "replicas cannot be combined"),
        ({"replicas": 2, "state": {"enabled": True}}, "replicas cannot be combined"),
        ({"shards": 2, "config": {"clusters": [{"name": n, "brokers": "k:1"} for n in "ab"]}}, "several"),
        ({"webConfig": {"key": "web.yml"}}, "set existingSecret"),
        ({"shards": 0}, "shards"),
        ({"replica": 2}, "replica"),
        ({"config": {"listen": ":1", "clusters": [{"name": "a", "brokers": "k:1"}]}}, "config"),
    ],
)
def test_the_chart_refuses_values_that_cannot_work(values: dict[str, Any], why: str, tmp_path: Path) -> None:
    rendered = render(values, tmp_path)
    assert rendered.returncode != 0
    assert why in rendered.stderr


def test_the_chart_has_the_version_and_the_rules_of_koff() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert (CHART / "files" / "koff-rules.yml").read_text() == RULES.read_text(), (
        "copy deploy/prometheus there"
    )


def test_each_value_of_the_chart_is_in_its_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert values.keys() | {"global"} == schema["properties"].keys()
    jsonschema.validate(values, schema)

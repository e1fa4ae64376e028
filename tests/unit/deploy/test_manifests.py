"""The objects for Kubernetes in deploy/: schemas, and what they say about koff."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from koff.cli.monitor import monitor
from koff.config.koff_yaml import read_koff_yaml
from koff.version import VERSION
from tests.unit.deploy.test_rules import RULES

ROOT = Path(__file__).parents[3]
PLAIN = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
CHART = ROOT / "deploy" / "helm" / "koff"
KUBERNETES = ("1.28", "1.33", "1.36")
CRDS = ROOT / "tests" / "crds"
SERVED = {"/healthz", "/readyz"}

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


@functools.cache
def read_custom_schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """The schemas of custom resources, by API version and kind."""
    schemas = {}
    for path in CRDS.glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = _close(version["schema"]["openAPIV3Schema"])
            schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return schemas


def _close(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, which refuses fields that it does not name: an API server drops them silently."""
    closed = {
        name: {key: _close(value) for key, value in part.items()} if name == "properties" else part
        for name, part in schema.items()
    }
    for name in ("items", "additionalProperties"):
        if isinstance(closed.get(name), dict):
            closed[name] = _close(closed[name])
    # An empty object stands for anything, such as `metadata`.
    is_open = "additionalProperties" in closed or closed.get("x-kubernetes-preserve-unknown-fields")
    if closed.get("properties") and not is_open:
        closed["additionalProperties"] = False
    return closed


def check(document: dict[str, Any], kubernetes: str) -> None:
    key = document["apiVersion"], document["kind"]
    if key in read_custom_schemas():
        # The schemas themselves are not checked: their patterns are those of Go.
        jsonschema.Draft202012Validator(read_custom_schemas()[key]).validate(document)
    else:
        kubernetes_validate.validate(document, kubernetes, strict=True)


def find_koffs(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The containers of an object that run koff."""
    pod = (
        document.get("spec", {}).get("template", {}).get("spec", {})
        if document["kind"] != "ScaledObject"
        else {}
    )
    yield from (container for container in pod.get("containers", []) if container["name"] == "koff")


def check_koff(container: dict[str, Any]) -> None:
    """Checks the arguments, the probes and what the container may do."""
    command, *args = container["args"]
    assert command == "monitor"
    args = [arg.replace("$(POD_INDEX)", "0") for arg in args]
    monitor.make_context("koff monitor", args)  # raises click's error for an option that there is not
    probes = [value for name, value in container.items() if name.endswith("Probe")]
    assert {probe["httpGet"]["path"] for probe in probes} <= SERVED
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def check_config(document: dict[str, Any], tmp_path: Path) -> None:
    """Checks the koff.yaml of a ConfigMap."""
    path = tmp_path / "koff.yaml"
    path.write_text(document["data"]["koff.yaml"])
    read_koff_yaml(path, {})


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_a_plain_manifest_fits_its_schemas(path: Path, kubernetes: str) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        check(document, kubernetes)


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_a_plain_manifest_runs_koff_as_it_is(path: Path, tmp_path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        for container in find_koffs(document):
            check_koff(container)
            assert container["image"] == f"koff:{VERSION}"
        if document["kind"] == "ConfigMap":
            check_config(document, tmp_path)


def test_a_schema_refuses_a_field_that_there_is_not() -> None:
    monitor_of = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": "k"},
    }
    spec = {"selector": {}, "endpoints": [{"port": "http", "intervall": "15s"}]}
    with pytest.raises(jsonschema.ValidationError, match="intervall"):
        check({**monitor_of, "spec": spec}, KUBERNETES[0])


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

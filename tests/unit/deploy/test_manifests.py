"""The objects for Kubernetes in deploy/: schemas, and what they say about koff."""

from __future__ import annotations

import functools
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

ROOT = Path(__file__).parents[3]
PLAIN = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
KUBERNETES = ("1.28", "1.33", "1.36")
CRDS = ROOT / "tests" / "crds"
SERVED = {"/healthz", "/readyz"}


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
    # A start on a busy node takes long: until then, the liveness probe must not restart koff.
    startup = container["startupProbe"]
    assert startup["httpGet"] == container["livenessProbe"]["httpGet"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 60
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def check_pod(pod: dict[str, Any]) -> None:
    """Checks that a namespace with the PodSecurity level `restricted` accepts the pod."""
    assert pod["automountServiceAccountToken"] is False  # koff does not talk to Kubernetes
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    kinds = {kind for volume in pod.get("volumes", ()) for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "secret", "emptyDir", "projected", "persistentVolumeClaim"}


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
            check_pod(document["spec"]["template"]["spec"])
        if document["kind"] == "ConfigMap":
            check_config(document, tmp_path)


def read_plain(name: str) -> dict[str, dict[str, Any]]:
    """The objects of one file by kind."""
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / f"{name}.yaml").read_text())
    return {document["kind"]: document for document in documents}


@pytest.mark.parametrize("name", ["koff", "shards"])
def test_services_budgets_and_monitors_find_the_pods(name: str) -> None:
    objects = read_plain(name)
    (workload,) = [objects[kind] for kind in ("Deployment", "StatefulSet") if kind in objects]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    assert objects["Service"]["spec"]["selector"] == labels
    budget = objects["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    # A drain of a node must not wait for ever for the only pod.
    assert budget["maxUnavailable"] == 1
    selector = read_plain("prometheus-operator")["ServiceMonitor"]["spec"]["selector"]
    (expression,) = selector["matchExpressions"]
    assert expression["operator"] == "In"
    assert objects["Service"]["metadata"]["labels"][expression["key"]] in expression["values"]


def test_a_sidecar_does_not_keep_the_consumer_from_running() -> None:
    pod = read_plain("sidecar")["Deployment"]["spec"]["template"]["spec"]
    # Containers after an init container wait for its startup probe, and for its image.
    assert "initContainers" not in pod
    (koff,) = [container for container in pod["containers"] if container["name"] == "koff"]
    assert "readinessProbe" not in koff
    monitor_of = read_plain("prometheus-operator")["PodMonitor"]["spec"]
    assert {endpoint["port"] for endpoint in monitor_of["podMetricsEndpoints"]} == {koff["ports"][0]["name"]}


def test_a_schema_refuses_a_field_that_there_is_not() -> None:
    monitor_of = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": "k"},
    }
    spec = {"selector": {}, "endpoints": [{"port": "http", "intervall": "15s"}]}
    with pytest.raises(jsonschema.ValidationError, match="intervall"):
        check({**monitor_of, "spec": spec}, KUBERNETES[0])

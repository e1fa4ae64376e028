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

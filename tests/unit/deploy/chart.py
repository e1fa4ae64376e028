"""The Helm chart in deploy/helm, rendered for tests."""

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.deploy.test_manifests import KUBERNETES, ROOT, check

CHART = ROOT / "deploy" / "helm" / "koff"

HELM = shutil.which("helm") or shutil.which("helm", path=str(Path.home() / "go" / "bin"))
needs_helm = pytest.mark.skipif(HELM is None, reason="needs helm: go install helm.sh/helm/v3/cmd/helm@latest")

CLUSTERS = [{"name": "a", "brokers": "k:1"}]
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


class _Loader(yaml.SafeLoader):
    """Reads YAML as Kubernetes does: 1e3 is a number, and a key may be there only once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key is there twice: {sorted(map(str, keys))}"
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def render(
    values: dict[str, Any], tmp_path: Path, *, release: str = "k", chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    given = tmp_path / "values.yaml"
    given.write_text(json.dumps(values))  # PyYAML would write the text "1e3" as a number of Go
    command = f"{HELM} template {release} {chart} --namespace n --kube-version 1.33.0 --values {given}"
    return subprocess.run(command.split(), capture_output=True, text=True, check=False)


def render_objects(
    values: dict[str, Any], tmp_path: Path, *, release: str = "k", chart: Path = CHART
) -> dict[str, dict[str, Any]]:
    """The objects by kind. Each fits its schema in the newest Kubernetes."""
    rendered = render(values, tmp_path, release=release, chart=chart)
    assert rendered.returncode == 0, rendered.stderr
    # The loader is a SafeLoader.
    documents = [document for document in yaml.load_all(rendered.stdout, _Loader) if document]
    for document in documents:
        check(document, KUBERNETES[-1])
    kinds = Counter(document["kind"] for document in documents)
    main = {each["metadata"]["name"] for each in documents if "ports" in each.get("spec", {})}
    objects = {}
    for document in documents:
        kind, name = document["kind"], document["metadata"]["name"]
        # Of several objects of a kind, the one that is named as all others has its kind as the key.
        objects[kind if kinds[kind] == 1 or name in main else f"{kind} {name}"] = document
    assert len(objects) == len(documents)
    return objects


def find_workload(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (workload,) = [objects[kind] for kind in ("Deployment", "StatefulSet") if kind in objects]
    return workload


def find_pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return find_workload(objects)["spec"]["template"]["spec"]


def render_notes(values: dict[str, Any], tmp_path: Path) -> str:
    """What helm prints after an installation. `helm template` does not print it, so an object has it here."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    shutil.move(chart / "templates" / "NOTES.txt", chart / "notes.txt")
    (chart / "templates" / "notes.yaml").write_text(
        'kind: Notes\ntext: {{ tpl (.Files.Get "notes.txt") . | quote }}\n'
    )
    rendered = render(values, tmp_path, chart=chart)
    assert rendered.returncode == 0, rendered.stderr
    (text,) = [d["text"] for d in yaml.safe_load_all(rendered.stdout) if d and d["kind"] == "Notes"]
    return str(text)

"""The README of the chart: the text below, and a table of the values, made of the comments of values.yaml."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from tests.unit.deploy.rules_file import CHART

README = CHART / "README.md"
LONGEST = 60
HEAD = """# koff's Helm chart

    helm install koff deploy/helm/koff --namespace monitoring \\
        --set image.repository=REGISTRY/koff \\
        --set config.clusters[0].name=main --set config.clusters[0].brokers=kafka-bootstrap.kafka:9092
    helm test koff --namespace monitoring

[docs/deploy.md](../../../docs/deploy.md#kubernetes) has the rest. `values.schema.json` refuses what
cannot work. All pods fit the restricted profile of Kubernetes, and OpenShift's. This page is made of the
comments of `values.yaml`.

| value | default | |
| --- | --- | --- |
"""


class Value(NamedTuple):
    """A value with its path, its default and its comment."""

    path: str
    default: Any
    comment: str


def list_values() -> Iterator[Value]:
    """The values in the order of the file. A mapping with several lines has no row of its own."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    above: list[str] = []
    path: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        text = line.strip()
        if text.startswith("#"):
            above.append(text.lstrip("# "))
        elif not text:
            above = []
        elif found := re.match(r"((?:  ){,2})(\w+):(?: *)(.*?)(?: # (.*))?$", line):
            path = [*path[: len(found[1]) // 2], found[2]]
            default: Any = defaults
            for name in path:
                default = default.get(name, {}) if isinstance(default, dict) else {}
            comment = " ".join([*above, *filter(None, [found[4]])])
            if found[3] or comment:
                yield Value(".".join(path), default, comment)
            above = []


def build_readme() -> str:
    """The file's text."""
    return HEAD + "".join(
        f"| `{path}` | `{_format(default)}` | {comment.replace('|', chr(92) + '|')} |\n"
        for path, default, comment in list_values()
    )


def _format(default: Any) -> str:
    text = json.dumps(default)
    return text if len(text) <= LONGEST else "see values.yaml"

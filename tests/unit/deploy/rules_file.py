"""The rules of deploy/prometheus: those of the chart, with the chart's default values.

`python -m tests.unit.deploy.rules_file` writes them.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "koff"
RULES = DEPLOY / "prometheus" / "koff-rules.yml"


def build_rules() -> str:
    """The file's text."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())["prometheusRule"]
    text = (CHART / "files" / "koff-rules.yml").read_text()
    if not values["runbookUrl"]:
        text = re.sub(r"(?m)^ *runbook_url: .*\n", "", text)
    for name in ("runbookUrl", "objectiveRatio"):
        text = text.replace(f"@{name}@", str(values[name]))
    return text.replace("@keepLabels@", ", ".join(values["keepLabels"]))


if __name__ == "__main__":
    RULES.write_text(build_rules())

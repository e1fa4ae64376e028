"""The rules of deploy: the chart's copy of those of `koff rules`, and those with the chart's default values.

`python -m tests.unit.deploy.rules_file` writes both.
"""

from pathlib import Path

import yaml

from koff.cli import rules

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "koff"
TEMPLATE = Path(rules.__file__).with_name("koff-rules.yml")
CHART_RULES = CHART / "files" / "koff-rules.yml"
RULES = DEPLOY / "prometheus" / "koff-rules.yml"


def build_rules() -> str:
    """The text of the file in deploy/prometheus."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())["prometheusRule"]
    return rules.build_rules(values["objectiveRatio"], values["runbookUrl"], values["keepLabels"])


if __name__ == "__main__":
    CHART_RULES.write_text(TEMPLATE.read_text())
    RULES.write_text(build_rules())

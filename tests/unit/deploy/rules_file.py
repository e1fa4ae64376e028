"""The rules of deploy: those of `koff rules` with the default values of the chart, which has a copy."""

from pathlib import Path

import yaml

from koff.cli import rules

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "koff"
TEMPLATE = Path(rules.__file__).with_name("koff-rules.yml")
RULES = DEPLOY / "prometheus" / "koff-rules.yml"


def build_rules() -> str:
    """The text of the file in deploy/prometheus."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())["prometheusRule"]
    return rules.build_rules(values["objectiveRatio"], values["runbookUrl"], values["keepLabels"])

"""`koff rules`: rules for Prometheus, and the objectives of koff.yaml for sloth and pyrra."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import click
import yaml
from click import option

from koff.config.kinds import FILE
from koff.config.koff_yaml import read_koff_yaml
from koff.errors import ConfigError
from koff.view.earlier import TARGET

KEPT = "owner,team"


class Goal(NamedTuple):
    """The objective of some groups of a cluster: their names by regular expressions of Prometheus."""

    name: str
    text: str
    labels: dict[str, str]

    @property
    def series(self) -> str:
        """The series that are 1 while the groups keep their objectives."""
        matchers = ",".join(f"{name}=~{json.dumps(value)}" for name, value in self.labels.items())
        return "cluster_group:koff_within_objective:bool" + (f"{{{matchers}}}" if matchers else "")


@click.command()
@option(
    "--format",
    "form",
    type=click.Choice(["prometheus", "sloth", "pyrra"]),
    default="prometheus",
    help="prometheus: all alerts and recording rules. sloth, pyrra: an SLO for each objective in koff.yaml, "
    "on top of these recording rules.",
)
@option("--config", type=FILE, help="koff.yaml, for sloth and pyrra.")
@option(
    "--target",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=TARGET,
    show_default=True,
    help="For which share of 30 days an objective is to be kept.",
)
@option(
    "--runbook-url",
    default="",
    help="Where you have docs/runbooks.md: alerts link to it.  [default: nowhere]",
)
@option("--keep-labels", default=KEPT, show_default=True, help="The labels of groups that alerts keep.")
def rules(form: str, config: Path | None, target: float, runbook_url: str, keep_labels: str) -> None:
    """Print rules for Prometheus: alerts on verdicts, and error budgets of groups with an objective.

    \b
    Examples:
      koff rules > koff-rules.yml
      koff rules --target 0.999 --runbook-url https://wiki.example.com/koff
      koff rules --format sloth --config koff.yaml | sloth generate -i /dev/stdin
      koff rules --format pyrra --config koff.yaml | kubectl apply -f -
    """
    if form == "prometheus":
        click.echo(build_rules(target, runbook_url, keep_labels.split(",")), nl=False)
        return
    goals = [Goal("lag", "Groups with an objective keep it.", {})] if config is None else list_goals(config)
    shown = _build_sloth(goals, target) if form == "sloth" else _build_pyrra(goals, target)
    click.echo(yaml.safe_dump_all(shown, sort_keys=False, allow_unicode=True), nl=False)


def build_rules(target: float, runbook_url: str, keep_labels: Sequence[str]) -> str:
    """The rules file of Prometheus."""
    text = files("koff.cli").joinpath("koff-rules.yml").read_text()
    if not runbook_url:
        text = re.sub(r"(?m)^ *runbook_url: .*\n", "", text)
    values = {"runbookUrl": runbook_url, "objectiveRatio": target, "keepLabels": ", ".join(keep_labels)}
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def list_goals(config: Path) -> list[Goal]:
    """The objectives of all clusters. Raises `ConfigError`, also if there are none."""
    clusters = read_koff_yaml(config, os.environ).clusters
    goals = [goal for values in clusters for goal in _list_goals_of(values)]
    if not goals:
        raise ConfigError(f"{config} has no objectives: docs/verdicts.md says how they are written")
    return goals


def _list_goals_of(values: Any) -> Iterator[Goal]:
    for number, objective in enumerate(values["objectives"], 1):
        pattern, cluster = objective["groups"].pattern, values["name"]
        labels = {"cluster": re.escape(cluster)} if cluster else {}
        slug = re.sub("[^a-z0-9]+", "-", f"{cluster or ''} {number} {pattern}".lower()).strip("-")
        text = f"Groups {pattern}: their lag is at most {objective['seconds']:g} s."
        yield Goal(slug[:50].strip("-"), text, labels | {"group": f".*(?:{pattern}).*"})


def _build_sloth(goals: Sequence[Goal], target: float) -> list[dict[str, Any]]:
    slos = [
        {
            "name": goal.name,
            "objective": round(target * 100, 4),
            "description": goal.text,
            "sli": {"raw": {"error_ratio_query": f"1 - avg(avg_over_time({goal.series}[{{{{.window}}}}]))"}},
            "alerting": {
                "name": "KoffObjectiveMissed",
                "labels": {"objective": goal.name},
                "page_alert": {"labels": {"severity": "critical"}},
                "ticket_alert": {"labels": {"severity": "warning"}},
            },
        }
        for goal in goals
    ]
    return [{"version": "prometheus/v1", "service": "koff", "slos": slos}]


def _build_pyrra(goals: Sequence[Goal], target: float) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "pyrra.dev/v1alpha1",
            "kind": "ServiceLevelObjective",
            "metadata": {"name": f"koff-{goal.name}"},
            "spec": {
                "target": f"{target * 100:g}",
                "window": "30d",
                "description": goal.text,
                "indicator": {"bool_gauge": {"metric": goal.series, "grouping": ["cluster", "group"]}},
            },
        }
        for goal in goals
    ]

"""`koff rules`: the rules file, and objectives as sloth and pyrra take them."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from koff.cli import main
from tests.unit.deploy.rules_file import RULES

CONFIG = """
clusters:
  - name: prod
    brokers: localhost:9092
    objectives:
      - {groups: "^nightly-", seconds: 90000}
      - {groups: 'billing\\."x"', topics: "^invoices$", seconds: 30}
"""
SERIES = "cluster_group:koff_within_objective:bool"


def run(*words: str) -> Any:
    result = CliRunner().invoke(main, ["rules", *words])
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.output))


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "koff.yaml"
    path.write_text(CONFIG)
    return str(path)


def test_the_rules_are_those_of_deploy_with_other_values_where_they_are_given():
    assert CliRunner().invoke(main, ["rules"]).output == RULES.read_text()
    assert "runbook_url" not in RULES.read_text()
    (found,) = run("--target", "0.999", "--runbook-url", "https://wiki/runbooks.md", "--keep-labels", "team")
    text = str(found)
    assert "(1 - 0.999)" in text
    assert "(1 - 0.99)" not in text
    assert "https://wiki/runbooks.md#koffgroupfailing" in text
    assert "owner" not in text


def test_each_objective_is_an_slo_of_sloth(config: str):
    (found,) = run("--format", "sloth", "--config", config)
    assert (found["version"], found["service"]) == ("prometheus/v1", "koff")
    assert [slo["name"] for slo in found["slos"]] == ["prod-1-nightly", "prod-2-billing-x"]
    assert {slo["objective"] for slo in found["slos"]} == {99.0}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus")
def test_the_query_of_sloth_is_the_share_of_time_in_which_the_groups_of_the_objective_were_late(
    config: str, tmp_path: Path
):
    (found,) = run("--format", "sloth", "--config", config)
    queries = [slo["sli"]["raw"]["error_ratio_query"].replace("{{.window}}", "5m") for slo in found["slos"]]
    lives = {
        "nightly-1": "1x5",
        "nightly-2": "0x5",
        'my-billing.\\"x\\"': "0x5",
        "other": "0x5",
    }
    test = {
        "interval": "1m",
        "input_series": [
            {"series": f'{SERIES}{{cluster="prod",group="{group}"}}', "values": values}
            for group, values in lives.items()
        ],
        "promql_expr_test": [
            {"expr": query, "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": value}]}
            for query, value in zip(queries, (0.5, 1), strict=True)
        ],
    }
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_objective_is_an_object_of_pyrra_for_each_of_its_groups(config: str):
    first, second = run("--format", "pyrra", "--config", config, "--target", "0.999")
    assert first["metadata"]["name"] == "koff-prod-1-nightly"
    assert first["spec"]["target"] == "99.9"
    gauge = first["spec"]["indicator"]["bool_gauge"]
    assert gauge["metric"] == SERIES + '{cluster=~"prod",group=~".*(?:^nightly-).*"}'
    assert gauge["grouping"] == ["cluster", "group"]
    assert r"billing\\.\"x\"" in second["spec"]["indicator"]["bool_gauge"]["metric"]


def test_without_objectives_koff_says_so(tmp_path: Path):
    path = tmp_path / "koff.yaml"
    path.write_text("clusters: [{name: prod, brokers: 'localhost:9092'}]")
    result = CliRunner().invoke(main, ["rules", "--format", "sloth", "--config", str(path)])
    assert result.exit_code != 0
    assert "has no objectives" in result.output

"""`koff pipeline COMMAND --help`: sections, and no variable beside each option."""

import pytest
from click.testing import CliRunner

from koff.cli.root import main


def read_help(command: str) -> str:
    result = CliRunner().invoke(main, ["pipeline", command, "--help"])
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("command", ["run", "backfill", "maintain", "report"])
def test_help_has_sections_and_names_the_variables_in_one_line(command: str):
    text = read_help(command)
    assert [line for line in text.splitlines() if line in ("Tables:", "Spark:")] == ["Tables:", "Spark:"]
    assert "[env var" not in text
    assert f"--tables is KOFF_PIPELINE_{command.upper()}_TABLES." in " ".join(text.split())


def test_each_section_has_its_own_options():
    text = read_help("run")
    begin = {
        title: text.index(f"\n{title}:\n") for title in ("Options", "Cluster", "Tables", "Spark", "Logs")
    }
    assert sorted(begin, key=begin.__getitem__) == list(begin)
    assert (
        begin["Options"] < text.index("--interval DURATION") < begin["Cluster"] < text.index("--brokers HOST")
    )
    assert begin["Spark"] < text.index("--jars DIR") < begin["Logs"] < text.index("--log-level [")


def test_variables_still_set_the_options_of_a_sectioned_command():
    read_help("run")
    env = {"KOFF_PIPELINE_RUN_INTERVAL": "never"}
    result = CliRunner().invoke(main, ["pipeline", "run", "--tables", "t"], env=env)
    assert result.exit_code == 2
    assert "'never' is not a duration" in result.output

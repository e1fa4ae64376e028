"""The koff.yaml that `koff quickstart` writes is right, as it is and with what it offers."""

import re
from pathlib import Path
from typing import Any

import pytest

from koff.config.first_file import FirstFile, propose_objectives
from koff.config.koff_yaml import KoffYaml, read_koff_yaml

CLUSTER = {
    "name": "europe",
    "brokers": "kafka-1:9093,kafka-2:9093",
    "properties": {"security.protocol": "sasl_ssl", "sasl.password": "${SECRET}"},
}


def read(folder: Path, text: str) -> KoffYaml:
    (folder / "koff.yaml").write_text(text)
    return read_koff_yaml(folder / "koff.yaml", {"SECRET": "hunter2"})


def uncomment(text: str, *keys: str) -> str:
    """The file with the values of these keys."""
    for key in keys:
        text = re.sub(
            rf"(?m)^( *)# ({key}:.*\n(?: *# [- ] .*\n)*)", lambda found: found[0].replace("# ", ""), text
        )
    return text


@pytest.mark.parametrize("late_s", [{}, {"payments": 3.0, "we.ird[*": 400.0}])
def test_the_file_names_the_cluster_and_its_comments_change_nothing(tmp_path: Path, late_s: dict[str, float]):
    text = FirstFile(CLUSTER, ["Found: 3 brokers."], late_s, 15).format()
    (cluster,) = read(tmp_path, text).clusters
    given = {name: cluster[name] for name in CLUSTER}
    assert given == {
        **CLUSTER,
        "properties": {"security.protocol": "sasl_ssl", "sasl.password": "hunter2"},
    }
    assert not cluster["objectives"]
    assert "# Found: 3 brokers.\n" in text


def test_the_proposed_objectives_are_right_without_their_comment_signs(tmp_path: Path):
    text = FirstFile(CLUSTER, [], {"payments": 3.0, "we.ird[*": 400.0}, 15).format()
    (cluster,) = read(tmp_path, uncomment(text, "objectives")).clusters
    found: list[dict[str, Any]] = [dict(each) for each in cluster["objectives"]]
    assert [each["seconds"] for each in found] == [60, 1800]
    assert found[0]["groups"].search("payments")
    assert not found[0]["groups"].search("payments-2")
    assert found[1]["groups"].search("we.ird[*")


def test_what_the_file_offers_is_right_without_its_comment_signs(tmp_path: Path):
    text = FirstFile(CLUSTER, []).format()
    file = read(tmp_path, uncomment(text, "groups", "group_labels", "expected_groups", "state_dir"))
    assert file.clusters[0]["expected_groups"] == ("payments",)
    assert file.settings["state_dir"] == Path("/var/lib/koff")


def test_an_objective_is_twice_what_was_seen_rounded_up():
    late_s = {"quick": 0.0, "exact": 60.0, "slow": 60.1, "nightly": 1e6}
    assert [(each["groups"], each["seconds"]) for each in propose_objectives(late_s)] == [
        ("^(quick)$", 60),
        ("^(exact)$", 120),
        ("^(slow)$", 300),
        ("^(nightly)$", 86_400),
    ]


def test_many_groups_of_one_objective_are_in_expressions_that_can_be_read():
    found = propose_objectives({f"group-{number:02}": 1.0 for number in range(45)})
    assert [len(each["groups"].split("|")) for each in found] == [20, 20, 5]

"""`koff unused` on a real Kafka: what it names, and that its commands delete that and nothing else."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from koff.kafkatest import KafkaCluster, KafkaTestError, wait_until
from koff.serve.api.commands import write_delete
from koff.view.unused import Unused
from tests.integration.test_commands import CLASSES
from tests.kafka_groups import commit, consuming, produce
from tests.koff_process import run_koff

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

DOC = (Path(__file__).parents[2] / "docs" / "unused.md").read_text()


def find_unused(kafka: KafkaCluster, *args: str) -> dict[str, dict[str, Any]]:
    ended = run_koff("unused", "--brokers", kafka.bootstrap, "--measure", "1s", "--format", "json", *args)
    assert ended.returncode == 0, ended.stderr
    return {each["name"]: each for each in json.loads(ended.stdout)["unused"]}


def run_command(kafka: KafkaCluster, command: str) -> str:
    script, *args = shlex.split(command)
    return kafka.run_tool(
        {**CLASSES, "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand"}[script], *args
    )


def test_what_nobody_uses_is_named_and_its_commands_delete_that_alone(more_kafka):
    kafka = more_kafka()
    for name in ("orders.v1", "orders-v1", "left"):
        produce(kafka, kafka.create_topic(name), 5)
    kafka.create_topic("table", config={"cleanup.policy": "compact"})
    commit(kafka, "it's gone", ("left", 0, 2))
    with consuming(kafka, "busy", "orders-v1", count=5):
        assert find_unused(kafka, "--group", "^none$")["table"]["text"].startswith(
            "no group reads it; it is empty; "
        )
        names = {"it's gone", "orders.v1", "orders-v1", "left", "table"}
        wait_until(
            lambda: find_unused(kafka, "--idle", "5s").keys() == names, timeout_s=120, what="all of it"
        )
        found = find_unused(kafka, "--idle", "5s")
        assert {name: each["kind"] for name, each in found.items()} == {
            "it's gone": "empty_group",
            "orders.v1": "unused_topic",
            "orders-v1": "unwritten_topic",
            "left": "unused_topic",
            "table": "unused_topic",
        }
        assert found["it's gone"]["loses"] == "its offsets in 1 partition; 3 records wait there"
        assert found["left"]["text"].startswith("only idle groups read it: it's gone; ")
        assert found["left"]["loses"] == "5 records"
        commands = {name: each["command"] for name, each in found.items()}
        assert [name for name, command in commands.items() if command is None] == ["table", "orders-v1"]
        for name in ("it's gone", "orders.v1"):
            run_command(kafka, commands[name])
        wait_until(lambda: not kafka.leaders("orders.v1"), what="the deletion of orders.v1")
        assert kafka.leaders("orders-v1")
        assert find_unused(kafka, "--idle", "5s").keys() == {"orders-v1", "left", "table"}


@pytest.mark.parametrize("kind", ["share", "streams"])
def test_the_tools_of_other_groups_know_the_command(kafka: KafkaCluster, kind: str):
    group = f"no such {kind} group"
    command = write_delete(
        Unused("empty_group", group, "", "", deletes=True, group_type=kind), kafka.bootstrap
    )
    assert command is not None
    try:
        said = run_command(kafka, command)
    except KafkaTestError as error:
        said = str(error)
    assert re.search(f"{group}.*(is not a share group|not found|does not exist)", said), said


def test_the_examples_of_the_docs_run(more_kafka):
    kafka = more_kafka()
    commit(kafka, "test-1", (kafka.create_topic("orders"), 0, 0))
    commands = re.findall(r"^    koff (unused .*)$", DOC, re.MULTILINE)
    assert len(commands) == 2
    printed = [run_koff(*shlex.split(each.replace("localhost:9092", kafka.bootstrap))) for each in commands]
    assert [ended.returncode for ended in printed] == [0, 0], printed
    assert re.search("^unwritten_topic +orders +it is empty +0 records$", printed[0].stdout, re.MULTILINE)
    assert [each["name"] for each in json.loads(printed[1].stdout)["unused"]] == ["orders"]

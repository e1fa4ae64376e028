"""The commands that koff offers to copy do what they say, run by Kafka's own tools."""

import re
import shlex
from typing import Any

import pytest

from koff.kafkatest import KafkaCluster, KafkaTestError
from koff.serve.api.commands import list_commands
from tests.kafka_groups import commit, produce
from tests.kafka_tools import CONSUMER_GROUPS, SHARE_GROUPS, STREAMS_GROUPS

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

CLASSES = {
    "kafka-consumer-groups.sh": CONSUMER_GROUPS,
    "kafka-share-groups.sh": SHARE_GROUPS,
    "kafka-streams-groups.sh": STREAMS_GROUPS,
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}
CAUSES = ("stuck_partition", "open_transaction", "held_back_commits", "fell_out_of_log")


def list_all(kind: str, group: str, topic: str, brokers: str) -> list[str]:
    """The commands for a group with every cause for which there is one."""
    causes = [{"cause": cause, "topic": topic, "partition": 0} for cause in CAUSES]
    rows = [{"topic": topic, "partition": 0, "committed": 3}]
    about: dict[str, Any] = {"type": kind, "group": group, "causes": causes}
    return list_commands({"group": about, "partitions": rows}, brokers)


def test_kafka_runs_each_command_for_a_group_that_stands_still(kafka: KafkaCluster):
    topic = kafka.create_topic()
    group = f"it's {topic}"
    produce(kafka, topic, 10)
    commit(kafka, group, (topic, 0, 3))
    said = {}
    for command in list_all("classic", group, topic, kafka.bootstrap):
        script, *args = shlex.split(command, comments=True)
        said[command] = kafka.run_tool(CLASSES[script], *args)
    members, record, skipped, _, _, earliest = said.values()
    assert "CONSUMER-ID" in members
    assert len(record.splitlines()) == 1  # the record at which the group stands
    assert re.search(rf"{topic} +0 +4\b", skipped)
    assert re.search(rf"{topic} +0 +0\b", earliest)
    (still,) = [
        line.split()
        for line in kafka.run_tool(
            CONSUMER_GROUPS, "--bootstrap-server", kafka.bootstrap, "--describe", "--group", group
        ).splitlines()
        if topic in line and " 10 " in line
    ]
    assert "3" in still  # the resets were dry runs


@pytest.mark.parametrize("kind", ["share", "streams"])
def test_the_tools_of_other_groups_know_the_options(kafka: KafkaCluster, kind: str):
    topic = kafka.create_topic()
    describe, *_ = list_all(kind, f"none-{topic}", topic, kafka.bootstrap)
    script, *args = shlex.split(describe)
    try:
        said = kafka.run_tool(CLASSES[script], *args)
    except KafkaTestError as error:
        said = str(error)
    assert re.search(f"none-{topic}.* (not found|does not exist)", said), said

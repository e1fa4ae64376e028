"""koff with exactly the rights that docs/security.md names, over SASL_SSL, on two brokers."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclOperation, OffsetSpec, ResourceType

from koff.kafkatest import LocalKafka, wait_until
from koff.kafkatest.java import class_command
from koff.records.topics import OFFSETS_TOPIC
from tests.clusters import lend_kafka, log_in
from tests.kafka_groups import allow, commit, make_lag, produce
from tests.koff_process import monitoring, run_koff, set_properties

pytestmark = pytest.mark.kafka
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
ACL_COMMAND = "org.apache.kafka.tools.AclCommand"


def grant_documented_rights(kafka: LocalKafka) -> None:
    """Runs the lines with kafka-acls on the page."""
    lines = re.findall(r"^ +kafka-acls (.* --add .*)$", PAGE.read_text(), re.M)
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(line.replace("kafka:9093", kafka.bootstrap))
        subprocess.run(class_command(kafka.jars, ACL_COMMAND, *words), check=True, capture_output=True)


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalKafka]:
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_SSL,SSL:SSL"
    config = {"listener.security.protocol.map": protocols}
    with lend_kafka(brokers=2, security=True, config=config) as kafka:
        yield kafka


def log_in_over_tls(kafka: LocalKafka, user: str) -> dict[str, str]:
    tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(kafka.ca_pem)}
    return set_properties(log_in(user) | tls)


def find_denied(kafka: LocalKafka, user: str) -> set[str]:
    """What the brokers have denied to the user, for example "DESCRIBE_CONFIGS Topic:LITERAL:t"."""
    pattern = rf"User:{user} is Denied operation = (\w+) from .* on resource = (\S+)"
    return {" ".join(found) for node in kafka.nodes for found in re.findall(pattern, node.log.read_text())}


def take_state(kafka: LocalKafka) -> dict[str, Any]:
    """What a client could have changed: the end of each log, topics, groups and their configuration."""
    topics = kafka.admin.list_topics(timeout=60).topics
    partitions = [TopicPartition(topic, number) for topic, of in topics.items() for number in of.partitions]
    ends = kafka.admin.list_offsets({partition: OffsetSpec.latest() for partition in partitions})
    groups = kafka.admin.list_consumer_groups().result(60).valid
    return {
        **{f"{at.topic} {at.partition}": end.result(60).offset for at, end in ends.items()},
        "groups": {(group.group_id, group.state) for group in groups},
    }


def test_the_documented_rights_are_enough_and_koff_writes_nothing(secured: LocalKafka, tmp_path: Path):
    topic = secured.create_topic("orders", partitions=2)
    for partition in range(2):
        produce(secured, topic, 10, partition=partition)
    commit(secured, "billing", (topic, 0, 4), (topic, 1, 7))
    grant_documented_rights(secured)
    before = take_state(secured)
    args = ("--state-dir", str(tmp_path), "--end-offset-interval", "1")
    with monitoring(secured.sasl_bootstrap, *args, env=log_in_over_tls(secured, "koff")) as monitor:
        expected = {("billing", topic, 0): 6, ("billing", topic, 1): 3}
        wait_until(lambda: monitor.rows() == expected, timeout_s=60, what="the lags")
        sources = monitor.metrics()["koff_source_info"]
        assert [labels for labels, value in sources.items() if value == 1 and "log" in labels]
        produce(secured, topic, 5)
        wait_until(
            lambda: monitor.rows() == {**expected, ("billing", topic, 0): 11},
            timeout_s=60,
            what="5 more",
        )
    after = take_state(secured)
    assert after == {**before, f"{topic} 0": 15}
    # Only what the page says it tries: the age of records that were there before koff.
    assert find_denied(secured, "koff") <= {f"READ Topic:LITERAL:{topic}"}


def test_rights_that_are_missing_are_denied_and_hide_what_the_page_says(secured: LocalKafka, tmp_path: Path):
    topic = make_lag(secured, "g", committed=4)
    blind = run_koff("lag", "--brokers", secured.sasl_bootstrap, env=log_in_over_tls(secured, "bare"))
    assert blind.returncode == 4
    assert f"koff sees no group, and may not DESCRIBE {OFFSETS_TOPIC}" in blind.stderr
    allow(secured, ("bare", ResourceType.TOPIC, OFFSETS_TOPIC, AclOperation.READ))
    args = ("--state-dir", str(tmp_path), "--end-offset-interval", "1", "--families", "all")
    with monitoring(secured.sasl_bootstrap, *args, env=log_in_over_tls(secured, "bare")) as monitor:
        monitor.wait_until_ready()
        committed = "koff_group_committed_offset"
        wait_until(lambda: ("g", topic, 0) in monitor.rows(committed), what="the commit, which the log has")
        assert ("g", topic, 0) not in monitor.rows()
        assert "may not DESCRIBE groups" in monitor.text
        wait_until(
            lambda: f"DESCRIBE_CONFIGS Topic:LITERAL:{OFFSETS_TOPIC}" in find_denied(secured, "bare"),
            what="the request for delete.retention.ms",
        )
        # The other rights, one after the other.
        allow(secured, ("bare", ResourceType.TOPIC, "*", AclOperation.DESCRIBE))
        wait_until(lambda: monitor.rows().get(("g", topic, 0)) == 6, timeout_s=60, what="the lag")

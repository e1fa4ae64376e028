"""`koff doctor` on a real Kafka: what is right, what is missing, and the commands that grant it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from koff.kafkatest import LocalKafka, free_ports
from tests.clusters import lend_kafka
from tests.integration.test_against_kafka import commit
from tests.kafka_groups import allow
from tests.koff_process import run_koff

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalKafka]:
    with lend_kafka(security=True) as kafka:
        kafka.create_topic("orders", 3)
        commit(kafka, "payments", ("orders", 0, 0))
        yield kafka


def examine(*args: str, password: str = "") -> tuple[int, list[tuple[str, str, str]], str]:
    """The exit code, the checks (level, name, text), and all that was printed."""
    env = {"KOFF_PROPERTY_SASL_PASSWORD": password} if password else {}
    ended = run_koff("doctor", *args, env=env)
    assert "Traceback" not in ended.stderr
    lines = re.findall(r"^(ok|note|warn|FAIL) +(\S+) +(.*)$", ended.stdout, re.MULTILINE)
    return ended.returncode, lines, ended.stdout


def log_in(kafka: LocalKafka) -> tuple[str, ...]:
    properties = ("security.protocol=sasl_plaintext", "sasl.mechanism=PLAIN", "sasl.username=alice")
    given = (word for each in properties for word in ("--property", each))
    return ("--brokers", kafka.sasl_bootstrap, *given)


def list_rights(command: list[str]) -> Iterator[tuple[str, ResourceType, str, AclOperation]]:
    """What a command of kafka-acls.sh grants."""
    assert command[:2] == ["kafka-acls.sh", "--bootstrap-server"]
    assert command[3:5] == ["--add", "--allow-principal"]
    user, resource, name, *operations = command[5:]
    for word, operation in zip(operations[::2], operations[1::2], strict=True):
        assert word == "--operation"
        kind = ResourceType[resource.removeprefix("--").upper()]
        to = AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", operation).upper()]
        yield user.removeprefix("User:"), kind, name, to


def test_a_cluster_where_all_is_right(secured):
    code, lines, printed = examine("--brokers", secured.bootstrap)
    assert code == 0, printed
    assert {level for level, _, _ in lines} == {"ok", "note"}
    names = [name for _, name, _ in lines]
    assert names == [
        *("address", "cluster", "listeners", "__consumer_offsets", "__share_group_state"),
        *("rights", "retention", "groups", "cost"),
    ]
    (groups,) = [text for _, name, text in lines if name == "groups"]
    assert groups.startswith("1 group with 1 partition, from the log")


def test_an_address_that_does_not_respond_is_a_warning_while_another_does(secured):
    (port,) = free_ports(1)
    code, lines, _ = examine("--brokers", f"127.0.0.1:{port},{secured.bootstrap},no-such-host.invalid:9092")
    assert code == 3
    assert [level for level, name, _ in lines if name == "address"] == ["warn", "ok", "warn"]


def test_a_listener_of_another_protocol_is_named(secured):
    code, lines, _ = examine("--brokers", secured.ssl_bootstrap)
    assert (code, lines[-1][:2]) == (1, ("FAIL", "connect"))
    assert "expects TLS" in lines[-1][2]


def test_a_refused_log_in_ends_the_checks(secured):
    code, lines, _ = examine(*log_in(secured), password="wrong")
    assert (code, lines[-1][:2]) == (1, ("FAIL", "connect"))
    assert "refused the log-in" in lines[-1][2]


def test_the_commands_for_missing_rights_grant_them(secured):
    code, lines, printed = examine(*log_in(secured), password="alice-secret")
    assert code == 3
    assert ("warn", "rights") in [line[:2] for line in lines]
    commands = [
        shlex.split(command)
        for cure in re.findall(r"^ +-> (kafka-acls\.sh .*)$", printed, re.MULTILINE)
        for command in cure.split(" && ")
    ]
    assert len(commands) == 4
    allow(secured, *(right for command in commands for right in list_rights(command)))
    code, lines, printed = examine(*log_in(secured), password="alice-secret")
    assert code == 0, printed
    assert any(name == "groups" and text.startswith("1 group with") for _, name, text in lines)

"""`koff doctor` and `koff quickstart` on a real Kafka: what is right, what is missing, what grants it."""

import re
import shlex
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from koff.kafkatest import LocalKafka, free_ports
from koff.kafkatest.local_kafka import USERS
from tests.clusters import lend_kafka
from tests.kafka_groups import Right, allow, commit
from tests.koff_process import as_user, run_koff

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalKafka]:
    with lend_kafka(security=True) as kafka:
        kafka.create_topic("orders", 3)
        commit(kafka, "payments", ("orders", 0, 0))
        yield kafka


def examine(brokers: str, env: dict[str, str] | None = None) -> tuple[int, list[tuple[str, str, str]], str]:
    """The exit code, the checks (level, name, text), and all that was printed."""
    ended = run_koff("doctor", "--brokers", brokers, env=env)
    assert "Traceback" not in ended.stderr
    lines = re.findall(r"^(ok|note|warn|FAIL) +(\S+) +(.*)$", ended.stdout, re.MULTILINE)
    return ended.returncode, lines, ended.stdout


def list_rights(command: list[str]) -> Iterator[Right]:
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
    code, lines, printed = examine(secured.bootstrap)
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
    code, lines, _ = examine(f"127.0.0.1:{port},{secured.bootstrap},no-such-host.invalid:9092")
    assert code == 3
    assert [level for level, name, _ in lines if name == "address"] == ["warn", "ok", "warn"]


def test_a_listener_of_another_protocol_is_named(secured):
    code, lines, _ = examine(secured.ssl_bootstrap)
    assert (code, lines[-1][:2]) == (1, ("FAIL", "connect"))
    assert "expects TLS" in lines[-1][2]


def test_a_refused_log_in_ends_the_checks(secured):
    code, lines, _ = examine(secured.sasl_bootstrap, as_user("alice", "wrong"))
    assert (code, lines[-1][:2]) == (1, ("FAIL", "connect"))
    assert "refused the log-in" in lines[-1][2]


def test_the_commands_for_missing_rights_grant_them(secured):
    code, lines, printed = examine(secured.sasl_bootstrap, as_user("alice"))
    assert code == 3
    assert ("warn", "rights") in [line[:2] for line in lines]
    commands = [
        shlex.split(command)
        for cure in re.findall(r"^ +-> (kafka-acls\.sh .*)$", printed, re.MULTILINE)
        for command in cure.split(" && ")
    ]
    assert len(commands) == 4
    allow(secured, *(right for command in commands for right in list_rights(command)))
    code, lines, printed = examine(secured.sasl_bootstrap, as_user("alice"))
    assert code == 0, printed
    assert any(name == "groups" and text.startswith("1 group with") for _, name, text in lines)


def test_quickstart_writes_a_file_that_the_next_commands_use(secured, tmp_path):
    file, login = tmp_path / "koff.yaml", as_user("admin")
    args = ["quickstart", "--brokers", secured.sasl_bootstrap, "--output", str(file), "--seconds", "1"]
    ended = run_koff(*args, env=login)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "groups              1 group with 1 partition" in ended.stdout
    assert USERS["admin"] not in file.read_text() + ended.stdout
    assert "sasl.password: ${KOFF_PROPERTY_SASL_PASSWORD}" in file.read_text()
    next_command = re.findall(r"^  koff (lag --config [^ ]+) ", ended.stdout, re.MULTILINE)[0]
    assert "payments" in run_koff(*next_command.split(), env=login).stdout
    written = file.read_text()
    again = run_koff(*args, env=login)
    assert (again.returncode, file.read_text()) == (2, written)
    assert "give --force" in again.stderr
    assert run_koff(*args, "--force", "--cluster-name", "other", env=login).returncode == 0
    assert "name: other" in file.read_text()


def test_quickstart_writes_nothing_if_a_check_failed(secured, tmp_path):
    file = tmp_path / "koff.yaml"
    ended = run_koff("quickstart", "--brokers", secured.ssl_bootstrap, "--output", str(file))
    assert ended.returncode == 1
    assert "FAIL  connect" in ended.stdout
    assert "was not written" in ended.stderr
    assert not file.exists()

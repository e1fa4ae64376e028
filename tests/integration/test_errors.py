"""What goes wrong between koff and a cluster is said in one line, soon, with an exit code."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from koff.kafkatest import LocalKafka, free_ports, wait_until
from tests.clusters import lend_kafka
from tests.kafka_groups import allow, commit
from tests.koff_process import as_user, monitoring, run_koff, run_lag

pytestmark = pytest.mark.kafka
COMMANDS = [("lag",), ("printer",), ("monitor", "--listen", "127.0.0.1:0", "--no-wait")]


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalKafka]:
    with lend_kafka(security=True) as kafka:
        topic = kafka.create_topic("orders")
        commit(kafka, "g", (topic, 0, 0))
        rights = [
            ("reader", "__consumer_offsets", AclOperation.READ),
            ("reader", "orders", AclOperation.DESCRIBE),
            ("blind", "__consumer_offsets", AclOperation.DESCRIBE),
        ]
        allow(kafka, *((user, ResourceType.TOPIC, topic, operation) for user, topic, operation in rights))
        yield kafka


def fails(*args: str, env: dict[str, str] | None = None) -> str:
    """The one line with which `koff ARGS` ends, with code 1: soon, unless the machine is busy."""
    result = run_koff(*args, env=env, timeout_s=60.0)
    assert result.returncode == 1, result
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def fail_together(*calls: tuple[str, ...]) -> list[str]:
    """`fails` for several calls at once: each of them waits out its connect timeout."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda args: fails(*args), calls))


def test_brokers_that_do_not_answer_are_named_with_the_cause_and_what_to_check():
    address = f"127.0.0.1:{free_ports(1)[0]}"
    for line in fail_together(*((*command, "--brokers", address) for command in COMMANDS)):
        assert address in line
        assert "Connection refused" in line
        assert "check the address" in line


def test_a_host_that_is_not_known_is_said(secured):
    assert "cannot find Kafka at no-such-host.invalid:9092" in fails(
        "lag", "--brokers", "no-such-host.invalid:9092"
    )


def test_the_wrong_protocol_is_said(secured):
    to_tls, to_sasl, with_tls = fail_together(
        ("lag", "--brokers", secured.ssl_bootstrap),
        ("lag", "--brokers", secured.sasl_bootstrap),
        ("lag", "--brokers", secured.bootstrap, "--property", "security.protocol=ssl"),
    )
    assert all("the property security.protocol" in said for said in (to_tls, to_sasl, with_tls))
    assert (
        f"{secured.ssl_bootstrap}: Invalid response: it expects TLS: set security.protocol to ssl" in to_tls
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_a_wrong_password_is_said_and_not_shown(secured, command):
    line = fails(*command, "--brokers", secured.sasl_bootstrap, env=as_user("reader", "wr0ng-secret"))
    assert "refused the log-in" in line
    assert secured.sasl_bootstrap in line
    assert "wr0ng-secret" not in line


@pytest.mark.parametrize("command", ["lag", "printer"])
def test_a_user_who_may_read_neither_the_offsets_topic_nor_groups_is_told_what_to_grant(secured, command):
    env = as_user("blind")
    line = fails(command, "--brokers", secured.sasl_bootstrap, env=env)
    assert "no permission to read __consumer_offsets" in line
    assert "grant this user READ" in line
    assert command == "printer" or "may not DESCRIBE groups" in line


def test_a_monitor_that_may_read_neither_says_so_until_it_may(secured):
    with monitoring(secured.sasl_bootstrap, env=as_user("blind")) as monitor:
        wait_until(lambda: "grant this user READ" in monitor.get("/readyz")[1], what="the cause")
        assert monitor.get("/readyz")[0] == 503
        wait_until(lambda: monitor.events("topic may not be read"), what="the warning")
        allow(secured, ("blind", ResourceType.TOPIC, "__consumer_offsets", AclOperation.READ))
        monitor.wait_until_ready(60)
        assert len(monitor.events("topic may not be read")) == 1


def test_a_user_who_may_describe_groups_but_not_read_the_offsets_topic_gets_their_lag(secured):
    rights = [
        ("describer", ResourceType.TOPIC, "__consumer_offsets", AclOperation.DESCRIBE),
        ("describer", ResourceType.TOPIC, "orders", AclOperation.DESCRIBE),
        ("describer", ResourceType.GROUP, "g", AclOperation.DESCRIBE),
    ]
    allow(secured, *rights)
    brokers, env = secured.sasl_bootstrap, as_user("describer")
    for source in ("auto", "coordinators"):
        (row,) = run_lag(brokers, "--source", source, env=env)["partitions"]
        assert (row["group"], row["lag"]) == ("g", 0)
    line = fails("lag", "--brokers", brokers, "--source", "log", "--start", "replay", env=env)
    assert "grant this user READ" in line


def test_an_offsets_topic_that_may_not_be_described_or_does_not_exist_is_an_error(secured):
    env = as_user("reader")
    line = fails("lag", "--brokers", secured.sasl_bootstrap, "--offsets-topic", "secret", env=env)
    assert "there is no topic secret, or koff may not DESCRIBE it: check --offsets-topic" in line


def test_read_on_the_offsets_topic_and_describe_on_the_others_is_all_it_needs(secured):
    args = ("--brokers", secured.sasl_bootstrap, "--partitions", "--fail-above", "0")
    result = run_koff("lag", *args, env=as_user("reader"))
    assert result.returncode == 0, result.stderr
    assert "orders" in result.stdout


def test_tls_with_the_right_authority_works_and_without_it_is_said(secured, tmp_path):
    properties = tmp_path / "tls.properties"
    properties.write_text(f"# TLS\nsecurity.protocol=ssl\nssl.ca.location={secured.ca_pem}\n")
    assert run_lag(secured.ssl_bootstrap, "--property-file", str(properties))
    line = fails("lag", "--brokers", secured.ssl_bootstrap, "--property", "security.protocol=ssl")
    assert "ssl.ca.location" in line


def test_secrets_appear_neither_in_logs_nor_in_help(secured):
    environment = as_user("reader") | {"KOFF_MONITOR_LOG_LEVEL": "debug"}
    with monitoring(secured.sasl_bootstrap, env=environment) as monitor:
        monitor.wait_until_ready()
        monitor.metrics()
    assert "reader-secret" not in monitor.text
    assert "reader-secret" not in run_koff("monitor", "--help", env=environment).stdout


def test_wait_goes_on_trying_until_the_brokers_are_there(more_kafka):
    kafka = more_kafka()
    kafka.kill()
    with monitoring(kafka.bootstrap) as monitor:
        wait_until(lambda: monitor.events("waiting"), what="the first failure")
        assert monitor.get("/readyz")[0] == 503
        assert "Connection refused" in monitor.get("/readyz")[1]
        assert monitor.get("/healthz")[0] == 200
        kafka.restart()
        monitor.wait_until_ready(60)


def test_a_monitor_that_waits_stops_when_told_to():
    with monitoring(f"127.0.0.1:{free_ports(1)[0]}") as monitor:
        wait_until(lambda: monitor.get("/healthz")[0] == 200, what="the server")
        assert monitor.stop() == 0

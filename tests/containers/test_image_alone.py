"""koff's image without another container: address, health and user, and each log-in of docs/security.md."""

import base64
import re
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
import trustme
from confluent_kafka.admin import ScramMechanism

from koff.kafkatest import free_ports, wait_until
from koff.kafkatest.local_kafka import LocalKafka
from tests.clusters import lend_kafka, log_in
from tests.containers.outside import LONGEST_S, get
from tests.integration.test_coordinators import make_token
from tests.kafka_groups import set_password
from tests.koff_process import set_properties
from tests.sasl_broker import SaslBroker
from tests.token_provider import make_answer, providing_tokens

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]
CONFINED: dict[str, Any] = {
    "network_mode": "host",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}
ANY_USER = "1000610000:0"
"""As OpenShift chooses it: a number that no file of the image knows."""

Run = Callable[..., str]


@pytest.fixture
def run(engine: docker.DockerClient, koff_image: str) -> Run:
    """Runs a command in the image as any user, who can write nothing. Returns both outputs."""

    def run_command(*args: str, env: dict[str, str] | None = None, folder: Path | None = None) -> str:
        volumes = {str(folder): {"bind": "/files", "mode": "ro"}} if folder else {}
        container = engine.containers.run(
            koff_image, args, environment=env, volumes=volumes, user=ANY_USER, detach=True, **CONFINED
        )
        try:
            container.wait(timeout=120)
            return container.logs().decode()
        finally:
            container.remove(force=True)

    return run_command


@pytest.mark.parametrize("how", ["default", "option", "variable", "file"])
def test_koff_is_healthy_and_serves_wherever_it_is_told_to_listen(
    how: str, engine: docker.DockerClient, koff_image: str, tmp_path: Path
):
    """No Kafka is there, and koff is healthy all the same."""
    port = 9850 if how == "default" else free_ports(1)[0]
    (tmp_path / "koff.yaml").write_text(
        "clusters: [{name: east, brokers: '127.0.0.1:1'}]\n"
        + (f"listen: ':{port}'\n" if how == "file" else "")
    )
    tmp_path.chmod(0o755)
    options = ["--listen", f":{port}"] if how == "option" else []
    container = engine.containers.run(
        koff_image,
        ["monitor", "--config", "/files/koff.yaml", *options],
        environment={"KOFF_MONITOR_LISTEN": f":{port}"} if how == "variable" else {},
        volumes={str(tmp_path): {"bind": "/files", "mode": "ro"}},
        user=ANY_USER,
        healthcheck={"interval": 1_000_000_000},
        detach=True,
        **CONFINED,
    )
    try:

        def read_health() -> str:
            container.reload()
            return str(container.attrs["State"]["Health"]["Status"])

        wait_until(
            lambda: read_health() == "healthy", timeout_s=LONGEST_S, what="the container to be healthy"
        )
        status, body = get(f"http://127.0.0.1:{port}/metrics")
        assert (status, 'koff_up{cluster="east"} 0\n' in body) == (200, True), body
        assert get(f"http://127.0.0.1:{port}/readyz")[0] == 503
    except TimeoutError:
        pytest.fail(f"{container.attrs['State']}\n{container.logs().decode()}")
    finally:
        container.remove(force=True)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def kafka(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A Kafka with all log-ins. It takes certificates of clients, and does not insist on them."""
    trusted = tmp_path_factory.mktemp("authority") / "trusted.pem"
    authority.cert_pem.write_to_path(trusted)
    config = {
        "ssl.client.auth": "requested",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        "ssl.principal.mapping.rules": "RULE:^.*$/admin/",
    }
    with lend_kafka(security=True, config=config) as kafka:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            set_password(kafka, "right", mechanism)
        yield kafka


def check_log_in(run: Run, brokers: str, properties: dict[str, str], folder: Path | None = None) -> None:
    output = run("doctor", "--brokers", brokers, env=set_properties(properties), folder=folder)
    assert "connected and logged in" in output, output


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_image_logs_in_with_a_password(run: Run, kafka: LocalKafka, mechanism: str):
    password = "" if mechanism == "PLAIN" else "right"
    check_log_in(run, kafka.sasl_bootstrap, log_in("admin", password, mechanism=mechanism))


def test_the_image_connects_by_tls_with_a_certificate(
    run: Run, kafka: LocalKafka, authority: trustme.CA, tmp_path: Path
):
    (tmp_path / "ca.pem").write_bytes(kafka.ca_pem.read_bytes())
    authority.issue_cert("koff").private_key_and_cert_chain_pem.write_to_path(tmp_path / "koff.pem")
    tmp_path.chmod(0o755)
    properties = {
        "security.protocol": "ssl",
        "ssl.ca.location": "/files/ca.pem",
        "ssl.certificate.location": "/files/koff.pem",
    }
    check_log_in(run, kafka.ssl_bootstrap, properties, tmp_path)


def test_the_image_logs_in_with_a_token_of_a_provider(run: Run, kafka: LocalKafka):
    with providing_tokens() as provider:
        provider.always = make_answer(make_token())
        properties = {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": provider.url,
            "sasl.oauthbearer.client.id": "koff",
            "sasl.oauthbearer.client.secret": "oidc-secret",
        }
        check_log_in(run, kafka.sasl_bootstrap, properties)
        assert provider.requests


def test_the_image_signs_a_token_for_msk(run: Run):
    """There is no MSK to test with: the broker is a stand-in, and the token is what AWS documents."""
    with SaslBroker(mechanism="OAUTHBEARER") as broker:
        properties = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "AWS_MSK_IAM"}
        keys = {
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "eu-west-1",
        }
        output = run(
            "doctor", "--brokers", f"127.0.0.1:{broker.port}", "--timeout", "2",
            env={**set_properties(properties), **keys},
        )  # fmt: skip
        assert "connected and logged in" in output, output
        found = re.search(rb"auth=Bearer ([\w=-]+)", broker.message)
    assert found is not None
    signed = urllib.parse.urlsplit(base64.urlsafe_b64decode(found[1] + b"==").decode())
    query = urllib.parse.parse_qs(signed.query)
    assert signed.hostname == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Signature"]


def test_the_image_has_the_licences_of_what_it_has(engine: docker.DockerClient, koff_image: str):
    listed = engine.containers.run(
        koff_image,
        ["-c", "ls -d /opt/koff/lib/python3*/site-packages/*.dist-info/licenses"],
        entrypoint="sh",
        remove=True,
    )
    assert any(b"/koff-" in line for line in listed.splitlines())

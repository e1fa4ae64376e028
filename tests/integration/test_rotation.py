"""A password, or a client certificate, that is changed while koff runs."""

from pathlib import Path

import pytest
import trustme

from tests.clusters import log_in
from tests.kafka_groups import commit, make_lag, set_password
from tests.koff_process import monitoring, set_properties

pytestmark = pytest.mark.kafka


def test_a_new_password_is_read_from_its_file_without_a_restart(more_kafka, tmp_path: Path):
    kafka = more_kafka(security=True)
    topic = make_lag(kafka, "g", committed=1, records=100)
    file = tmp_path / "password"
    file.write_text("first\n")
    set_password(kafka, "first")
    login = log_in("admin", f"file:{file}", mechanism="SCRAM-SHA-256")
    args = ("--end-offset-interval", "1")
    with monitoring(kafka.sasl_bootstrap, *args, env=set_properties(login)) as monitor:
        monitor.wait_for_lag("g", 99)
        set_password(kafka, "second")
        file.write_text("second\n")
        kafka.restart()  # ends all connections
        commit(kafka, "g", (topic, 0, 10))
        monitor.wait_for_lag("g", 90)


@pytest.mark.thorough
def test_a_new_client_certificate_is_used_without_a_restart(more_kafka, tmp_path: Path):
    trusted, old, new = tmp_path / "trusted.pem", trustme.CA(), trustme.CA()

    def issue(ca: trustme.CA) -> None:
        """From now on, Kafka trusts this authority, and koff's files have its certificate."""
        ca.cert_pem.write_to_path(trusted)
        issued = ca.issue_cert("koff")
        issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
        issued.private_key_pem.write_to_path(tmp_path / "key.pem")

    issue(old)
    kafka = more_kafka(
        security=True,
        config={
            "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
            "ssl.principal.mapping.rules": "RULE:^.*$/koff/",
            "super.users": "User:ANONYMOUS;User:admin;User:koff",
        },
    )
    topic = make_lag(kafka, "g", committed=1, records=100)
    login = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(kafka.ca_pem),
        "ssl.certificate.location": str(tmp_path / "cert.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
    }
    args = ("--end-offset-interval", "1")
    with monitoring(kafka.ssl_bootstrap, *args, env=set_properties(login)) as monitor:
        monitor.wait_for_lag("g", 99)
        issue(new)
        kafka.restart()
        commit(kafka, "g", (topic, 0, 10))
        monitor.wait_for_lag("g", 90)

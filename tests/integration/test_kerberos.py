"""SASL/GSSAPI with a real center and a real broker."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from koff.client import ClusterConf
from koff.errors import LogInRefused
from koff.kafkatest import LocalKafka
from tests.all_groups import fetch_all_groups
from tests.kafka_groups import commit
from tests.kerberos import REALM, TOOLS, Kdc, find_tool, run_kdc

MISSING = [tool for tool in TOOLS if find_tool(tool) is None] + (
    ["gssapi"] if not find_spec("gssapi") else []
)
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.thorough,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]
BROKER = "kafka/127.0.0.1"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with run_kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        yield kdc


@pytest.fixture(scope="module")
def kerberized(kdc: Kdc) -> Iterator[LocalKafka]:
    login = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        f' keyTab="{kdc.add(BROKER)}" principal="{BROKER}@{REALM}";'
    )
    config = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": login,
        "super.users": "User:ANONYMOUS;User:koff",
    }
    options = (f"-Djava.security.krb5.conf={kdc.config}",)
    with LocalKafka(security=True, config=config, jvm_options=options) as kafka:
        commit(kafka, "billing", (kafka.create_topic("orders"), 0, 4))
        yield kafka


@pytest.fixture(autouse=True)
def krb5_conf(kdc: Kdc, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))


def log_in(kafka: LocalKafka, principal: str, keytab: Path, **more: str) -> ClusterConf:
    properties = {
        "security.protocol": "sasl_plaintext",
        "sasl.kerberos.principal": principal,
        "sasl.kerberos.keytab": str(keytab),
    }
    return ClusterConf(kafka.sasl_bootstrap, {**properties, **more})


def test_a_keytab_lets_in(kerberized: LocalKafka, kdc: Kdc):
    conf = log_in(kerberized, "koff", kdc.add("koff"))
    for _ in range(2):
        assert [group.name for group in fetch_all_groups(conf).groups] == ["billing"]


def test_a_log_in_that_cannot_be_says_what_kerberos_says(kerberized: LocalKafka, kdc: Kdc):
    keytab = kdc.add("other")
    with pytest.raises(LogInRefused, match=r"Kerberos: .*no-such-service/127"):
        fetch_all_groups(
            log_in(kerberized, "other", keytab, **{"sasl.kerberos.service.name": "no-such-service"})
        )
    with pytest.raises(LogInRefused, match=r"Kerberos: .*principal nobody, keytab .*other"):
        fetch_all_groups(log_in(kerberized, "nobody", keytab))
    with pytest.raises(LogInRefused, match=r"Kerberos: .*principal absent, keytab .*absent"):
        fetch_all_groups(log_in(kerberized, "absent", kdc.folder / "absent.keytab"))

"""Sessions that log in to ZooKeeper by digest or SASL, or that speak TLS; groups whose brokers need TLS."""

import gc
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from kazoo.client import KazooClient

from koff.client import ClusterConf
from koff.client.zookeeper import ConsumerGroupConf, ZooKeeperLogin, join_consumer_group
from koff.client.zookeeper.session import Session
from koff.errors import ConfigError, ConnectError, Denied
from koff.kafkatest import LocalKafka, LocalZooKeeper, wait_until
from koff.kafkatest.ports import free_ports
from koff.kafkatest.settings import KEYSTORE_PASSWORD
from koff.kafkatest.tls import make_keystore
from tests.clusters import log_in
from tests.kafka_groups import allow, produce

pytestmark = [
    pytest.mark.kafka,
    # kazoo leaves the sockets of failed handshakes to the garbage collector, which warns in a later test.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
JAAS = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_koff="secret"; };'


def test_nodes_of_a_session_with_a_digest_may_be_private():
    login = ZooKeeperLogin("koff", "secret", private_nodes=True)
    with LocalZooKeeper() as zookeeper, Session(zookeeper.hosts, login=login).connect() as session:
        session.call("create", "/mine", b"1")
        assert session.renew_lease("/mine")
        with Session(zookeeper.hosts).connect() as other, pytest.raises(Denied):
            other.call("get", "/mine")
        same = ZooKeeperLogin("koff", "secret")
        with Session(zookeeper.hosts, login=same).connect() as again:
            assert again.call("get", "/mine")[0] == b"1"
    assert "secret" not in repr(login)


def test_a_session_logs_in_by_sasl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "jaas").write_text(JAAS)
    config = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    options = [f"-Djava.security.auth.login.config={tmp_path}/jaas"]
    login = ZooKeeperLogin("koff", "secret", scheme="sasl", private_nodes=True)
    with LocalZooKeeper(config=config, options=options) as zookeeper:
        with Session(zookeeper.hosts, login=login).connect() as session:
            session.call("create", "/mine", b"1")
            (acl,), _ = session.call("get_acls", "/mine")
            assert (acl.id.scheme, acl.id.id) == ("sasl", "koff")
        wrong = ZooKeeperLogin("koff", "guess", scheme="sasl")
        with pytest.raises(Denied, match="log-in"):
            Session(zookeeper.hosts, login=wrong).connect()
        # The server may have hung up before the first request.
        submit = Session.submit

        def submit_late(session: Session, *args: Any) -> Any:
            wait_until(lambda: not session._kazoo.connected, what="the server to hang up")
            return submit(session, *args)

        monkeypatch.setattr(Session, "submit", submit_late)
        with pytest.raises(Denied, match="log-in"):
            Session(zookeeper.hosts, login=wrong).connect()


def connect_error(hosts: str, login: ZooKeeperLogin) -> str:
    """The text of the error; "" if the session could be opened."""
    try:
        Session(hosts, login=login, connect_timeout_s=2.0).connect().close()
    except ConnectError as error:
        return str(error)
    return ""


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
def test_a_session_speaks_tls_with_a_server_that_it_trusts(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    keystore, ca_pem = tmp_path / "keystore", tmp_path / "ca.pem"
    make_keystore(keystore, ca_pem)
    (port,) = free_ports(1)
    config = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(keystore),
        "ssl.keyStore.password": KEYSTORE_PASSWORD,
        "ssl.keyStore.type": "PKCS12",
        "ssl.clientAuth": "none",
    }
    with LocalZooKeeper(config=config):
        login = ZooKeeperLogin(tls=True, ca_file=str(ca_pem))
        with Session(f"127.0.0.1:{port}", login=login).connect() as session:
            assert session.renew_lease("/")
        make_keystore(tmp_path / "other", tmp_path / "other.pem")
        stranger = ZooKeeperLogin(tls=True, ca_file=str(tmp_path / "other.pem"))
        assert "cannot reach ZooKeeper" in connect_error(f"127.0.0.1:{port}", stranger)
    caplog.clear()  # it keeps kazoo's errors
    gc.collect()  # kazoo leaves the socket of a handshake that failed to the collector


def test_a_login_that_cannot_work_is_refused_before_it_connects():
    with pytest.raises(ConfigError, match="choose digest or sasl"):
        Session("127.0.0.1:1", login=ZooKeeperLogin("u", "p", scheme="kerberos"))
    with pytest.raises(ConfigError, match="needs a username"):
        Session("127.0.0.1:1", login=ZooKeeperLogin(private_nodes=True))


def test_brokers_that_are_found_in_zookeeper_get_the_tls_and_sasl_properties_of_the_group(
    more_kafka: Callable[..., LocalKafka],
):
    kafka = more_kafka(security=True)
    topic = kafka.create_topic()
    produce(kafka, topic, 1)
    found = {
        "endpoints": [f"SSL://{kafka.ssl_bootstrap}", f"LOGIN://{kafka.sasl_bootstrap}"],
        "listener_security_protocol_map": {"SSL": "SSL", "LOGIN": "SASL_PLAINTEXT"},
    }
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(kafka.ca_pem)}
    with LocalZooKeeper() as zookeeper:
        client = KazooClient(zookeeper.hosts)
        client.start()
        client.create("/brokers/ids/1", json.dumps(found).encode(), makepath=True)
        client.stop()
        client.close()
        for number, properties in enumerate((tls, log_in("admin"))):
            conf = ConsumerGroupConf(cluster=ClusterConf("", properties))
            with join_consumer_group(f"g{number}", [topic], zookeeper.hosts, conf) as group:
                (message,) = islice(group.messages(), 1)
                assert message.value == b"0"
                message.ack()
        with pytest.raises(ConfigError, match="PLAINTEXT listener"):
            join_consumer_group("g", [topic], zookeeper.hosts)


def test_a_member_that_may_not_read_its_topic_says_so_and_reads_once_it_may(
    more_kafka: Callable[..., LocalKafka], koff_zookeeper: LocalZooKeeper
):
    kafka = more_kafka(security=True)
    topic = kafka.create_topic()
    allow(kafka, ("koff", ResourceType.TOPIC, topic, AclOperation.DESCRIBE))
    produce(kafka, topic, 1)
    conf = ConsumerGroupConf(cluster=ClusterConf(kafka.sasl_bootstrap, log_in("koff")))
    with join_consumer_group(topic, [topic], koff_zookeeper.hosts, conf) as group:
        assert isinstance(next(group.errors()).__cause__, Denied)
        allow(kafka, ("koff", ResourceType.TOPIC, topic, AclOperation.READ))
        next(group.messages()).ack()

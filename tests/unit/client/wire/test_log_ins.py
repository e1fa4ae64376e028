"""koff tries a refused log-in once in a while with each broker."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme

from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster
from koff.client.groups.fetch_options import FetchOptions
from koff.client.wire import log_ins
from koff.client.wire.connection import Connection
from koff.client.wire.log_ins import REFUSALS
from koff.errors import ConnectError, Denied, LogInRefused, lacks_right
from tests.all_groups import fetch_all_groups
from tests.process_threads import count_threads, wait_for_threads
from tests.sasl_broker import SaslBroker


@pytest.fixture
def broker() -> Iterator[SaslBroker]:
    with SaslBroker() as made:
        yield made


@pytest.fixture(autouse=True)
def _long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal counts for so long that no test sees its end, unless it says so."""
    monkeypatch.setattr(log_ins, "REFUSED_S", 3600.0)
    monkeypatch.setattr(log_ins, "MOST_REFUSED_S", 3600.0)


def end_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the time pass after which brokers may be asked again."""
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 4000.0)
    monkeypatch.setattr(log_ins, "time", later)
    monkeypatch.setattr(log_ins, "_FORGET_S", 1e9)


def connect(broker: SaslBroker, conf: ClusterConf) -> None:
    Connection.connect(conf, "127.0.0.1", broker.port, timeout_s=30).close()


def test_whoever_asks_brokers_see_no_further_attempt(broker: SaslBroker) -> None:
    before, conf = count_threads(), broker.conf()

    def ask_cluster(call: Callable[[Cluster], object]) -> None:
        with Cluster(conf) as cluster:
            call(cluster)

    tried = 0
    for ask in (
        partial(ask_cluster, Cluster.connect),
        partial(ask_cluster, Cluster.fetch_metadata),
        partial(ask_cluster, lambda cluster: cluster.fetch_offsets([TopicPartition("t", 0)])),
        partial(fetch_all_groups, conf, FetchOptions(deadline_s=5)),
    ):
        for _ in range(2):
            with pytest.raises(LogInRefused, match=r"refused the log-in.*no such user"):
                ask()
            tried = tried or broker.log_ins
            assert broker.log_ins == tried
    wait_for_threads(before + 1)


def test_a_certificate_that_is_refused_is_tried_once_until_its_file_is_new(tmp_path: Path) -> None:
    trusted, another = trustme.CA(), trustme.CA()
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusted.issue_cert("localhost").configure_cert(accepting)
    trusted.configure_trust(accepting)
    accepting.verify_mode = ssl.CERT_REQUIRED
    attempts = 0

    def accept(listening: socket.socket) -> None:
        nonlocal attempts
        while True:
            try:
                opened, _ = listening.accept()
            except OSError:  # it is closed
                return
            attempts += 1
            with opened, suppress(OSError), accepting.wrap_socket(opened, server_side=True):
                pass

    trusted.cert_pem.write_to_path(tmp_path / "ca.pem")
    another.issue_cert("koff").private_key_and_cert_chain_pem.write_to_path(tmp_path / "koff.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, args=(listening,))
        thread.start()
        try:
            port = listening.getsockname()[1]
            files = {
                "ssl.ca.location": tmp_path / "ca.pem",
                "ssl.certificate.location": tmp_path / "koff.pem",
            }
            properties = {"security.protocol": "ssl", **{name: str(path) for name, path in files.items()}}
            conf = ClusterConf(f"localhost:{port}", properties)
            for _ in range(3):
                with pytest.raises(LogInRefused, match=r"^TLS with Kafka at .*ssl\.certificate\.location"):
                    Connection.connect(conf, "localhost", port, timeout_s=30)
            assert attempts == 1
            os.utime(tmp_path / "koff.pem", (1, 1))
            with pytest.raises(LogInRefused):
                Connection.connect(conf, "localhost", port, timeout_s=30)
            assert attempts == 2
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_after_a_while_one_proof_lets_all_log_in_again(
    broker: SaslBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf, before = broker.conf("later"), count_threads()
    with Cluster(conf) as cluster:
        with pytest.raises(LogInRefused):
            cluster.fetch_metadata()
        wait_for_threads(before + 1)
        tried = broker.log_ins
        end_refusals(monkeypatch)
        with pytest.raises(LogInRefused):
            cluster.fetch_metadata()
        assert broker.log_ins == tried + 1  # by a connection of koff's own
        broker.password = "later"
        monkeypatch.setattr(log_ins, "MOST_REFUSED_S", 0.0)
        with pytest.raises(LogInRefused):
            cluster.fetch_metadata()  # the refusal of the attempt before still counts
        REFUSALS.note(log_ins.identify(conf), ("127.0.0.1", broker.port), "once more")
        assert cluster.fetch_metadata().brokers


def test_the_pause_grows_to_a_minute_until_the_log_in_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    now_s, refusals, at = 0.0, log_ins.Refusals(), ("b", 9092)
    monkeypatch.setattr(log_ins, "time", SimpleNamespace(monotonic=lambda: now_s))

    def measure_pause() -> float:
        nonlocal now_s
        refusals.note("me", at, "wrong password")
        since_s = now_s
        while True:
            try:
                refusals.check("me", at)
            except LogInRefused:
                now_s += 0.1
            else:
                return now_s - since_s

    for pause_s in (10, 20, 40, 60, 60):
        assert pause_s <= measure_pause() <= 1.1 * pause_s + 0.2
    refusals.note("me", at, "")
    assert measure_pause() <= 11.2


def test_a_new_password_in_the_file_is_tried_at_once(broker: SaslBroker, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("wrong\n")
    conf = broker.conf(f"file:{file}")
    with Cluster(conf) as cluster:
        for _ in range(2):
            with pytest.raises(LogInRefused):
                cluster.fetch_metadata()
        file.write_text("right\n")
        assert cluster.fetch_metadata().brokers


def test_another_user_of_the_same_process_is_not_affected(broker: SaslBroker) -> None:
    with pytest.raises(LogInRefused):
        connect(broker, broker.conf("wrong"))
    connect(broker, broker.conf("right"))


def test_one_broker_that_refuses_does_not_shut_out_the_others(broker: SaslBroker) -> None:
    with SaslBroker("another") as refuses:
        conf = refuses.conf("right", broker)
        with Cluster(conf) as cluster:
            assert cluster.fetch_metadata().brokers
            assert cluster.fetch_metadata().brokers
        assert refuses.log_ins == 1


def test_a_refused_log_in_is_no_missing_right() -> None:
    assert isinstance(LogInRefused("no"), Denied)
    assert lacks_right(Denied("no"))
    assert not lacks_right(LogInRefused("no"))
    assert not lacks_right(ConnectError("no"))

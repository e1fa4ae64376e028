"""Secrets in files that change while koff runs."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from koff.client import ClusterConf
from koff.client.feed.shared_feed import SharedFeed
from koff.client.feed.source import FeedConf
from koff.client.secret_file import SecretFile
from koff.client.wire.credentials import read_credentials
from koff.errors import ConnectError, LogInRefused
from koff.kafkatest import wait_until
from tests.sasl_broker import SaslBroker


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("first\n")
    return path


def make_conf(password: Path) -> ClusterConf:
    properties = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "koff"}
    return ClusterConf("127.0.0.1:1", {**properties, "sasl.password": f"file:{password}"})


def test_each_connection_gets_the_present_content(password: Path) -> None:
    conf = make_conf(password)
    for expected in ("first", "second"):
        assert read_credentials(conf).properties["sasl.password"] == expected
        assert conf.librdkafka_properties()["sasl.password"] == expected
        password.write_text("second\n")
    password.write_text("")  # it is being written
    assert read_credentials(conf).properties["sasl.password"] == "first"
    password.unlink()
    assert read_credentials(conf).properties["sasl.password"] == "first"


def test_a_client_that_is_refused_gets_the_new_password(password: Path) -> None:
    with SaslBroker("first") as broker:
        cluster: Any = SimpleNamespace(
            conf=broker.conf(f"file:{password}"), fetch_topic_ids=lambda _: {}, fetch_offsets=_refuse
        )
        with SharedFeed(cluster, FeedConf()) as feed:
            buffer = feed.open_buffer("t", 0, 0)

            def read() -> SharedFeed:
                feed.wait_for_messages([buffer], 0.05)
                return feed

            wait_until(lambda: read() and broker.accepted, what="the first log-in")
            broker.password = "second"
            broker.disconnect()
            wait_until(lambda: isinstance(read().unreachable, LogInRefused), what="the refusal")
            password.write_text("second\n")
            accepted = broker.accepted
            wait_until(lambda: read() and broker.accepted > accepted, what="the second log-in")


def _refuse(*_: Any, **__: Any) -> Any:
    raise ConnectError("no other connection logs in")


def test_a_copy_in_another_process_is_the_content_and_reads_no_file(password: Path) -> None:
    secret = SecretFile(str(password))
    password.unlink()
    for copied in (pickle.loads(pickle.dumps(secret)), copy.deepcopy(secret)):
        assert (copied, type(copied)) == ("first", str)

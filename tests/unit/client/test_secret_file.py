"""Secrets in files that change while koff runs."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from koff.client import ClusterConf
from koff.client.librdkafka import LogIn
from koff.client.secret_file import SecretFile
from koff.client.wire.credentials import read_credentials


class Client:
    """Keeps the credentials that it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def set_sasl_credentials(self, *given: str) -> None:
        self.given.append((given[0], given[1]))


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("first\n")
    return path


def make_conf(password: Path) -> ClusterConf:
    properties = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "koff"}
    return ClusterConf("127.0.0.1:1", {**properties, "sasl.password": SecretFile(str(password))})


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


def test_a_client_gets_a_new_password_once(password: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koff.client.librdkafka.LOOK_S", 0.0)
    client, log_in = Client(), LogIn(make_conf(password).properties)
    log_in.refresh(client)
    password.write_text("second\n")
    for _ in range(3):
        log_in.refresh(client)
    assert client.given == [("koff", "second")]


def test_files_are_not_read_at_each_call(password: Path) -> None:
    client, log_in = Client(), LogIn(make_conf(password).properties)
    password.write_text("second\n")
    log_in.refresh(client)
    assert client.given == []


def test_a_copy_in_another_process_is_the_content_and_reads_no_file(password: Path) -> None:
    secret = SecretFile(str(password))
    password.unlink()
    for copied in (pickle.loads(pickle.dumps(secret)), copy.deepcopy(secret)):
        assert (copied, type(copied)) == ("first", str)

"""Log-in to MSK: the region, and what is missing."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from koff.client import ClusterConf
from koff.client.cluster import Cluster
from koff.client.msk_iam import TokenCallback, sign_token
from koff.client.wire.credentials import read_credentials
from koff.errors import ConfigError, ConnectError

PROPERTIES = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "aws_msk_iam"}


@pytest.fixture(autouse=True)
def signer(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The library, which makes a token of the region."""
    signer = SimpleNamespace(generate_auth_token=lambda region: (f"token-{region}", 1_500))
    library: Any = SimpleNamespace(MSKAuthTokenProvider=signer)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", library)
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    return signer


@pytest.mark.parametrize(
    ("brokers", "variable", "token"),
    [
        ("b-1.x.abc123.c2.kafka.eu-west-1.amazonaws.com:9098,b-2:1", "AWS_REGION", "token-eu-west-1"),
        ("boot-x.c3.kafka-serverless.us-east-2.amazonaws.com:9098", "AWS_REGION", "token-us-east-2"),
        ("kafka.internal:9098", "AWS_REGION", "token-ap-south-1"),
        ("kafka.internal:9098", "AWS_DEFAULT_REGION", "token-ap-south-1"),
    ],
)
def test_the_region_is_that_of_the_brokers_or_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, brokers: str, variable: str, token: str
) -> None:
    monkeypatch.setenv(variable, "ap-south-1")
    assert sign_token(brokers) == (token, 1.5)
    conf = ClusterConf(brokers, PROPERTIES)
    credentials = read_credentials(conf)
    assert (credentials.mechanism, credentials.tls) == ("OAUTHBEARER", True)
    assert credentials.token is not None
    assert credentials.token() == token


def test_librdkafka_gets_a_function_and_no_name_that_it_does_not_know() -> None:
    properties = ClusterConf("b.kafka.eu-west-1.amazonaws.com:9098", PROPERTIES).librdkafka_properties()
    assert properties["sasl.mechanism"] == "OAUTHBEARER"
    assert "sasl.mechanisms" not in properties
    assert properties["oauth_cb"]("") == ("token-eu-west-1", 1.5)


def test_without_credentials_a_client_is_made_and_keeps_trying(signer: SimpleNamespace) -> None:
    brokers = "b.kafka.eu-west-1.amazonaws.com:9098"
    callback, works = TokenCallback(brokers), signer.generate_auth_token

    def fail(_: str) -> None:
        raise ValueError("no credentials")

    signer.generate_auth_token = fail
    token, expires_s = callback("")
    assert (token, expires_s > time.time()) == ("none", True)
    properties = {**PROPERTIES, "security.protocol": "sasl_plaintext"}
    Cluster(ClusterConf(f"127.0.0.1:1,{brokers}", properties)).close()  # librdkafka makes a client
    signer.generate_auth_token = works
    assert callback("")[0] == "token-eu-west-1"
    signer.generate_auth_token = fail
    with pytest.raises(ConnectError):  # librdkafka keeps the token that it has
        callback("")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, signer: SimpleNamespace) -> None:
    with pytest.raises(ConfigError, match="set the environment variable AWS_REGION"):
        sign_token("kafka:9098")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")

    def fail(_: str) -> None:
        raise ValueError("no credentials")

    signer.generate_auth_token = fail
    with pytest.raises(ConnectError, match="cannot sign a token for AWS_MSK_IAM: ValueError: no credentials"):
        sign_token("kafka:9098")
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"pip install 'koff\[aws\]'"):
        sign_token("kafka:9098")
    with pytest.raises(ConfigError, match=r"pip install 'koff\[aws\]'"):  # not librdkafka's late error
        Cluster(ClusterConf("kafka:9098", PROPERTIES))

"""Bearer tokens from a provider that responds, fails, redirects, or is slow."""

from __future__ import annotations

import base64
import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from koff.client import ClusterConf
from koff.client.wire import oidc
from koff.client.wire.credentials import read_credentials
from koff.errors import ConfigError, ConnectError
from tests.token_provider import Provider, make_answer, providing_tokens


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providing_tokens() as provider:
        yield provider


def make_properties(provider: Provider, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": provider.url,
        "sasl.oauthbearer.client.id": "koff:1",
        "sasl.oauthbearer.client.secret": "h&sh",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def fetch(properties: dict[str, str]) -> str:
    conf = ClusterConf("127.0.0.1:1", properties)
    source = read_credentials(conf).token
    assert source is not None
    return source()


def test_a_token_is_requested_as_librdkafka_does_and_shared(provider: Provider) -> None:
    properties = make_properties(provider, sasl_oauthbearer_scope="kafka read")
    assert [fetch(properties) for _ in range(3)] == ["token"] * 3
    ((login, form),) = provider.requests
    assert base64.b64decode(login.removeprefix("Basic ")) == b"koff:1:h&sh"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}


def test_a_token_whose_life_is_mostly_over_is_fetched_again(provider: Provider) -> None:
    provider.answers = [(200, make_answer("first", life_s=0)), (200, make_answer("second"))]
    assert [fetch(make_properties(provider)) for _ in range(3)] == ["first", "second", "second"]


def test_another_secret_gets_another_token(provider: Provider) -> None:
    provider.answers = [(200, make_answer("first")), (200, make_answer("second"))]
    assert fetch(make_properties(provider)) == "first"
    assert fetch(make_properties(provider, sasl_oauthbearer_client_secret="new")) == "second"


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (401, b'{"error": "invalid_client", "h&sh": 1}', "status 401"),
        (302, b"", "status 302"),
        (200, b"", "has no access_token"),
        (200, b"<html>h&sh", "has no access_token"),
        (200, b"[]", "has no access_token"),
        (200, b'{"access_token": 5}', "has no access_token"),
        (200, b'{"access_token": "a", "expires_in": NaN}', "has no access_token"),
        (200, b"[" * 100_000, "has no access_token"),
        (200, b'{"access_token": "a\\u0001b"}', "has no access_token"),
        (200, b'{"access_token": "h&sh", "expires_in": NaN}', "has no access_token"),
        (200, b'{"access_token": "h&sh", "expires_in": 1e999}', "has no access_token"),
        (200, b'{"access_token": "' + b"x" * (2 << 20) + b'"}', "too long"),
    ],
)
def test_a_provider_that_gives_no_token_is_named(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, status: int, answer: bytes, says: str
) -> None:
    now_s = 0.0
    monkeypatch.setattr(oidc, "time", SimpleNamespace(monotonic=lambda: now_s))
    provider.answers = [(status, answer)]
    properties = make_properties(provider)
    for _ in range(2):  # the second time without a request
        with pytest.raises(
            ConnectError, match=f"cannot fetch a token from http://127.0.0.1: .*{says}"
        ) as error:
            fetch(properties)
        assert "h&sh" not in str(error.value)
    assert len(provider.requests) == 1
    now_s = oidc.RETRY_S
    assert fetch(properties) == "token"


def test_a_provider_that_fails_is_asked_ever_more_rarely_and_costs_no_memory(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, requested_s, openers = 0.0, list[float](), list[object]()
    monkeypatch.setattr(oidc, "time", SimpleNamespace(monotonic=lambda: now_s))
    build = urllib.request.build_opener

    def note_opener(*given: Any) -> urllib.request.OpenerDirector:
        openers.append(given)
        return build(*given)

    monkeypatch.setattr("urllib.request.build_opener", note_opener)
    provider.status, properties = 500, make_properties(provider)
    while now_s < 130:
        before = len(provider.requests)
        with pytest.raises(ConnectError, match="status 500"):
            fetch(properties)
        if len(provider.requests) > before:
            requested_s.append(now_s)
        now_s += 1.0
    assert requested_s == [0, 2, 6, 14, 30, 60, 90, 120]
    assert len(openers) == 1
    provider.status, now_s = 200, 150.0
    assert fetch(properties) == "token"


def test_a_provider_that_is_not_there_is_named(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = make_properties(provider, sasl_oauthbearer_token_endpoint_url="http://127.0.0.1:1/")
    with pytest.raises(ConnectError, match="Connection refused"):
        fetch(closed)


def test_a_provider_that_sends_its_response_byte_by_byte_is_given_up(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "FETCH_S", 0.3)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def respond() -> None:
            opened, _ = listening.accept()
            with opened:
                while not ended.wait(0.05):
                    opened.sendall(b"H")

        thread = threading.Thread(target=respond)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        try:
            with pytest.raises(ConnectError, match="no response in time"):
                fetch(make_properties(provider, sasl_oauthbearer_token_endpoint_url=url))
        finally:
            ended.set()
            thread.join()


def test_a_provider_that_speaks_no_http_is_named(provider: Provider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def respond() -> None:
            opened, _ = listening.accept()
            with opened:
                opened.recv(1 << 16)
                opened.sendall(b"SSH-2.0-h&sh\r\n")

        thread = threading.Thread(target=respond)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        with pytest.raises(ConnectError, match=r"http://127\.0\.0\.1: .*BadStatusLine") as error:
            fetch(make_properties(provider, sasl_oauthbearer_token_endpoint_url=url))
        assert "h&sh" not in str(error.value)
        thread.join()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sasl.oauthbearer.client.secret": ""}, r"needs sasl\.oauthbearer\.client\.secret"),
        ({"sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}, "must begin with https"),
    ],
)
def test_properties_that_are_missing_or_wrong_are_named(
    provider: Provider, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        fetch({**make_properties(provider), **change})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.oauthbearer.method", "default"),
        ("sasl.oauthbearer.grant.type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("sasl.oauthbearer.metadata.authentication.type", "azure_imds"),
    ],
)
def test_what_only_librdkafka_can_is_named(provider: Provider, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(name)):
        read_credentials(ClusterConf("a:1", {**make_properties(provider), name: value}))


def test_extensions_are_sent(provider: Provider) -> None:
    properties = make_properties(
        provider, sasl_oauthbearer_extensions="logicalCluster=lkc-1,identityPoolId=p"
    )
    exchange = read_credentials(ClusterConf("a:1", properties)).start_exchange("broker")
    expected = b"n,,\x01auth=Bearer token\x01logicalCluster=lkc-1\x01identityPoolId=p\x01\x01"
    assert next(exchange) == expected

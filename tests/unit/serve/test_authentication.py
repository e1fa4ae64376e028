"""Passwords and bearer tokens: who gets what, how quickly, and what happens when the files change."""

import asyncio
import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from koff.kafkatest import wait_until
from koff.serve import passwords as passwords_module
from koff.serve.access import Access, AccessConf, Rules, Tokens
from koff.serve.authentication import Authenticated
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.serve.passwords import Passwords
from koff.serve.web_config import WebConfig
from koff.view.cluster_view import Readiness
from tests.unit.serve.certificates import PASSWORD, PASSWORD_HASH, replace_file
from tests.unit.serve.requests import TIMEOUT_S, connect, read_response, request
from tests.unit.serve.views import build_view, fill_tracker

USERS = f"basic_auth_users: {{alice: {PASSWORD_HASH}}}\n"
TOKEN = "0123456789abcdef-of-grafana"
TOKENS = f"# who\ngrafana {TOKEN}\nscript sha256:{hashlib.sha256(b'the token of a script').hexdigest()}\n"
API = "/api/v1/nothing"


def log_in(user: str = "alice", password: str = PASSWORD) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def checked(monkeypatch):
    """The hashes against which passwords were checked."""
    hashes: list[bytes] = []
    check = bcrypt.checkpw

    def note(password: bytes, hashed: bytes) -> bool:
        hashes.append(hashed)
        return check(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", note)
    return hashes


@contextmanager
def hold_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Lets checks of passwords wait until the end of this block. Yields what is set when one has begun."""
    has_begun, may_end = threading.Event(), threading.Event()

    def wait(*_: object) -> bool:
        has_begun.set()
        return may_end.wait(TIMEOUT_S) and False

    with monkeypatch.context() as patch:
        patch.setattr(bcrypt, "checkpw", wait)
        try:
            yield has_begun
        finally:
            may_end.set()


def get(server: Server, path: str, authorization: str | None = None) -> tuple[int, str]:
    headers: dict[str, Any] = {} if authorization is None else {"Authorization": authorization}
    status, _, body = request(server, path, **headers)
    return status, body.decode()


# Passwords.


@pytest.mark.parametrize("path", ["/", "/metrics", "/readyz", "/healthz", API])
def test_each_path_needs_the_password(serve, path):
    server = serve(web=USERS)
    right = get(server, path, log_in())
    assert right[0] == (404 if path == API else 200)
    for wrong in (log_in("alice", "wrong"), log_in("bob"), "Bearer " + TOKEN, "Basic", "Basic ???", ""):
        assert get(server, path, wrong)[0] == 401, wrong
    assert get(server, path, "basic  " + log_in().removeprefix("Basic ")) == right


def test_without_a_password_a_client_learns_how_to_log_in(serve):
    status, headers, body = request(serve(web=USERS), "/metrics")
    assert (status, body) == (401, b"log in first\n")
    assert headers.get_all("WWW-Authenticate") == ['Basic realm="koff", charset="UTF-8"']


def test_a_newline_behind_a_path_makes_no_token_enough(serve):
    server = serve(web=USERS, tokens=TOKENS)
    for path in ("/metrics", "/metrics%0a", "/readyz%0a"):
        assert get(server, path, "Bearer " + TOKEN)[0] == 401, path
    assert get(server, "/readyz%0a") == (200, "ok\n")


def test_two_headers_with_credentials_are_not_valid(serve):
    line = f"Authorization: {log_in()}\r\n"
    with connect(serve(web=USERS), f"GET /metrics HTTP/1.1\r\nHost: k\r\n{line}{line}\r\n".encode()) as both:
        assert read_response(both)[0] == 401


def test_probes_without_a_password_get_the_status_and_no_details(serve, source):
    server = serve(web=USERS)
    assert get(server, "/healthz") == (200, "ok\n")
    assert get(server, "/readyz") == (200, "ok\n")
    tracker = fill_tracker()
    source.views = [
        build_view(tracker.take_snapshot(0), readiness=Readiness(False, "not ready: no route to kafka-1"))
    ]
    assert get(server, "/readyz") == (503, "not ok\n")
    assert get(server, "/readyz", log_in()) == (503, "not ready: no route to kafka-1\n")


def test_a_password_that_was_right_is_not_checked_again(serve, checked):
    server = serve(web=USERS)
    assert [get(server, "/metrics", log_in())[0] for _ in range(5)] == [200] * 5
    assert len(checked) == 1
    assert get(server, "/metrics", log_in("alice", PASSWORD + "x"))[0] == 401
    assert len(checked) == 2


def test_an_unknown_user_takes_the_same_work(serve, checked):
    server = serve(web=USERS)
    for user in ("alice", "bob", ""):
        assert get(server, "/metrics", log_in(user, "wrong"))[0] == 401
    assert [hashed[:7] for hashed in checked] == [PASSWORD_HASH[:7].encode()] * 3


def test_an_unknown_user_cannot_be_told_from_others_by_the_cost(serve, checked):
    costlier = bcrypt.hashpw(b"other", bcrypt.gensalt(5)).decode()
    server = serve(web=f"basic_auth_users: {{alice: {PASSWORD_HASH}, root: {costlier}}}")
    names = [f"user-{number}" for number in range(40)]
    for name in names * 2:
        assert get(server, "/metrics", log_in(name, "wrong"))[0] == 401
    costs = [hashed[:7] for hashed in checked]
    assert costs[:40] == costs[40:]  # of a name, always the same
    assert set(costs) == {b"$2b$04$", b"$2b$05$"}


@pytest.mark.parametrize("password", ["", "\0", "a\0b", "ä" * 100, "x" * 10_000])
def test_strange_passwords_are_wrong(serve, password):
    assert get(serve(web=USERS), "/metrics", log_in("alice", password))[0] == 401


def test_of_a_long_password_bcrypt_knows_72_bytes(serve):
    hashed = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    server = serve(web=f"basic_auth_users: {{alice: {hashed}}}")
    assert get(server, "/metrics", log_in("alice", "x" * 100))[0] == 200
    assert get(server, "/metrics", log_in("alice", "x" * 71))[0] == 401


def test_wrong_passwords_delay_no_client_that_has_logged_in(serve, monkeypatch):
    server = serve(web=USERS)
    assert get(server, "/metrics", log_in())[0] == 200
    with ExitStack() as open_, hold_checks(monkeypatch) as has_begun:
        for number in range(passwords_module.CLIENT_CHECKS):
            wrong = log_in("alice", f"wrong {number}")
            sent = f"GET /metrics HTTP/1.1\r\nHost: k\r\nAuthorization: {wrong}\r\n\r\n"
            open_.enter_context(connect(server, sent.encode()))
        has_begun.wait(TIMEOUT_S)
        waiting = server._passwords._waiting
        wait_until(lambda: waiting.total() == passwords_module.CLIENT_CHECKS, what="the wrong passwords")
        status, headers, _ = request(server, "/metrics", Authorization=log_in("alice", "one more"))
        assert (status, headers["Retry-After"]) == (429, "1")
        assert get(server, "/metrics", log_in())[0] == 200
        assert get(server, "/readyz")[0] == 200
    wait_until(lambda: not waiting, what="the end of the checks")
    assert get(server, "/metrics", log_in("alice", "one more"))[0] == 401


def test_the_server_stops_while_a_password_is_checked(serve, source, monkeypatch, tmp_path):
    (tmp_path / "web.yml").write_text(USERS)
    with hold_checks(monkeypatch) as has_begun:
        with Server(source, ServeConf("127.0.0.1:0", AccessConf(tmp_path / "web.yml"))) as server:
            sent = f"GET /metrics HTTP/1.1\r\nHost: k\r\nAuthorization: {log_in()}\r\n\r\n".encode()
            with connect(server, sent):
                has_begun.wait(TIMEOUT_S)
        assert not server._thread.is_alive()


def test_headers_of_the_file_are_in_each_response(serve):
    server = serve(web=USERS + "http_server_config: {headers: {X-Frame-Options: deny}}")
    for login in ("", log_in()):
        for path in ("/metrics", "/healthz", API):
            assert request(server, path, Authorization=login)[1]["X-Frame-Options"] == "deny"


# Tokens.


def test_the_api_needs_a_token_and_the_other_paths_do_not(serve):
    server = serve(tokens=TOKENS)
    for path in (API, "/v3/kafka", "/api", "/other"):
        status, headers, body = request(server, path)
        assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="koff"')
        assert headers["Content-Type"] == "application/problem+json"
        assert json.loads(body) == {
            "type": "about:blank",
            "title": "Unauthorized",
            "status": 401,
            "detail": "log in first",
        }
        assert get(server, path, f"Bearer {TOKEN}")[0] != 401
        assert get(server, path, "bearer the token of a script")[0] != 401
    assert [get(server, path)[0] for path in ("/", "/metrics", "/readyz", "/healthz")] == [200] * 4
    status, headers, _ = request(server, API, Authorization=f"Bearer {TOKEN[:-1]}")
    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="koff", error="invalid_token"')
    hashed = hashlib.sha256(b"the token of a script").hexdigest()
    for wrong in (f"sha256:{hashed}", hashed, "grafana", "", "\xe4\xff"):
        assert get(server, API, f"Bearer {wrong}")[0] == 401


def test_tokens_may_be_for_all_paths(serve):
    server = serve(tokens=TOKENS, tokens_for="all")
    assert get(server, "/metrics")[0] == 401
    assert get(server, "/metrics", f"Bearer {TOKEN}")[0] == 200
    assert get(server, "/healthz") == (200, "ok\n")


def test_with_passwords_too_either_is_enough_for_the_api(serve):
    server = serve(web=USERS, tokens=TOKENS)
    assert [get(server, API, login)[0] for login in (f"Bearer {TOKEN}", log_in())] == [404, 404]
    assert request(server, API)[1].get_all("WWW-Authenticate") == [
        'Basic realm="koff", charset="UTF-8"',
        'Bearer realm="koff"',
    ]
    assert get(server, "/metrics", f"Bearer {TOKEN}")[0] == 401  # a token for the API
    assert get(server, "/metrics", log_in())[0] == 200


# Strange headers.


async def accept(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that responds to everybody."""
    await PlainTextResponse("secret")(scope, receive, send)


HEADERS = (
    st.binary()
    | st.from_regex(rb"(Basic|Bearer) [\x00-\xff]*", fullmatch=True)
    | st.binary().map(lambda login: b"Basic " + base64.b64encode(login))
    | st.binary().map(lambda password: b"Basic " + base64.b64encode(b"alice:" + password))
)


@given(headers=st.lists(HEADERS, max_size=2))
def test_no_header_lets_in_but_the_right_one(headers):
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    hashes = {"grafana": hashlib.sha256(TOKEN.encode()).digest()}
    access = SimpleNamespace(
        conf=AccessConf(tokens_for="all"),
        rules=Rules(WebConfig(users={"alice": PASSWORD_HASH}), tokens=Tokens(hashes)),
    )
    passwords = Passwords()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/metrics",
        "headers": [(b"authorization", value) for value in headers],
    }
    asyncio.run(Authenticated(accept, cast(Access, access), passwords)(scope, receive, send))
    passwords.stop()
    assert sent[0]["status"] == 401
    assert b"secret" not in sent[1]["body"]


# Files that change.


def test_users_and_tokens_change_with_the_files(serve, tmp_path):
    server = serve(web=USERS, tokens=TOKENS)
    bearer = f"Bearer {TOKEN}"
    assert [get(server, API, login)[0] for login in (log_in(), bearer)] == [404, 404]
    (tmp_path / "web.yml").write_text(USERS.replace("alice", "bob"))
    (tmp_path / "tokens").write_text(TOKENS.replace(TOKEN, "another-token-of-grafana"))
    wait_until(lambda: get(server, API, bearer)[0] == 401, what="the end of the token")
    wait_until(lambda: get(server, API, log_in())[0] == 401, what="the end of the user")
    assert get(server, API, log_in("bob"))[0] == 404
    replace_file(tmp_path / "web.yml", USERS)
    wait_until(lambda: get(server, API, log_in())[0] == 404, what="the user who is back")


@pytest.mark.parametrize("broken", ["basic_auth_users: {alice: no hash}", "a: [", "", None])
def test_a_wrong_file_changes_nothing_and_is_logged_once(serve, tmp_path, logged, broken):
    server = serve(web=USERS)
    assert get(server, "/metrics", log_in())[0] == 200

    def list_errors() -> list[str]:
        return [line["why"] for line in logged() if line["level"] == "error"]

    if broken is None:
        (tmp_path / "web.yml").unlink()
    else:
        replace_file(tmp_path / "web.yml", broken)
    wait_until(list_errors, what="the error")
    assert get(server, "/metrics", log_in())[0] == 200
    assert get(server, "/metrics")[0] == 401
    replace_file(tmp_path / "web.yml", USERS.replace("alice", "bob"))
    wait_until(lambda: get(server, "/metrics", log_in("bob"))[0] == 200, what="the right file")
    assert len(set(list_errors())) == len(list_errors())

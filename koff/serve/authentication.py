"""Passwords and bearer tokens, as a layer around the application.

- With users, each path needs a password. On paths that need a token, either of the two is enough.
- `/healthz` and `/readyz` without credentials return the status and no details: probes of Kubernetes cannot
  easily send credentials.
"""

import base64
import binascii

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from koff.logs import get_logger
from koff.serve.access import Access, Rules
from koff.serve.api.problems import CONTENT_TYPE, Problem
from koff.serve.events.first_koff import INSTANCE_HEADER
from koff.serve.page.files import PATHS
from koff.serve.passwords import Passwords, TooManyChecks

log = get_logger("serve")

PROBE_PATHS = ("/healthz", "/readyz")
_WITHOUT_TOKEN = ("/metrics", *PATHS, *PROBE_PATHS)
"""Unless `tokens_for` says all, these paths need no token. All others do, also those that will be added."""


class Authenticated:
    """Passes requests with valid credentials on to `app`, and adds the headers of the web configuration."""

    def __init__(self, app: ASGIApp, access: Access, passwords: Passwords) -> None:
        self._app, self._access, self._passwords = app, access, passwords

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        # Starlette's routes also match a path with a newline behind it.
        rules, path = self._access.rules, scope["path"].removesuffix("\n")
        extra = [(name.lower().encode(), value.encode()) for name, value in rules.web.headers.items()]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        needs_token = rules.tokens is not None and (
            self._access.conf.tokens_for == "all" or path not in _WITHOUT_TOKEN
        )
        credentials = _find_credentials(scope)
        if not rules.web.users and not needs_token:
            await self._app(scope, receive, send_with_headers)
        elif credentials is None and path in PROBE_PATHS:
            await self._send_status(scope, receive, send_with_headers)
        else:
            refusal = await self._find_refusal(scope, rules, credentials, needs_token=needs_token)
            await (refusal or self._app)(scope, receive, send_with_headers)

    async def _find_refusal(
        self, scope: Scope, rules: Rules, credentials: tuple[str, str] | None, *, needs_token: bool
    ) -> Response | None:
        """The response to a client whose credentials are not valid; None if they are."""
        scheme, value = credentials or ("", "")
        client = (scope.get("client") or ("",))[0]
        if scheme == "basic" and rules.web.users and (login := _parse_login(value)) is not None:
            try:
                if await self._passwords.is_right(rules.web.users, *login, client):
                    return None
            except TooManyChecks:
                return _refuse(scope, 429, "too many passwords wait to be checked", {"Retry-After": "1"})
        if scheme == "bearer" and needs_token and rules.tokens is not None and rules.tokens.find_name(value):
            return None
        log.debug("a client is refused", client=client, path=scope["path"], scheme=scheme)
        refusal = _refuse(scope, 401, "send a valid password or token" if credentials else "log in first")
        if rules.web.users:
            refusal.headers.append("WWW-Authenticate", 'Basic realm="koff", charset="UTF-8"')
        if needs_token:
            error = ', error="invalid_token"' if scheme == "bearer" else ""
            refusal.headers.append("WWW-Authenticate", f'Bearer realm="koff"{error}')
        return refusal

    async def _send_status(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the status of the application's response and which process it is, and none of its body."""
        started: Message = {"status": 500}

        async def note_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.update(message)

        await self._app(scope, receive, note_start)
        response = PlainTextResponse("ok\n" if started["status"] == 200 else "not ok\n", started["status"])
        if instance := Headers(raw=started.get("headers", [])).get(INSTANCE_HEADER):
            response.headers[INSTANCE_HEADER] = instance
        await response(scope, receive, send)


def _find_credentials(scope: Scope) -> tuple[str, str] | None:
    """The scheme in lower case and the value of the header Authorization, None without one.

    With several such headers, the scheme is none that is valid.
    """
    found = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
    if not found:
        return None
    scheme, _, value = found[0].strip().partition(" ")
    return (scheme.lower(), value.strip()) if len(found) == 1 else ("", "")


def _parse_login(value: str) -> tuple[str, bytes] | None:
    """User and password (RFC 7617)."""
    try:
        user, colon, password = base64.b64decode(value, validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):  # ValueError: not ASCII, or the name is not UTF-8
        return None


def _refuse(scope: Scope, status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    if scope["path"] in _WITHOUT_TOKEN:
        return PlainTextResponse(f"{detail}\n", status, headers)
    return JSONResponse(Problem(status, detail).build(), status, headers, CONTENT_TYPE)

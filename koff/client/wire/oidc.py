"""Bearer tokens for koff's own connections: from an OpenID Connect provider, or signed for AWS.

librdkafka fetches the tokens of its own connections from the same provider, by the same properties.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from koff.client.calls import call_in_thread
from koff.errors import ConfigError, ConnectError, copy_error

TIMEOUT_S = 5.0
FETCH_S = 6.0
"""A whole request may take so long; connecting, and each read, `TIMEOUT_S`."""
MAX_BYTES = 1 << 20
RETRY_S, MOST_RETRY_S = 2.0, 30.0
"""After a failure, the provider gets no request for so long: many connections may wait for a token. The
pause doubles with each further failure, up to the second value."""
_USED_PART = 0.8
"""A token is used for this part of its life, as librdkafka does."""
_UNSUPPORTED = (
    "sasl.oauthbearer.grant.type",
    "sasl.oauthbearer.metadata.authentication.type",
    "https.ca.pem",
)
_NEEDED = ("token.endpoint.url", "client.id", "client.secret")


def find_token_source(properties: Mapping[str, str]) -> Callable[[], str]:
    """Fetches a token each time it is called. Raises `ConfigError` if koff cannot with these properties."""
    if properties.get("sasl.oauthbearer.method", "").lower() != "oidc":
        raise ConfigError("SASL/OAUTHBEARER needs sasl.oauthbearer.method=oidc, or a token of the program")
    for name in _UNSUPPORTED:
        if properties.get(name) not in (None, "", "client_credentials"):
            raise ConfigError(f"koff does not support {name}={properties[name]}")
    return partial(fetch_token, properties)


def fetch_token(properties: Mapping[str, str]) -> str:
    """A token that is valid now. Raises `ConnectError`; `ConfigError` if a property is missing or wrong."""
    for name in _NEEDED:
        if not properties.get(f"sasl.oauthbearer.{name}"):
            raise ConfigError(f"SASL/OAUTHBEARER needs sasl.oauthbearer.{name}")
    url, client, secret = (properties[f"sasl.oauthbearer.{name}"] for name in _NEEDED)
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError("sasl.oauthbearer.token.endpoint.url must begin with https:// or http://")
    scope, ca_file = properties.get("sasl.oauthbearer.scope", ""), properties.get("https.ca.location", "")
    return _find_source(url, client, secret, scope, ca_file).get()


def parse_extensions(text: str) -> dict[str, str]:
    """The SASL extensions in `sasl.oauthbearer.extensions`: `name=value,...`."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {name.strip(): value.strip() for name, _, value in pairs}


@lru_cache(maxsize=64)
def _find_source(*args: str) -> _TokenSource:
    """The source with these arguments: it is shared by all connections, and has their token."""
    return _TokenSource(*args)


class _TokenSource:
    def __init__(self, url: str, client: str, secret: str, scope: str, ca_file: str) -> None:
        self._url, self._ca_file = url, ca_file
        # RFC 6749, 2.3.1 would have both URL-encoded. Kafka's clients do not, unless they are told to.
        login = base64.b64encode(f"{client}:{secret}".encode()).decode()
        self._headers = {
            "Authorization": f"Basic {login}",
            "Accept": "application/json",
        }
        fields = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        self._body = urllib.parse.urlencode(fields).encode()
        self._lock = threading.Lock()
        self._token = ""
        self._until_s = self._retry_s = float("-inf")
        self._pause_s = 0.0
        self._failure: ConnectError | None = None
        # Kept: an opener is in a cycle, and its TLS context has much memory.
        self._opener: urllib.request.OpenerDirector | None = None
        self._opener_written = 0

    def get(self) -> str:
        """The token, fetched again if most of its life is over."""
        with self._lock:
            began_s = time.monotonic()
            if self._failure is not None and began_s < self._retry_s:
                raise copy_error(self._failure)
            if began_s >= self._until_s:
                try:
                    # In a thread: a provider may send its response byte by byte, each in time.
                    self._token, life_s = call_in_thread(self._fetch).result(FETCH_S)
                except TimeoutError:
                    raise self._note_failure(self._make_error("no response in time")) from None
                except ConnectError as error:
                    raise self._note_failure(error) from None
                self._failure, self._pause_s = None, 0.0
                self._until_s = began_s + life_s * _USED_PART
            return self._token

    def _note_failure(self, error: ConnectError) -> ConnectError:
        """Keeps the error until the next attempt. Returns a copy to raise."""
        self._failure = copy_error(error)
        self._pause_s = min(2 * self._pause_s, MOST_RETRY_S) or RETRY_S
        self._retry_s = time.monotonic() + self._pause_s
        return copy_error(error)

    def _make_opener(self) -> urllib.request.OpenerDirector:
        """The opener, made again if the file of the authorities was written since."""
        written = Path(self._ca_file).stat().st_mtime_ns if self._ca_file else 0
        if self._opener is None or written != self._opener_written:
            context = ssl.create_default_context(cafile=self._ca_file or None)
            https = urllib.request.HTTPSHandler(context=context)
            self._opener = urllib.request.build_opener(https, _RefuseRedirects())
            self._opener_written = written
        return self._opener

    def _fetch(self) -> tuple[str, float]:
        """A new token, and how many seconds it lives."""
        try:
            request = urllib.request.Request(self._url, self._body, self._headers)  # noqa: S310 - http(s) only
            with self._make_opener().open(request, timeout=TIMEOUT_S) as response:
                fetched = json.loads(_read_within(response, time.monotonic() + TIMEOUT_S))
            token, life_s = fetched["access_token"], float(fetched.get("expires_in", 0))
            if not isinstance(token, str) or not token.isascii() or "\x01" in token:
                raise ValueError
            if not 0 <= life_s < math.inf:
                raise ValueError
        except urllib.error.HTTPError as error:
            with error:
                raise self._make_error(f"it responds with status {error.code}") from None
        except OSError as error:
            raise self._make_error(str(getattr(error, "reason", None) or error)) from None
        except http.client.HTTPException as error:  # its text quotes the response, which may contain a token
            raise self._make_error(f"its response is not HTTP ({type(error).__name__})") from None
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ):  # the text may contain a token
            raise self._make_error("its response has no access_token") from None
        return token, life_s

    def _make_error(self, why: str) -> ConnectError:
        parts = urllib.parse.urlsplit(self._url)
        return ConnectError(f"cannot fetch a token from {parts.scheme}://{parts.hostname}: {why}")


class _RefuseRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would take the secret to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _read_within(response: Any, until_s: float) -> bytes:
    """The body. A server that sends a byte now and then gets no more time for each."""
    parts = []
    while data := response.read1(1 << 16):
        parts.append(data)
        if time.monotonic() > until_s or sum(map(len, parts)) > MAX_BYTES:
            raise TimeoutError("the response is too long or too slow")
    return b"".join(parts)

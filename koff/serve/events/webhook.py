"""Webhooks: POST of events to a URL, from a thread for each. A receiver that hangs delays nothing else."""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from string import Template
from typing import Literal
from urllib.parse import urlsplit

from koff.errors import ConfigError
from koff.logs import get_logger
from koff.serve.events.event import KINDS, ClusterEvent, Severity
from koff.tracker import Rule, ShownNames
from koff.version import VERSION

log = get_logger("webhook")
Result = Literal["ok", "failed", "refused"]
RESULTS: tuple[Result, ...] = ("ok", "failed", "refused")
MOST_WAITING, AT_ONCE = 1000, 100
"""So many events wait for a receiver at most, and so many are in one request."""
OF_ONE = ("key", "action", "severity")
"""Names in a template that are of one event. `action` is trigger, or resolve if the event ends something."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
_LONGEST_TIMEOUT_S = 3600
STOP_S = 2.0
_TRY_AGAIN = frozenset({408, 429})
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConf:
    """Where events are sent to, and which: all that fit. Raises `ConfigError`, whose text has no secret.

    `groups` are rules for the names of groups; events without a group always fit. Without `kinds`, all fit.
    One that is `owned`, because owners name it, gets the events of their groups only, and those without a
    group if it has no `groups`.
    A request that fails is sent again `retries` times. `template` is the body: JSON with `$events` (the list
    of events) or `$text` (their sentences, as one text). With one of `OF_ONE`, each event is sent by itself.
    """

    url: str = field(repr=False)
    name: str | None = None
    owned: bool = False
    min_severity: Severity = Severity.WARNING
    kinds: tuple[str, ...] = ()
    groups: tuple[Rule, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 5.0
    retries: int = 8
    template: str = field(default='{"events": $events}', repr=False)

    def __post_init__(self) -> None:
        check_url(self.url)
        for name, value in self.headers.items():
            if why := find_header_fault(name, value):
                raise ConfigError(f"the header {name!a} of a webhook {why}")
        if unknown := set(self.kinds).difference(KINDS):
            raise ConfigError(f"a webhook names the kind {min(unknown)!r}, which no event has")
        if not 0 < self.timeout_s <= _LONGEST_TIMEOUT_S:
            raise ConfigError(f"the timeout of a webhook must be at most {_LONGEST_TIMEOUT_S} s")
        check_template(self.template)

    @property
    def place(self) -> str:
        """The URL without what may be secret: its path and its query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def fits(self, event: ClusterEvent) -> bool:
        """Whether the event is to be sent."""
        return (
            event.reaches(self.min_severity)
            and (not self.kinds or event.kind in self.kinds)
            and (event.group is None or ShownNames(self.groups).shows_group(event.group))
            and (not self.owned or self._is_named_by_owner(event))
        )

    def _is_named_by_owner(self, event: ClusterEvent) -> bool:
        if event.group is None:
            return not self.groups
        return event.owner is not None and event.owner.webhook == self.name

    @property
    def at_once(self) -> int:
        """How many events a request has at most."""
        names = {found["named"] or found["braced"] for found in Template.pattern.finditer(self.template)}
        return 1 if names.intersection(OF_ONE) else AT_ONCE

    def build_body(self, events: Sequence[ClusterEvent]) -> bytes:
        """The body of a request with these events: at least one, and at most `at_once`."""
        first = events[0].to_json()
        values = {
            "events": [event.to_json() for event in events],
            "text": "\n".join(event.text for event in events),
            "key": first["key"],
            "action": "resolve" if first["resolves"] else "trigger",
            "severity": first["severity"],
        }
        texts = {name: json.dumps(value) for name, value in values.items()}
        return Template(self.template).substitute(texts).encode()


def find_header_fault(name: str, value: str) -> str:
    """Why a request may not have the header; "" if it may."""
    is_right = _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)
    return "" if is_right else "has characters that HTTP forbids"


def check_url(url: str) -> None:
    """Raises `ConfigError` if requests cannot be sent to the URL. The text does not have it."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or not re.fullmatch(r"[\x21-\x7e]+", url):
        raise ConfigError("the URL of a webhook must be http://HOST[:PORT]/PATH, or https")
    if "@" in parts.netloc:
        raise ConfigError("the URL of a webhook has a user: use the header Authorization")


def check_template(template: str) -> None:
    """Raises `ConfigError` if the template is not JSON once its names are replaced."""
    try:
        json.loads(
            Template(template).substitute(events="[]", **dict.fromkeys(("text", *OF_ONE), '""')).encode()
        )
    except KeyError as error:
        names = ", ".join(f"${name}" for name in ("events", "text", *OF_ONE))
        raise ConfigError(f"the template of a webhook has ${error.args[0]}: use {names}") from None
    except ValueError as error:
        raise ConfigError(f"the template of a webhook is not JSON: {error}") from None


class WebhookCounts:
    """What happened to the requests of all webhooks, and how many events were dropped. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: dict[Result, int] = dict.fromkeys(RESULTS, 0)
        self.dropped = 0

    def add_request(self, result: Result) -> None:
        """Counts a request."""
        with self._lock:
            self.requests[result] += 1

    def add_dropped(self, events: int) -> None:
        """Counts events that were dropped."""
        with self._lock:
            self.dropped += events


class Webhooks:
    """Sends events to all webhooks of a configuration, which may change."""

    def __init__(self) -> None:
        self.counts = WebhookCounts()
        self._senders: tuple[_Sender, ...] = ()

    def configure(self, confs: Sequence[WebhookConf]) -> None:
        """Sends to these from now on. A webhook that stays the same does not notice."""
        before, kept = list(self._senders), list[_Sender]()
        for conf in confs:
            same = next((sender for sender in before if sender.conf == conf), None)
            if same is None:
                same = _Sender(conf, self.counts)
                same.start()
            else:
                before.remove(same)
            kept.append(same)
        self._senders = tuple(kept)
        _stop(before)

    def send(self, events: Sequence[ClusterEvent]) -> None:
        """Takes new events. Returns at once."""
        for sender in self._senders:
            sender.add([event for event in events if sender.conf.fits(event)])

    def stop(self) -> None:
        """Stops all, within `STOP_S`. What waits is sent once more."""
        senders, self._senders = self._senders, ()
        _stop(senders)


def _stop(senders: Sequence[_Sender]) -> None:
    for sender in senders:
        sender.stop()
    until_s = time.monotonic() + STOP_S
    for sender in senders:
        sender.join(max(0.0, until_s - time.monotonic()))


class _Sender:
    """Sends events to one webhook, in a thread of its own."""

    def __init__(self, conf: WebhookConf, counts: WebhookCounts) -> None:
        self.conf = conf
        self._counts = counts
        self._changed = threading.Condition()  # guards the two below
        self._waiting: deque[ClusterEvent] = deque()
        self._is_stopping = False
        self._is_failing = False
        self._tls = ssl.create_default_context() if conf.url.startswith("https:") else None
        self._thread = threading.Thread(target=self._run, name="koff-webhook", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, events: Sequence[ClusterEvent]) -> None:
        """Takes events. If too many wait, the oldest are dropped."""
        with self._changed:
            self._waiting.extend(events)
            too_many = len(self._waiting) - MOST_WAITING
            for _ in range(too_many):
                self._waiting.popleft()
            self._changed.notify_all()
        self._counts.add_dropped(max(0, too_many))

    def stop(self) -> None:
        """Lets the thread end after one more attempt."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        """Waits for the thread. A request that is under way then is left to the end of the process."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while events := self._take():
            try:
                self._deliver(events)
            except Exception as error:  # a fault of koff: later events must be sent
                # The text of the error may have a secret.
                self._drop(events, f"a fault of koff: please report it: {type(error).__name__}")

    def _take(self) -> list[ClusterEvent]:
        """The next events; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_stopping)
            return [self._waiting.popleft() for _ in range(min(self.conf.at_once, len(self._waiting)))]

    def _deliver(self, events: Sequence[ClusterEvent]) -> None:
        """Sends the events until they are accepted, refused, or it has failed too often."""
        body = self.conf.build_body(events)
        for attempt in range(self.conf.retries + 1):
            result, why = self._post(body)
            self._note(result, why)
            if result == "ok":
                return
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt, 10))
            if result == "refused" or attempt == self.conf.retries or self._is_stopped_within(pause_s):
                break
        self._drop(events, why)

    def _drop(self, events: Sequence[ClusterEvent], why: str) -> None:
        self._counts.add_dropped(len(events))
        log.warning("events were not delivered", url=self.conf.place, count=len(events), why=why)

    def _is_stopped_within(self, pause_s: float) -> bool:
        # Several koffs must not send again at the same moment.
        pause_s *= random.uniform(0.5, 1.0)  # noqa: S311  no secret depends on it
        with self._changed:
            return self._changed.wait_for(lambda: self._is_stopping, pause_s)

    def _note(self, result: Result, why: str) -> None:
        self._counts.add_request(result)
        is_failing = result == "failed"
        if is_failing and not self._is_failing:
            log.warning("a webhook fails; koff tries again", url=self.conf.place, why=why)
        self._is_failing = is_failing

    def _post(self, body: bytes) -> tuple[Result, str]:
        """Sends one request. Follows no redirect."""
        parts = urlsplit(self.conf.url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        own = {"Content-Type": "application/json", "User-Agent": f"koff/{VERSION}"}
        given = {name.lower() for name in self.conf.headers}
        headers = {name: value for name, value in own.items() if name.lower() not in given}
        try:
            with closing(self._connect(parts.hostname or "", parts.port)) as connection:
                connection.connect()
                # A receiver that sends a byte now and then must not have more time than one that hangs.
                limit = threading.Timer(self.conf.timeout_s, _shut_down, [connection])
                limit.daemon = True
                limit.start()
                try:
                    all_headers = {**headers, **self.conf.headers, "Connection": "close"}
                    connection.request("POST", path, body, all_headers)
                    status = connection.getresponse().status
                finally:
                    limit.cancel()
        except (OSError, http.client.HTTPException, ValueError) as error:
            return "failed", f"{type(error).__name__}: {error}"
        if 200 <= status < 300:
            return "ok", ""
        is_final = 300 <= status < 500 and status not in _TRY_AGAIN
        return "refused" if is_final else "failed", f"HTTP status {status}"

    def _connect(self, host: str, port: int | None) -> http.client.HTTPConnection:
        timeout_s = self.conf.timeout_s
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)


def _shut_down(connection: http.client.HTTPConnection) -> None:
    """Ends all waits of the connection."""
    with suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)

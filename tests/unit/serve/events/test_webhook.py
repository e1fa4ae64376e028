"""Webhooks against receivers that accept, fail, hang, refuse, redirect, and drop connections."""

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from structlog.testing import capture_logs

from koff.errors import ConfigError
from koff.kafkatest import free_ports, wait_until
from koff.serve.events import notice_queue
from koff.serve.events import webhook as webhook_module
from koff.serve.events.event import ClusterEvent, Severity
from koff.serve.events.quiet_hours import QuietHours
from koff.serve.events.templates import TEMPLATES
from koff.serve.events.webhook import Webhooks
from koff.serve.events.webhook_conf import WebhookConf
from koff.tracker import Rule
from koff.view.owners import Owner
from tests.http_receiver import HttpReceiver, run_receiver, send
from tests.unit.serve.certificates import build_client_context, get_authority

SECRET = "hunter2"


def make_event(number: int = 1, **fields: Any) -> ClusterEvent:
    given: dict[str, Any] = {"kind": "records_lost", "severity": Severity.ERROR, "group": "g", **fields}
    return ClusterEvent(cluster="c", text=f"event {number}", id=f"1-{number}", time="now", **given)


class Receiver(HttpReceiver):
    """Responds to each request with the next status of `statuses`, and then with the last one again.

    "hang" is no response, "drop" closes the connection, and "trickle" sends a byte now and then.
    """

    def __init__(self, *statuses: int | str) -> None:
        super().__init__()
        self.statuses = list(statuses)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.header_lines: list[list[tuple[str, str]]] = []
        self.url = f"{self.address}/hook/{SECRET}?token={SECRET}"

    def respond(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        status = self.statuses[min(len(self.requests), len(self.statuses) - 1)]
        self.header_lines.append(request.headers.items())
        self.requests.append((request.path, dict(request.headers), body))
        if status == "hang":
            self.ended.wait(60)
        elif status == "trickle":
            while not self.ended.wait(0.05):
                request.wfile.write(b"H")
        elif isinstance(status, int):
            send(request, status, Location=self.url)
        request.close_connection = True

    def list_ids(self) -> list[str]:
        return [event["id"] for _, _, body in list(self.requests) for event in json.loads(body)["events"]]


def receiving(*statuses: int | str) -> AbstractContextManager[Receiver]:
    return run_receiver(Receiver(*statuses))


@pytest.fixture
def webhooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhooks]:
    """Webhooks that try again soon."""
    monkeypatch.setattr(webhook_module, "FIRST_PAUSE_S", 0.001)
    made = Webhooks()
    yield made
    made.stop()


def deliver(webhooks: Webhooks, receiver: Receiver, *events: ClusterEvent, **conf: Any) -> None:
    """Sends the events to the receiver alone, from now on."""
    webhooks.configure([WebhookConf(url=receiver.url, **conf)])
    webhooks.send(list(events))


def wait_for(condition: Callable[[], bool]) -> None:
    wait_until(condition, every_s=0.01, what="the webhook")


def test_events_are_posted_as_json_with_headers(webhooks):
    with receiving(200) as receiver:
        event = make_event(1, topic="t", partition=3, details={"offsets": 5})
        deliver(webhooks, receiver, event, headers={"Authorization": "Bearer x"})
        wait_for(lambda: webhooks.counts.requests["ok"] == 1)
    path, headers, body = receiver.requests[0]
    assert path == f"/hook/{SECRET}?token={SECRET}"
    assert (headers["Content-Type"], headers["Authorization"]) == ("application/json", "Bearer x")
    assert headers["User-Agent"].startswith("koff/")
    assert json.loads(body) == {
        "events": [
            {
                "id": "1-1",
                "time": "now",
                "cluster": "c",
                "kind": "records_lost",
                "severity": "error",
                "key": event.thing,
                "resolves": False,
                "text": "event 1",
                "group": "g",
                "topic": "t",
                "partition": 3,
                "details": {"offsets": 5},
            }
        ]
    }


def test_a_webhook_gets_the_events_that_fit(webhooks):
    with receiving(200) as receiver:
        rules = (Rule.parse("exclude:test"), Rule.parse("^pay"))
        webhooks.configure([WebhookConf(url=receiver.url, kinds=("records_lost", "blind"), groups=rules)])
        webhooks.send(
            [
                make_event(1, group="pay-test"),
                make_event(2, group="other"),
                make_event(3, group="pay", severity=Severity.INFO),
                make_event(4, group="pay", kind="offsets_reset"),
                make_event(5, group="pay"),
                make_event(6, group=None, kind="blind"),
            ]
        )
        wait_for(lambda: len(receiver.list_ids()) == 2)
        assert receiver.list_ids() == ["1-5", "1-6"]


def test_a_template_makes_the_body():
    conf = WebhookConf(url="http://a", template='{"text": $text, "all": $events}')
    events = [make_event(1), make_event(2, details={"a": 'x"$text\n'})]
    body = json.loads(conf.notices.build(events, conf.filling).body)
    assert body["text"] == "event 1\nevent 2"
    assert body["all"][1]["details"] == {"a": 'x"$text\n'}


def test_a_template_for_one_event_opens_and_resolves_by_its_key(webhooks):
    template = '{"key": $key, "action": $action, "severity": $severity, "text": $text}'
    ended = make_event(2, key="k", kind="incident_closed", severity=Severity.INFO, ends=Severity.WARNING)
    given = [make_event(1, key="k"), ended, make_event(3), replace(ended, ends=None)]
    with receiving(200) as receiver:
        # What only informs is below the least severity, unless it ends what was not.
        deliver(webhooks, receiver, *given, template=template)
        wait_for(lambda: webhooks.counts.requests["ok"] == 3)
    assert [json.loads(body) for _, _, body in receiver.requests] == [
        {"key": "k", "action": "trigger", "severity": "error", "text": "event 1"},
        {"key": "k", "action": "resolve", "severity": "info", "text": "event 2"},
        {"key": given[2].thing, "action": "trigger", "severity": "error", "text": "event 3"},
    ]


def test_a_webhook_of_an_owner_gets_the_events_of_its_groups_and_of_clusters():
    pay, other = (Owner(re.compile("."), name, webhook=name) for name in ("pay", "other"))
    events = [make_event(n, owner=owner) for n, owner in enumerate((pay, other, None))]
    events.append(make_event(3, group=None, kind="blind"))

    def list_fitting(**conf: Any) -> list[int]:
        made = WebhookConf(url="http://a", **conf)
        return [number for number, event in enumerate(events) if made.fits(event)]

    assert list_fitting(name="pay", owned=True) == [0, 3]
    assert list_fitting(name="pay", owned=True, groups=(Rule.parse("."),)) == [0]
    assert list_fitting(name="pay", owned=True, groups=(Rule.parse("exclude:g"),)) == []
    assert list_fitting(name="pay") == list_fitting() == [0, 1, 2, 3]


@pytest.mark.parametrize("failure", [500, 503, 429, 408, "drop"])
def test_a_failure_is_sent_again(webhooks, failure):
    with receiving(failure, failure, 204) as receiver, capture_logs() as logs:
        deliver(webhooks, receiver, make_event())
        wait_for(lambda: webhooks.counts.requests["ok"] == 1)
    assert receiver.list_ids() == ["1-1"] * 3
    assert webhooks.counts.requests == {"ok": 1, "failed": 2, "refused": 0}
    assert [line["event"] for line in logs] == ["a webhook fails; koff tries again"]
    assert SECRET not in str(logs)


@pytest.mark.parametrize("status", [400, 401, 404, 301, 302, 307])
def test_what_is_refused_or_redirected_is_not_sent_again(webhooks, status):
    with receiving(status, 200) as receiver, capture_logs() as logs:
        deliver(webhooks, receiver, make_event(1))
        wait_for(lambda: webhooks.counts.dropped == 1)
        webhooks.send([make_event(2)])
        wait_for(lambda: webhooks.counts.requests["ok"] == 1)
    assert receiver.list_ids() == ["1-1", "1-2"]
    assert webhooks.counts.requests == {"ok": 1, "failed": 0, "refused": 1}
    (line,) = logs
    assert (line["event"], line["why"]) == ("events were not delivered", f"HTTP status {status}")
    assert SECRET not in str(logs)


def test_a_receiver_that_is_not_there_is_given_up_after_the_retries(webhooks):
    webhooks.configure([WebhookConf(url=f"http://127.0.0.1:{free_ports(1)[0]}/", retries=3)])
    webhooks.send([make_event()])
    wait_for(lambda: webhooks.counts.dropped == 1)
    assert webhooks.counts.requests == {"ok": 0, "failed": 4, "refused": 0}


def test_certificates_are_verified(webhooks):
    webhooks.configure([WebhookConf(url="https://127.0.0.1:1/")])
    tls = webhooks._senders[0]._tls
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("fault", ["hang", "trickle"])
def test_a_receiver_that_is_slow_delays_no_other_and_no_stop(webhooks, fault):
    with receiving(fault) as slow, receiving(200) as good:
        webhooks.configure([WebhookConf(url=slow.url, timeout_s=3600), WebhookConf(url=good.url)])
        for number in range(3):
            webhooks.send([make_event(number)])
        wait_for(lambda: len(good.list_ids()) == 3 and len(slow.requests) == 1)
        sender = webhooks._senders[0]
        began_s = time.monotonic()
        webhooks.stop()
        assert time.monotonic() - began_s < 20
    wait_for(lambda: not sender._thread.is_alive())  # its last lines of the log are not for later tests


@pytest.mark.parametrize("fault", ["hang", "trickle"])
def test_a_receiver_that_is_slow_is_a_failure_after_the_timeout(webhooks, fault):
    with receiving(fault, 200) as receiver:
        deliver(webhooks, receiver, make_event(), timeout_s=1.0)
        wait_for(lambda: webhooks.counts.requests["ok"] == 1)
    assert webhooks.counts.requests["failed"] >= 1  # more on a busy machine


def test_a_tls_handshake_that_trickles_is_a_failure_after_the_timeout(webhooks):
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        conf = WebhookConf(url=f"https://127.0.0.1:{server.getsockname()[1]}/", timeout_s=0.5, retries=0)
        webhooks.configure([conf])
        webhooks.send([make_event()])
        connection, _ = server.accept()

        def trickle() -> None:
            with connection, suppress(OSError):
                connection.sendall(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB
                while not ended.wait(0.05):
                    connection.sendall(b"\0")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            wait_for(lambda: webhooks.counts.dropped == 1)
        finally:
            ended.set()
            thread.join()


def test_events_are_posted_with_tls(webhooks, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    get_authority().issue_cert("127.0.0.1").configure_cert(context)
    client = build_client_context()
    monkeypatch.setattr(ssl, "create_default_context", lambda: client)
    with receiving(200) as receiver:
        receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
        webhooks.configure([WebhookConf(url=receiver.url.replace("http:", "https:"))])
        webhooks.send([make_event()])
        wait_for(lambda: receiver.list_ids() == ["1-1"])
    assert webhooks.counts.requests["failed"] == 0


def test_a_header_of_the_configuration_replaces_that_of_koff(webhooks):
    with receiving(200) as receiver:
        deliver(webhooks, receiver, make_event(), headers={"content-type": "text/x"})
        wait_for(lambda: len(receiver.requests) == 1)
    assert [line for line in receiver.header_lines[0] if line[0].lower() == "content-type"] == [
        ("content-type", "text/x")
    ]


def test_a_fault_of_koff_drops_these_events_and_later_ones_are_sent(webhooks, monkeypatch):
    with receiving(200) as receiver:
        webhooks.configure([WebhookConf(url=receiver.url)])
        with monkeypatch.context() as patched, capture_logs() as logs:
            patched.setattr(json, "dumps", lambda _: 1 / 0)
            webhooks.send([make_event(1)])
            wait_for(lambda: bool(logs))
        webhooks.send([make_event(2)])
        wait_for(lambda: receiver.list_ids() == ["1-2"])
    assert webhooks.counts.dropped == 1
    assert "ZeroDivisionError" in logs[0]["why"]


def test_the_oldest_events_are_dropped_if_too_many_wait(webhooks, monkeypatch):
    monkeypatch.setattr(notice_queue, "MOST_WAITING", 5)
    monkeypatch.setitem(TEMPLATES, "events", TEMPLATES["events"]._replace(at_once=2))
    with receiving("hang", 200) as receiver:
        deliver(webhooks, receiver, make_event(0), timeout_s=3600)
        wait_for(lambda: len(receiver.requests) == 1)
        webhooks.send([make_event(number) for number in range(1, 10)])
        assert webhooks.counts.dropped == 4
        receiver.ended.set()  # the request that hung gets no response
        wait_for(lambda: len(receiver.list_ids()) == 7)
        assert receiver.list_ids() == ["1-0", "1-0", "1-5", "1-6", "1-7", "1-8", "1-9"]
        assert [len(json.loads(body)["events"]) for _, _, body in receiver.requests] == [1, 1, 2, 2, 1]


def test_what_waits_is_sent_at_the_stop(webhooks, monkeypatch):
    monkeypatch.setattr(webhook_module, "STOP_S", 60.0)
    with receiving(500, 200) as receiver:
        webhooks.configure([WebhookConf(url=receiver.url)])
        monkeypatch.setattr(webhook_module, "FIRST_PAUSE_S", 3600.0)
        webhooks.send([make_event(1)])
        wait_for(lambda: webhooks.counts.requests["failed"] == 1)
        webhooks.send([make_event(2)])
        webhooks.stop()
        assert receiver.list_ids() == ["1-1", "1-2"]
    assert webhooks.counts.dropped == 1


def test_what_quiet_hours_hold_back_is_sent_when_they_are_over_and_at_the_stop(webhooks, monkeypatch):
    monkeypatch.setattr(webhook_module, "HELD_LOOK_S", 0.01)
    monkeypatch.setattr(webhook_module, "STOP_S", 60.0)
    quiet = QuietHours.parse("00:00-24:00")
    with receiving(200) as receiver:
        deliver(webhooks, receiver, make_event(1), quiet_hours=(quiet,))
        queue = webhooks._senders[0]._queue
        wait_for(lambda: queue._hold is not None)
        with monkeypatch.context() as over:
            over.setattr(QuietHours, "hold", lambda hours, at_s: False)
            wait_for(lambda: len(receiver.requests) == 1)
        webhooks.send([make_event(2)])
        wait_for(lambda: queue._hold is not None)
        webhooks.stop()
        texts = [json.loads(body)["events"][0]["text"] for _, _, body in receiver.requests]
    assert [text.splitlines()[1:] for text in texts] == [["- event 1"], ["- event 2"]]


def test_a_request_may_add_to_the_path_of_the_url(webhooks):
    ended = make_event(1, key="c/1/g", kind="incident_closed", severity=Severity.INFO, ends=Severity.ERROR)
    with receiving(202) as receiver:
        deliver(webhooks, receiver, ended, template="opsgenie")
        wait_for(lambda: webhooks.counts.requests["ok"] == 1)
    ((path, _, _),) = receiver.requests
    assert path == f"/hook/{SECRET}/c:1:g/close?identifierType=alias&token={SECRET}"


def test_a_changed_configuration_keeps_the_webhooks_that_are_the_same(webhooks):
    with receiving(200) as first, receiving(200) as second:
        one, two = WebhookConf(url=first.url), WebhookConf(url=second.url)
        webhooks.configure([one])
        sender = webhooks._senders[0]
        webhooks.configure([two, one])
        assert webhooks._senders[1] is sender
        webhooks.send([make_event(1)])
        wait_for(lambda: first.list_ids() == second.list_ids() == ["1-1"])
        webhooks.configure([two])
        webhooks.send([make_event(2)])
        wait_for(lambda: second.list_ids() == ["1-1", "1-2"])
        wait_for(lambda: not sender._thread.is_alive())
    assert first.list_ids() == ["1-1"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"url": f"ftp://{SECRET}"}, "must be http://HOST"),
        ({"url": f"https:///{SECRET}"}, "must be http://HOST"),
        ({"url": f"http://a:{SECRET}/"}, "must be http://HOST"),
        ({"url": f"http://[{SECRET}"}, "must be http://HOST"),
        ({"url": f"http://a/{SECRET}\r\nX: y"}, "must be http://HOST"),
        ({"url": f"http://user:{SECRET}@a/"}, "has a user"),
        ({"url": "http://a", "headers": {"A": f"{SECRET}\r\nB: c"}}, "HTTP forbids"),
        ({"url": "http://a", "headers": {"A b": SECRET}}, "HTTP forbids"),
        ({"url": "http://a", "kinds": ("nothing",)}, "'nothing'"),
        ({"url": "http://a", "template": "$none"}, r"\$none: use \$events, \$text, \$key, "),
        ({"url": "http://a", "template": '{"a": "$"}'}, "is not JSON"),
        ({"url": "http://a", "template": '"\ud800"'}, "is not JSON"),
        ({"url": "http://a", "template": "pagerduty"}, "needs a routing_key"),
        ({"url": "http://a", "routing_key": SECRET}, "needs a routing_key"),
        ({"url": "http://a", "template": "alertmanager", "throttle": 1}, "use those of Alertmanager"),
        ({"url": "http://a", "timeout_s": 1e12}, "at most 3600 s"),
        ({"url": "http://a", "template": '{"text": "$text"}'}, "is not JSON"),
    ],
)
def test_a_wrong_configuration_is_refused_without_its_secrets(values, why):
    with pytest.raises(ConfigError, match=why) as error:
        WebhookConf(**values)
    assert SECRET not in str(error.value)


def test_the_text_of_a_configuration_has_no_secret():
    template = f'{{"key": "{SECRET}"}}'
    conf = WebhookConf(url=f"https://a:1/{SECRET}?{SECRET}", headers={"A": SECRET}, template=template)
    assert SECRET not in repr(conf)
    assert SECRET not in repr(WebhookConf(url="http://a", template="pagerduty", routing_key=SECRET))
    assert conf.place == "https://a:1"

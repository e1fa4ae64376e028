"""Two koffs, one of them the standby: what a webhook gets, and what the real server of the first answers."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from koff.kafkatest import free_ports, wait_until
from koff.serve.access import AccessConf
from koff.serve.events import first_koff as first_koff_module
from koff.serve.events import standby as standby_module
from koff.serve.events.first_koff import Answers, FirstKoff
from koff.serve.events.watcher import Events, EventWatcher
from koff.serve.events.webhook_conf import WebhookConf
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.view.cluster_view import Views
from tests.unit.serve.certificates import PASSWORD_HASH, write_server_files
from tests.unit.serve.events.test_webhook import Receiver, receiving
from tests.unit.serve.events.watched import Watched, keep_up, stop


class Koff:
    """A koff that watches `watched`, and sends to the receiver: the standby of the one at `first`."""

    def __init__(self, watched: Watched, receiver: Receiver, first: str | None = None) -> None:
        self.watched, self.events, self.is_ready = watched, Events(first), True
        self.watcher = EventWatcher(self.take_views, lambda: 0.0, self.events)
        self.events.webhooks.configure([WebhookConf(url=receiver.url)])

    def take_views(self) -> Views:
        return Views.from_one(self.watched.take_view(is_ready=self.is_ready))

    def find_stall(self) -> None:
        return None

    def serve(self, access: AccessConf | None = None) -> Server:
        return Server(self, ServeConf("127.0.0.1:0", access or AccessConf()), events=self.events)

    def look_until(self, condition: Callable[[], object]) -> None:
        first = self.events.notices._first

        def look() -> object:
            # However busy this machine is: a look finds what the first has answered.
            wait_until(lambda: first is None or first.take_answers() != {}, timeout_s=30, what="the answers")
            self.watcher.look()
            return condition()

        wait_until(look, timeout_s=30, what="what follows a look")

    def stop(self) -> None:
        self.watcher.stop()
        self.events.webhooks.stop()


def list_events(receiver: Receiver) -> list[tuple[str, str]]:
    """The kinds and keys of what the webhook got."""
    bodies = [json.loads(body) for _, _, body in list(receiver.requests)]
    return [(event["kind"], event["key"]) for body in bodies for event in body["events"]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is, a koff that is there answers in time."""
    monkeypatch.setattr(first_koff_module, "TIMEOUT_S", 60.0)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving(200) as receiver:
        yield receiver


@pytest.fixture
def run(receiver: Receiver) -> Iterator[Callable[..., Koff]]:
    with ExitStack() as open_:

        def start(first: str | None = None) -> Koff:
            watched = Watched()
            keep_up(watched)
            koff = Koff(watched, receiver, first)
            open_.callback(koff.stop)
            return koff

        yield start


def wait_for_answers(first: FirstKoff, *clusters: str) -> Answers:
    first.ask(clusters)
    return wait_until(first.take_answers, timeout_s=30, what="the answers")


def test_what_the_first_cannot_send_any_more_is_sent_by_the_standby(
    run: Callable[..., Koff], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    first = run()
    with first.serve() as server:
        standby = run(server.url)
        for koff in (first, standby):
            koff.watcher.look()
            stop(koff.watched)
            koff.watcher.look()
        wait_until(lambda: list_events(receiver), timeout_s=30, what="the webhook")
        monkeypatch.setattr(standby_module, "KEEP_S", 0.0)
        standby.look_until(lambda: not standby.events.notices._standbys["c"]._waiting)
        # Nothing is under way to the first when it stops: that would fail in another way.
        wait_until(standby.events.notices._first.take_answers, timeout_s=30, what="the answers")
    assert list_events(receiver) == [("incident_opened", "c/incident/g")]
    monkeypatch.setattr(standby_module, "PATIENCE_S", 0.0)
    with capture_logs() as logs:
        standby.look_until(lambda: len(list_events(receiver)) > 1)
    assert list_events(receiver)[1:] == [("incident_lasts", "c/incident/g")]
    (line,) = [line for line in logs if line["log_level"] == "warning"]
    assert (line["cluster"], line["first"]) == ("c", server.url)
    assert "ConnectionRefusedError" in line["why"]
    with first.serve() as again:
        standby.events.notices._first = FirstKoff(again.url)  # another port
        with capture_logs() as logs:
            standby.look_until(lambda: [line for line in logs if "sends the events" in line["event"]])
    assert len(list_events(receiver)) == 2


def test_a_koff_with_its_own_address_sends_itself(run: Callable[..., Koff], receiver: Receiver):
    (port,) = free_ports(1)
    koff = run(f"http://127.0.0.1:{port}")
    with Server(koff, ServeConf(f"127.0.0.1:{port}"), events=koff.events):
        koff.watcher.look()
        stop(koff.watched)
        koff.look_until(lambda: list_events(receiver))
    assert list_events(receiver) == [("incident_opened", "c/incident/g")]


def test_a_standby_that_stops_sends_what_waits_if_the_first_is_away(
    run: Callable[..., Koff], receiver: Receiver
):
    standby = run("http://127.0.0.1:1")
    standby.watcher.look()
    stop(standby.watched)
    standby.watcher.look()
    assert list_events(receiver) == []
    standby.stop()
    wait_until(lambda: list_events(receiver), timeout_s=30, what="the webhook")
    assert list_events(receiver) == [("incident_opened", "c/incident/g")]


def test_the_first_says_of_each_cluster_whether_it_sees_it(run: Callable[..., Koff]):
    first = run()
    with first.serve() as server:
        answers = wait_for_answers(FirstKoff(server.url), "c", "ö/&")
        assert answers["c"] == (first.events.notices.instance, True, "ready")
        assert answers["ö/&"].instance == first.events.notices.instance
        assert (answers["ö/&"].is_ready, "of that name" in answers["ö/&"].why) == (False, True)
        first.is_ready = False
        wait_until(
            lambda: not wait_for_answers(FirstKoff(server.url), "c")["c"].is_ready, timeout_s=30, what="503"
        )


def test_tls_and_passwords_do_not_hide_whether_the_first_is_ready(run: Callable[..., Koff], tmp_path: Path):
    web = tmp_path / "web.yml"
    tls = write_server_files(tmp_path)
    web.write_text(f"basic_auth_users: {{alice: {PASSWORD_HASH}}}\n{tls}")
    first = run()
    with first.serve(AccessConf(web)) as server:
        assert server.url.startswith("https://")
        answer = wait_for_answers(FirstKoff(server.url), "c")["c"]
    assert answer == (first.events.notices.instance, True, "ok")


def test_what_is_no_koff_is_not_the_first():
    with receiving(501) as other:
        answer = wait_for_answers(FirstKoff(other.url.partition("/hook")[0]), "c")["c"]
    assert (answer.instance, answer.why) == (None, "there is no koff at that address (HTTP status 501)")


def test_a_first_that_hangs_delays_nothing_and_is_asked_once_for_all_clusters(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(first_koff_module, "TIMEOUT_S", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        first = FirstKoff(f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert first.take_answers() is None
        first.ask(["a", "b", "c"])
        assert first.take_answers() == {}
        answers = wait_until(first.take_answers, timeout_s=30, what="the time-out")
        assert {answer.why for answer in answers.values()} == {"TimeoutError: timed out"}
        silent.settimeout(30)
        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()

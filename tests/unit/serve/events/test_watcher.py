"""The thread that looks for events: where they go, and what does not disturb it."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from koff.kafkatest import wait_until
from koff.serve.events import watcher as watcher_module
from koff.serve.events.watcher import Events, EventWatcher
from koff.serve.events.webhook_conf import WebhookConf
from koff.view.cluster_view import ClusterView, NoProgress, Views
from tests.unit.serve.events.test_webhook import Receiver, receiving
from tests.unit.serve.events.watched import Watched, stop


class Clusters:
    """The views that a watcher takes: `views` by cluster, or an error."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.watched.commit("g", 5)
        self.views: dict[str, ClusterView] = {}
        self.failure: Exception | None = None
        self.taken = 0
        self.events = Events()
        self.watcher = EventWatcher(self.take, lambda: 0.0, self.events)
        self.refresh()

    def take(self) -> Views:
        self.taken += 1
        if self.failure is not None:
            raise self.failure
        views = tuple(self.views.values())
        return Views(views, views[0].readiness)

    def refresh(self) -> None:
        self.views["c"] = self.watched.take_view()

    def list_kinds(self) -> list[str]:
        return [kept.event.kind for kept in self.events.log.read(0, 100).events]

    def appear(self, name: str) -> None:
        self.watched.commit(name, 5)
        self.refresh()


def list_kinds(receiver: Receiver) -> list[str]:
    """The kinds of the events that a webhook got."""
    bodies = [json.loads(body) for _, _, body in list(receiver.requests)]
    return [event["kind"] for body in bodies for event in body["events"]]


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    clusters = Clusters()
    yield clusters
    clusters.watcher.stop()
    clusters.events.webhooks.stop()


def test_events_go_to_the_event_log_the_log_and_webhooks(clusters):
    with receiving(200) as receiver, capture_logs() as logs:
        clusters.events.webhooks.configure([WebhookConf(url=receiver.url)])
        clusters.watcher.look()
        clusters.appear("new")
        clusters.watcher.look()
        clusters.failure = NoProgress("the monitor gave no view within 10 s")
        clusters.watcher.look()
        clusters.watcher.look()
        wait_until(receiver.list_ids, timeout_s=30, what="the webhook")
    new, blind = (kept.event for kept in clusters.events.log.read(0, 100).events)
    assert (new.kind, blind.kind) == ("group_appeared", "blind")
    assert receiver.list_ids() == [blind.id]
    assert [(line["log_level"], line["event"], line["kind"], line["id"]) for line in logs] == [
        ("info", "group new: it is new", "group_appeared", new.id),
        ("warning", blind.text, "blind", blind.id),
    ]
    assert blind.text == "cluster c: koff is not ready: the monitor gave no view within 10 s"


def test_incidents_that_last_go_to_the_webhooks_that_remind(clusters):
    with receiving(200) as receiver:
        clusters.events.webhooks.configure([WebhookConf(url=receiver.url, remind_s=0.001)])
        stop(clusters.watched)
        for _ in range(3):
            clusters.refresh()
            clusters.watcher.look()
            clusters.watched.wait(60)
        wait_until(lambda: "incident_lasts" in list_kinds(receiver), timeout_s=30, what="the reminder")
    assert list_kinds(receiver)[0] == "incident_opened"
    assert clusters.list_kinds() == ["incident_opened"]


def test_many_events_do_not_fill_the_log(clusters, monkeypatch):
    monkeypatch.setattr(watcher_module, "MOST_LOGGED", 2)
    clusters.watcher.look()
    for number in range(5):
        clusters.watched.commit(f"new{number}", 5)
    clusters.refresh()
    with capture_logs() as logs:
        clusters.watcher.look()
    assert len(clusters.list_kinds()) == 5
    assert [line.get("count") for line in logs] == [None, None, 3]


def test_a_cluster_that_has_no_name_yet_is_left_out(clusters):
    named = clusters.views["c"]
    clusters.views["c"] = ClusterView(None, named.snapshot, named.readiness, named.stats)
    clusters.watcher.look()
    clusters.refresh()
    clusters.watcher.look()
    assert clusters.list_kinds() == []


def test_a_restart_is_noted_at_the_next_look(clusters):
    clusters.watcher.look()
    clusters.watcher.note_restart("c")
    clusters.watcher.note_restart("unknown")
    clusters.appear("new")
    clusters.watcher.look()
    assert clusters.list_kinds() == []
    clusters.appear("newer")
    clusters.watcher.look()
    assert clusters.list_kinds() == ["group_appeared"]


def test_a_fault_is_logged_once_and_the_next_look_begins_again(clusters, monkeypatch):
    monkeypatch.setattr(watcher_module, "LEAST_INTERVAL_S", 0.0)
    clusters.watcher.look()
    clusters.failure = RuntimeError("oops")
    with capture_logs() as logs:
        clusters.watcher.start()
        wait_until(lambda: clusters.taken > 3, timeout_s=30, what="several looks")
        clusters.failure = None
        clusters.appear("new")
        wait_until(lambda: clusters.list_kinds() == ["group_appeared"], timeout_s=30, what="the event")
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "a fault of koff: please report it"
    ]


def test_a_fault_in_one_cluster_leaves_the_others(clusters):
    clusters.views = {"broken": replace(clusters.views["c"], cluster="broken"), **clusters.views}
    clusters.watcher.look()
    clusters.views["broken"] = replace(clusters.views["broken"], snapshot=None)
    clusters.appear("new")
    with capture_logs() as logs:
        clusters.watcher.look()
        clusters.watcher.look()
    assert clusters.list_kinds() == ["group_appeared"]
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "a fault of koff: please report it"
    ]


@pytest.mark.parametrize("failure", [None, NoProgress("the monitor has stopped")])
def test_a_look_that_hangs_does_not_delay_the_stop(clusters, monkeypatch, failure):
    monkeypatch.setattr(watcher_module, "STOP_S", 0.01)
    entered, leave = threading.Event(), threading.Event()

    def hang() -> Views:
        entered.set()
        leave.wait(60)
        if failure is not None:
            raise failure
        clusters.appear("new")
        return Views(tuple(clusters.views.values()), clusters.views["c"].readiness)

    clusters.watcher.look()
    watcher = EventWatcher(hang, lambda: 0.0, clusters.events)
    watcher._clusters = clusters.watcher._clusters
    watcher.start()
    entered.wait(60)
    watcher.stop()
    leave.set()
    watcher._thread.join(60)
    assert not watcher._thread.is_alive()
    assert clusters.list_kinds() == []  # what comes after the stop is no event

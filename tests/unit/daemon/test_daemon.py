"""Several monitors in one process, without Kafka: what is served of them, and what a reload does."""

import gc
import os
import re
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from koff.client import ClusterConf
from koff.daemon import daemon as daemon_module
from koff.daemon.daemon import Daemon
from koff.errors import ConfigError, ConnectError
from koff.kafkatest import free_ports, wait_until
from koff.monitor.conf import MonitorConf
from koff.monitor.requests import Display
from koff.monitor.run import Monitor
from koff.monitor.state import StateDir
from koff.serve.events import watcher as watcher_module
from koff.serve.events.watcher import EventWatcher
from koff.serve.events.webhook_conf import WebhookConf
from koff.serve.listening import ServeConf
from koff.tracker import Rule, ShownNames
from koff.view.cluster_view import ClusterView, NoProgress, Readiness
from tests.unit.serve.views import fill_tracker, take_view

ANY_PORT = ServeConf("127.0.0.1:0")


def absent(name: str = "", **settings: Any) -> MonitorConf:
    """The configuration of a monitor whose cluster is not there."""
    cluster = ClusterConf(f"127.0.0.1:{free_ports(1)[0]}", connect_timeout_s=0.1)
    return MonitorConf(cluster, cluster_name=name, **{"wait": True, **settings})


class FakeMonitor(Monitor):
    """A monitor whose cluster is in the state that `states` has under its name: a view, or an error."""

    states: ClassVar[dict[str, ClusterView | Exception | Callable[[], ClusterView]]] = {}
    has_begun = False

    def run(self) -> None:
        with self:
            self._loop = object()  # type: ignore[assignment]  # as if the cluster had been reached
            self.has_begun = True
            while not self._is_stopping:
                self._wakes.get()

    def stop(self) -> None:
        self._is_stopping = True
        self._wakes.put(None)

    def show(self, display: Display) -> None:
        self.conf = replace(self.conf, display=display)

    def find_stall(self) -> str | None:
        return None

    def take_view(self) -> ClusterView:
        state = self.states[self.conf.cluster_name]
        if isinstance(state, ConnectError):
            self._loop, self._failure = None, str(state)
            return self.build_empty_view(str(state))
        if isinstance(state, Exception):
            raise state
        view = state if isinstance(state, ClusterView) else state()
        self._was_ready |= view.readiness.ready
        return view


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the clusters are like, by name. Without this fixture, monitors are real."""
    monkeypatch.setattr(daemon_module, "Monitor", FakeMonitor)
    monkeypatch.setattr(FakeMonitor, "states", {})
    return FakeMonitor.states


def have_begun(daemon: Daemon) -> bool:
    """Whether all monitors that are no real ones run: the server listens before they do."""
    monitors = [each.monitor for each in daemon._running]
    return all(each.has_begun for each in monitors if isinstance(each, FakeMonitor))


@contextmanager
def running(*confs: MonitorConf) -> Iterator[tuple[Daemon, list[MonitorConf], list[Any]]]:
    """A daemon that runs, the configuration that it reads, and what it logs."""
    read = list(confs)
    daemon = Daemon(lambda: read, ANY_PORT)
    with capture_logs() as logs:
        thread = threading.Thread(target=daemon.run)
        thread.start()
        try:
            wait_until(lambda: any(line["event"] == "listening" for line in logs), what="the server")
            wait_until(lambda: have_begun(daemon), what="the monitors")
            yield daemon, read, logs
        finally:
            daemon.stop()
            thread.join(60)
    assert not thread.is_alive()


def view_of(name: str, *, ready: bool = True) -> ClusterView:
    view = take_view(fill_tracker(), name)
    return view if ready else replace(view, readiness=Readiness(False, "not ready: reading"))


def describe(daemon: Daemon) -> tuple[bool, str]:
    readiness = daemon.take_views().readiness
    return readiness.ready, readiness.text


def test_it_is_ready_while_one_cluster_is_and_none_is_starting(states):
    away = ConnectError("cannot reach Kafka")
    states.update(a=view_of("a"), b=view_of("b", ready=False), c=away)
    with running(absent("a"), absent("b"), absent("c")) as (daemon, _, _):
        # b was reached, and was never ready
        lines = ["a: ready", "b: not ready: reading", "c: not ready: cannot reach Kafka"]
        assert describe(daemon) == (False, "\n".join(["not ready: 1 of 3 clusters", *lines]))
        states["b"] = view_of("b")
        assert describe(daemon) == (True, "ready: 2 of 3 clusters\na: ready\nb: ready\n" + lines[2])
        # What was ready once does not take the others out of service.
        states["b"] = view_of("b", ready=False)
        assert describe(daemon)[0]
        states["a"] = view_of("a", ready=False)
        assert not describe(daemon)[0]


def test_the_readiness_of_the_only_cluster_is_that_of_the_process(states):
    states["a"] = view_of("a")
    with running(absent("a")) as (daemon, _, _):
        assert describe(daemon) == (True, "ready")


def test_a_cluster_that_gives_no_view_is_not_up_and_does_not_delay_the_others(states, monkeypatch):
    monkeypatch.setattr(daemon_module, "VIEWS_S", 5.0)  # b must respond sooner
    hangs = threading.Event()

    def hang() -> ClusterView:
        hangs.wait(60)
        raise NoProgress("late")

    states.update(a=hang, b=view_of("b"), c=NoProgress("stuck"))
    with running(absent("a"), absent("b"), absent("c")) as (daemon, _, _):
        began_s = time.monotonic()
        a, b, c = daemon.take_views().clusters
        assert time.monotonic() - began_s < 30
        hangs.set()
    assert b is states["b"]
    for view, name, why in ((a, "a", "gave no view within 5 s"), (c, "c", "stuck")):
        assert (view.cluster, view.stats.up, why in view.readiness.text) == (name, False, True)


def test_a_view_of_nothing_is_the_same_object_while_nothing_changes():
    with running(absent("a"), absent("b")) as (daemon, _, _):
        wait_until(lambda: "cannot reach" in describe(daemon)[1], what="the failure")
        wait_until(
            lambda: daemon.take_views().clusters[0] is daemon.take_views().clusters[0], what="one view"
        )


def test_with_several_clusters_none_of_them_ends_the_process():
    with running(absent("a"), absent("b")) as (daemon, _, logs):
        wait_until(lambda: describe(daemon)[1].count("cannot reach") == 2, what="the failures")
        assert describe(daemon)[0] is False
        assert daemon.find_stall() is None
    assert [line["event"] for line in logs][-1] == "stopped"


def test_the_only_cluster_ends_the_process_if_it_cannot_be_reached():
    with capture_logs(), pytest.raises(ConnectError, match="cannot reach Kafka"):
        Daemon(lambda: [absent(wait=False)], ANY_PORT).run()


def test_a_property_that_is_wrong_ends_the_process_at_the_start():
    wrong = replace(absent("b"), cluster=ClusterConf("b:1", {"no.such": "1"}))
    with capture_logs() as logs, pytest.raises(ConfigError, match=r"no\.such"):
        Daemon(lambda: [absent("a"), wrong], ANY_PORT).run()
    assert logs == []


def test_a_daemon_that_was_stopped_before_does_not_connect():
    daemon = Daemon(lambda: [absent()], ANY_PORT)
    daemon.stop()
    with capture_logs() as logs:
        daemon.run()
    assert [line["event"] for line in logs] == ["listening", "stopped"]


def find_monitors(daemon: Daemon) -> dict[str, Monitor]:
    return {each.monitor.conf.cluster_name: each.monitor for each in daemon._running}


def reload(daemon: Daemon, logs: list[Any]) -> dict[str, Any]:
    """Reloads, and returns what is logged of it."""

    def count() -> list[Any]:
        return [line for line in list(logs) if "the configuration" in line["event"]]

    before = len(count())
    daemon.reload()
    wait_until(lambda: len(count()) > before, what="the reload")
    return count()[-1]


def test_a_reload_keeps_what_is_the_same_and_starts_restarts_and_stops_the_rest(states, tmp_path: Path):
    states.update({name: view_of(name) for name in "abcd"})
    confs = {name: absent(name, state_dir=tmp_path / name) for name in "abcd"}
    with running(confs["a"], confs["b"], confs["c"]) as (daemon, read, logs):
        before = find_monitors(daemon)
        display = Display(ShownNames((Rule.parse("^pay"),)), {"region": "eu"})
        changed = replace(confs["b"], end_interval_s=1.0)
        read[:] = [confs["d"], changed, replace(confs["a"], display=display)]
        told = reload(daemon, logs)
        after = find_monitors(daemon)
    assert list(after) == ["d", "b", "a"]
    assert after["a"] is before["a"]
    assert after["a"].conf.display == display
    assert after["b"] is not before["b"]
    assert after["b"].conf == changed  # the state directory of the one before was free
    assert (told["started"], told["restarted"], told["stopped"]) == (["d"], ["b"], ["c"])


def test_a_configuration_that_is_wrong_changes_nothing(states):
    states["a"] = view_of("a")
    with running(absent("a")) as (daemon, read, logs):
        monitor = find_monitors(daemon)["a"]

        def fail() -> list[MonitorConf]:
            raise ConfigError("koff.yaml, line 3: no")

        daemon._read = fail
        assert reload(daemon, logs)["why"] == "koff.yaml, line 3: no"
        assert find_monitors(daemon)["a"] is monitor
        daemon._read = lambda: read


def test_a_cluster_that_is_new_and_wrong_changes_nothing(states):
    states["a"] = view_of("a")
    with running(absent("a")) as (daemon, read, logs):
        monitor = find_monitors(daemon)["a"]
        read[:] = [
            replace(read[0], end_interval_s=1.0),
            replace(absent("b"), cluster=ClusterConf("b:1", {"no.such": "1"})),
        ]
        assert "no.such" in reload(daemon, logs)["why"]
        assert list(find_monitors(daemon).values()) == [monitor]


def test_a_state_directory_that_cannot_be_used_changes_nothing(states, tmp_path: Path):
    states.update(a=view_of("a"), b=view_of("b"))
    (tmp_path / "file").touch()
    before = [absent(name, state_dir=tmp_path / name) for name in "ab"]
    with running(*before) as (daemon, read, logs):
        monitors = find_monitors(daemon)
        read[:] = [
            replace(before[0], state_dir=tmp_path / "other"),
            replace(before[1], state_dir=tmp_path / "file" / "b"),
        ]
        assert "cannot use --state-dir" in reload(daemon, logs)["why"]
        assert find_monitors(daemon) == monitors
        # What was made for the configuration that is not applied is gone.
        StateDir(tmp_path / "other").lock().close()
        read[:] = before[:1]
        reload(daemon, logs)
        assert find_monitors(daemon) == {"a": monitors["a"]}


@pytest.mark.parametrize("what", ["_read", "_read_webhooks"])
def test_a_fault_of_koff_in_a_reload_changes_nothing(states, what):
    states["a"] = view_of("a")
    with running(absent("a")) as (daemon, _, logs):
        monitors = find_monitors(daemon)

        def fail() -> list[MonitorConf]:
            raise TypeError("hunter2")

        setattr(daemon, what, fail)
        why = reload(daemon, logs)["why"]
        assert re.fullmatch(r"a fault of koff, please report it: TypeError in test_daemon.py, line \d+", why)
        assert find_monitors(daemon) == monitors
        assert describe(daemon) == (True, "ready")


def test_a_fault_of_koff_while_a_configuration_is_applied_does_not_end_the_process(
    states, monkeypatch, tmp_path: Path
):
    states.update(a=view_of("a"), b=view_of("b"))
    with running(absent("a", state_dir=tmp_path)) as (daemon, read, logs):
        monitors = find_monitors(daemon)

        def fail(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(daemon_module._Running, "start", fail)
            read.append(absent("b"))
            reload(daemon, logs)
        assert find_monitors(daemon) == monitors
        with monkeypatch.context() as patched:
            patched.setattr(EventWatcher, "note_restart", fail)
            read[:] = [replace(read[0], end_interval_s=1.0)]
            assert "RuntimeError in test_daemon.py" in reload(daemon, logs)["why"]
        reload(daemon, logs)
        assert describe(daemon) == (True, "ready")
    assert any(line["event"] == "a cluster is not watched" for line in logs)


def test_the_only_cluster_still_ends_the_process_after_a_reload_that_was_not_applied():
    reads = 0

    def read() -> list[MonitorConf]:
        nonlocal reads
        reads += 1
        if reads > 1:
            raise ConfigError("no")
        return [absent(wait=False)]

    daemon = Daemon(read, ANY_PORT)
    daemon.reload()
    with capture_logs(), pytest.raises(ConnectError, match="cannot reach Kafka"):
        daemon.run()
    assert reads == 2


def test_a_fault_in_one_monitor_makes_the_process_unhealthy_and_leaves_the_others(states, monkeypatch):
    states["b"] = view_of("b")

    def run(self: FakeMonitor) -> None:
        if self.conf.cluster_name == "a":
            self.has_begun = True
            raise RuntimeError("oops")
        run_well(self)

    run_well = FakeMonitor.run
    monkeypatch.setattr(FakeMonitor, "run", run)
    states["a"] = ConnectError("failed")
    with running(absent("a"), absent("b")) as (daemon, _, _):
        wait_until(lambda: daemon.find_stall() is not None, what="the fault")
        assert daemon.find_stall() == "a: a fault of koff: RuntimeError: oops"
        assert daemon.take_views().clusters[1] is states["b"]


def test_signal_handlers_stop_and_reload():
    """The main thread runs the daemon, as in `koff monitor`."""
    number = signal.SIGUSR1
    reads: list[None] = []
    conf = absent("a")

    def read() -> list[MonitorConf]:
        reads.append(None)
        return [conf]

    daemon, calls = Daemon(read, ANY_PORT), 0

    def handle(*_: object) -> None:
        nonlocal calls
        calls += 1
        (daemon.reload if calls == 1 else daemon.stop)()

    def send() -> None:
        with suppress(TimeoutError):
            wait_until(lambda: "cannot reach" in describe(daemon)[1], every_s=0.01)
            os.kill(os.getpid(), number)
            wait_until(lambda: len(reads) == 2, what="the reload")
        os.kill(os.getpid(), number)

    before = signal.signal(number, handle)
    sender = threading.Thread(target=send)
    try:
        with capture_logs():
            sender.start()
            daemon.run()
    finally:
        sender.join(90)
        signal.signal(number, before)
    assert len(reads) == 2


def list_events(daemon: Daemon) -> list[tuple[str, str]]:
    return [(kept.event.cluster, kept.event.kind) for kept in daemon._events.log.read(0, 100).events]


def test_events_are_found_while_it_runs_and_a_stop_is_none(states, monkeypatch):
    monkeypatch.setattr(watcher_module, "LEAST_INTERVAL_S", 0.0)
    states.update(a=view_of("a"), b=view_of("b"))
    with running(absent("a", end_interval_s=0.01), absent("b")) as (daemon, _, _):
        wait_until(lambda: len(daemon._watcher._clusters) == 2, what="the first look")
        states["b"] = view_of("b", ready=False)
        wait_until(lambda: list_events(daemon) == [("b", "blind")], what="the event")
        states["a"] = NoProgress("the monitor has stopped")
        wait_until(lambda: len(list_events(daemon)) == 2, what="the other event")
        states.update(a=view_of("a"), b=view_of("b"))
        wait_until(lambda: len(list_events(daemon)) == 4, what="the recovery")
    assert len(list_events(daemon)) == 4


def test_a_daemon_may_be_the_standby_of_another_koff():
    first = Daemon(list, ANY_PORT, standby_of="http://koff-1:9850")._events.notices._first
    assert first.url == "http://koff-1:9850"


def test_a_reload_applies_webhooks_and_begins_again_with_a_cluster_that_is_restarted(states, monkeypatch):
    monkeypatch.setattr(EventWatcher, "start", lambda _: None)  # this test looks itself
    states["a"] = view_of("a")
    hook = WebhookConf(url="http://127.0.0.1:1/")
    with running(absent("a")) as (daemon, read, logs):
        daemon._watcher.look()
        known = daemon._watcher._clusters["a"]
        assert known._shards
        daemon._read_webhooks = lambda: [hook]
        reload(daemon, logs)
        assert [sender.conf for sender in daemon._events.webhooks._senders] == [hook]
        daemon._watcher.look()
        assert known._shards
        read[:] = [replace(read[0], end_interval_s=1.0)]
        states["a"] = ConnectError("cannot reach Kafka")
        daemon._read_webhooks = list
        reload(daemon, logs)
        assert daemon._events.webhooks._senders == ()
        daemon._watcher.look()
        assert known._shards == {}
        assert list_events(daemon) == [("a", "blind")]


def test_a_monitor_that_ended_with_an_error_is_let_go(monkeypatch: pytest.MonkeyPatch):
    """A reload may remove it before anybody has taken its error."""

    def fail(monitor: Monitor) -> None:
        raise ConnectError("no")

    monkeypatch.setattr(Monitor, "run", fail)
    gc.disable()
    try:
        running = daemon_module._Running(absent(), SimpleQueue())
        seen = weakref.ref(running.monitor)
        running.start()
        running.join(60)
        del running
        wait_until(lambda: seen() is None, timeout_s=20, what="no monitor")
    finally:
        gc.enable()

"""A monitor without a cluster: it says why it is not ready, and stops when it is told to."""

import os
import signal
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_metrics
from structlog.testing import capture_logs

from koff.client import ClusterConf
from koff.client.cluster import Cluster
from koff.errors import ConnectError
from koff.kafkatest import free_ports, wait_until
from koff.monitor import run as run_module
from koff.monitor.conf import MonitorConf
from koff.monitor.requests import Display
from koff.monitor.run import Monitor, RepeatedFailure
from koff.serve.accepted import PROMETHEUS_TEXT
from koff.serve.rendering import Renderer


def make_monitor(*, wait: bool) -> Monitor:
    """A monitor of a cluster that is not there."""
    cluster = ClusterConf(f"127.0.0.1:{free_ports(1)[0]}", connect_timeout_s=0.1)
    return Monitor(MonitorConf(cluster, wait=wait))


def test_a_cluster_that_is_not_there_ends_the_monitor_unless_it_waits():
    with capture_logs(), pytest.raises(ConnectError, match="cannot reach Kafka"):
        make_monitor(wait=False).run()


def test_a_monitor_that_waits_says_why_and_stops_at_once(monkeypatch):
    monkeypatch.setattr(RepeatedFailure, "retry_s", 3600.0)
    monitor = make_monitor(wait=True)
    assert monitor.take_view().readiness.text.startswith("not ready: connecting to 127.0.0.1:")
    with capture_logs():
        thread = threading.Thread(target=monitor.run)
        thread.start()
        wait_until(lambda: "cannot reach" in monitor.take_view().readiness.text, every_s=0.01)
        assert monitor.find_stall() is None
        assert not monitor.take_view().stats.up
        monitor.stop()
        thread.join(60)
    assert not thread.is_alive()


def test_a_managed_service_is_named_once_also_if_koff_cannot_connect(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise ConnectError("not there")

    monkeypatch.setattr(Cluster, "connect", refuse)
    conf = MonitorConf(ClusterConf("a.confluent.cloud:9092,b.confluent.cloud:9092"))
    with capture_logs() as logs, pytest.raises(ConnectError, match="not there"):
        Monitor(conf).run()
    (line,) = [line for line in logs if line["event"] == "managed service"]
    assert (line["service"], line["see"]) == ("Confluent Cloud", "docs/managed/confluent-cloud.md")
    assert "koff asks the coordinators" in line["expect"]


@pytest.mark.parametrize(("cluster_id", "named"), [("redpanda.1", ["Redpanda"]), ("abc", [])])
def test_the_id_of_the_cluster_may_name_the_service(monkeypatch, cluster_id, named):
    monkeypatch.setattr(Cluster, "connect", lambda cluster, **_: setattr(cluster, "id", cluster_id))
    with Monitor(MonitorConf(ClusterConf("127.0.0.1:9"))) as monitor, capture_logs() as logs:
        assert monitor._connect()
    events = [line["event"] for line in logs]
    assert events == ["connected", *["managed service"] * len(named)]
    assert [line["service"] for line in logs if line["event"] == "managed service"] == named


@pytest.mark.parametrize("name", ["", "east"])
def test_no_series_has_another_label_cluster_than_after_the_first_connection(name):
    monitor = make_monitor(wait=True)
    monitor.conf = replace(monitor.conf, cluster_name=name)
    body = zlib.decompress(Renderer(monitor).render(PROMETHEUS_TEXT).gzipped, 31).decode()
    names = {sample.labels.get("cluster") for family in parse_metrics(body) for sample in family.samples}
    assert names == ({None, name} if name else {None})
    assert "koff_build_info" in body
    assert ("koff_up" in body) == bool(name)


def test_a_monitor_that_was_stopped_before_does_not_connect():
    monitor = make_monitor(wait=True)
    monitor.stop()
    with capture_logs() as logs:
        monitor.run()
    assert logs == []


def test_a_signal_handler_stops_a_monitor_that_waits(monkeypatch):
    monkeypatch.setattr(RepeatedFailure, "retry_s", 3600.0)
    monitor = make_monitor(wait=True)

    is_handled: list[bool] = []  # an Event is not for signal handlers

    def stop(*_: object) -> None:
        monitor.stop()
        is_handled.append(True)

    def send_signal() -> bool:
        # Not once: Python sees a signal late that comes just before the main thread begins to wait.
        os.kill(os.getpid(), signal.SIGUSR1)
        return bool(is_handled)

    def send_signals() -> None:
        wait_until(lambda: "cannot reach" in monitor.take_view().readiness.text, every_s=0.01)
        wait_until(send_signal, every_s=0.01)

    before = signal.signal(signal.SIGUSR1, stop)
    sender = threading.Thread(target=send_signals)
    began_s = time.monotonic()
    try:
        sender.start()
        with capture_logs():
            monitor.run()
    finally:
        sender.join(60)
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began_s < 120


def test_a_cluster_that_was_never_reached_has_a_line_with_the_number_of_attempts(monkeypatch):
    monkeypatch.setattr(RepeatedFailure, "retry_s", 0.0)
    monitor = make_monitor(wait=True)
    with capture_logs() as logs:
        thread = threading.Thread(target=monitor.run)
        thread.start()
        wait_until(lambda: monitor._attempts.count >= 3, what="three attempts", every_s=0.01)
        monitor.stop()
        thread.join(60)
    assert [(line["event"], line["attempts"]) for line in logs] == [("waiting", 1)]


def test_what_is_shown_has_changed_when_show_returns(monkeypatch):
    monkeypatch.setattr(run_module, "SHOW_S", 60.0)
    applied: list[object] = []

    class SlowLoop:
        def post(self, given: object, on_applied: Callable[[], None]) -> None:
            def apply() -> None:
                applied.append(given)
                on_applied()

            threading.Timer(0.05, apply).start()

    with make_monitor(wait=True) as monitor:
        monitor._loop = SlowLoop()  # type: ignore[assignment]  # all that `show` needs
        monitor.show(Display(labels={"team": "x"}))
        assert applied == [Display(labels={"team": "x"})]

"""The loop that owns the core: inputs in order, shared views, and faults that end nothing."""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from koff.kafkatest import wait_until
from koff.monitor import clock
from koff.monitor import loop as loop_module
from koff.monitor.core_conf import CoreConf
from koff.monitor.duties.savings import Done
from koff.monitor.duties.topics import FetchTopics
from koff.monitor.loop import Loop
from koff.monitor.moment import Moment
from koff.monitor.outbox import Event
from koff.monitor.requests import Command, Display, Input
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView, MonitorStats, NoProgress, Readiness

FOREVER = float("inf")


class FakeCore:
    """A core that does as it is told. `hang` holds up `handle`, and `view_hang` holds up `take_view`."""

    def __init__(self) -> None:
        self.given: list[Input | None] = []
        self.requests: list[Command] = []
        self.events: list[Event] = []
        self.views = 0
        self.fault: Exception | None = None
        self.view_fault: Exception | None = None
        self.due_fault: Exception | None = None
        self.stop_fault: Exception | None = None
        self.due_s = FOREVER
        self.is_asked_when = threading.Event()
        self.is_viewing = threading.Event()
        self.may_handle, self.may_view = threading.Event(), threading.Event()
        self.may_handle.set()
        self.may_view.set()

    def handle(self, given: Input | None, now: Moment) -> list[Command]:
        self.may_handle.wait()
        self.given.append(given)
        if self.fault is not None:
            raise self.fault
        requests, self.requests = self.requests, []
        return requests

    def take_events(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def next_due_s(self) -> float:
        self.is_asked_when.set()
        if self.due_fault is not None:
            raise self.due_fault
        return self.due_s

    def take_view(self, now: Moment) -> ClusterView:
        self.is_viewing.set()
        self.may_view.wait()
        if self.view_fault is not None:
            raise self.view_fault
        self.views += 1
        return ClusterView("c", Tracker().take_snapshot(0), Readiness(True, "ready"), MonitorStats())

    def stop(self, now: Moment) -> list[Command]:
        if self.stop_fault is not None:
            raise self.stop_fault
        return [FetchTopics(99)]

    @property
    def inputs(self) -> list[Input]:
        return [given for given in self.given if given is not None]


@pytest.fixture
def core(monkeypatch):
    core = FakeCore()
    monkeypatch.setattr(loop_module, "Core", lambda conf, now: core)
    monkeypatch.setattr(loop_module, "LONGEST_WAIT_S", 60.0)  # else the loop finds by itself what woke nobody
    monkeypatch.setattr(loop_module, "FAULT_PAUSE_S", 0.0)
    yield core
    core.may_handle.set()
    core.may_view.set()


@pytest.fixture
def loop(core):
    return Loop(CoreConf())


@contextmanager
def running(loop: Loop, send: Callable[[Command], None] = lambda request: None) -> Iterator[threading.Thread]:
    """The loop runs in a thread. Its core must not hang at the end."""
    done = threading.Event()
    thread = threading.Thread(target=loop.run, args=(send, done.is_set))
    thread.start()
    try:
        yield thread
    finally:
        done.set()
        loop.wake()
        thread.join(60)
        assert not thread.is_alive()


def set_freshness(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(loop_module, "FRESH_S", seconds)


def list_wakes(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that have woken the loop, from now on.

    A thread that asks for a view wakes the loop, and keeps a lock from then on until it waits. The loop needs
    this lock to publish a view.
    """
    wakes: list[str] = []
    wake = loop.wake

    def wake_and_list() -> None:
        wake()
        wakes.append(threading.current_thread().name)

    monkeypatch.setattr(loop, "wake", wake_and_list)
    return wakes


class Askers:
    """Threads that ask for a view at once."""

    def __init__(self, loop: Loop, count: int) -> None:
        self.views: list[ClusterView] = []
        self.errors: list[NoProgress] = []
        self._loop = loop
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        try:
            self.views.append(self._loop.take_view())
        except NoProgress as error:
            self.errors.append(error)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


def ask_while_one_is_taken(core: FakeCore, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> list[Askers]:
    """One asks for a view, and three others while it is taken. Returns when all have got what they get."""
    wakes = list_wakes(loop, monkeypatch)
    core.may_view.clear()
    with running(loop):
        first = Askers(loop, 1)
        assert core.is_viewing.wait(60)
        others = Askers(loop, 3)
        wait_until(lambda: len(wakes) == 4, every_s=0.01)
        core.may_view.set()
        first.join()
        others.join()
    return [first, others]


def test_inputs_reach_the_core_in_order_and_what_it_wants_is_sent(core, loop):
    sent: list[Command] = []
    applied: list[int] = []
    core.requests = [FetchTopics(1), FetchTopics(2)]
    with running(loop, sent.append):
        for number in range(100):
            loop.post(Done(number), lambda number=number: applied.append(number))
        wait_until(lambda: len(applied) == 100, every_s=0.01)
    assert core.inputs == [Done(number) for number in range(100)]
    assert applied == list(range(100))
    assert sent == [FetchTopics(1), FetchTopics(2)]


def test_an_input_counts_as_applied_once_the_core_has_handled_it(core, loop):
    core.may_handle.clear()
    applied = threading.Event()
    with running(loop):
        loop.post(Done(1), applied.set)
        assert not applied.wait(0.02)
        core.may_handle.set()
        assert applied.wait(60)


def test_the_core_is_called_when_it_is_due(core, loop):
    core.due_s = 0.0
    with running(loop):
        wait_until(lambda: len(core.given) > 2, every_s=0.01)
        core.due_s = FOREVER


def test_a_fault_of_the_core_ends_nothing_and_is_logged_once(core, loop):
    core.fault = ValueError("bad")
    applied: list[int] = []
    with capture_logs() as logs, running(loop):
        for number in range(3):
            loop.post(Done(number), lambda: applied.append(1))
        wait_until(lambda: len(applied) == 3, every_s=0.01)
        core.fault = None
        assert loop.take_view().cluster == "c"
    assert core.inputs == [Done(0), Done(1), Done(2)]
    assert [line["why"] for line in logs] == ["ValueError: bad"]


def test_a_fault_is_survived_although_the_log_cannot_be_written(core, loop, monkeypatch):
    class FullDisk:
        def exception(self, *args: Any, **more: Any) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(loop_module, "log", FullDisk())
    core.fault = ValueError("bad")
    with running(loop):
        loop.post(Done(1))
        loop.post(Done(2))
        wait_until(lambda: len(core.inputs) == 2, every_s=0.01)


def test_a_fault_in_the_time_until_which_to_wait_does_not_end_the_loop(core, loop):
    core.due_fault = ValueError("never")
    with capture_logs() as logs, running(loop):
        loop.post(Done(1))
        wait_until(lambda: core.inputs == [Done(1)], every_s=0.01)
        core.due_fault = None
    assert {line["why"] for line in logs} == {"ValueError: never"}


def test_a_request_that_cannot_be_sent_does_not_hold_up_the_others(core, loop):
    sent: list[Command] = []

    def send(request: Command) -> None:
        if request == FetchTopics(1):
            raise RuntimeError("can't start new thread")
        sent.append(request)

    core.requests = [FetchTopics(1), FetchTopics(2)]
    with capture_logs() as logs, running(loop, send):
        loop.post(Done(0))
        wait_until(lambda: sent, every_s=0.01)
    assert sent == [FetchTopics(2)]
    assert len(logs) == 1


def test_events_are_logged(core, loop):
    now = Moment(0.0, 0)
    core.events = [Event(now, "found", {"topic": "t"}), Event(now, "lost", {}, is_warning=True)]
    with capture_logs() as logs, running(loop):
        loop.post(Done(0))
        wait_until(lambda: not core.events, every_s=0.01)
    assert [(line["event"], line["log_level"]) for line in logs] == [("found", "info"), ("lost", "warning")]
    assert logs[0]["topic"] == "t"


def test_a_view_is_shared_while_it_is_fresh(core, loop, monkeypatch):
    set_freshness(monkeypatch, 60.0)
    with running(loop):
        askers = Askers(loop, 8)
        askers.join()
        assert loop.take_view() is askers.views[0]
    assert len(askers.views) == 8
    assert {id(view) for view in askers.views} == {id(askers.views[0])}
    assert core.views == 1


def test_those_who_ask_while_a_view_is_taken_share_it(core, loop, monkeypatch):
    set_freshness(monkeypatch, 60.0)
    askers = ask_while_one_is_taken(core, loop, monkeypatch)
    assert core.views == 1
    assert len({id(view) for each in askers for view in each.views}) == 1


def test_a_view_that_is_not_fresh_any_more_is_replaced(core, loop, monkeypatch):
    monkeypatch.setattr(loop._budget, "spend", lambda view_s, now_s: 0.0)  # however long the view took
    with running(loop):
        assert loop.take_view() is not loop.take_view()
    assert core.views == 2


def test_a_view_from_before_the_machine_was_suspended_is_replaced(core, loop, monkeypatch):
    """The clock of the boot counts on meanwhile; the monotonic one does not."""
    set_freshness(monkeypatch, 60.0)
    with running(loop):
        before = loop.take_view()
        read = clock.read_at_s
        monkeypatch.setattr("koff.monitor.loop.read_at_s", lambda: read() + 3600)
        assert loop.take_view() is not before


def test_a_view_of_what_was_shown_before_is_replaced_although_it_is_fresh(core, loop, monkeypatch):
    set_freshness(monkeypatch, 60.0)
    with running(loop):
        before, applied = loop.take_view(), threading.Event()
        loop.post(Display(), applied.set)
        assert applied.wait(60)
        assert loop.take_view() is not before


def test_no_view_is_taken_if_nobody_asks(core, loop):
    with running(loop):
        loop.post(Done(0))
        wait_until(lambda: core.inputs, every_s=0.01)
    assert not core.views


def test_an_owner_that_hangs_gives_no_view_and_then_gives_one(core, loop, monkeypatch):
    monkeypatch.setattr(loop_module, "VIEW_TIMEOUT_S", 0.05)
    core.may_handle.clear()
    with running(loop):
        with pytest.raises(NoProgress, match=r"no view within 0\.05 s"):
            loop.take_view()
        monkeypatch.setattr(loop_module, "VIEW_TIMEOUT_S", 60.0)
        core.may_handle.set()
        assert loop.take_view().cluster == "c"


def test_a_loop_that_was_never_run_gives_no_view(core, loop, monkeypatch):
    monkeypatch.setattr(loop_module, "VIEW_TIMEOUT_S", 0.02)
    with pytest.raises(NoProgress):
        loop.take_view()


def test_a_view_that_cannot_be_taken_is_no_view_and_is_logged_once(core, loop, monkeypatch):
    monkeypatch.setattr(loop_module, "VIEW_TIMEOUT_S", 60.0)
    core.view_fault = ValueError("half a snapshot")
    with capture_logs() as logs, running(loop):
        for _ in range(2):
            with pytest.raises(NoProgress, match="could not build a view: ValueError: half a snapshot"):
                loop.take_view()
        core.view_fault = None
        assert loop.take_view().cluster == "c"
    assert [line["why"] for line in logs] == ["ValueError: half a snapshot"]


def test_all_who_ask_while_a_view_is_taken_learn_that_it_failed(core, loop, monkeypatch):
    monkeypatch.setattr(loop_module, "VIEW_TIMEOUT_S", 60.0)
    core.view_fault = ValueError("half a snapshot")
    with capture_logs():
        askers = ask_while_one_is_taken(core, loop, monkeypatch)
    assert [str(error) for each in askers for error in each.errors] == [
        "the monitor could not build a view: ValueError: half a snapshot"
    ] * 4


def test_after_a_stop_nobody_waits_for_a_view(core, loop):
    sent: list[Command] = []
    core.may_view.clear()
    with running(loop):
        askers = Askers(loop, 2)
        assert core.is_viewing.wait(60)
        loop.stop(sent.append)
        askers.join()
        core.may_view.set()
    assert len(askers.errors) == 2
    assert sent == [FetchTopics(99)]
    with pytest.raises(NoProgress, match="stopped"):
        loop.take_view()


def test_a_fault_at_the_stop_is_logged_and_ends_nothing(core, loop):
    core.stop_fault = ValueError("nothing to save")
    with capture_logs() as logs:
        loop.stop(lambda request: pytest.fail("nothing to send"))
    assert len(logs) == 1


def test_inputs_that_are_posted_after_the_end_harm_nothing(core, loop):
    with running(loop):
        pass
    loop.post(Done(1))
    with running(loop):  # as `koff lag --watch` does
        wait_until(lambda: core.inputs == [Done(1)], every_s=0.01)


def test_a_signal_handler_ends_a_loop_that_waits(core, loop):
    is_stopping = False

    def stop(*_: object) -> None:
        nonlocal is_stopping
        is_stopping = True
        loop.wake()

    def send_signal() -> bool:
        # Not once: Python sees a signal late that comes just before the main thread begins to wait.
        os.kill(os.getpid(), signal.SIGUSR1)
        return is_stopping

    def send_signals() -> None:
        assert core.is_asked_when.wait(60)
        wait_until(send_signal, every_s=0.01)

    before = signal.signal(signal.SIGUSR1, stop)
    sender = threading.Thread(target=send_signals)
    try:
        sender.start()
        loop.run(lambda request: None, lambda: is_stopping)  # returns, or the test takes 60 s
    finally:
        sender.join(60)
        signal.signal(signal.SIGUSR1, before)
    assert is_stopping


def test_a_stall_is_found_while_the_owner_hangs(core, loop, monkeypatch):
    monkeypatch.setattr(loop_module, "LONGEST_WAIT_S", 0.005)
    monkeypatch.setattr(loop_module, "STALL_S", 0.1)
    assert loop.find_stall() is None
    core.may_handle.clear()
    with running(loop):
        text = wait_until(loop.find_stall, every_s=0.01)
        assert "no progress" in text
        core.may_handle.set()
        wait_until(lambda: loop.find_stall() is None, every_s=0.01)


def test_views_that_cannot_be_built_for_long_are_a_stall_until_one_is_built(core, loop, monkeypatch):
    monkeypatch.setattr(loop_module, "VIEW_TIMEOUT_S", 60.0)
    core.view_fault = ValueError("half a snapshot")

    def ask() -> str | None:
        with pytest.raises(NoProgress):
            loop.take_view()
        return loop.find_stall()

    with capture_logs(), running(loop):
        assert ask() is None
        # Later only by the clock of views: the loop itself has made progress just now.
        read = clock.read_at_s
        monkeypatch.setattr("koff.monitor.loop.read_at_s", lambda: read() + 3600)
        assert re.fullmatch(
            r"the monitor could not build a view for \d+ s: ValueError: half a snapshot", ask() or ""
        )
        core.view_fault = None
        loop.take_view()
        assert loop.find_stall() is None


def test_one_view_that_could_not_be_built_is_no_stall_however_long_ago(core, loop, monkeypatch):
    monkeypatch.setattr(loop_module, "STALL_S", 1e-9)  # has passed whenever somebody looks
    core.view_fault = ValueError("half a snapshot")
    with capture_logs():
        loop._publish_view()
        assert loop.find_stall() is None
        loop._publish_view()
    assert loop.find_stall() is not None


def test_a_real_core_asks_for_the_topics_and_is_not_ready():
    sent: list[Command] = []
    loop = Loop(CoreConf(cluster_id="abc"))
    with running(loop, sent.append):
        view = loop.take_view()
        wait_until(lambda: any(isinstance(request, FetchTopics) for request in sent), every_s=0.01)
    assert view.cluster == "abc"
    assert not view.readiness.ready

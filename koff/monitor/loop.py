"""The loop that owns the core: one queue of inputs, and views for those who ask.

Only the thread that calls `run` touches the core. Everything else reaches it through the queue.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

import structlog

from koff.monitor.clock import read_at_s, read_moment
from koff.monitor.core import Core
from koff.monitor.core_conf import CoreConf
from koff.monitor.outbox import Event
from koff.monitor.requests import Command, Display, Input
from koff.view.cluster_view import ClusterView, NoProgress

FRESH_S, LONGEST_FRESH_S = 0.05, 1.0
"""For how long a view is shared, at the least and at the most."""
PART = 0.05
"""Views take at most this part of the owner's time in the long run, unless a view is too large for that."""
CREDIT_S = 0.25
"""So much of the owner's time is saved up while nobody asks: each scrape in 15 s gets a view of its own."""


class ViewBudget:
    """The part of the owner's time that views may take. Time that was not used is kept, up to `CREDIT_S`."""

    def __init__(self, now_s: float) -> None:
        self._credit_s, self._at_s = CREDIT_S, now_s

    def spend(self, view_s: float, now_s: float) -> float:
        """For how long, in s, the view is shared that took `view_s` until `now_s`."""
        saved_s = min(self._credit_s + (now_s - self._at_s) * PART, CREDIT_S)
        # A debt is paid within the longest time for which a view is shared.
        self._credit_s, self._at_s = max(saved_s - view_s, -LONGEST_FRESH_S * PART), now_s
        return max(-self._credit_s / PART, FRESH_S)


log = structlog.get_logger(component="monitor")
LONGEST_WAIT_S = 0.5
"""The loop looks at the clock so often, whatever the core says. Python may handle a signal that late."""
VIEW_TIMEOUT_S = 10.0
FAULT_PAUSE_S = 0.1
"""A fault that comes again and again must not take the whole processor."""
STALL_S = 30.0
"""An owner that has not looked at its queue, or could not build a view, for so long makes no progress."""

_Item = tuple[Input | None, Callable[[], None] | None]


class _ViewFailures(NamedTuple):
    """Since when no view could be built, until when at least, and why."""

    first_s: float
    last_s: float
    why: str


class Loop:
    """Owns a core. `run` is for one thread; any thread may call the other methods."""

    def __init__(self, conf: CoreConf) -> None:
        self._core = Core(conf, read_moment())
        self._inbox: SimpleQueue[_Item] = SimpleQueue()
        self._beat_s: float | None = None
        self._budget = ViewBudget(read_at_s())
        self._view_failures: _ViewFailures | None = None
        self._faults: set[str] = set()
        self._changed = threading.Condition()  # guards the five below
        self._view: ClusterView | None = None
        self._fresh_until_s = self._requested_s = self._failed_s = float("-inf")
        self._is_stopped = False

    @property
    def core(self) -> Core:
        """The core. Only the thread that calls `run` may use it."""
        return self._core

    def post(self, given: Input | None, on_applied: Callable[[], None] | None = None) -> None:
        """Gives an input to the core, after those before it. `on_applied` is called once it is applied."""
        self._inbox.put((given, on_applied))

    def wake(self) -> None:
        """Lets `run` check soon whether it is done. May be called by a signal handler."""
        self._inbox.put((None, None))

    def run(self, send: Callable[[Command], None], is_done: Callable[[], bool]) -> None:
        """Gives inputs to the core, and its requests to `send`, until `is_done`."""
        while not is_done():
            self._beat_s = time.monotonic()
            given, on_applied = self._wait_for_input()
            try:
                self._handle(given, send)
            except Exception as error:
                self._note_fault(error)
            finally:
                if on_applied is not None:
                    on_applied()
            if self._requested_s > self._fresh_until_s:
                self._publish_view()

    def stop(self, send: Callable[[Command], None]) -> None:
        """Sends the core's last requests, after the last `run`. From then on, there are no views."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        try:
            requests = self._core.stop(read_moment())
        except Exception as error:  # a process that ends well needs no saved state
            self._note_fault(error)
            return
        self._send_all(requests, send)

    def take_view(self) -> ClusterView:
        """What may be served now. Raises `NoProgress` if the owner cannot build a view, or not in time."""
        requested_s = read_at_s()  # a view from before the machine was suspended is old
        with self._changed:
            if requested_s > self._fresh_until_s and not self._is_stopped:
                self._requested_s = requested_s
                self.wake()
                self._changed.wait_for(
                    lambda: requested_s <= max(self._fresh_until_s, self._failed_s) or self._is_stopped,
                    VIEW_TIMEOUT_S,
                )
            if self._is_stopped:
                raise NoProgress("the monitor has stopped")
            if self._view is not None and requested_s <= self._fresh_until_s:
                return self._view
            failures = self._view_failures
            if failures is not None and requested_s <= self._failed_s:
                raise NoProgress(f"the monitor could not build a view: {failures.why}")
            raise NoProgress(f"the monitor gave no view within {VIEW_TIMEOUT_S:g} s")

    def find_stall(self) -> str | None:
        """Why the owner makes no progress; None while it does, or before `run`."""
        beat_s, failures = self._beat_s, self._view_failures
        if beat_s is not None and (silent_s := time.monotonic() - beat_s) >= STALL_S:
            return f"the monitor has made no progress for {silent_s:.0f} s"
        # Up to the last attempt: there is none if nobody asks for a view.
        if failures is not None and (blind_s := failures.last_s - failures.first_s) >= STALL_S:
            return f"the monitor could not build a view for {blind_s:.0f} s: {failures.why}"
        return None

    def build_view(self) -> ClusterView:
        """The view to be served now, for the thread that calls `run`."""
        return self._core.take_view(read_moment())

    def _wait_for_input(self) -> _Item:
        try:
            wait_s = min(self._core.next_due_s() - read_moment().at_s, LONGEST_WAIT_S)
        except Exception as error:
            self._note_fault(error)
            wait_s = 0.0
        try:
            return self._inbox.get(timeout=wait_s) if wait_s > 0 else self._inbox.get_nowait()
        except Empty:
            return None, None

    def _handle(self, given: Input | None, send: Callable[[Command], None]) -> None:
        self._send_all(self._core.handle(given, read_moment()), send)
        if isinstance(given, Display):
            with self._changed:
                self._fresh_until_s = float("-inf")  # the view shows what is to be hidden
        for event in self._core.take_events():
            self._log(event)

    def _send_all(self, requests: Iterable[Command], send: Callable[[Command], None]) -> None:
        for request in requests:
            try:
                send(request)
            except Exception as error:  # the other requests are to be sent all the same
                self._note_fault(error)

    def _publish_view(self) -> None:
        began_s = read_at_s()
        try:
            view = self.build_view()
        except Exception as error:
            first_s = began_s if self._view_failures is None else self._view_failures.first_s
            self._view_failures = _ViewFailures(first_s, began_s, f"{type(error).__name__}: {error}")
            with self._changed:
                self._requested_s = float("-inf")  # who asks again makes the next attempt
                self._failed_s = read_at_s()  # who asked before learns of this one
                self._changed.notify_all()
            self._note_fault(error)
            return
        self._view_failures = None
        ended_s = read_at_s()
        with self._changed:
            self._view = view
            self._fresh_until_s = ended_s + self._budget.spend(ended_s - began_s, ended_s)
            self._changed.notify_all()

    def _log(self, event: Event) -> None:
        write = log.warning if event.is_warning else log.info
        write(event.text, **event.details)

    def _note_fault(self, error: Exception) -> None:
        """Logs a fault of koff, once. It does not end the process; data that gets old is withheld."""
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._faults and len(self._faults) < 100:
            self._faults.add(kind)
            with suppress(OSError):  # the disk that the log is written to may be full
                log.exception("a fault of koff: please report it", why=kind)
        time.sleep(FAULT_PAUSE_S)

"""The process of `koff monitor`: a monitor for each cluster, in a thread of its own, and one server.

- A cluster that is down, or that hangs, affects no other. If there are several, none of them ends the
  process.
- When the configuration is read again, a monitor continues if nothing but its `display` has changed. The
  others are stopped, and started with their new configuration.
- All that can be wrong with a new configuration is found before anything is stopped. Then the old one stays
  in force, also after an error that only a fault of koff explains.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

import structlog

from koff.client.calls import call_in_thread, get_result
from koff.errors import KoffError, copy_error
from koff.monitor.conf import MonitorConf
from koff.monitor.run import Monitor
from koff.serve.events.watcher import Events, EventWatcher
from koff.serve.events.webhook_conf import WebhookConf
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.serve.metrics.conf import MetricsConf
from koff.view.cluster_view import ClusterView, LastReload, NoProgress, Readiness, Views

log = structlog.get_logger(component="daemon")
LOOK_S = 0.5
"""The main thread looks so often whether a signal came: Python may handle a signal late."""
VIEWS_S = 5.0
"""A cluster whose view takes longer is served as not up. Prometheus waits for 10 s by default."""
STOP_S = 15.0
"""How long a monitor may take to stop: it saves its state."""


class Daemon:
    """Watches clusters and serves them. A `ViewSource`. `run` returns when `stop` was called.

    `read` returns the configuration of each cluster, and `read_webhooks` that of each webhook. They are
    called at creation, and at each `reload`. Raises what they raise. `on_reload` is called when what they
    returned has been applied. `standby_of` is the URL of a koff that sends to
    the webhooks, as long as it can.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[MonitorConf]],
        serve: ServeConf,
        metrics: MetricsConf | None = None,
        read_webhooks: Callable[[], Sequence[WebhookConf]] = tuple,
        on_reload: Callable[[], None] = lambda: None,
        standby_of: str | None = None,
    ) -> None:
        self._read, self._serve, self._metrics = read, serve, metrics
        self._read_webhooks, self._on_reload = read_webhooks, on_reload
        self._last_reload = LastReload(True, time.time())
        self._confs, self._webhooks = list(read()), read_webhooks()
        self._events = Events(standby_of)
        self._watcher = EventWatcher(self.take_views, self._find_interval_s, self._events)
        self._running: tuple[_Running, ...] = ()
        self._is_stopping = self._must_reload = False
        # A signal handler may not use an Event: the thread that it interrupts may hold the Event's lock.
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def stop(self) -> None:
        """Ends `run` soon. May be called by a signal handler."""
        self._is_stopping = True
        self._wakes.put(None)

    def reload(self) -> None:
        """Lets `run` read the configuration again soon. May be called by a signal handler."""
        self._must_reload = True
        self._wakes.put(None)

    def run(self) -> None:
        """Serves until stopped.

        Raises `ConfigError` if koff cannot listen on the address, cannot use a state directory, or librdkafka
        refuses the properties of a cluster. `ConnectError` if the only cluster cannot be reached at first,
        unless its configuration says to wait.
        """
        with ExitStack() as open_:
            open_.callback(self._stop_all)
            # All state directories and properties are checked before anything is served.
            self._running = tuple(_Running(conf, self._wakes) for conf in self._confs)
            open_.callback(self._events.webhooks.stop)
            server = open_.enter_context(Server(self, self._serve, self._metrics, self._events))
            log.info("listening", url=server.url)
            open_.callback(self._watcher.stop)
            if not self._is_stopping:
                for running in self._running:
                    running.start()
                self._events.webhooks.configure(self._webhooks)
                self._watcher.start()
            is_changed = False
            while not self._is_stopping:
                if self._must_reload:
                    self._must_reload = False
                    is_applied = self._reload()
                    applied_s = time.time() if is_applied else self._last_reload.success_s
                    self._last_reload = LastReload(is_applied, applied_s)
                    is_changed |= is_applied
                self._check(is_changed=is_changed)
                with suppress(Empty):
                    self._wakes.get(timeout=LOOK_S)
            self._watcher.stop()  # a monitor that stops is no event
            self._stop_all()  # before the server: until then, it says that the monitors have stopped
        log.info("stopped")

    def take_views(self) -> Views:
        """What may be served now. Raises `NoProgress` if no monitor responds."""
        running = self._running
        if len(running) == 1:
            return replace(running[0].monitor.take_views(), reload=self._last_reload)
        # All at once: one that hangs must not delay the others.
        taken = [call_in_thread(each.monitor.take_view) for each in running]
        views, until_s = [], time.monotonic() + VIEWS_S
        for each, future in zip(running, taken, strict=True):
            try:
                views.append(get_result(future, _left_s(until_s)))
            except (NoProgress, TimeoutError) as error:
                why = str(error) or f"the monitor gave no view within {VIEWS_S:g} s"
                views.append(each.monitor.build_empty_view(why))
        return Views(tuple(views), _assess_readiness(running, views), reload=self._last_reload)

    def find_stall(self) -> str | None:
        """Why the process should be restarted; None while all monitors make progress."""
        stalls = [(each.monitor.conf.cluster_name, each.find_stall()) for each in self._running]
        texts = [f"{name}: {why}" if len(stalls) > 1 else why for name, why in stalls if why]
        return "; ".join(texts) or None

    def _check(self, *, is_changed: bool) -> None:
        """Raises the error with which the only monitor ended."""
        for each in self._running:
            error = each.take_error()
            if error is None:
                continue
            # After a change, or with several clusters, one of them must not end the others.
            if not is_changed and len(self._running) == 1:
                raise copy_error(error)
            log.error("a cluster is not watched", cluster=each.monitor.conf.cluster_name, why=str(error))

    def _reload(self) -> bool:
        """Reads the configuration again, and applies it. Returns False if everything stays as it is."""
        former, made = self._running, dict[str, _Running]()
        try:
            confs, webhooks = list(self._read()), self._read_webhooks()
            for conf in self._list_free(confs):
                made[conf.cluster_name] = self._make(conf)
            self._events.webhooks.configure(webhooks)
        except Exception as error:
            _stop(list(made.values()))
            log.error("the configuration is wrong, and is not applied", why=_explain(error))
            return False
        try:
            self._apply(confs, made)
            self._on_reload()
        except Exception as error:
            log.error("the configuration is applied in part only", why=_explain(error))
            # They have state directories, which the next reload needs.
            _stop([each for each in (*former, *made.values()) if each not in self._running])
        return True

    def _list_free(self, confs: Sequence[MonitorConf]) -> list[MonitorConf]:
        """Those that need a new monitor, and whose state directory no running monitor has."""
        before = self._map_running()
        in_use = {each.monitor.conf.state_dir for each in self._running} - {None}
        free = [conf for conf in confs if conf.state_dir not in in_use]
        return [c for c in free if (each := before.get(c.cluster_name)) is None or not each.can_become(c)]

    def _apply(self, confs: Sequence[MonitorConf], made: Mapping[str, _Running]) -> None:
        before = self._map_running()
        kept: dict[str, _Running] = {}
        for conf in confs:
            each = before.get(conf.cluster_name)
            if conf.cluster_name not in made and each is not None and each.can_become(conf):
                each.become(conf)
                kept[conf.cluster_name] = before.pop(conf.cluster_name)
        # Those that go or change are stopped first: they have their state directories.
        self._running = tuple(kept.values())
        for name in before:
            self._watcher.note_restart(name)
        _stop(list(before.values()))
        started = {
            conf.cluster_name: each
            for conf in confs
            if conf.cluster_name not in kept
            and (each := self._start(conf, made.get(conf.cluster_name))) is not None
        }
        running = {**kept, **started}
        self._running = tuple(running[c.cluster_name] for c in confs if c.cluster_name in running)
        log.info(
            "the configuration was read again",
            clusters=len(self._running),
            started=sorted(started.keys() - before.keys()),
            restarted=sorted(started.keys() & before.keys()),
            stopped=sorted(before.keys() - started.keys()),
        )

    def _map_running(self) -> dict[str, _Running]:
        # A cluster is known by its name. The only cluster may have none.
        return {each.monitor.conf.cluster_name: each for each in self._running}

    def _make(self, conf: MonitorConf) -> _Running:
        # A cluster that cannot be reached now must not end the process.
        return _Running(replace(conf, wait=True), self._wakes)

    def _start(self, conf: MonitorConf, made: _Running | None) -> _Running | None:
        try:
            running = made or self._make(conf)
            running.start()
        except Exception as error:
            log.error("a cluster is not watched", cluster=conf.cluster_name, why=_explain(error))
            return None
        return running

    def _find_interval_s(self) -> float:
        return min((each.monitor.conf.end_interval_s for each in self._running), default=0.0)

    def _stop_all(self) -> None:
        _stop(self._running)


class _Running:
    """A monitor and its thread. `wakes` gets an item when the thread ends."""

    def __init__(self, conf: MonitorConf, wakes: SimpleQueue[None]) -> None:
        self.monitor = Monitor(conf)
        self._wakes = wakes
        self._error: BaseException | None = None
        self._fault: str | None = None
        self._thread = threading.Thread(target=self._run, name="koff-monitor", daemon=True)
        self._is_started = False

    def start(self) -> None:
        self._is_started = True
        self._thread.start()

    def stop(self) -> None:
        self.monitor.stop()

    def join(self, timeout_s: float) -> None:
        """Waits for the end of the thread, and releases what it used."""
        if self._is_started:
            self._thread.join(timeout_s)
        self.monitor.close()

    def can_become(self, conf: MonitorConf) -> bool:
        """Whether the monitor can take over that configuration while it runs."""
        mine = self.monitor.conf
        same = replace(conf, display=mine.display, wait=mine.wait) == mine
        return same and self._thread.is_alive()

    def become(self, conf: MonitorConf) -> None:
        if conf.display != self.monitor.conf.display:
            self.monitor.show(conf.display)

    def take_error(self) -> BaseException | None:
        """The error with which the monitor ended, once."""
        error, self._error = self._error, None
        return error

    def find_stall(self) -> str | None:
        """Why the process should be restarted."""
        return self._fault or self.monitor.find_stall()

    def _run(self) -> None:
        if name := self.monitor.conf.cluster_name:
            structlog.contextvars.bind_contextvars(cluster=name)
        try:
            self.monitor.run()
        except KoffError as error:
            self.monitor.fail(str(error))
            self._error = copy_error(error)
        except BaseException as error:  # a fault of koff
            self._fault = f"a fault of koff: {type(error).__name__}: {error}"
            self.monitor.fail(self._fault)
            self._error = copy_error(error)
            log.exception("a fault of koff: please report it", why=self._fault)
        finally:
            self._wakes.put(None)


def _assess_readiness(running: Sequence[_Running], views: Sequence[ClusterView]) -> Readiness:
    """The process is ready if a cluster is ready, and no cluster that koff has reached is still starting."""
    ready = sum(view.readiness.ready for view in views)
    is_ready = ready > 0 and not any(each.monitor.is_starting for each in running)
    head = f"{'ready' if is_ready else 'not ready'}: {ready} of {len(views)} clusters"
    return Readiness(is_ready, "\n".join([head, *(f"{v.cluster}: {v.readiness.text}" for v in views)]))


def _left_s(until_s: float) -> float:
    """How long a wait may take now."""
    return max(0.0, until_s - time.monotonic())


def _explain(error: Exception) -> str:
    """The text of the error, or where a fault of koff is: the text of a fault may have a secret."""
    if isinstance(error, KoffError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"a fault of koff, please report it: {type(error).__name__} in {place}"


def _stop(running: Sequence[_Running]) -> None:
    """Stops these monitors together: each saves its state."""
    for each in running:
        each.stop()
    until_s = time.monotonic() + STOP_S
    for each in running:
        each.join(_left_s(until_s))

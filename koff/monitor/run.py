"""`koff monitor`: bytes -> records -> state -> lag -> metrics, wired, started and stopped here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack

import structlog

from koff.client import Cluster
from koff.errors import ConnectError, Denied
from koff.monitor.backfill import Backfill
from koff.monitor.batching import Tail, apply_share_state, share_state_conf
from koff.monitor.clock import read_moment
from koff.monitor.conf import MonitorConf
from koff.monitor.exact_time_lag import ExactTimeLag
from koff.monitor.requests import Origin
from koff.monitor.resume_rules import is_pause_too_long
from koff.monitor.sampler import HeldBack, Sampler
from koff.monitor.saver import Saving
from koff.monitor.start import delete_retention_ms, start
from koff.monitor.state import StateDir
from koff.monitor.zookeeper_groups import ZooKeeperGroups
from koff.serve import MonitorStats, Readiness, Server
from koff.tail.reader import Polled, TailReader
from koff.tracker import Snapshot, Tracker

log = structlog.get_logger(component="monitor")

STALE_INTERVALS = 5
"""End offsets that were not renewed for so many intervals are not to be believed."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
LONG_PAUSE_S = 1800.0
"""A cluster that did not answer for so long is asked how long deletions can be seen."""
STOP_S, SAVE_S = 1.0, 10.0
"""How long threads may take to end, and the one that saves."""
SOON_S = 1.0
"""How long the first sample of ends may wait for the log."""
GATHER_S = 0.02
"""How long the next records may gather: a batch costs much the same, however small."""


class Monitor:
    """Watches one cluster; a `View` of it for the server. `run` returns when `stop` was called."""

    def __init__(self, conf: MonitorConf) -> None:
        self.conf = conf
        self.tracker = Tracker()
        self._cluster = Cluster(conf.cluster)
        self._reader = TailReader(self._cluster, conf.reader)
        self._sampler = Sampler(self._cluster, self.tracker, conf.sampler)
        self._exact = ExactTimeLag(conf.cluster, self.tracker, conf.exact)
        self._zookeeper = ZooKeeperGroups(conf.zookeeper, self.tracker)
        self._tail = Tail(self.tracker, self._reader, self._forget)
        self._state_dir = StateDir(conf.state_dir) if conf.state_dir is not None else None
        self._saving: Saving | None = None
        if self._state_dir is not None:
            self._saving = Saving(self._state_dir, self._origin, self.tracker, self._tail, self._partial)
        self._begun = threading.Event()
        self._beginning = "connected"
        self._backfill: Backfill | None = None
        self._share_reader = TailReader(self._cluster, share_state_conf(conf.reader))
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._reading_error: ConnectError | None = None
        self._sampling_error: ConnectError | None = None
        self._lost = False
        self._share_denied = self._share_is_current = False
        self._held_back = HeldBack(self._cluster, conf.reader.topic)
        self._had_caught_up = self._sampled = False
        self._answered_at_s = read_moment().at_s

    def stop(self) -> None:
        """Ends `run` soon; may be called from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Serves until stopped.

        Raises `ConnectError` when the cluster cannot be reached at first (unless `conf.wait`) or refuses
        us for good, `ConfigError` when the address cannot be listened on.
        """
        threads, saving = [], None
        with ExitStack() as open_:
            if self._state_dir is not None:
                open_.enter_context(self._state_dir.lock())
            server = open_.enter_context(Server(self, self.conf.serve))
            open_.enter_context(self._cluster)
            log.info("listening", url=server.url)
            try:
                self._cluster.connect(wait=self._wait, should_stop=self._stopping.is_set)
                if self._stopping.is_set():
                    return
                self._reading_error = None
                log.info("connected", brokers=self.conf.cluster.brokers, cluster=self.cluster)
                for work in (
                    *(self._read, self._read_share_state, self._sample, self._fill_back),
                    *([self._read_records] if self.conf.exact.groups else []),
                    *([self._read_zookeeper] if self.conf.zookeeper.hosts else []),
                ):
                    threads.append(threading.Thread(target=self._guarded, args=(work,), daemon=True))
                if self._state_dir is not None:
                    saving = threading.Thread(target=self._guarded, args=(self._save,), daemon=True)
                for thread in (*threads, *([saving] if saving else [])):
                    thread.start()
                self._stopping.wait()
            except ConnectError:
                if not self._stopping.is_set():
                    raise
            finally:
                self._stopping.set()
                if saving is not None:
                    saving.join(SAVE_S)
                until = time.monotonic() + STOP_S
                for thread in threads:  # one that waits for brokers that are away is left behind
                    thread.join(max(0.0, until - time.monotonic()))
                if not any(thread.is_alive() for thread in threads):
                    self._reader.close()
                    self._share_reader.close()
                    self._zookeeper.close()
        if self._failure is not None:
            raise self._failure
        log.info("stopped")

    @property
    def cluster(self) -> str:
        """The name given to the cluster, else its id."""
        return self.conf.cluster_name or self._cluster.id

    def snapshot(self) -> Snapshot:
        """All groups."""
        return self.tracker.take_snapshot(_now_ms())

    def readiness(self) -> Readiness:
        """Ready when the offsets topic was read to where it stood at the start, and end offsets are fresh."""
        reader = self._reader
        if not self._cluster.id:
            return Readiness(
                False, f"not ready: {self._unreachable or f'connecting to {self.conf.cluster.brokers}'}"
            )
        if (unreachable := self._unreachable) is not None:
            return Readiness(False, f"not ready: {unreachable}")
        if reader.topic_exists is None:
            return Readiness(False, f"not ready: {self._beginning}")
        for each in (reader,) if self._share_denied else (reader, self._share_reader):
            if not each.caught_up:
                done, total = each.to_read - each.behind, each.to_read
                return Readiness(False, f"not ready: read {done} of {total} offsets of {each.conf.topic}")
        if not self._sampled:
            return Readiness(False, "not ready: end offsets are not known yet")
        if not self._lag_is_fresh:
            return Readiness(False, f"not ready: end offsets are {self._sampler.age_s:.0f} s old")
        if self.conf.zookeeper.hosts and not self._zookeeper.known:
            why = self._zookeeper.unreachable or "not read yet"
            return Readiness(False, f"not ready: groups of ZooKeeper: {why}")
        return Readiness(
            True, "ready" if reader.topic_exists else f"ready: no {reader.conf.topic} yet, so no groups"
        )

    def reader_stats(self) -> MonitorStats:
        """What the reader did so far, and how well it is."""
        seen, reader, held = self.tracker.record_counts.copy(), self._reader, self._held_back
        positions = reader.positions
        behind = sum(max(0, stable - positions.get(p, stable)) for p, stable in held.stable.items())
        fresh = self._lag_is_fresh
        since_ms = held.since_ms
        return MonitorStats(
            records=seen,
            undecodable=seen.get("Undecodable", 0),
            behind=max(behind, reader.behind) if reader.topic_exists is not None else None,
            held_back_records=held.records,
            held_back_s=max(0.0, time.time() - since_ms / 1000) if since_ms is not None else 0.0,
            end_offsets_age_s=self._sampler.age_s,
            backfill_remaining=self._backfill.remaining if self._backfill else 0,
            lag_is_fresh=fresh,
            up=fresh and self._unreachable is None,
        )

    def _read(self) -> None:
        """Keeps the tracker where the log is. What was read is shown once a fetch came back short."""
        pause = FIRST_PAUSE_S
        while not self._stopping.is_set():
            self._log_reachability()
            try:
                if not self._begun.is_set():
                    self._begin()
                polled = self._reader.poll(0.2)
            except ConnectError as failure:
                started = self._reader.topic_exists is not None and not isinstance(failure, Denied)
                if not (self.conf.wait or self._had_caught_up or started):
                    raise
                self._reading_error = failure
                self._log_reachability()
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            self._reading_error, pause = None, FIRST_PAUSE_S
            if polled.runs or polled.lost or self._tail.held:
                self._apply(polled)
            self._had_caught_up = self._had_caught_up or self._reader.caught_up
            if polled.runs or polled.lost:
                self._stopping.wait(GATHER_S)

    def _begin(self) -> None:
        """Knows at once what can be known at once, and where to read on."""
        started = start(
            self.conf.start,
            self._cluster,
            self.tracker,
            self.conf.reader,
            state_dir=self._state_dir,
            progress=self._note_beginning,
        )
        if started.begin is not None:
            self._tail.begin(started.begin, started.told_until)
        if started.told:
            self._backfill = Backfill(self._cluster, self.tracker, self._tail, self.conf.reader, started.told)
        self._note_beginning(f"looking for {self.conf.reader.topic}")
        self._begun.set()

    def _note_beginning(self, text: str) -> None:
        self._beginning = text

    def _fill_back(self) -> None:
        """Learns the history of what was begun without, once the present can be served."""
        while not self._readable and not self._stopping.wait(0.1):
            pass
        if self._backfill is not None:
            self._backfill.run(self._stopping)

    def _save(self) -> None:
        assert self._saving is not None
        self._saving.run(self._stopping, lambda: self._readable and self._reader.unreachable is None)

    def _forget(self, partition: int) -> None:
        if self._saving is not None:
            self._saving.forget(partition)

    def _origin(self) -> Origin | None:
        topic = self._reader.topic
        return (
            topic if topic is None else Origin(self._cluster.id, topic.name, topic.topic_id, topic.partitions)
        )

    def _partial(self) -> Collection[int]:
        return self._backfill.waiting if self._backfill else ()

    @property
    def _is_current(self) -> bool:
        """Whether both logs were read to where they stood, and the tracker has all of it."""
        shared = self._share_denied or (self._share_is_current and self._share_reader.caught_up)
        return self._had_caught_up and self._reader.caught_up and shared

    @property
    def _readable(self) -> bool:
        """Whether the logs were read to where they stood, and ends are known."""
        return self._begun.is_set() and self._is_current and self._sampled

    def _read_records(self) -> None:
        """Keeps exact lags in seconds for the groups that are to have them."""
        self._exact.run(self._stopping, lambda: self._reader.caught_up)

    def _read_zookeeper(self) -> None:
        """Keeps up with the groups of ZooKeeper."""
        self._zookeeper.run(self._stopping, lambda failure: self.conf.wait, lambda: self._had_caught_up)

    def _read_share_state(self) -> None:
        """Keeps up with what share groups have done; gives up where that may not be read."""
        while not self._stopping.is_set():
            try:
                polled = self._share_reader.poll(0.2)
            except Denied as failure:
                log.warning("no lag of share groups", why=str(failure))
                self._share_denied = True
                return
            except ConnectError:
                self._stopping.wait(FIRST_PAUSE_S)  # the other threads say what is wrong
                continue
            apply_share_state(self.tracker, polled, self._share_reader)
            self._share_is_current = self._share_reader.caught_up
            if polled.runs or polled.lost:
                self._stopping.wait(GATHER_S)

    def _apply(self, polled: Polled) -> None:
        """Applies this poll, and the next while more is waiting, for up to a second, before it is shown."""
        until = time.monotonic() + 1.0
        with self.tracker.lock:
            while True:
                self._tail.add_polled(polled)
                if not polled.full or time.monotonic() > until or self._stopping.is_set():
                    self._tail.flush()
                    return
                polled = self._reader.poll(0.0)

    def _sample(self) -> None:
        """Keeps end offsets fresh; sooner than planned when a partition is new."""
        pause = FIRST_PAUSE_S
        self._await_log()
        while not self._stopping.is_set():
            known, caught_up = self.tracker.partition_count, self._is_current
            try:
                asked_at = time.monotonic()
                self.tracker.set_offsets_partitions(len(self._reader.partitions))
                self._sampler.sample()
                self._sampled = caught_up
                self._held_back.sample(self._reader.partitions)
                self._note_pause()
                if self._reader.unreachable is None:
                    self._reader.check_progress(self._held_back.stable)
            except ConnectError as failure:
                self._sampling_error = failure
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            self._sampling_error, pause = None, FIRST_PAUSE_S
            self._reader.note_response(asked_at)
            due = time.monotonic() + self.conf.sampler.end_interval_s
            while time.monotonic() < due and not self._stopping.wait(0.1 if self._sampled else 0.01):
                grown = self._is_current and known != self.tracker.partition_count
                if grown or caught_up != self._is_current:
                    break

    def _await_log(self) -> None:
        """Returns once the logs were read to where they stood, if that is soon: earlier ends make no lag."""
        while not self._begun.wait(0.1) and not self._stopping.is_set():
            pass
        until = time.monotonic() + SOON_S
        while not self._is_current and time.monotonic() < until and not self._stopping.wait(0.005):
            pass

    def _note_pause(self) -> None:
        """Reads everything anew after a pause in which deletions may have come and gone
        (docs/records-format.md 4.2)."""
        now_s = read_moment().at_s
        pause_s, self._answered_at_s = now_s - self._answered_at_s, now_s
        if pause_s > LONG_PAUSE_S:
            retention_ms = delete_retention_ms(self._cluster, self.conf.reader.topic)
            if is_pause_too_long(pause_s * 1000, retention_ms):
                log.warning("cut off for too long: reading the log anew", seconds=round(pause_s))
                self._reader.replay_all()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            if not self._stopping.is_set():  # what was left behind finds everything closed
                self._failure = failure
            self._stopping.set()

    def _wait(self, failure: ConnectError) -> bool:
        """Whether to go on trying to connect."""
        self._reading_error = failure
        if self.conf.wait:
            log.warning("waiting", why=str(failure))
            self._stopping.wait(FIRST_PAUSE_S)
        return self.conf.wait and not self._stopping.is_set()

    @property
    def _lag_is_fresh(self) -> bool:
        age = self._sampler.age_s
        return age is not None and age <= STALE_INTERVALS * self.conf.sampler.end_interval_s

    @property
    def _unreachable(self) -> ConnectError | None:
        return self._reading_error or self._sampling_error or self._reader.unreachable

    def _log_reachability(self) -> None:
        """Says once that the brokers are lost, and once that they are back."""
        unreachable = self._unreachable
        if unreachable is not None and not self._lost:
            log.warning("brokers lost", why=str(unreachable))
        if unreachable is None and self._lost:
            log.info("brokers back")
        self._lost = unreachable is not None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""The threads that carry out the requests of the core, and post the results.

A thread that hangs delays its own request only: the core gives up a request that is not answered in time.
Requests to the cluster have a thread each; requests for offsets have one for each leader. The state
directory, ZooKeeper and the first records of rows have one thread each, which works in order. Each thread
starts with its first request.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import structlog

from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf, TopicPartition
from koff.client.metadata import Node
from koff.client.offsets.log_sizes import fetch_log_sizes
from koff.errors import KoffError
from koff.monitor.fetching import CHUNK, OFFSETS_TIMEOUT_S, Fetching, OfCoordinators, split_into_chunks
from koff.monitor.first_records import read_first_records
from koff.monitor.in_order import InOrder, carry_out
from koff.monitor.readers import HistoryReader, TopicReader
from koff.monitor.requests import (
    Answered,
    Done,
    Failed,
    FetchGroups,
    FetchLogSizes,
    FetchOffsets,
    FetchShareLags,
    FetchStoredGroups,
    FetchTopics,
    ForgetSaved,
    Input,
    Load,
    Loaded,
    LogSizesFetched,
    OffsetsFetched,
    Read,
    ReadFirstRecords,
    ReadHistory,
    Request,
    Save,
    SaveFile,
    SaveIndex,
    StopReading,
)
from koff.monitor.state import StateDir
from koff.monitor.worker_thread import Post, WorkerThread
from koff.monitor.zookeeper import ZooKeeper, ZooKeeperConf

log = structlog.get_logger(component="monitor.workers")
_Part = TypeVar("_Part")
MAX_THREADS = 200
"""If so many requests hang, further ones fail at once."""
MAX_LEADERS = 20
"""So many leaders are asked at once for one request. The next one is asked when one of them has answered."""
LOG_SIZES_TIMEOUT_S = 20.0
"""Less than the core waits, so that it learns why there are no sizes."""
STOP_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkersConf:
    """What the workers need besides the cluster. Without a `state_dir`, the core must not save."""

    cluster: ClusterConf
    topics: tuple[str, ...]
    """The internal topics that are read."""
    end_interval_s: float = 5.0
    state_dir: StateDir | None = None
    zookeeper: ZooKeeperConf = field(default_factory=ZooKeeperConf)


class Workers:
    """Carries out requests in threads of its own. `send` returns at once."""

    def __init__(
        self,
        conf: WorkersConf,
        cluster: Cluster,
        post: Post,
    ) -> None:
        self._conf, self._cluster, self._post = conf, cluster, post
        self._fetching = Fetching(cluster)
        self.zookeeper = ZooKeeper(conf.zookeeper)
        self._stopping = threading.Event()
        self._readers = {
            topic: TopicReader(cluster, topic, post, interval_s=conf.end_interval_s) for topic in conf.topics
        }
        self._history = HistoryReader(cluster, post)
        self._in_order = {
            "disk": InOrder("disk", self._carry_out_on_disk, post),
            "zookeeper": InOrder("zookeeper", self.zookeeper.fetch_groups, post, self.zookeeper.close),
            "records": InOrder("records", self._read_first_records, post),
        }
        self._living: list[WorkerThread] = [
            *self._readers.values(),
            self._history,
            *self._in_order.values(),
        ]
        self._threads = threading.Semaphore(MAX_THREADS)

    def send(self, request: Request) -> None:
        """Carries out a request."""
        match request:
            case Read() | StopReading():
                self._readers[request.topic].send(request)
            case ReadHistory():
                self._history.send(request)
            case Load() | Save() | SaveIndex() | SaveFile() | ForgetSaved():
                self._in_order["disk"].send(request)
            case FetchStoredGroups():
                self._in_order["zookeeper"].send(request)
            case ReadFirstRecords():
                self._in_order["records"].send(request)
            case FetchOffsets():
                self._fetch_offsets(request)
            case FetchGroups():
                self._fetch_of_coordinators(request, self._fetching.fetch_groups)
            case FetchShareLags():
                self._fetch_of_coordinators(request, self._fetching.fetch_share_lags)
            case FetchLogSizes():
                self._fetch_log_sizes(request)
            case _:
                if isinstance(request, FetchTopics):
                    self._start_thread(self._fetching.refresh_leaders)
                if not self._start_thread(lambda: self._post(carry_out(self._fetching.fetch, request))):
                    self._refuse(request)

    def finish_disk(self, timeout_s: float) -> None:
        """Waits until the requests to the state directory are carried out, or `timeout_s` has passed."""
        self._in_order["disk"].finish(timeout_s)

    def close(self) -> None:
        """Ends the threads. A thread that waits for a broker or a disk is left behind."""
        self._stopping.set()
        for worker in self._living:
            worker.close()
        deadline = time.monotonic() + STOP_S
        for worker in self._living:
            worker.join(max(0.0, deadline - time.monotonic()))

    def _fetch_offsets(self, request: FetchOffsets) -> None:
        """Fetches offsets from each leader."""
        parts = self._fetching.split_by_leader(request.partitions)
        results = _PartResults(len(parts), self._post)

        def fetch(partitions: list[TopicPartition]) -> None:
            late_s = time.monotonic() + OFFSETS_TIMEOUT_S
            chunks = list(split_into_chunks(partitions, CHUNK))
            for number, chunk in enumerate(chunks, start=1):
                offsets: dict[tuple[str, int], int | str]
                if time.monotonic() < late_s:
                    offsets = self._fetching.fetch_offsets(request.kind, chunk)
                else:  # the core gives the request up soon, and sends another one
                    offsets = dict.fromkeys(chunk, "no response in time")
                result = partial(OffsetsFetched, request.id, offsets)
                results.post(result, ends_part=number == len(chunks))

        if parts:
            self._fetch_parts(request, parts, fetch)
        else:
            self._post(OffsetsFetched(request.id, {}, final=True))

    def _fetch_log_sizes(self, request: FetchLogSizes) -> None:
        """Fetches the sizes of the logs from each broker."""
        brokers = self._fetching.brokers
        if not brokers:
            self._post(LogSizesFetched(request.id, None, "", final=True))
            return
        results = _PartResults(len(brokers), self._post)

        def fetch(broker: Node) -> None:
            sizes: Mapping[str, int] | str
            try:
                sizes = fetch_log_sizes(self._cluster.brokers, broker, timeout_s=LOG_SIZES_TIMEOUT_S)
            except KoffError as error:
                sizes = str(error)
            except Exception as error:  # a fault of koff must not end the process
                log.exception("log sizes cannot be fetched")
                sizes = repr(error)
            results.post(partial(LogSizesFetched, request.id, broker.id, sizes), ends_part=True)

        self._fetch_parts(request, brokers, fetch)

    def _fetch_of_coordinators(
        self, request: OfCoordinators, fetch_part: Callable[[OfCoordinators], Callable[..., Input]]
    ) -> None:
        """Fetches something from each coordinator."""
        parts = self._fetching.split_by_coordinator(request)
        results = _PartResults(len(parts), self._post)

        def fetch(part: OfCoordinators) -> None:
            results.post(fetch_part(part), ends_part=True)

        self._fetch_parts(request, parts, fetch)

    def _fetch_parts(self, request: Answered, parts: Sequence[_Part], fetch: Callable[[_Part], None]) -> None:
        """Fetches each part in a thread, so that a leader which hangs delays only its own partitions."""
        left = deque(parts)

        def run() -> None:
            while True:
                try:
                    part = left.popleft()
                except IndexError:  # the other threads have the rest
                    return
                fetch(part)

        threads = min(len(parts), MAX_LEADERS)
        if not sum(self._start_thread(run) for _ in range(threads)):
            self._refuse(request)

    def _refuse(self, request: Answered) -> None:
        self._post(Failed(request.id, f"no thread for it: {MAX_THREADS} requests do not return"))

    def _start_thread(self, work: Callable[[], None]) -> bool:
        """Does the work in a thread of its own. Returns False if there is none for it."""
        if not self._threads.acquire(blocking=False):
            return False

        def run() -> None:
            try:
                work()
            finally:
                self._threads.release()

        try:
            in_context = contextvars.copy_context().run  # log lines name the same cluster
            threading.Thread(target=in_context, args=(run,), name="koff-request", daemon=True).start()
        except RuntimeError:  # the operating system gives no more threads
            self._threads.release()
            return False
        return True

    def _read_first_records(self, request: Answered) -> Input:
        return read_first_records(self._cluster.lister, request, self._stopping.is_set)

    def _carry_out_on_disk(self, request: Answered) -> Input:
        assert self._conf.state_dir is not None  # else the core does not save
        return write_or_load(self._conf.state_dir, request)


class _PartResults:
    """Posts what several threads fetch for one request. The last result is final."""

    def __init__(self, parts: int, post: Post) -> None:
        self._open_parts, self._post = parts, post
        self._lock = threading.Lock()

    def post(self, result: Callable[..., Input], *, ends_part: bool) -> None:
        """Posts a result, which is called with `final`. `ends_part`: it is the last one of a part."""
        with self._lock:  # until it is posted: the core drops what comes after the final result
            self._open_parts -= ends_part
            self._post(result(final=not self._open_parts))


def write_or_load(state_dir: StateDir, request: Answered) -> Input:
    """Carries out a request to the state directory. Raises `KoffError`."""
    match request:
        case Load():
            ends = state_dir.load_file("ends", request.origin)
            state, stamp = (ends, None) if isinstance(ends, str) else ends
            found = state_dir.load_file("verdicts", request.origin)
            verdicts = None if isinstance(found, str) else found[0]
            return Loaded(request.id, dict(state_dir.load(request.origin)), state, stamp, verdicts)
        case Save():
            state_dir.save(
                request.origin,
                request.partition,
                request.state,
                position=request.position,
                stamp=request.stamp,
                leader_epoch=request.leader_epoch,
            )
        case SaveIndex():
            state_dir.note(request.origin, request.positions, stamp=request.stamp)
        case SaveFile():
            state_dir.save_file(request.name, request.origin, request.state, stamp=request.stamp)
        case ForgetSaved():
            for partition in sorted(request.partitions):
                state_dir.forget(partition)
    log.debug("saved", what=type(request).__name__)
    return Done(request.id, is_emptied=state_dir.take_emptied())

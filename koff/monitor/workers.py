"""The threads that carry out the requests of the core, and post the results.

A thread that hangs delays its own request only: the core gives up a request that is not answered in time.
Requests to the cluster have a thread each; requests for offsets have one for each leader. The state
directory, ZooKeeper and the records of exact time lags have one thread each, which works in order.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol, TypeVar

import structlog

from koff.client import (
    Cluster,
    ClusterConf,
    EndReached,
    FeedConf,
    Isolation,
    OffsetSpec,
    Place,
    RecordTimes,
    TopicPartition,
    Unread,
)
from koff.client import FirstRecord as ReadRecord
from koff.errors import ConnectError, Denied, KoffError
from koff.lag import NO_RECORD, NO_TIMESTAMP
from koff.monitor.fetched_groups import fetch_described_groups
from koff.monitor.readers import HistoryReader, Post, TopicReader
from koff.monitor.requests import (
    Answered,
    Done,
    Failed,
    FetchGroups,
    FetchOffsets,
    FetchRetention,
    FetchStoredGroups,
    FetchTopics,
    FirstRecord,
    FirstRecordsRead,
    ForgetSaved,
    Input,
    Load,
    Loaded,
    OffsetKind,
    OffsetsFetched,
    Read,
    ReadFirstRecords,
    ReadHistory,
    RecordPlace,
    Request,
    RetentionFetched,
    Save,
    SaveEnds,
    SaveIndex,
    StopReading,
    Topic,
    TopicsFetched,
)
from koff.monitor.state import StateDir
from koff.monitor.zookeeper import ZooKeeper, ZooKeeperConf

log = structlog.get_logger(component="monitor.workers")
OFFSETS_TIMEOUT_S = 8.0
"""Less than the core waits, so that it learns why there is no offset."""
CHUNK = 2_000
"""So many partitions in one request for offsets: librdkafka's cost grows faster than their number."""
RECORDS_TIMEOUT_S = 8.0
MAX_THREADS = 200
"""If so many requests hang, further ones fail at once."""
MAX_LEADERS = 20
"""So many leaders are asked at once for one request. The next one is asked when one of them has answered."""
HANG_S = 60.0
"""After a request to the disk that takes so long, further ones fail at once: they may hold much memory."""
STOP_S = 1.0
_UNKNOWN_LEADER = -1
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class WorkersConf:
    """What the workers need besides the cluster. Without a `state_dir`, the core must not save."""

    cluster: ClusterConf
    topics: tuple[str, ...]
    """The internal topics that are read."""
    state_dir: StateDir | None = None
    zookeeper: ZooKeeperConf = field(default_factory=ZooKeeperConf)
    feed: FeedConf = field(default_factory=FeedConf)


class LivingWorker(Protocol):
    """A thread that lives as long as the workers."""

    def start(self) -> None: ...
    def close(self) -> None: ...
    def join(self, timeout_s: float) -> None: ...


class Workers:
    """Carries out requests in threads of its own. `send` returns at once."""

    def __init__(self, conf: WorkersConf, cluster: Cluster, post: Post) -> None:
        self._conf, self._cluster, self._post = conf, cluster, post
        self._fetching = Fetching(cluster)
        self.zookeeper = ZooKeeper(conf.zookeeper)
        self._records = FirstRecords(conf.cluster)
        self._readers = {topic: TopicReader(conf.cluster, topic, conf.feed, post) for topic in conf.topics}
        self._history = HistoryReader(cluster, conf.feed, post)
        self._in_order = {
            "disk": InOrder("disk", self._carry_out_on_disk, post),
            "zookeeper": InOrder("zookeeper", self.zookeeper.fetch_groups, post, self.zookeeper.close),
            "records": InOrder("records", self._records.read, post, self._records.close),
        }
        self._living: list[LivingWorker] = [
            *self._readers.values(),
            self._history,
            *self._in_order.values(),
        ]
        self._threads = threading.Semaphore(MAX_THREADS)

    def start(self) -> None:
        """Starts the threads that live as long as the workers."""
        for worker in self._living:
            worker.start()

    def send(self, request: Request) -> None:
        """Carries out a request."""
        match request:
            case Read() | StopReading():
                self._readers[request.topic].send(request)
            case ReadHistory():
                self._history.send(request)
            case Load() | Save() | SaveIndex() | SaveEnds() | ForgetSaved():
                self._in_order["disk"].send(request)
            case FetchStoredGroups():
                self._in_order["zookeeper"].send(request)
            case ReadFirstRecords():
                self._in_order["records"].send(request)
            case FetchOffsets():
                self._fetch_offsets(request)
            case _:
                if not self._start_thread(lambda: self._post(carry_out(self._fetching.fetch, request))):
                    self._refuse(request)

    def finish_disk(self, timeout_s: float) -> None:
        """Waits until the requests to the state directory are carried out, or `timeout_s` has passed."""
        self._in_order["disk"].finish(timeout_s)

    def close(self) -> None:
        """Ends the threads. A thread that waits for a broker or a disk is left behind."""
        self._records.stop()
        for worker in self._living:
            worker.close()
        deadline = time.monotonic() + STOP_S
        for worker in self._living:
            worker.join(max(0.0, deadline - time.monotonic()))

    def _fetch_offsets(self, request: FetchOffsets) -> None:
        """Starts a thread for each leader, so that a leader which hangs delays only its own partitions."""
        parts = deque(self._fetching.split_by_leader(request.partitions))
        results = _PartResults(request.id, len(parts), self._post)

        def fetch() -> None:
            while True:
                try:
                    partitions = parts.popleft()
                except IndexError:  # the other threads have the rest
                    return
                self._fetch_part(request.kind, partitions, results)

        threads = min(len(parts), MAX_LEADERS)
        if not parts:
            self._post(OffsetsFetched(request.id, {}, final=True))
        elif not sum(self._start_thread(fetch) for _ in range(threads)):
            self._refuse(request)

    def _fetch_part(self, kind: OffsetKind, partitions: list[TopicPartition], results: _PartResults) -> None:
        """Posts the offsets of one leader's partitions, or why they are unknown."""
        late_s = time.monotonic() + OFFSETS_TIMEOUT_S
        chunks = list(split_into_chunks(partitions, CHUNK))
        for number, chunk in enumerate(chunks, start=1):
            if time.monotonic() < late_s:
                offsets, epochs = self._fetching.fetch_offsets(kind, chunk)
            else:  # the core gives the request up soon, and sends another one
                offsets, epochs = dict.fromkeys(chunk, "no response in time"), {}
            results.post(offsets, epochs, ends_part=number == len(chunks))

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
            threading.Thread(target=run, name="koff-request", daemon=True).start()
        except RuntimeError:  # the operating system gives no more threads
            self._threads.release()
            return False
        return True

    def _carry_out_on_disk(self, request: Answered) -> Input:
        assert self._conf.state_dir is not None  # else the core does not save
        return write_or_load(self._conf.state_dir, request)


class _PartResults:
    """Posts what several threads fetch for one request. The last result is final."""

    def __init__(self, request_id: int, parts: int, post: Post) -> None:
        self._request_id, self._open_parts, self._post = request_id, parts, post
        self._lock = threading.Lock()

    def post(
        self,
        offsets: Mapping[tuple[str, int], int | str],
        epochs: Mapping[tuple[str, int], int],
        *,
        ends_part: bool,
    ) -> None:
        """Posts some offsets. `ends_part`: they are the last ones of a part."""
        with self._lock:  # until it is posted: the core drops what comes after the final result
            self._open_parts -= ends_part
            self._post(OffsetsFetched(self._request_id, offsets, final=not self._open_parts, epochs=epochs))


def carry_out(work: Callable[[Answered], Input], request: Answered) -> Input:
    """The result of `work`, or why there is none. Raises nothing."""
    try:
        return work(request)
    except KoffError as error:
        return Failed(request.id, str(error), denied=isinstance(error, Denied))
    except Exception as error:  # a fault of koff must not end the process
        log.exception("a request failed", request=type(request).__name__)
        return Failed(request.id, f"{type(error).__name__}: {error}")


class InOrder:
    """A thread that carries out requests one after the other. It calls `on_end` when it ends."""

    def __init__(
        self,
        name: str,
        work: Callable[[Answered], Input],
        post: Post,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._work, self._post, self._on_end = work, post, on_end
        self._began_s: float | None = None
        self._requests: SimpleQueue[Answered | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"koff-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def send(self, request: Answered) -> None:
        """Carries out the request after those that were sent before. It fails if one of those hangs."""
        began_s = self._began_s
        if began_s is not None and time.monotonic() - began_s > HANG_S:
            self._post(Failed(request.id, f"a request before it has not returned for {HANG_S:.0f} s"))
        else:
            self._requests.put(request)

    def close(self) -> None:
        """Ends the thread once all requests are carried out."""
        self._requests.put(None)

    def join(self, timeout_s: float) -> None:
        """Waits until the thread has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def finish(self, timeout_s: float) -> None:
        """Waits until all requests are carried out, and ends the thread."""
        self.close()
        self.join(timeout_s)

    def _run(self) -> None:
        try:
            while (request := self._requests.get()) is not None:
                self._began_s = time.monotonic()
                result = carry_out(self._work, request)
                self._began_s = None
                self._post(result)
        finally:
            self._on_end()


def write_or_load(state_dir: StateDir, request: Answered) -> Input:
    """Carries out a request to the state directory. Raises `KoffError`."""
    match request:
        case Load():
            ends = state_dir.load_ends(request.origin)
            state, stamp = (ends, None) if isinstance(ends, str) else ends
            return Loaded(request.id, dict(state_dir.load(request.origin)), state, stamp)
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
        case SaveEnds():
            state_dir.save_ends(request.origin, request.state, stamp=request.stamp)
        case ForgetSaved():
            for partition in sorted(request.partitions):
                state_dir.forget(partition)
    log.debug("saved", what=type(request).__name__)
    return Done(request.id)


class Fetching:
    """Requests to the cluster. Any thread may call any method."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leaders: Mapping[str, tuple[int, ...]] = {}
        self._has_fetched_groups = False

    def fetch(self, request: Answered) -> Input:
        """The result of a request that is not for offsets. Raises `KoffError`."""
        match request:
            case FetchTopics():
                return TopicsFetched(request.id, self._fetch_topics())
            case FetchRetention():
                retention_ms = self._cluster.fetch_topic_configs(request.topic).get("delete.retention.ms")
                if retention_ms is None:
                    raise ConnectError(f"the broker returned no delete.retention.ms of {request.topic}")
                return RetentionFetched(request.id, int(retention_ms))
            case FetchGroups():
                quiet, self._has_fetched_groups = self._has_fetched_groups, True
                return fetch_described_groups(self._cluster, request, quiet=quiet)
        raise TypeError(f"{type(request).__name__} is not a request to the cluster")

    def _fetch_topics(self) -> dict[str, Topic]:
        listed = self._cluster.fetch_metadata().topics
        self._leaders = {
            name: tuple(partition.leader for partition in partitions) for name, partitions in listed.items()
        }
        ids: dict[str, str] = {}
        for names in split_into_chunks(list(listed), CHUNK):
            described = self._cluster.describe_topics(names)
            ids |= {name: topic.topic_id for name, topic in described.items()}
        return {
            name: Topic(
                ids[name], len(leaders), frozenset(p for p, leader in enumerate(leaders) if leader < 0)
            )
            for name, leaders in self._leaders.items()
            if name in ids
        }

    def split_by_leader(self, partitions: Iterable[tuple[str, int]]) -> list[list[TopicPartition]]:
        """The partitions of each leader, as of the newest list of topics."""
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        leaders = self._leaders
        for topic, partition in partitions:
            known = leaders.get(topic, ())
            leader = known[partition] if partition < len(known) else _UNKNOWN_LEADER
            by_leader[leader].append(TopicPartition(topic, partition))
        return list(by_leader.values())

    def fetch_offsets(
        self, kind: OffsetKind, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[tuple[str, int], int | str], dict[tuple[str, int], int]]:
        """The offsets, or why they are unknown; and leader epochs, where these are known. Raises nothing."""
        wanted = list(partitions)
        spec: OffsetSpec | int = OffsetSpec.LATEST
        if isinstance(kind, int):
            spec = kind
        elif kind == "start":
            spec = OffsetSpec.EARLIEST
        isolation = Isolation.READ_COMMITTED if kind == "stable" else Isolation.READ_UNCOMMITTED
        try:
            listed = self._cluster.list_offsets(wanted, spec, isolation, timeout_s=OFFSETS_TIMEOUT_S)
        except KoffError as error:
            return {at: str(error) for at in wanted}, {}
        except Exception as error:  # a fault of koff must not end the process
            log.exception("offsets cannot be fetched")
            return {at: f"{type(error).__name__}: {error}" for at in wanted}, {}
        offsets: dict[tuple[str, int], int | str]
        offsets = {at: found if isinstance(found, str) else found.offset for at, found in listed.items()}
        if kind != "end":  # the epoch of the first record, or of a record of some time, is not the leader's
            return offsets, {}
        return offsets, {
            at: found.leader_epoch
            for at, found in listed.items()
            if not isinstance(found, str) and found.leader_epoch >= 0
        }


def split_into_chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """The items in order, `size` of them at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))


class FirstRecords:
    """Reads the first records at places, over a connection that is opened at the first request."""

    def __init__(self, conf: ClusterConf) -> None:
        self._conf = conf
        self._times: RecordTimes | None = None
        self._stopping = threading.Event()

    def read(self, request: Answered) -> FirstRecordsRead:
        """The result of a `ReadFirstRecords`. Raises `KoffError`."""
        assert isinstance(request, ReadFirstRecords)
        if self._times is None:
            self._times = RecordTimes(self._conf)
        places = [Place(*place) for place in request.places]
        try:
            found = self._times.read(places, RECORDS_TIMEOUT_S, self._stopping.is_set)
        except Exception:  # the next request gets a new client
            self.close()
            raise
        records: dict[RecordPlace, FirstRecord | str] = {}
        for place, answer in found.items():
            match answer:
                case ReadRecord(offset, timestamp_ms):
                    at_ms = NO_TIMESTAMP if timestamp_ms is None else timestamp_ms
                    records[RecordPlace(*place)] = FirstRecord(offset, at_ms)
                case EndReached(offset):
                    records[RecordPlace(*place)] = FirstRecord(offset, NO_RECORD)
                case Unread(reason):
                    records[RecordPlace(*place)] = reason
        denied = frozenset(
            place.topic for place, answer in found.items() if isinstance(answer, Unread) and answer.denied
        )
        return FirstRecordsRead(request.id, records, denied)

    def stop(self) -> None:
        """Ends a request that is under way, soon. From any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Releases the connection. For the thread that calls `read`: nobody else may use its client."""
        times, self._times = self._times, None
        if times is not None:
            times.close()

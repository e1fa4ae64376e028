"""The threads that carry out the requests of the core, and post the results.

A thread that hangs delays its own request only: the core gives up a request that has no result in time.
Requests have a thread each, or one for each broker. The state directory, ZooKeeper, histories and the first
records of rows have one thread each, which works in order. Each thread starts with its first request.
"""

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import TypeVar

import structlog

from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf
from koff.client.wire.brokers import Brokers
from koff.errors import ConnectError, KoffError, lacks_right
from koff.monitor.duties.history import ReadHistory
from koff.monitor.leaders import Leaders
from koff.monitor.means import Means
from koff.monitor.readers import HistoryReader, TopicReader
from koff.monitor.requests import Command, Failed, Read, Request, Result, StopReading
from koff.monitor.state import StateDir
from koff.monitor.worker_thread import Post, WorkerThread
from koff.monitor.zookeeper import ZooKeeper, ZooKeeperConf

HANG_S = 60.0
"""After a request to the disk that takes so long, further ones fail at once: they may hold much memory."""


def carry_out(request: Request, means: Means) -> Result | None:
    """The result of the request, or why there is none; None if it posts its results. Raises nothing."""
    try:
        return request.carry_out(means)
    except KoffError as error:
        return Failed(request.id, str(error), denied=lacks_right(error))
    except Exception as error:  # a fault of koff must not end the process
        log.exception("a request failed", request=type(request).__name__)
        return Failed(request.id, f"{type(error).__name__}: {error}")


class InOrder(WorkerThread):
    """A thread that carries out requests one after the other. It calls `on_end` when it ends."""

    def __init__(
        self,
        name: str,
        means: Means,
        post: Post,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name)
        self._means, self._post, self._on_end = means, post, on_end
        self._began_s: float | None = None
        self._requests: SimpleQueue[Request | None] = SimpleQueue()

    def send(self, request: Request) -> None:
        """Carries out the request after those that were sent before. It fails if one of them hangs."""
        began_s = self._began_s
        if began_s is not None and time.monotonic() - began_s > HANG_S:
            self._post(Failed(request.id, f"a request before it has not returned for {HANG_S:.0f} s"))
            return
        try:
            self.start()
        except ConnectError as error:
            self._post(Failed(request.id, str(error)))
        else:
            self._requests.put(request)

    def close(self) -> None:
        """Ends the thread once all requests are carried out."""
        self._requests.put(None)

    def finish(self, timeout_s: float) -> None:
        """Waits until all requests are carried out, and ends the thread."""
        self.close()
        self.join(timeout_s)

    def _run(self) -> None:
        try:
            while (request := self._requests.get()) is not None:
                self._began_s = time.monotonic()
                result = carry_out(request, self._means)
                self._began_s = None
                log.debug("carried out", what=type(request).__name__)
                if result is not None:
                    self._post(result)
        finally:
            self._on_end()


log = structlog.get_logger(component="monitor.workers")
_Part = TypeVar("_Part")
MAX_THREADS = 200
"""If so many requests hang, further ones fail at once."""
MAX_LEADERS = 20
"""So many brokers are asked at once for one request. The next one is asked when one of them has responded."""
FETCH_S = 8.0
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
    """Carries out requests in threads of its own: `Means` of all of them. `send` returns at once."""

    timeout_s = FETCH_S

    def __init__(self, conf: WorkersConf, cluster: Cluster, post: Post) -> None:
        self._conf, self._post = conf, post
        self.cluster, self.lister = cluster, cluster.lister
        self.leaders = Leaders(cluster.lister)
        self.zookeeper = ZooKeeper(conf.zookeeper)
        self._stopping = threading.Event()
        self._readers = {
            topic: TopicReader(cluster, topic, post, interval_s=conf.end_interval_s) for topic in conf.topics
        }
        self._disk = InOrder("disk", self, post)
        self._history = HistoryReader(cluster, post)
        self._in_order = {
            "disk": self._disk,
            "zookeeper": InOrder("zookeeper", self, post, self.zookeeper.close),
            "records": InOrder("records", self, post),
        }
        self._living: list[WorkerThread] = [
            *self._readers.values(),
            self._history,
            *self._in_order.values(),
        ]
        self._threads = threading.Semaphore(MAX_THREADS)

    # --- Means ----------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> Brokers:
        return self.cluster.brokers

    @property
    def state_dir(self) -> StateDir:
        assert self._conf.state_dir is not None  # else the core does not save
        return self._conf.state_dir

    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def refresh_leaders(self) -> None:
        self._start_thread(self._refresh_leaders)

    def fetch_parts(
        self,
        parts: Sequence[Sequence[_Part]],
        fetch: Callable[[_Part], Result],
        fail: Callable[[_Part, str], Result],
    ) -> None:
        left, open_parts, lock = deque(parts), sum(map(len, parts)), threading.Lock()

        def post(result: Result) -> None:
            nonlocal open_parts
            with lock:  # until it is posted: the core drops what comes after the final result
                open_parts -= 1
                self._post(replace(result, final=not open_parts))

        def run() -> None:
            while left:
                try:
                    of_broker = left.popleft()
                except IndexError:  # another thread has the last one
                    return
                late_s = time.monotonic() + FETCH_S
                for number, part in enumerate(of_broker):
                    if number and time.monotonic() >= late_s:
                        post(fail(part, "no response in time"))
                    else:
                        post(_fetch_part(part, fetch, fail))

        for _ in range(min(len(parts), MAX_LEADERS) - 1):
            self._start_thread(run)
        run()

    # --- Requests ----------------------------------------------------------------------------------------

    def send(self, request: Command) -> None:
        if isinstance(request, Read | StopReading):
            self._readers[request.topic].send(request)
        elif isinstance(request, ReadHistory):
            self._history.send(request)
        elif request.thread:
            self._in_order[request.thread].send(request)
        elif not self._start_thread(lambda: self._carry_out(request)):
            self._refuse(request)

    def _carry_out(self, request: Request) -> None:
        result = carry_out(request, self)
        if result is not None:
            self._post(result)

    def finish_disk(self, timeout_s: float) -> None:
        """Waits until the requests to the state directory are carried out, or `timeout_s` has passed."""
        self._disk.finish(timeout_s)

    def close(self) -> None:
        """Ends the threads. A thread that waits for a broker or a disk is left behind."""
        self._stopping.set()
        for worker in self._living:
            worker.close()
        deadline = time.monotonic() + STOP_S
        for worker in self._living:
            worker.join(max(0.0, deadline - time.monotonic()))

    def _refuse(self, request: Request) -> None:
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

    def _refresh_leaders(self) -> None:
        try:
            self.lister.refresh_leaders(timeout_s=FETCH_S)
        except KoffError as error:  # the leaders that are known are asked
            log.debug("leaders cannot be fetched", why=str(error))
        except Exception:  # a fault of koff must not end the process
            log.exception("leaders cannot be fetched")


def _fetch_part(
    part: _Part, fetch: Callable[[_Part], Result], fail: Callable[[_Part, str], Result]
) -> Result:
    try:
        return fetch(part)
    except KoffError as error:
        return fail(part, str(error))
    except Exception as error:  # a fault of koff must not end the process
        log.exception("a request failed")
        return fail(part, f"{type(error).__name__}: {error}")

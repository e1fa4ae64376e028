"""The threads that carry out requests: a hanging one delays no other, and every request has a result."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from koff.client import Isolation, OffsetSpec
from koff.client.metadata import Metadata, Node, PartitionMetadata
from koff.client.record_times import EndReached, ReadPlace, ReadRecord, Unread
from koff.errors import ConnectError, Denied, KoffError
from koff.kafkatest import wait_until
from koff.lag import NO_RECORD, NO_TIMESTAMP
from koff.monitor import workers as workers_module
from koff.monitor.duties.groups import FetchGroups, GroupsFetched
from koff.monitor.duties.loading import Load, Loaded
from koff.monitor.duties.log_sizes import FetchLogSizes, LogSizesFetched
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.record_ages import FirstRecord, FirstRecordsRead, ReadFirstRecords, RecordPlace
from koff.monitor.duties.savings import Done, ForgetSaved, Save, SaveFile, SaveIndex
from koff.monitor.duties.share_lags import FetchShareLags, ShareLagsFetched
from koff.monitor.duties.stored_groups import FetchStoredGroups, StoredGroupsFetched
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.means import Means
from koff.monitor.moment import Moment
from koff.monitor.requests import Failed, Request, Result, Topic
from koff.monitor.saved import Origin, Saved
from koff.monitor.state import StateDir
from koff.monitor.workers import InOrder, Workers, WorkersConf, carry_out
from koff.records.topics import OFFSETS_TOPIC
from koff.tracker import ShareLag, State, Tracker
from koff.tracker.commit_columns import CommitColumns
from koff.tracker.saved_ends import save_ends
from koff.view.cluster_view import ClusterFacts, TopicFacts
from tests.unit.builders import apply, commit, save
from tests.unit.monitor.fakes import FakeCluster, Inbox

ORIGIN = Origin("cluster", "__consumer_offsets", "AAAAAAAAAAAAAAAAAAAAAQ", 3)
NOW = Moment(1000.5, 1_790_000_000_000, "this boot")


@pytest.fixture(autouse=True)
def threads_end():
    """No thread of the workers outlives its test."""
    yield
    wait_until(
        lambda: not any(thread.name.startswith("koff-") for thread in threading.enumerate()), every_s=0.005
    )


def make_workers(cluster: FakeCluster, inbox: Inbox, lister: Any = None, **conf: Any) -> Workers:
    """Workers whose living threads are not started: requests to the cluster have threads of their own."""
    given: Any = cluster
    cluster.lister = lister or cluster
    return Workers(WorkersConf(cluster.conf, (), **conf), given, inbox.post)


def fetch_topics(workers: Workers, inbox: Inbox) -> None:
    """The workers learn the leaders."""
    workers.send(FetchTopics(0))
    inbox.wait(TopicsFetched)


# --- A request and its result -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ConnectError("no broker"), Failed(1, "no broker")),
        (KoffError("disk full"), Failed(1, "disk full")),
        (Denied("no permission"), Failed(1, "no permission", denied=True)),
        (TimeoutError("late"), Failed(1, "TimeoutError: late")),
        (AssertionError(), Failed(1, "AssertionError: ")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_becomes_a_result(error, result):
    cluster = FakeCluster()
    cluster.fault = error
    with capture_logs() as logs:
        assert carry_out(FetchTopics(1), make_workers(cluster, Inbox())) == result
    assert bool(logs) is not isinstance(error, KoffError)  # only faults of koff are logged, with their place


# --- Requests to the cluster ------------------------------------------------------------------------------


def test_topics_come_with_their_ids_and_their_leaderless_partitions():
    cluster = FakeCluster({"a": [1, -1, 2], "b": [1]})
    fetched = FetchTopics(1).carry_out(make_workers(cluster, Inbox()))
    assert isinstance(fetched, TopicsFetched)
    assert fetched.topics == {"a": Topic("id of a", 3, frozenset({1})), "b": Topic("id of b", 1, frozenset())}


class FakeSizes:
    """Broker 1 hangs until `release` is set, broker 2 refuses, and for broker 3 koff has a fault."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def fetch(self, _: Any, broker: Node, *, timeout_s: float) -> dict[str, int]:
        if broker.id == 1:
            self.release.wait()
        if broker.id == 2:
            raise Denied("grant DESCRIBE")
        if broker.id == 3:
            raise AssertionError("odd")
        return {"t": broker.id}


def test_a_broker_that_hangs_or_refuses_delays_only_its_own_sizes_of_logs(monkeypatch):
    cluster, inbox, sizes = FakeCluster(), Inbox(), FakeSizes()
    cluster.metadata = Metadata("id", 1, tuple(Node(number, "host", 9092) for number in (1, 2, 3, 4)), {})
    monkeypatch.setattr("koff.client.offsets.log_sizes.fetch_log_sizes", sizes.fetch)
    workers = make_workers(cluster, inbox)
    workers.send(FetchLogSizes(1))
    # No broker is known yet.
    assert inbox.wait(LogSizesFetched) == [LogSizesFetched(1, None, "", final=True)]
    fetch_topics(workers, inbox)
    with capture_logs() as logs:
        workers.send(FetchLogSizes(2))
        fetched = inbox.wait(LogSizesFetched, 4)[1:]
        assert {each.broker: (each.sizes, each.final) for each in fetched} == {
            2: ("grant DESCRIBE", False),
            3: ("AssertionError: odd", False),
            4: ({"t": 4}, False),
        }
        sizes.release.set()
        assert inbox.wait(LogSizesFetched, 5)[-1] == LogSizesFetched(2, 1, {"t": 1}, final=True)
    assert [each["event"] for each in logs] == ["a request failed"]
    workers.close()


def test_the_list_has_brokers_replicas_and_coordinators_too():
    nodes = (Node(1, "a", 9092), Node(2, "b", 9092))
    topics = {
        "t": (PartitionMetadata(0, 1, (1, 2), (1,)), PartitionMetadata(1, -1, (1, 2, 3), (1, 2, 3))),
        "__consumer_offsets": (PartitionMetadata(0, 2, (2,), (2,)), PartitionMetadata(1, -1, (1,), ())),
    }
    cluster = FakeCluster({"t": [1, -1], "__consumer_offsets": [2, -1]})
    cluster.metadata = Metadata("id", 1, nodes, topics)
    fetched = FetchTopics(1).carry_out(make_workers(cluster, Inbox()))
    assert isinstance(fetched, TopicsFetched)
    assert fetched.facts == ClusterFacts(
        2,
        {
            "t": TopicFacts(2, 2, leaderless=1, under_replicated=1),
            "__consumer_offsets": TopicFacts(2, 1, leaderless=1, under_replicated=1),
        },
        coordinators=(2, -1),
    )


@pytest.mark.parametrize(
    ("kind", "spec", "isolation"),
    [
        ("end", OffsetSpec.LATEST, Isolation.READ_UNCOMMITTED),
        ("stable", OffsetSpec.LATEST, Isolation.READ_COMMITTED),
        ("start", OffsetSpec.EARLIEST, Isolation.READ_UNCOMMITTED),
        (1_790_000_000_000, 1_790_000_000_000, Isolation.READ_UNCOMMITTED),
    ],
)
def test_each_kind_of_offset_is_asked_for_as_kafka_names_it(kind, spec, isolation):
    cluster, inbox = FakeCluster({"t": [1]}), Inbox()
    workers = make_workers(cluster, inbox)
    workers.send(FetchOffsets(1, kind, frozenset({("t", 0)})))
    assert inbox.wait(OffsetsFetched) == [OffsetsFetched(1, {("t", 0): 100}, final=True)]
    assert [call[1:] for call in cluster.calls] == [(spec, isolation)]


def test_each_leader_has_a_result_of_its_own_and_the_last_one_is_final():
    cluster, inbox = FakeCluster({"t": [1, 2, 1, 3], "u": [2]}), Inbox()
    workers = make_workers(cluster, inbox)
    fetch_topics(workers, inbox)
    asked = frozenset({("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0), ("u", 9), ("new", 0)})
    cluster.leaders |= {"u": [2] * 10, "new": [4]}  # what the workers do not know yet is asked for together
    workers.send(FetchOffsets(1, "end", asked))
    results = inbox.wait(OffsetsFetched, 4)
    assert sorted(sorted(result.offsets) for result in results) == [
        [("new", 0), ("u", 9)],
        [("t", 0), ("t", 2)],
        [("t", 1), ("u", 0)],
        [("t", 3)],
    ]
    assert [result.final for result in results] == [False, False, False, True]


def test_a_leader_that_hangs_delays_only_its_own_partitions():
    cluster, inbox = FakeCluster({"t": [1, 2, 3]}), Inbox()
    workers = make_workers(cluster, inbox)
    fetch_topics(workers, inbox)
    cluster.hanging[2] = threading.Event()
    workers.send(FetchOffsets(1, "end", frozenset({("t", 0), ("t", 1), ("t", 2)})))
    results = inbox.wait(OffsetsFetched, 2)
    assert {at for result in results for at in result.offsets} == {("t", 0), ("t", 2)}
    assert not any(result.final for result in results)
    cluster.hanging[2].set()
    last = inbox.wait(OffsetsFetched, 3)[-1]
    assert (dict(last.offsets), last.final) == ({("t", 1): 101}, True)


class FakeLister(FakeCluster):
    """Lists offsets in place of the cluster. `known` has the leaders that it knows."""

    def __init__(self, known: dict[str, tuple[int, ...]], leaders: dict[str, list[int]]) -> None:
        super().__init__(leaders)
        self.known = known
        self.refreshed: list[float] = []
        self.refresh_fault: Exception | None = None

    def find_leaders(self, topic: str) -> tuple[int, ...]:
        return self.known.get(topic, ())

    def refresh_leaders(self, *, timeout_s: float) -> None:
        self.refreshed.append(timeout_s)
        if self.refresh_fault is not None:
            raise self.refresh_fault


def test_the_lister_is_asked_for_the_partitions_of_each_leader_that_it_knows():
    cluster, inbox = FakeCluster({"t": [1, 1], "new": [1]}), Inbox()
    lister = FakeLister({"t": (1, 2)}, {"t": [1, 1], "new": [1]})
    workers = make_workers(cluster, inbox, lister)
    fetch_topics(workers, inbox)
    workers.send(FetchOffsets(1, "end", frozenset({("t", 0), ("t", 1), ("new", 0)})))
    results = inbox.wait(OffsetsFetched, 2)
    # What the lister does not know yet goes to the leader in the list of topics.
    assert sorted(sorted(result.offsets) for result in results) == [[("new", 0), ("t", 0)], [("t", 1)]]
    assert not cluster.calls
    workers.close()


@pytest.mark.parametrize("fault", [None, ConnectError("no broker"), ValueError("a fault of koff")])
def test_leaders_are_fetched_with_each_list_of_topics(fault):
    cluster, inbox, lister = FakeCluster({"t": [1]}), Inbox(), FakeLister({}, {"t": [1]})
    lister.refresh_fault = fault

    def is_refreshed(times: int) -> bool:
        return len(lister.refreshed) == times

    workers = make_workers(cluster, inbox, lister)
    with capture_logs() as logs:
        for number in (1, 2):
            workers.send(FetchTopics(number))
            inbox.wait(TopicsFetched, number)
            wait_until(partial(is_refreshed, number), what="a refresh")
        wait_until(lambda: not threads_of_workers(), what="the end of the threads")
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(errors) == (2 if isinstance(fault, ValueError) else 0)


def threads_of_workers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "koff-request"]


def test_nothing_is_posted_after_the_final_result():
    """The thread that has the last result waits until the others have posted theirs."""
    posted: list[bool] = []
    is_posting, may_post = threading.Event(), threading.Event()

    def post(given: Any, on_applied: Callable[[], None] | None = None) -> None:
        if not given.final:
            is_posting.set()
            may_post.wait()
        posted.append(given.final)

    workers = make_workers(FakeCluster(), Inbox())
    workers._post = post
    fetching = threading.Thread(
        target=workers.fetch_parts, args=([[0], [1]], lambda p: OffsetsFetched(1, {("t", p): 1}), None)
    )
    fetching.start()
    assert is_posting.wait(60)
    may_post.set()
    fetching.join(60)
    wait_until(lambda: len(posted) == 2, what="both results")
    assert posted == [False, True]


def test_many_partitions_of_a_leader_are_asked_for_in_chunks(monkeypatch):
    monkeypatch.setattr("koff.monitor.duties.offsets.CHUNK", 4)
    cluster, inbox = FakeCluster({"t": [1] * 10}), Inbox()
    workers = make_workers(cluster, inbox)
    workers.send(FetchOffsets(1, "end", frozenset(("t", p) for p in range(10))))
    results = inbox.wait(OffsetsFetched, 3)
    assert [len(call[0]) for call in cluster.calls] == [4, 4, 2]
    assert [result.final for result in results] == [False, False, True]
    assert {at for result in results for at in result.offsets} == {("t", p) for p in range(10)}


def test_a_leader_that_has_taken_all_the_time_is_not_asked_for_the_rest(monkeypatch):
    monkeypatch.setattr("koff.monitor.duties.offsets.CHUNK", 1)
    cluster, inbox = FakeCluster({"t": [1] * 3}), Inbox()
    workers = make_workers(cluster, inbox)
    monkeypatch.setattr(workers_module, "FETCH_S", -1.0)
    workers.send(FetchOffsets(1, "end", frozenset(("t", p) for p in range(3))))
    results = inbox.wait(OffsetsFetched, 3)
    assert len(cluster.calls) == 1
    assert [offset for result in results for offset in result.offsets.values()][1:] == [
        "no response in time"
    ] * 2
    assert [result.final for result in results] == [False, False, True]


def test_more_leaders_than_threads_are_all_asked_though_one_hangs(monkeypatch):
    monkeypatch.setattr(workers_module, "MAX_LEADERS", 3)
    cluster, inbox = FakeCluster({"t": list(range(30))}), Inbox()
    workers = make_workers(cluster, inbox)
    fetch_topics(workers, inbox)
    cluster.hanging[5] = threading.Event()
    workers.send(FetchOffsets(1, "end", frozenset(("t", p) for p in range(30))))
    inbox.wait(OffsetsFetched, 29)
    cluster.hanging[5].set()
    results = inbox.wait(OffsetsFetched, 30)
    assert [result.final for result in results] == [False] * 29 + [True]
    assert {at for result in results for at in result.offsets} == {("t", p) for p in range(30)}


def test_each_coordinator_is_asked_for_its_own_groups_and_one_that_fails_hides_only_these(monkeypatch):
    def fetch(request: FetchGroups, means: Means, partitions: frozenset[int]) -> GroupsFetched:
        if 1 in partitions:
            raise ConnectError("no broker")
        return GroupsFetched(request.id, CommitColumns.from_offsets({}), {}, partitions=partitions)

    monkeypatch.setattr(FetchGroups, "_fetch", fetch)
    cluster, inbox = FakeCluster({OFFSETS_TOPIC: [1, 2, 1]}), Inbox()
    workers = make_workers(cluster, inbox)
    workers.send(FetchTopics(1))
    inbox.wait(TopicsFetched)
    workers.send(FetchGroups(2, frozenset({0, 1, 2}), 3))
    results = inbox.wait(GroupsFetched, 2)
    assert [result.final for result in results] == [False, True]
    assert {result.partitions: dict(result.incomplete) for result in results} == {
        frozenset({0, 2}): {},
        frozenset({1}): {1: "no broker"},
    }


def test_each_coordinator_is_asked_for_the_lags_of_its_share_groups_and_one_that_fails_returns_none(
    monkeypatch,
):
    lags = {"s": [ShareLag("t", "id", 0, 7)]}

    def fetch(request: FetchShareLags, means: Means, partitions: frozenset[int]) -> ShareLagsFetched:
        if 1 in partitions:
            raise ConnectError("no broker")
        if 3 in partitions:
            raise ValueError("odd")
        return ShareLagsFetched(request.id, lags, partitions)

    monkeypatch.setattr(FetchShareLags, "_fetch", fetch)
    cluster, inbox = FakeCluster({OFFSETS_TOPIC: [1, 2, 1, 3]}), Inbox()
    workers = make_workers(cluster, inbox)
    fetch_topics(workers, inbox)
    with capture_logs() as logs:
        workers.send(FetchShareLags(2, frozenset(range(4)), 4))
        results = inbox.wait(ShareLagsFetched, 3)
    assert [result.final for result in results] == [False, False, True]
    assert {result.partitions: dict(result.lags) for result in results} == {
        frozenset({0, 2}): lags,
        frozenset({1}): {},
        frozenset({3}): {},
    }
    assert [each["event"] for each in logs if each["log_level"] == "error"] == ["a request failed"]


def test_a_request_for_no_partition_has_a_result_too():
    inbox = Inbox()
    make_workers(FakeCluster(), inbox).send(FetchOffsets(1, "end", frozenset()))
    assert inbox.wait(OffsetsFetched) == [OffsetsFetched(1, {}, final=True)]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (ConnectError("no broker"), "the leader of t-0 does not respond: no broker"),
        (ValueError("odd"), "ValueError: odd"),
    ],
)
def test_a_leader_that_cannot_be_reached_is_the_reason_for_each_of_its_partitions(fault, why):
    cluster, inbox = FakeCluster({"t": [1, 1]}), Inbox()
    cluster.fault = fault
    with capture_logs():
        make_workers(cluster, inbox).send(FetchOffsets(1, "end", frozenset({("t", 0), ("t", 1)})))
        results = inbox.wait(OffsetsFetched)
    assert results == [OffsetsFetched(1, {("t", 0): why, ("t", 1): why}, final=True)]


def test_a_request_that_hangs_does_not_delay_others():
    cluster, inbox = FakeCluster({"t": [1], "u": [2]}), Inbox()
    workers = make_workers(cluster, inbox)
    cluster.hanging[1] = threading.Event()
    workers.send(FetchOffsets(1, "end", frozenset({("t", 0)})))
    workers.send(FetchTopics(2))
    workers.send(FetchOffsets(3, "end", frozenset({("u", 0)})))
    inbox.wait(TopicsFetched)
    assert [result.id for result in inbox.wait(OffsetsFetched)] == [3]
    cluster.hanging[1].set()
    assert [result.id for result in inbox.wait(OffsetsFetched, 2)] == [3, 1]


def test_if_too_many_requests_hang_further_ones_fail_at_once(monkeypatch):
    monkeypatch.setattr(workers_module, "MAX_THREADS", 2)
    cluster, inbox = FakeCluster({"t": [1], "u": [2]}), Inbox()
    workers = make_workers(cluster, inbox)
    release = cluster.hanging[1] = threading.Event()
    for number in (1, 2):
        workers.send(FetchOffsets(number, "end", frozenset({("t", 0)})))
    for request in (FetchTopics(3), FetchOffsets(4, "end", frozenset({("u", 0)}))):
        workers.send(request)
    assert [given.id for given in inbox.wait(Failed, 2)] == [3, 4]
    assert "2 requests do not return" in inbox.of_kind(Failed)[0].why
    release.set()
    inbox.wait(OffsetsFetched, 2)

    def is_served() -> bool:  # the threads end after they have posted
        workers.send(FetchTopics(5))
        return bool(inbox.of_kind(TopicsFetched))

    wait_until(is_served, every_s=0.01)


def test_a_system_without_a_thread_to_give_fails_the_request(monkeypatch):
    monkeypatch.setattr(workers_module, "MAX_THREADS", 1)
    cluster, inbox = FakeCluster({"t": [1]}), Inbox()
    workers = make_workers(cluster, inbox)

    class NoThread:
        def __init__(self, **more: Any) -> None: ...

        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread", NoThread)
        workers.send(FetchTopics(1))
    assert [given.id for given in inbox.of_kind(Failed)] == [1]
    workers.send(FetchTopics(2))  # the attempt took up no place
    inbox.wait(TopicsFetched)


# --- Requests that are carried out in order ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call(Request):
    """A request that calls a function."""

    work: Callable[[int], Result] = Done

    def carry_out(self, means: Means) -> Result:
        return self.work(self.id)


def in_order_for(inbox: Inbox, on_end: Callable[[], None] = lambda: None) -> InOrder:
    return InOrder("disk", make_workers(FakeCluster(), inbox), inbox.post, on_end)


@contextmanager
def started(worker: InOrder) -> Iterator[InOrder]:
    worker.start()
    try:
        yield worker
    finally:
        worker.finish(60)
        assert not worker._thread.is_alive()


def test_requests_are_carried_out_in_order_also_after_an_exception():
    inbox = Inbox()

    def work(request_id: int) -> Result:
        if request_id == 2:
            raise OSError("odd")
        return Done(request_id)

    with capture_logs(), started(in_order_for(inbox)) as worker:
        for number in range(1, 5):
            worker.send(Call(number, work))
    assert inbox.inputs == [Done(1), Failed(2, "OSError: odd"), Done(3), Done(4)]


def test_the_end_comes_after_all_requests_and_frees_what_the_thread_used():
    inbox = Inbox()
    ended: list[str] = []

    def on_end() -> None:
        assert len(inbox.inputs) == 10
        ended.append(threading.current_thread().name)

    with started(in_order_for(inbox, on_end)) as worker:
        for number in range(10):
            worker.send(Call(number))
    assert ended == ["koff-disk"]


def test_finish_does_not_wait_for_a_disk_that_hangs():
    inbox, release = Inbox(), threading.Event()

    def work(request_id: int) -> Result:
        release.wait()
        return Done(request_id)

    worker = in_order_for(inbox)
    worker.start()
    worker.send(Call(1, work))
    worker.finish(0.02)
    assert worker._thread.is_alive()
    release.set()
    worker.join(60)
    assert inbox.inputs == [Done(1)]


def test_requests_behind_one_that_hangs_fail_instead_of_filling_the_memory(monkeypatch):
    inbox, is_working, release = Inbox(), threading.Event(), threading.Event()

    def work(request_id: int) -> Result:
        is_working.set()
        release.wait()
        return Done(request_id)

    with started(in_order_for(inbox)) as worker:
        worker.send(Call(1, work))
        assert is_working.wait(60)
        worker.send(Call(2, work))  # it does not hang yet
        monkeypatch.setattr(workers_module, "HANG_S", 0.0)
        worker.send(Call(3))
        assert [given.id for given in inbox.of_kind(Failed)] == [3]
        release.set()
        assert inbox.wait(Done, 2) == [Done(1), Done(2)]
        worker.send(Call(4))  # nothing is under way
        inbox.wait(Done, 3)


def test_a_thread_that_was_never_started_can_be_closed():
    in_order_for(Inbox()).finish(1)
    workers = make_workers(FakeCluster(), Inbox())
    workers.close()


def test_zookeeper_that_hangs_delays_neither_the_disk_nor_the_records(tmp_path, monkeypatch):
    inbox, is_working, release = Inbox(), threading.Event(), threading.Event()

    def hang(zookeeper: Any) -> Any:
        is_working.set()
        release.wait()
        return {}, {}, {}

    monkeypatch.setattr("koff.monitor.zookeeper.ZooKeeper.fetch_groups", hang)
    monkeypatch.setattr(workers_module, "STOP_S", 60.0)
    with StateDir(tmp_path).lock() as state_dir:
        workers = make_workers(FakeCluster(), inbox, state_dir=state_dir)
        try:
            workers.send(FetchStoredGroups(1))
            assert is_working.wait(60)
            workers.send(ForgetSaved(2, frozenset({0})))
            workers.send(ReadFirstRecords(3, frozenset()))
            wait_until(lambda: {given.id for given in inbox.inputs} == {2, 3}, every_s=0.01)
            release.set()
            inbox.wait(StoredGroupsFetched)
        finally:
            release.set()
            workers.close()
    assert not any(worker._thread.is_alive() for worker in workers._in_order.values())


def test_without_a_state_directory_a_request_to_it_fails():
    inbox = Inbox()
    workers = make_workers(FakeCluster(), inbox)
    try:
        with capture_logs():
            workers.send(ForgetSaved(1, frozenset()))
            assert inbox.wait(Failed)[0].id == 1
    finally:
        workers.close()


# --- The state directory ------------------------------------------------------------------------------------


@pytest.fixture
def state_dir(tmp_path):
    with StateDir(tmp_path / "state").lock() as state_dir:
        yield state_dir


def write_or_load(state_dir: StateDir, request: Request) -> Result | None:
    return carry_out(request, make_workers(FakeCluster(), Inbox(), state_dir=state_dir))


def saving(request_id: int = 1, partition: int = 1) -> Save:
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 5))
    return Save(request_id, ORIGIN, Saved(partition, 5, 3, NOW, save(tracker)))


def load(state_dir: StateDir) -> Loaded:
    loaded = write_or_load(state_dir, Load(9, ORIGIN))
    assert isinstance(loaded, Loaded)
    assert loaded.id == 9
    return loaded


def test_what_was_saved_is_loaded(state_dir):
    later = NOW._replace(at_s=NOW.at_s + 10)
    assert write_or_load(state_dir, saving()) == Done(1)
    assert write_or_load(state_dir, SaveIndex(2, ORIGIN, {1: (5, later)}, later)) == Done(2)
    assert write_or_load(
        state_dir, SaveFile(3, "ends", ORIGIN, NOW, save_ends(Tracker().partitions, 0))
    ) == Done(3)
    loaded = load(state_dir)
    found = loaded.partitions[1]
    assert isinstance(found, Saved)
    assert (found.partition, found.position, found.leader_epoch, found.stamp) == (1, 5, 3, later)
    assert isinstance(loaded.partitions[0], str)
    assert len(loaded.partitions) == 3
    assert isinstance(loaded.ends, State)
    assert loaded.ends_stamp == NOW


def test_what_was_forgotten_is_not_loaded(state_dir):
    for partition in (0, 1):
        write_or_load(state_dir, saving(partition=partition))
    assert write_or_load(state_dir, ForgetSaved(2, frozenset({1, 2}))) == Done(2)
    assert [isinstance(found, Saved) for found in load(state_dir).partitions.values()] == [True, False, False]


def test_a_folder_that_is_gone_is_made_again_and_that_is_said(state_dir):
    shutil.rmtree(state_dir.path)
    with capture_logs() as logs:
        assert write_or_load(state_dir, saving(1)) == Done(1, is_emptied=True)
        assert write_or_load(state_dir, saving(2)) == Done(2)
    path = str(state_dir.path)
    assert [line["path"] for line in logs if "was removed" in line["event"]] == [path]
    assert isinstance(load(state_dir).partitions[1], Saved)


# --- First records ------------------------------------------------------------------------------------------


class FakeRecordTimes:
    """Reads what a test gives it."""

    def __init__(self) -> None:
        self.answers: dict[ReadPlace, Any] = {}
        self.should_stop: Callable[[], bool] | None = None

    def read(
        self, _: Any, places: list[ReadPlace], timeout_s: float, should_stop: Callable[[], bool]
    ) -> dict[ReadPlace, Any]:
        self.should_stop = should_stop
        return {place: self.answers.get(place, Unread("no response")) for place in places}


@pytest.fixture(autouse=True)
def record_times(monkeypatch):
    times = FakeRecordTimes()
    monkeypatch.setattr("koff.client.record_times.read_record_times", times.read)
    return times


def test_what_was_read_is_said_in_the_terms_of_the_core(record_times):
    record_times.answers = {
        ReadPlace("t", 0, 5): ReadRecord(6, 1_000),
        ReadPlace("t", 1, 5): ReadRecord(5, None),
        ReadPlace("t", 2, 5): EndReached(7),
        ReadPlace("u", 0, 5): Unread("no permission", denied=True),
        ReadPlace("u", 1, 5): Unread("no response"),
        ReadPlace("v", 0, 5): Unread("the partition does not exist"),
    }
    asked = frozenset(RecordPlace(*place) for place in record_times.answers)
    result = ReadFirstRecords(1, asked).carry_out(make_workers(FakeCluster(), Inbox()))
    assert isinstance(result, FirstRecordsRead)
    assert result.records == {
        RecordPlace("t", 0, 5): FirstRecord(6, 1_000),
        RecordPlace("t", 1, 5): FirstRecord(5, NO_TIMESTAMP),
        RecordPlace("t", 2, 5): FirstRecord(7, NO_RECORD),
        RecordPlace("u", 0, 5): "no permission",
        RecordPlace("u", 1, 5): "no response",
        RecordPlace("v", 0, 5): "the partition does not exist",
    }
    assert result.denied == {"u"}


def test_reading_first_records_ends_when_the_workers_are_closed(record_times):
    inbox = Inbox()
    workers = make_workers(FakeCluster(), inbox)
    workers.send(ReadFirstRecords(1, frozenset()))
    wait_until(lambda: inbox.inputs, every_s=0.01)
    assert record_times.should_stop is not None
    assert not record_times.should_stop()
    workers.close()
    assert record_times.should_stop()

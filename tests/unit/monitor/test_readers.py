"""The threads that read internal topics: what they post, what they read on after, and what ends nothing."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import pytest
from structlog.testing import capture_logs

from koff.client import TopicPartition
from koff.client.batches import RecordRun
from koff.client.log_reader import LogEnd, LogRead, PartitionLost
from koff.errors import ConnectError, Denied
from koff.kafkatest import wait_until
from koff.monitor import readers as readers_module
from koff.monitor.clock import read_moment
from koff.monitor.duties.history import HistoryRead, ReadHistory
from koff.monitor.readers import HistoryReader, TopicReader
from koff.monitor.requests import Failed, Lost, Polled, Read, ReadFailed, Start, StopReading
from koff.proto.buffers import Binary
from tests.unit.monitor.fakes import FakeCluster, FakeLog, Inbox

TOPIC = "__consumer_offsets"
_Reader = TypeVar("_Reader", TopicReader, HistoryReader)


def run_of(partition: int, offsets: Sequence[int], epoch: int = 3) -> RecordRun:
    """Records of which key and value say where they are from."""
    keys, values = ([b"%s%d" % (kind, offset) for offset in offsets] for kind in (b"k", b"v"))
    columns = Binary.from_values(keys), Binary.from_values(values), offsets
    return RecordRun(partition, *columns, np.zeros(len(offsets), np.int64), epoch)


def records(partition: int, *offsets: int) -> LogRead:
    return of_runs(run_of(partition, offsets))


def of_runs(*runs: RecordRun, **positions: int) -> LogRead:
    ends = {run.partition: run.offsets[-1] + 1 for run in runs}
    return LogRead(list(runs), ends | {int(p[1:]): end for p, end in positions.items()})


def read(attempt: int = 1, **starts: int) -> Read:
    """Read partitions (p0=5: partition 0 from offset 5)."""
    return Read(TOPIC, {int(p[1:]): Start(at, attempt) for p, at in starts.items()})


@pytest.fixture(autouse=True)
def logs(monkeypatch):
    FakeLog.made = []
    monkeypatch.setattr(readers_module, "LogReader", FakeLog)
    monkeypatch.setattr(readers_module, "POLL_S", 0.01)
    return FakeLog.made


@pytest.fixture
def inbox():
    return Inbox()


@contextmanager
def running(reader: _Reader) -> Iterator[_Reader]:
    reader.start()
    try:
        yield reader
    finally:
        reader.close()
        reader.join(60)
        assert not reader._thread.is_alive()


@pytest.fixture
def reader(inbox):
    with running(make_reader(inbox)) as reader:
        yield reader


def make_reader(inbox: Inbox) -> TopicReader:
    cluster: Any = FakeCluster()
    return TopicReader(cluster, TOPIC, inbox.post)


def wait_for_log(logs: list[FakeLog], count: int = 1, **assigned: int) -> FakeLog:
    """The newest log reader, once there are so many, and once it reads these partitions."""
    wanted = {int(p[1:]): at for p, at in assigned.items()}
    wait_until(lambda: len(logs) == count and logs[-1].assigned == wanted, every_s=0.005, what=str(wanted))
    return logs[-1]


def wait_for_the_owner(reader: TopicReader | HistoryReader) -> None:
    """Waits until the reader waits until the owner has applied its batch."""
    waiters = reader._applied._cond._waiters  # type: ignore[attr-defined]  # CPython's
    wait_until(lambda: len(waiters) == 1, every_s=0.001)


# --- Reading ------------------------------------------------------------------------------------------------


def test_records_come_with_the_attempt_by_which_they_are_read(reader, inbox, logs):
    reader.send(Read(TOPIC, {0: Start(5, 4, 2), 1: Start(0, 9)}))
    log = wait_for_log(logs, p0=5, p1=0)
    assert log.epochs == {0: 2, 1: -1}
    log.give(of_runs(run_of(0, [5, 7]), run_of(1, [0]), p1=3))
    (polled,) = inbox.wait(Polled)
    assert polled.topic == TOPIC
    found = [(*each[:2], list(each.keys), list(each.values), *each[4:]) for each in polled.records]
    assert found == [
        (0, 4, [b"k5", b"k7"], [b"v5", b"v7"], [5, 7], 3),
        (1, 9, [b"k0"], [b"v0"], [0], 3),
    ]
    assert polled.positions == {0: (4, 8), 1: (9, 3)}
    assert not polled.lost


def test_a_partition_that_begins_again_lower_is_added_again_and_its_records_have_the_new_attempt(
    reader, inbox, logs
):
    reader.send(read(p0=500, p1=0))
    log = wait_for_log(logs, p0=500, p1=0)
    log.give(records(0, 500))
    inbox.wait(Polled)
    reader.send(read(2, p0=100))
    wait_for_log(logs, p0=100, p1=0)
    assert log.history[-2:] == [("remove", [0]), ("add", {0: 100})]
    log.give(of_runs(run_of(0, [100]), run_of(1, [0])))
    polled = inbox.wait(Polled, 2)[-1]
    assert [(found.partition, found.attempt) for found in polled.records] == [(0, 2), (1, 1)]


def test_what_a_leader_returns_of_an_idle_partition_is_reported_with_the_time_of_the_request(
    reader, inbox, logs
):
    began = read_moment()
    reader.send(read(4, p0=5))
    log = wait_for_log(logs, p0=5)
    log.give(LogRead(ends={0: LogEnd(9, 7, time.monotonic()), 1: LogEnd(1, 1, 0.0)}))
    (polled,) = inbox.wait(Polled)
    assert not polled.records
    (ends,) = polled.ends.values()
    assert (ends.attempt, ends.end, ends.stable) == (4, 9, 7)
    assert began.at_s <= ends.requested.at_s <= read_moment().at_s


@pytest.mark.parametrize(
    ("commands", "assigned"),
    [
        ([read(1, p0=5), StopReading(TOPIC, frozenset({0})), read(2, p0=1)], {"p0": 1}),
        ([StopReading(TOPIC, frozenset({0})), read(1, p0=5, p1=6)], {"p0": 5, "p1": 6}),
        ([read(1, p0=5, p1=6), StopReading(TOPIC, frozenset({0, 1})), read(2, p2=0)], {"p2": 0}),
        ([read(1, p0=5), read(2, p0=9), read(3, p0=2)], {"p0": 2}),
    ],
)
def test_commands_are_carried_out_in_order(commands, assigned, inbox, logs):
    reader = make_reader(inbox)
    with running(reader):
        for command in commands:
            reader.send(command)
        wait_for_log(logs, **assigned)
    assert not inbox.of_kind(ReadFailed)


def test_a_reader_makes_no_batch_before_the_one_before_is_applied(logs, reader, inbox):
    inbox.applies = False
    reader.send(read(p0=0))
    log = wait_for_log(logs, p0=0)
    log.give(*(records(0, offset) for offset in range(5)))
    for count in range(1, 6):
        inbox.wait(Polled, count)
        wait_for_the_owner(reader)
        assert len(log.waiting) == 5 - count
        inbox.apply()
    offsets = [list(found.offsets) for polled in inbox.of_kind(Polled) for found in polled.records]
    assert offsets == [[0], [1], [2], [3], [4]]


def test_a_reader_that_waits_for_the_owner_can_be_closed(logs, inbox):
    inbox.applies = False
    with running(make_reader(inbox)) as reader:  # which closes and joins it
        reader.send(read(p0=0))
        log = wait_for_log(logs, p0=0)
        log.give(records(0, 0), records(0, 1))
        inbox.wait(Polled)
    assert log.is_closed
    assert len(inbox.of_kind(Polled)) == 1


def test_a_reader_that_was_never_started_can_be_closed(inbox):
    for reader in (make_reader(inbox), make_history_reader(FakeCluster(), inbox)):
        reader.close()
        reader.join(60)


# --- Partitions that are lost -------------------------------------------------------------------------------


def test_a_partition_that_is_lost_is_read_no_more_and_others_are(reader, inbox, logs):
    reader.send(read(4, p0=5, p1=0))
    log = wait_for_log(logs, p0=5, p1=0)
    log.give(LogRead([run_of(1, [0])], {1: 1}, [PartitionLost(0, "truncated", gone=True)]))
    (polled,) = inbox.wait(Polled)
    assert polled.lost == [Lost(0, 4, "truncated", gone=True)]
    assert [found.partition for found in polled.records] == [1]
    wait_for_log(logs, p1=0)
    log.give(records(1, 1))
    inbox.wait(Polled, 2)
    assert not inbox.of_kind(ReadFailed)


# --- Failures -----------------------------------------------------------------------------------------------


FAULTS = pytest.mark.parametrize(
    ("error", "why"),
    [
        (Denied("may not read"), "may not read"),
        (ConnectError("no broker"), "no broker"),
        (KeyError("odd"), "KeyError: 'odd'"),
    ],
    ids=["denied", "unreachable", "fault"],
)


@FAULTS
def test_after_a_failure_a_new_reader_reads_what_is_requested_next(error, why, reader, inbox, logs):
    with capture_logs():
        reader.send(read(1, p0=5, p1=0))
        wait_for_log(logs, p0=5, p1=0).give(error)
        assert inbox.wait(ReadFailed) == [ReadFailed(TOPIC, why, denied=isinstance(error, Denied))]
        wait_until(lambda: logs[0].is_closed, every_s=0.005)
    reader.send(read(2, p1=3))
    log = wait_for_log(logs, 2, p1=3)
    log.give(records(1, 3))
    (polled,) = inbox.wait(Polled)
    assert [(found.partition, found.attempt) for found in polled.records] == [(1, 2)]


def test_partitions_that_cannot_be_added_are_a_failure(reader, inbox, logs):
    reader.send(read(p0=0))
    wait_for_log(logs, p0=0).add_fault = RuntimeError("Consumer closed")
    with capture_logs():
        reader.send(read(p1=0))
        assert inbox.wait(ReadFailed) == [ReadFailed(TOPIC, "RuntimeError: Consumer closed")]
    reader.send(read(2, p0=0, p1=0))
    wait_for_log(logs, 2, p0=0, p1=0)


# --- History ------------------------------------------------------------------------------------------------


def make_history_reader(cluster: FakeCluster, inbox: Inbox) -> HistoryReader:
    given: Any = cluster
    return HistoryReader(given, inbox.post)


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def history(cluster, inbox):
    with running(make_history_reader(cluster, inbox)) as history:
        yield history


def history_of(request_id: int, partition: int, until: int) -> ReadHistory:
    return ReadHistory(request_id, TOPIC, partition, until)


def test_a_history_is_read_from_the_log_start_and_ends_at_until(history, cluster, inbox, logs):
    cluster.starts = {TopicPartition(TOPIC, 2): 10}
    history.send(history_of(1, 2, 15))
    log = wait_for_log(logs, p2=10)
    log.give(records(2, 10, 11), records(2, 14, 15, 16))
    first, second = inbox.wait(HistoryRead, 2)
    assert [list(first.keys), list(first.values), list(first.offsets), first.position, first.final] == [
        [b"k10", b"k11"],
        [b"v10", b"v11"],
        [10, 11],
        12,
        False,
    ]
    assert [list(second.keys), list(second.offsets), second.position, second.final] == [
        [b"k14"],
        [14],
        15,
        True,
    ]
    wait_for_log(logs)
    assert not inbox.of_kind(Failed)


def test_a_history_that_retention_removed_is_empty(history, cluster, inbox, logs):
    cluster.starts = {TopicPartition(TOPIC, 0): 7}
    history.send(history_of(1, 0, 7))
    assert inbox.wait(HistoryRead) == [HistoryRead(1, [], [], [], 7, final=True)]
    assert not logs


def test_one_connection_serves_several_histories(history, inbox, logs):
    history.send(history_of(1, 0, 1))
    wait_for_log(logs, p0=0).give(records(0, 0))
    inbox.wait(HistoryRead)
    history.send(history_of(2, 1, 2))
    log = wait_for_log(logs, p1=0)
    log.give(records(1, 0))
    assert not inbox.wait(HistoryRead, 2)[-1].final
    log.give(records(1, 1))
    assert inbox.wait(HistoryRead, 3)[-1].final


def test_the_connection_for_histories_is_closed_when_nobody_asks(cluster, inbox, logs, monkeypatch):
    monkeypatch.setattr(readers_module, "IDLE_S", 0.01)
    with running(make_history_reader(cluster, inbox)) as history:
        history.send(history_of(1, 0, 1))
        wait_for_log(logs, p0=0).give(records(0, 0))
        inbox.wait(HistoryRead)
        wait_until(lambda: logs[0].is_closed, every_s=0.005)
        history.send(history_of(2, 0, 1))
        wait_for_log(logs, 2, p0=0)


def test_a_newer_request_ends_the_one_before(history, inbox, logs):
    history.send(history_of(1, 0, 100))
    log = wait_for_log(logs, p0=0)
    log.give(records(0, 0))
    inbox.wait(HistoryRead)
    history.send(history_of(2, 1, 1))
    wait_for_log(logs, p1=0)
    log.give(records(1, 0))
    assert [(read.id, read.final) for read in inbox.wait(HistoryRead, 2)] == [(1, False), (2, True)]
    assert not inbox.of_kind(Failed)


def test_a_history_is_given_back_one_batch_at_a_time(history, inbox, logs):
    inbox.applies = False
    history.send(history_of(1, 0, 3))
    log = wait_for_log(logs, p0=0)
    log.give(*(records(0, offset) for offset in range(3)))
    for count in range(1, 4):
        inbox.wait(HistoryRead, count)
        wait_for_the_owner(history)
        assert len(log.waiting) == 3 - count
        inbox.apply()
    assert inbox.of_kind(HistoryRead)[-1].final


@FAULTS
def test_after_a_failure_the_next_history_is_read_over_a_new_connection(error, why, history, inbox, logs):
    with capture_logs():
        history.send(history_of(1, 0, 5))
        wait_for_log(logs, p0=0).give(error)
        assert inbox.wait(Failed) == [Failed(1, why, denied=isinstance(error, Denied))]
        wait_until(lambda: logs[0].is_closed, every_s=0.005)
    history.send(history_of(2, 0, 1))
    wait_for_log(logs, 2, p0=0).give(records(0, 0))
    assert inbox.wait(HistoryRead)[0].final


def test_a_partition_that_is_lost_fails_its_history(history, inbox, logs):
    history.send(history_of(1, 0, 5))
    wait_for_log(logs, p0=0).give(LogRead(lost=[PartitionLost(0, "truncated")]))
    assert inbox.wait(Failed) == [Failed(1, f"partition 0 of {TOPIC}: truncated")]


def test_a_cluster_that_cannot_be_reached_fails_the_history(history, inbox, logs):
    history.send(history_of(1, 0, 5))
    wait_for_log(logs, p0=0).unreachable = ConnectError("every connection was lost")
    assert inbox.wait(Failed) == [Failed(1, "every connection was lost")]


def test_a_history_without_a_known_log_start_fails(history, cluster, inbox):
    cluster.starts = {TopicPartition(TOPIC, 0): "LEADER_NOT_AVAILABLE"}
    history.send(history_of(1, 0, 5))
    (failed,) = inbox.wait(Failed)
    assert "LEADER_NOT_AVAILABLE" in failed.why
    cluster.fault = ConnectError("no broker")
    history.send(history_of(2, 0, 5))
    assert inbox.wait(Failed, 2)[-1] == Failed(2, "no broker")


def test_a_history_under_way_ends_when_the_reader_is_closed(cluster, inbox, logs):
    with running(make_history_reader(cluster, inbox)) as history:  # which closes and joins it
        history.send(history_of(1, 0, 100))
        wait_for_log(logs, p0=0).give(records(0, 0))
        inbox.wait(HistoryRead)
    assert logs[0].is_closed

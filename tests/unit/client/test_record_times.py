"""The first records at places, as leaders return them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from koff.client import record_times
from koff.client.cluster_conf import TopicPartition
from koff.client.offsets import known_leaders
from koff.client.offsets.lister import OffsetLister
from koff.client.record_times import (
    EndReached,
    FirstRecordResult,
    ReadPlace,
    ReadRecord,
    Unread,
    read_record_times,
)
from koff.proto.record_batch import CONTROL, LOG_APPEND_TIME
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers, FakeTopic
from tests.record_batches import batch

AT_MS = 1_800_000_000_000


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBrokers]:
    monkeypatch.setattr(known_leaders, "FETCH_AGAIN_S", 0.0)
    with FakeBrokers() as made:
        yield made


@pytest.fixture
def topic(brokers: FakeBrokers) -> FakeTopic:
    """Each partition has records at the offsets 0 to 19, a second apart, in batches of ten."""
    made = brokers.add_topic("t", [1, 2, 3])
    log = b"".join(batch(n, 10, at_ms=AT_MS + n * 1000, every_ms=1000) for n in (0, 10))
    made.logs = dict.fromkeys(range(3), log)
    return made


@pytest.fixture
def lister(brokers: FakeBrokers) -> Iterator[OffsetLister]:
    with OffsetLister(brokers.conf) as made:
        yield made


def read(lister: OffsetLister, *places: tuple[int, int], timeout_s: float = 30) -> list[FirstRecordResult]:
    wanted = [ReadPlace("t", partition, offset) for partition, offset in places]
    found = read_record_times(lister, wanted, timeout_s)
    return [found[place] for place in wanted]


def record(offset: int, later: int | None) -> ReadRecord:
    return ReadRecord(offset, AT_MS + offset * 1000, None if later is None else AT_MS + later * 1000)


def test_the_record_at_each_place_comes_with_the_median_of_those_after_it(
    topic: FakeTopic, lister: OffsetLister
) -> None:
    assert read(lister, (0, 3), (0, 17), (1, 18), (2, 19)) == [
        record(3, 7),
        record(17, 18),
        record(18, 19),
        record(19, None),
    ]


def test_where_records_were_removed_the_next_one_counts(topic: FakeTopic, lister: OffsetLister) -> None:
    topic.logs[0] = batch(0, 2, last=9) + batch(14, 1, last=19, at_ms=AT_MS)
    assert read(lister, (0, 5)) == [ReadRecord(14, AT_MS, None)]


def test_behind_control_records_alone_the_end_is_reached(topic: FakeTopic, lister: OffsetLister) -> None:
    committed = b"\0\0\0\1"
    markers = (batch(offset, 1, attributes=CONTROL, key=committed) for offset in (5, 6))
    topic.logs[0] = batch(0, 5) + b"".join(markers)
    assert read(lister, (0, 5), (0, 7), (0, 4)) == [EndReached(7), EndReached(7), ReadRecord(4, 0, None)]


def test_the_time_is_that_of_the_log_where_the_topic_says_so(topic: FakeTopic, lister: OffsetLister) -> None:
    topic.logs[0] = batch(0, 3, attributes=LOG_APPEND_TIME, at_ms=AT_MS, every_ms=1000)
    assert read(lister, (0, 0)) == [ReadRecord(0, AT_MS + 2000, AT_MS + 2000)]


def test_a_record_without_a_time_has_none(topic: FakeTopic, lister: OffsetLister) -> None:
    topic.logs[0] = batch(0, 2, at_ms=-1)
    assert read(lister, (0, 0)) == [ReadRecord(0, None, None)]


def test_below_the_log_start_it_is_the_record_there_and_above_the_end_there_is_none(
    brokers: FakeBrokers, topic: FakeTopic, lister: OffsetLister, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition p starts at p, as the leader says."""
    topic.fetch_errors[2] = ErrorCode.offset_out_of_range
    starts = lister.list_offsets

    def end_the_error(*args: object, **options: object) -> object:
        topic.fetch_errors.clear()
        return starts(*args, **options)  # type: ignore[arg-type]  # what it was given

    monkeypatch.setattr(lister, "list_offsets", end_the_error)
    assert read(lister, (2, 1)) == [record(2, 6)]
    topic.fetch_errors[2] = ErrorCode.offset_out_of_range
    assert read(lister, (2, 2000)) == [Unread("beyond the end of the log")]


def test_many_partitions_are_read_although_few_fit_into_a_response(
    topic: FakeTopic, lister: OffsetLister, monkeypatch: pytest.MonkeyPatch, brokers: FakeBrokers
) -> None:
    topic.leaders[:] = [1, 1, 1]
    topic.epochs[:] = [1, 1, 1]
    monkeypatch.setattr(record_times, "RESPONSE_BYTES", 100)  # less than a batch
    assert read(lister, (0, 0), (1, 0), (2, 0)) == [record(0, 4)] * 3
    assert brokers[1].count(Api.FETCH) == 3


def test_a_leader_that_has_moved_is_found(topic: FakeTopic, lister: OffsetLister) -> None:
    assert lister.list_offsets([TopicPartition("t", 0)])
    topic.move(0, 2)
    assert read(lister, (0, 3)) == [record(3, 7)]


def test_what_may_not_be_read_or_is_not_there_is_said(
    brokers: FakeBrokers, topic: FakeTopic, lister: OffsetLister
) -> None:
    topic.fetch_errors[0] = ErrorCode.topic_authorization_failed
    topic.logs[1] = batch(0, 3)[:61] + b"\xff" + batch(0, 3)[62:]  # the length of the first record
    denied, damaged, absent = read(lister, (0, 0), (1, 0), (7, 0))
    assert denied == Unread("no permission to read t", denied=True)
    assert isinstance(damaged, Unread)
    assert absent == Unread("the partition does not exist")


def test_a_leader_that_hangs_hides_only_its_own_records(
    brokers: FakeBrokers, topic: FakeTopic, lister: OffsetLister
) -> None:
    brokers[2].hangs.add(Api.FETCH)
    found = read(lister, (0, 0), (1, 0), timeout_s=2)
    assert found[0] == record(0, 4)
    assert isinstance(found[1], Unread)

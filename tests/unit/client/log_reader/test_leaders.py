"""Whatever happens to leaders: no record is lost or comes twice, and a log that was cut is noticed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from koff.client import log_leader, log_reader
from koff.client.log_reader import LogReader, LogStart
from koff.client.offsets.lister import OffsetLister
from koff.client.wire.connection import Connection
from koff.errors import ConnectError, Denied, KoffError, LogInRefused
from koff.kafkatest import wait_until
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers, FakeTopic, list_batches
from tests.record_batches import batch
from tests.unit.client.log_reader.reading import TOPIC, Reading, log

# --- Leaders ------------------------------------------------------------------------------------------------


def fence(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.epochs[0] += 1


def move(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.move(0, 2)


def disconnect(brokers: FakeBrokers, topic: FakeTopic) -> None:
    brokers.disconnect(1)


def drop(brokers: FakeBrokers, topic: FakeTopic) -> None:
    brokers[1].drops = 3


def restart(brokers: FakeBrokers, topic: FakeTopic) -> None:
    brokers.restart_elsewhere(1)


def stop(brokers: FakeBrokers, topic: FakeTopic) -> None:
    brokers.stop(1)
    topic.move(0, 3)


def cut_once(brokers: FakeBrokers, topic: FakeTopic) -> None:
    def tamper(api: Api, body: bytes) -> bytes:
        if api is not Api.FETCH:
            return body
        brokers[1].tamper = lambda api, body: body
        return body[:-3]

    brokers[1].tamper = tamper


def fail_once(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.fetch_errors[0] = ErrorCode.kafka_storage_error

    def tamper(api: Api, body: bytes) -> bytes:
        if api is Api.FETCH:
            topic.fetch_errors.clear()
        return body

    brokers[1].tamper = tamper


@pytest.mark.parametrize("fault", [fence, move, disconnect, drop, restart, stop, cut_once, fail_once])
def test_reading_goes_on_where_it_was(
    fault: Callable[[FakeBrokers, FakeTopic], None],
    brokers: FakeBrokers,
    topic: FakeTopic,
    reader: LogReader,
) -> None:
    reading = Reading(reader, 0, 1).begin()
    fault(brokers, topic)
    reading.until_read(p0=300, p1=300)
    topic.logs[0] += log(320, 300)
    reading.until_read(p0=320)
    assert not reading.lost


def test_a_log_that_was_truncated_is_lost(brokers: FakeBrokers, topic: FakeTopic, reader: LogReader) -> None:
    reading = Reading(reader, 0, 1).until_read(p0=300, p1=300)
    topic.epoch_ends[0] = 250
    topic.move(0, 2)
    topic.logs[0] += log(320, 300)
    lost = reading.until_lost(0)
    assert lost.reason == "the log was truncated to 250, and offset 300 was read next"
    assert not lost.gone
    assert reading.offsets[0] == list(range(300))
    assert reader.partitions == {1}


def test_a_log_that_does_not_know_the_epoch_is_lost(topic: FakeTopic, reader: LogReader) -> None:
    topic.epoch_ends[0] = -1
    reader.add({0: LogStart(100, 5)})
    wait_until(lambda: reader.fetch(0.05).lost, every_s=0.001)
    assert reader.partitions == set()


def test_an_offset_that_is_not_in_the_log_is_lost(topic: FakeTopic, reader: LogReader) -> None:
    reading = Reading(reader, 0, 1).begin()
    topic.fetch_errors[0] = ErrorCode.offset_out_of_range
    assert "OFFSET_OUT_OF_RANGE" in reading.until_lost(0).reason
    reading.until_read(p1=300)


def test_a_partition_that_does_not_exist_is_gone(
    topic: FakeTopic, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "GONE_S", 0.0)
    reading = Reading(reader, 0, 7)
    assert reading.until_lost(7).gone
    reading.until_read(p0=300)


def test_nobody_is_asked_without_end_for_a_partition_that_is_refused(
    brokers: FakeBrokers, topic: FakeTopic, reader: LogReader
) -> None:
    topic.fetch_errors[0] = ErrorCode.not_leader_or_follower
    reading = Reading(reader, 0, 1).until_read(p1=300)
    until_s = time.monotonic() + 2.0
    reading.until(lambda: time.monotonic() >= until_s)
    assert 2 <= brokers[1].count(Api.FETCH) <= 6  # after 0, 0.1, 0.3, 0.7, 1.5 s
    topic.fetch_errors.clear()
    reading.until_read(p0=300)


def test_partitions_that_are_added_one_after_the_other_need_not_wait(
    reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(log_reader, "MOST_PAUSE_S", 3600.0)
    for partition in range(3):
        Reading(reader, partition).until_read(**{f"p{partition}": 300})
        reader.remove([partition])


def test_who_may_not_read_is_told_so_after_the_records(topic: FakeTopic, reader: LogReader) -> None:
    reading = Reading(reader, 0, 1).begin(1)
    topic.fetch_errors[1] = ErrorCode.topic_authorization_failed
    with pytest.raises(Denied, match="READ"):
        reading.until(lambda: False)


def test_the_leader_says_now_and_then_where_the_log_ends_while_a_follower_is_read(
    brokers: FakeBrokers, topic: FakeTopic
) -> None:
    topic.followers = {"a": 2}
    conf = replace(brokers.conf, properties={"client.rack": "a"})
    with OffsetLister(conf) as lister, LogReader(lister, TOPIC, ends_s=0.1) as reader:
        reading = Reading(reader, 0).until_read(p0=300)
        requested_s: set[float] = set()

        def has_three_ends() -> bool:
            requested_s.update(end.requested_s for end in reader.fetch(0.05).ends.values())
            return len(requested_s) >= 3

        wait_until(has_three_ends, every_s=0.001, what="ends of the log")
        topic.logs[0] += log(320, 300)
        reading.until_read(p0=320)
        assert brokers[2].count(Api.FETCH) > 1


def test_a_follower_in_the_same_rack_is_read_and_the_leader_when_it_fails(
    brokers: FakeBrokers, topic: FakeTopic
) -> None:
    topic.followers = {"a": 2}
    conf = replace(brokers.conf, properties={"client.rack": "a"})
    with OffsetLister(conf) as lister, LogReader(lister, TOPIC) as reader:
        reading = Reading(reader, 0).begin()
        assert brokers[1].count(Api.FETCH) == 1
        del topic.followers["a"]
        reading.until_read(p0=300)
        assert brokers[1].count(Api.FETCH) > 1


# --- Brokers ------------------------------------------------------------------------------------------------


def test_a_broker_that_hangs_is_given_up_and_others_are_read_meanwhile(
    brokers: FakeBrokers, topic: FakeTopic, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_leader, "RESPONSE_S", 0.5)
    brokers[1].hangs = {Api.FETCH}
    reading = Reading(reader, 0, 1).until_read(p1=300)
    reading.until(lambda: brokers[1].count(Api.FETCH) >= 2)
    topic.move(0, 3)
    reading.until_read(p0=300)


def test_it_says_when_no_broker_can_be_reached_and_when_one_can_again(
    brokers: FakeBrokers, topic: FakeTopic, reader: LogReader
) -> None:
    reading = Reading(reader, 0, 1).begin()
    for number in brokers.brokers:
        brokers.stop(number)
    reading.until(lambda: isinstance(reader.unreachable, ConnectError))
    assert "127.0.0.1" in str(reader.unreachable)


@pytest.mark.parametrize("error", [ConnectError("no route"), LogInRefused("wrong password")])
def test_one_broker_that_refuses_is_no_reason_to_stop(
    error: KoffError,
    brokers: FakeBrokers,
    lister: OffsetLister,
    reader: LogReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = lister.brokers.connect

    def refuse(address: Any, *, timeout_s: float) -> Any:
        if address[1] == brokers[1].port:
            raise error
        return connect(address, timeout_s=timeout_s)

    monkeypatch.setattr(lister.brokers, "connect", refuse)
    Reading(reader, 0, 1).until_read(p1=300)


def test_a_log_in_that_all_brokers_refuse_is_an_error(
    lister: OffsetLister, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: Any, *, timeout_s: float) -> Any:
        raise LogInRefused("wrong password")

    monkeypatch.setattr(lister.brokers, "connect", refuse)
    with pytest.raises(LogInRefused):
        Reading(reader, 0, 1).until(lambda: False)


def test_a_broker_that_throttles_is_asked_after_the_time_that_it_says(
    brokers: FakeBrokers, reader: LogReader
) -> None:
    brokers[1].throttle_ms = 400
    reading = Reading(reader, 0, 1).until_read(p1=300)
    began_s, before = time.monotonic(), brokers[1].count(Api.FETCH)
    reading.until(lambda: time.monotonic() >= began_s + 1.0)
    assert brokers[1].count(Api.FETCH) - before <= 3
    brokers[1].throttle_ms = 0
    reading.until_read(p0=300)


def test_a_batch_that_is_larger_than_the_response_is_read_although_others_are_busy(
    brokers: FakeBrokers, lister: OffsetLister, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = brokers.add_topic("u", [1, 1])
    made.logs = {0: log(10), 1: batch(0, 50)}

    def tamper(api: Api, body: bytes) -> bytes:
        """There is something new in partition 0 for each request."""
        made.logs[0] += batch(list_batches(made.logs[0])[-1][1] + 1, 5)
        return body

    brokers[1].tamper = tamper
    with LogReader(lister, "u") as reader:
        reading = Reading(reader, 0, 1)
        reading.until(lambda: reading.positions.get(1) == 50)


def test_one_broker_that_cannot_be_reached_is_no_cut(
    brokers: FakeBrokers, topic: FakeTopic, reader: LogReader
) -> None:
    reading = Reading(reader, 0, 1).until_read(p0=300, p1=300)
    connections = brokers.connections
    brokers.stop(1)
    reading.until(lambda: brokers[1].count(Api.FETCH) > 0 and brokers.connections >= connections)
    topic.logs[1] += log(320, 300)
    reading.until_read(p1=320)
    assert reader.unreachable is None


def test_records_that_came_before_the_connection_failed_are_returned(
    reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, count = Connection.post_request, 0

    def fail_at_the_third(connection: Connection, request: Any) -> Any:
        nonlocal count
        count += request.api == Api.FETCH
        if count == 3:  # the response to the second was read just before
            raise ConnectError("Disconnected")
        return post(connection, request)

    monkeypatch.setattr(Connection, "post_request", fail_at_the_third)
    Reading(reader, 0).until_read(p0=300)


def test_a_response_to_an_earlier_request_is_not_taken_for_that_of_another_position(
    reader: LogReader,
) -> None:
    Reading(reader, 0, 1).begin()
    reader.remove([0])  # the next response is under way
    again = Reading(reader, 0, first=250)
    again.offsets[1] = []
    again.until_read(p0=300)


def test_a_broker_is_not_late_because_another_one_is_slow(
    brokers: FakeBrokers, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late_s, sleep=time.sleep)
    monkeypatch.setattr(log_reader, "time", clock)
    monkeypatch.setattr(log_leader, "time", clock)
    receive, note_failure = log_leader.LogLeader.receive, LogReader._note_failure
    failures: list[KoffError] = []
    received_from = Counter[int]()

    def receive_slowly(leader: Any) -> Any:
        """Takes long, unless a broker has had no chance to respond as often as the others."""
        nonlocal late_s
        received = receive(leader)
        received_from[id(leader)] += 1
        slowest = min(received_from[id(each)] for each in reader._leaders.values())
        if received_from[id(leader)] <= slowest + 1:
            late_s += log_leader.RESPONSE_S / 10
        return received

    def note(self: LogReader, leader: Any, error: KoffError) -> None:
        failures.append(error)
        note_failure(self, leader, error)

    monkeypatch.setattr(log_leader.LogLeader, "receive", receive_slowly)
    monkeypatch.setattr(LogReader, "_note_failure", note)
    Reading(reader, 0, 1, 2).until_read(p0=300, p1=300, p2=300)
    assert not failures


def test_a_broker_without_the_version_is_an_error(brokers: FakeBrokers, reader: LogReader) -> None:
    brokers[1].versions[Api.FETCH] = (4, 11)
    with pytest.raises(KoffError, match="supports no version of FETCH"):
        Reading(reader, 0).until(lambda: False)


def test_a_reader_that_is_closed_leaves_no_connection(brokers: FakeBrokers, lister: OffsetLister) -> None:
    reader = LogReader(lister, TOPIC)
    Reading(reader, 0, 1, 2).begin()
    connections = [leader._connection for leader in reader._leaders.values()]
    reader.close()
    reader.close()
    assert len(connections) == 3
    assert all(connection is None or connection.closed for connection in connections)

"""Offsets come from the leaders, whatever the other brokers do."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from kio.schema.errors import ErrorCode

from koff.client import Isolation, OffsetSpec, TopicPartition
from koff.client.cluster_conf import ListedOffset
from koff.client.offsets import known_leaders
from koff.client.offsets.lister import CHUNK, Listed, OffsetLister
from koff.client.wire import brokers as brokers_module
from koff.client.wire.connection import UnsupportedVersion
from koff.errors import Closed, ConfigError, ConnectError
from koff.kafkatest import wait_until
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers
from tests.unit.client.offsets.listing import at, ends, make_lister, metadata_requests

# --- What is listed ---------------------------------------------------------------------------------------


def test_each_leader_is_asked_once_for_all_of_its_partitions(brokers, offsets):
    brokers.add_topic("t", [1, 2, 3, 1])
    brokers.add_topic("u", [2])
    wanted = at("t", 0, 1, 2, 3) + at("u", 0)
    for _ in range(2):
        assert offsets.list_offsets(wanted) == {
            each: ListedOffset(1000 + each.partition, 0) for each in wanted
        }
    assert [broker.count(Api.LIST_OFFSETS) for broker in brokers.brokers.values()] == [2, 2, 2]
    assert sum(broker.count(Api.METADATA) for broker in brokers.brokers.values()) == 1
    # The connection that the leaders were fetched over is used for offsets.
    assert brokers.connections == 3
    assert (offsets.find_leaders("t"), offsets.find_leaders("never requested")) == ((1, 2, 3, 1), ())


def test_the_addresses_of_leaders_are_known_without_a_request(brokers, offsets):
    topic = brokers.add_topic("t", [1, 2, -1])
    topic.epochs[1] = 4
    offsets.list_offsets(at("t", 0, 1))
    asked = [len(broker.requests) for broker in brokers.brokers.values()]
    one, two = (("127.0.0.1", brokers[number].port) for number in (1, 2))
    assert offsets.find_leader_addresses("t") == {0: (one, 0), 1: (two, 4)}
    assert offsets.find_leader_addresses("never requested") == {}
    assert [len(broker.requests) for broker in brokers.brokers.values()] == asked
    # A leader that has failed is not used until other metadata comes.
    offsets._known.doubt(at("t", 0))
    assert offsets.find_leader_addresses("t").keys() == {1}
    with offsets.brokers.connect(one, timeout_s=30) as connection:
        assert not connection.closed


@pytest.mark.parametrize(
    ("spec", "isolation", "offset"),
    [
        (OffsetSpec.LATEST, Isolation.READ_UNCOMMITTED, 1003),
        (OffsetSpec.LATEST, Isolation.READ_COMMITTED, 1002),
        (OffsetSpec.EARLIEST, Isolation.READ_UNCOMMITTED, 3),
        (700, Isolation.READ_UNCOMMITTED, 700),
        (5000, Isolation.READ_UNCOMMITTED, -1),
    ],
)
def test_each_kind_of_offset_is_requested_as_kafka_has_it(brokers, offsets, spec, isolation, offset):
    brokers.add_topic("t", [1, 1, 1, 2])
    assert ends(offsets.list_offsets(at("t", 3), spec, isolation)) == {("t", 3): offset}


def test_nothing_is_sent_for_nothing(brokers, offsets):
    assert offsets.list_offsets([]) == {}
    assert brokers.connections == 0


def test_many_partitions_go_out_in_requests_of_a_fixed_size(brokers, offsets):
    brokers.add_topic("t", [1] * (2 * CHUNK + 1))
    listed = offsets.list_offsets(at("t", *range(2 * CHUNK + 1)))
    assert listed == {each: ListedOffset(1000 + each.partition, 0) for each in listed}
    sizes = [
        sum(len(topic.partitions) for topic in request.topics)
        for api, _, request in brokers[1].requests
        if api is Api.LIST_OFFSETS
    ]
    assert sizes == [CHUNK, CHUNK, 1]


def test_errors_are_those_of_their_partitions(brokers, offsets):
    topic = brokers.add_topic("t", [1, 1, -1])
    topic.errors[1] = ErrorCode.offset_not_available
    brokers.add_topic("hidden", [1]).error = ErrorCode.topic_authorization_failed
    wanted = at("t", 0, 1, 2, 3, -1) + at("hidden", 0) + at("nope", 0)
    assert ends(offsets.list_offsets(wanted)) == {
        ("t", 0): 1000,
        ("t", 1): "OFFSET_NOT_AVAILABLE",
        ("t", 2): "LEADER_NOT_AVAILABLE",
        ("t", 3): "UNKNOWN_TOPIC_OR_PARTITION",
        ("t", -1): "UNKNOWN_TOPIC_OR_PARTITION",
        ("hidden", 0): "TOPIC_AUTHORIZATION_FAILED",
        ("nope", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }


@pytest.mark.parametrize("name", ["", "a b", "ä", "surrogate \ud800", "x" * 250, "x" * 40_000, "a\n", "a\0"])
def test_a_topic_that_no_request_can_name_is_the_only_one_that_fails(brokers, offsets, name):
    brokers.add_topic("t", [1])
    listed = offsets.list_offsets(at(name, 0) + at("t", 0))
    assert ends(listed) == {(name, 0): "INVALID_TOPIC_EXCEPTION", ("t", 0): 1000}
    named = [topic.name for api, _, request in brokers[1].requests if request for topic in request.topics]
    assert set(named) <= {"t"}


def test_a_partition_that_the_response_lacks_has_a_reason(brokers, offsets):
    brokers.add_topic("t", [1, 1])
    empty = b"\0\0\0\0" + b"\1" + b"\0"
    offsets.list_offsets(at("t", 0))
    brokers[1].tamper = lambda api, body: empty if api is Api.LIST_OFFSETS else body
    assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): "the broker returned no offset"}


def test_a_partition_that_is_requested_twice_is_sent_once(brokers, offsets):
    """Brokers refuse duplicates: INVALID_REQUEST."""
    brokers.add_topic("t", [1])
    assert ends(offsets.list_offsets(at("t", 0, 0))) == {("t", 0): 1000}
    (request,) = [request for api, _, request in brokers[1].requests if api is Api.LIST_OFFSETS]
    assert len(request.topics[0].partitions) == 1


@pytest.mark.parametrize("offset", [-1, -7])
def test_an_end_offset_below_zero_is_none(brokers, offsets, offset):
    brokers.add_topic("t", [1]).ends[0] = offset
    assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): f"the broker returned the offset {offset}"}


def test_a_response_that_makes_no_sense_is_a_failure_of_its_broker(brokers, offsets):
    brokers.add_topic("t", [1, 2])
    brokers[1].tamper = lambda api, body: body[:-3] if api is Api.LIST_OFFSETS else body
    listed = offsets.list_offsets(at("t", 0, 1))
    assert listed[TopicPartition("t", 1)] == ListedOffset(1001, 0)
    assert "cannot speak Kafka's protocol" in str(listed[TopicPartition("t", 0)])


def test_a_connection_that_the_broker_has_closed_is_opened_again_in_the_same_call(brokers, offsets):
    brokers.add_topic("t", [1, 2])
    offsets.list_offsets(at("t", 0, 1))
    brokers.disconnect(1)
    brokers.disconnect(2)
    assert ends(offsets.list_offsets(at("t", 0, 1))) == {("t", 0): 1000, ("t", 1): 1001}


def test_a_broker_that_closes_each_connection_fails_after_two_attempts(brokers, offsets):
    brokers.add_topic("t", [1, 2])
    offsets.list_offsets(at("t", 0, 1))
    brokers[1].drops = 100
    listed = offsets.list_offsets(at("t", 0, 1))
    assert listed[TopicPartition("t", 1)] == ListedOffset(1001, 0)
    assert "Disconnected" in str(listed[TopicPartition("t", 0)])
    assert brokers[1].drops == 98


def test_a_broker_that_hangs_delays_no_other_partition(brokers, offsets):
    brokers.add_topic("t", [1, 2, 3])
    brokers[2].hangs = {Api.LIST_OFFSETS}
    began = time.monotonic()
    listed = offsets.list_offsets(at("t", 0, 1, 2), timeout_s=3.0)
    assert time.monotonic() - began < 20
    assert listed.pop(TopicPartition("t", 1)) == (
        f"cannot reach Kafka at 127.0.0.1:{brokers[2].port}: no response in time; "
        "check the address, that the broker runs and that its port is open from here"
    )
    assert ends(listed) == {("t", 0): 1000, ("t", 2): 1002}


def test_after_a_failure_metadata_is_not_requested_in_each_call(brokers, offsets):
    brokers.add_topic("t", [1])
    offsets.list_offsets(at("t", 0))
    for broker in brokers.brokers.values():
        broker.lists_brokers = False
    before = sum(metadata_requests(brokers).values())
    for _ in range(5):
        offsets._known.doubt(at("t", 0))
        assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}
    assert sum(metadata_requests(brokers).values()) == before + 3


def test_known_leaders_are_asked_soon_although_nobody_returns_metadata(brokers, offsets, monkeypatch):
    """Each call that waits for metadata in vain would delay healthy partitions."""
    monkeypatch.setattr(brokers_module, "PATIENCE_S", 0.2)
    brokers.add_topic("t", [1, 2])
    offsets.list_offsets(at("t", 0, 1))
    brokers[2].hangs = {Api.LIST_OFFSETS}
    offsets.list_offsets(at("t", 1, 0), timeout_s=1.0)
    for broker in brokers.brokers.values():
        broker.hangs |= {Api.METADATA}
    began = time.monotonic()
    for _ in range(5):
        assert ends(offsets.list_offsets(at("t", 0), timeout_s=60)) == {("t", 0): 1000}
    assert time.monotonic() - began < 20  # once for all calls, and not up to half of each call's time


def test_a_broker_that_fails_keeps_no_call_to_other_leaders_waiting_for_metadata(brokers, offsets):
    brokers.add_topic("t", [1, 2])
    offsets.list_offsets(at("t", 0, 1))
    brokers[1].hangs = {Api.LIST_OFFSETS}
    offsets.list_offsets(at("t", 0, 1), timeout_s=1.0)
    before = metadata_requests(brokers)
    assert ends(offsets.list_offsets(at("t", 1))) == {("t", 1): 1001}
    assert metadata_requests(brokers) == before
    offsets.list_offsets(at("t", 0, 1), timeout_s=1.0)
    assert metadata_requests(brokers) != before


@pytest.mark.parametrize("knows_leaders", [False, True])
def test_a_name_that_is_not_resolved_in_time_does_not_delay_the_call(
    brokers, offsets, monkeypatch, knows_leaders
):
    brokers.add_topic("t", [1])
    if knows_leaders:
        offsets.list_offsets(at("t", 0))
        brokers.disconnect(1)
        brokers[1].drops = 1  # the connection that is open
    released = threading.Event()

    def resolve(*args, **options):
        released.wait(60)
        raise socket.gaierror("late")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    began = time.monotonic()
    with pytest.raises(ConnectError, match="in time"):
        offsets.list_offsets(at("t", 0), timeout_s=0.5)
    assert time.monotonic() - began < 20
    released.set()


def test_partitions_of_a_dead_broker_come_from_their_new_leader_in_the_next_call(brokers, offsets):
    topic = brokers.add_topic("t", [1, 2])
    offsets.list_offsets(at("t", 0, 1))
    brokers.stop(1)
    assert "cannot reach Kafka" in str(ends(offsets.list_offsets(at("t", 0, 1)))["t", 0])
    topic.move(0, 3)
    assert ends(offsets.list_offsets(at("t", 0, 1))) == {("t", 0): 1000, ("t", 1): 1001}


def test_it_is_an_error_when_no_leader_responds(brokers, offsets):
    brokers.add_topic("t", [1, 2])
    offsets.list_offsets(at("t", 0, 1))
    for number in brokers.brokers:
        brokers.stop(number)
    with pytest.raises(ConnectError, match="cannot"):
        offsets.list_offsets(at("t", 0, 1))


@pytest.mark.parametrize("hanging", [{Api.METADATA}, {Api.METADATA, Api.API_VERSIONS, Api.LIST_OFFSETS}])
def test_leaders_come_from_a_broker_that_responds_although_most_hang(monkeypatch, hanging):
    monkeypatch.setattr(brokers_module, "PATIENCE_S", 0.1)
    monkeypatch.setattr(known_leaders, "FETCH_AGAIN_S", 0.0)
    with FakeBrokers(6) as brokers, make_lister(brokers) as offsets:
        brokers.add_topic("t", [6])
        for number in range(1, 6):
            brokers[number].hangs = hanging
        assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}
        wait_until(
            lambda: all(any(brokers[number].count(api) for api in hanging) for number in range(1, 6)),
            what="the requests to the brokers that hang",
        )
        # From now on, the brokers that hang come last. Broker 6 responds sooner than this.
        monkeypatch.setattr(brokers_module, "PATIENCE_S", 60.0)
        asked = [len(brokers[number].requests) for number in range(1, 6)]
        for number in range(2, 5):
            offsets._known.doubt(at("t", 0))
            offsets.list_offsets(at("t", 0))
            assert brokers[6].count(Api.METADATA) == number
        assert [len(brokers[number].requests) for number in range(1, 6)] == asked
        # Later they get another chance.
        monkeypatch.setattr(brokers_module, "PATIENCE_S", 0.1)
        monkeypatch.setattr(brokers_module, "FAILED_S", 0.0)
        offsets._known.doubt(at("t", 0))
        offsets.list_offsets(at("t", 0))
        wait_until(
            lambda: sum(len(brokers[number].requests) for number in range(1, 6)) > sum(asked),
            what="a request to a broker that hangs",
        )


def test_leaders_that_nobody_returns_are_an_error_in_time(brokers, offsets):
    for broker in brokers.brokers.values():
        broker.hangs = {Api.METADATA}
    began = time.monotonic()
    with pytest.raises(ConnectError, match="in time"):
        offsets.list_offsets(at("t", 0), timeout_s=0.5)
    with pytest.raises(ConnectError, match="in time"):
        offsets.refresh_leaders(timeout_s=0.5)
    assert time.monotonic() - began < 20


def test_known_leaders_are_asked_although_metadata_cannot_be_fetched(brokers, offsets):
    brokers.add_topic("t", [1])
    offsets.list_offsets(at("t", 0))
    for broker in brokers.brokers.values():
        broker.hangs = {Api.METADATA}
    listed = offsets.list_offsets(at("t", 0) + at("new", 0), timeout_s=2)
    assert listed[TopicPartition("t", 0)] == ListedOffset(1000, 0)
    assert "no response in time" in str(listed[TopicPartition("new", 0)])


def test_a_broker_that_moves_is_found_through_the_others(brokers):
    with make_lister(brokers, 1) as offsets:
        brokers.add_topic("t", [2])
        assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}
        brokers.restart_elsewhere(2)
        with pytest.raises(ConnectError):
            offsets.list_offsets(at("t", 0))
        assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}


# --- Older brokers ----------------------------------------------------------------------------------------


def test_a_broker_that_is_too_old_hides_only_its_own_partitions(brokers):
    brokers.add_topic("t", [1, 2])
    brokers[2].versions[Api.LIST_OFFSETS] = (0, 5)
    with OffsetLister(brokers.conf) as offsets:
        found = ends(offsets.list_offsets(at("t", 0, 1)))
    assert found["t", 0] == 1000
    assert "supports no version of LIST_OFFSETS" in str(found["t", 1])


def test_a_cluster_that_is_too_old_is_an_error(brokers):
    for broker in brokers.brokers.values():
        broker.versions[Api.METADATA] = (0, 8)
    brokers.stop(1)  # and one of them is dead
    brokers.add_topic("t", [1])
    with OffsetLister(brokers.conf) as offsets, pytest.raises(UnsupportedVersion, match="METADATA"):
        offsets.list_offsets(at("t", 0))


# --- Many at once, and the end ----------------------------------------------------------------------------


def test_threads_share_the_connections(brokers, offsets, monkeypatch):
    monkeypatch.setattr(known_leaders, "FETCH_AGAIN_S", 60.0)
    brokers.add_topic("t", [1, 2, 3])
    results: list[Listed] = []

    def list_some() -> None:
        for _ in range(20):
            results.append(offsets.list_offsets(at("t", 0, 1, 2)))

    threads = [threading.Thread(target=list_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    assert all(ends(each) == {("t", 0): 1000, ("t", 1): 1001, ("t", 2): 1002} for each in results)
    assert sum(broker.count(Api.METADATA) for broker in brokers.brokers.values()) == 1
    assert brokers.connections <= 3 * 4 + 1


def test_after_close_nothing_is_sent(brokers):
    brokers.add_topic("t", [1])
    offsets = make_lister(brokers)
    offsets.list_offsets(at("t", 0))
    offsets.close()
    offsets.close()
    with pytest.raises(Closed):
        offsets.list_offsets(at("t", 0))


def test_a_lister_needs_an_address(brokers):
    conf = brokers.conf
    with pytest.raises(ConfigError, match="there is no address"):
        OffsetLister(type(conf)(","))

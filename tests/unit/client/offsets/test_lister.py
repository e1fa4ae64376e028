"""Offsets come from the leaders, whatever the other brokers do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from koff.client import Isolation, OffsetSpec, TopicPartition
from koff.client.cluster_conf import ListedOffset
from koff.client.offsets import known_leaders, lister
from koff.client.offsets.lister import CHUNK, Listed, OffsetLister
from koff.client.wire import brokers as brokers_module
from koff.client.wire.connection import UnsupportedVersion
from koff.errors import Closed, ConfigError, ConnectError
from koff.kafkatest import wait_until
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers, FakeTopic


@pytest.fixture
def brokers(monkeypatch) -> Iterator[FakeBrokers]:
    """Brokers 1 to 3. Metadata may be fetched again at once."""
    monkeypatch.setattr(known_leaders, "FETCH_AGAIN_S", 0.0)
    with FakeBrokers() as made:
        yield made


@pytest.fixture
def offsets(brokers) -> Iterator[OffsetLister]:
    with make_lister(brokers) as made:
        yield made


def make_lister(brokers: FakeBrokers, *bootstrap: int) -> OffsetLister:
    conf = brokers.conf_of(*bootstrap) if bootstrap else brokers.conf
    return OffsetLister(conf)


def at(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def ends(listed: Listed) -> dict[tuple[str, int], int | str]:
    return {at: found if isinstance(found, str) else found.offset for at, found in listed.items()}


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


# --- Leaders change ---------------------------------------------------------------------------------------


def test_a_partition_that_has_moved_is_asked_for_at_its_new_leader_in_the_same_call(brokers, offsets):
    topic = brokers.add_topic("t", [1, 2])
    offsets.list_offsets(at("t", 0, 1))
    topic.move(0, 3)
    assert ends(offsets.list_offsets(at("t", 0, 1))) == {("t", 0): 1000, ("t", 1): 1001}
    assert offsets.find_leaders("t") == (3, 2)


@pytest.mark.parametrize(
    "error",
    [ErrorCode.kafka_storage_error, ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available],
)
def test_other_errors_are_a_reason_to_fetch_the_leaders_too(brokers, offsets, error):
    topic = brokers.add_topic("t", [1])
    offsets.list_offsets(at("t", 0))
    brokers.cut_off(1)
    brokers[1].view = {"t": FakeTopic([1], [0], errors={0: error})}
    topic.move(0, 2)
    for _ in range(3):
        listed = ends(offsets.list_offsets(at("t", 0)))
    assert listed == {("t", 0): 1000}


def test_metadata_is_not_fetched_in_each_call_while_a_broker_contradicts_it(brokers, offsets, monkeypatch):
    monkeypatch.setattr(known_leaders, "FETCH_AGAIN_S", 60.0)
    brokers.add_topic("t", [1]).errors[0] = ErrorCode.not_leader_or_follower
    for _ in range(5):
        assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): "NOT_LEADER_OR_FOLLOWER"}
    assert sum(broker.count(Api.METADATA) for broker in brokers.brokers.values()) == 1


def test_a_leader_that_is_cut_off_is_not_asked_for_ever(brokers, offsets):
    """Broker 1 is cut off from the others: it answers requests, and believes to lead as before."""
    topic = brokers.add_topic("t", [1])
    assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}
    brokers.cut_off(1)
    topic.move(0, 2)
    topic.ends[0] = 5000
    assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}  # nobody can know it yet
    offsets.refresh_leaders(timeout_s=30)
    assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 5000}
    for _ in range(6):  # and broker 1's metadata changes nothing any more
        offsets.refresh_leaders(timeout_s=30)
        assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 5000}
    assert brokers[1].count(Api.METADATA) > 1


def test_a_broker_that_is_cut_off_is_not_the_only_one_asked_after_a_short_fault_of_the_network(
    brokers, offsets
):
    topic = brokers.add_topic("t", [1, 2, 3])
    offsets.list_offsets(at("t", 0, 1, 2))
    for broker in brokers.brokers.values():
        broker.drops = 2  # the connection, and the next one
    with pytest.raises(ConnectError):
        offsets.list_offsets(at("t", 0, 1, 2))
    brokers.cut_off(1)
    topic.move(0, 2)
    topic.ends[0] = 5000
    for _ in range(2):
        offsets.refresh_leaders(timeout_s=30)
    assert ends(offsets.list_offsets(at("t", 0)))["t", 0] == 5000


def test_a_topic_that_is_created_again_is_found_and_the_old_one_does_not_come_back(brokers, offsets):
    brokers.add_topic("t", [1])
    assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}
    brokers.cut_off(1)
    brokers.add_topic("t", [2]).ends[0] = 5
    found = []
    for _ in range(8):
        offsets.refresh_leaders(timeout_s=30)
        found.append(ends(offsets.list_offsets(at("t", 0)))["t", 0])
    first = found.index(5)
    assert first <= 2
    assert set(found[first:]) == {5}


def test_each_refresh_asks_two_brokers_and_the_next_one_two_others(brokers, monkeypatch):
    monkeypatch.setattr(lister, "CHUNK", 1)
    monkeypatch.setattr(brokers_module, "PATIENCE_S", 60.0)  # a busy machine is no reason to ask others
    with FakeBrokers(4) as four, make_lister(four, 1) as offsets:
        for name in ("a", "b", "c"):
            four.add_topic(name, [1])
            offsets.list_offsets(at(name, 0))
        pairs = []
        for _ in range(4):
            before = metadata_requests(four)
            offsets.refresh_leaders(timeout_s=30)
            now = metadata_requests(four)
            pairs.append({number for number in now if now[number] > before[number]})
            assert sum(now.values()) - sum(before.values()) == 6  # three topics, two brokers
        assert [len(pair) for pair in pairs] == [2, 2, 2, 2]
        assert pairs[0] | pairs[1] == pairs[2] | pairs[3] == {1, 2, 3, 4}


def test_topics_are_found_again_in_every_chunk_although_two_of_four_brokers_are_cut_off(monkeypatch):
    monkeypatch.setattr(lister, "CHUNK", 1)
    with FakeBrokers(4) as four, make_lister(four) as offsets:
        topics = [four.add_topic(name, [1]) for name in ("a", "b")]
        offsets.list_offsets(at("a", 0) + at("b", 0))
        four.cut_off(1)
        four.cut_off(2)
        for topic in topics:
            topic.move(0, 3)
        for _ in range(2):
            offsets.refresh_leaders(timeout_s=30)
        assert (offsets.find_leaders("a"), offsets.find_leaders("b")) == ((3,), (3,))


def test_one_broker_that_hangs_delays_a_refresh_once(brokers, monkeypatch):
    monkeypatch.setattr(lister, "CHUNK", 1)
    monkeypatch.setattr(brokers_module, "PATIENCE_S", 2.0)  # broker 1 must respond sooner
    with FakeBrokers(2) as two, make_lister(two, 1) as offsets:
        for number in range(20):
            two.add_topic(f"t{number}", [1])
            offsets.list_offsets(at(f"t{number}", 0))
        two[2].hangs = {Api.METADATA}
        before = metadata_requests(two)
        offsets.refresh_leaders(timeout_s=30)
        now = metadata_requests(two)
        assert (now[1] - before[1], now[2] - before[2]) == (20, 1)


def test_metadata_of_another_cluster_is_refused(brokers, offsets, monkeypatch):
    """The address of a pod that has died may be given to another cluster's broker."""
    brokers.add_topic("t", [1])
    offsets.list_offsets(at("t", 0))
    with FakeBrokers(1) as others:
        others.add_topic("t", [1]).ends[0] = 777
        brokers[2].view, brokers[2].cluster_id = others.topics, "other"
        for _ in range(4):
            offsets.refresh_leaders(timeout_s=30)
            assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}
        assert brokers[2].count(Api.METADATA)
        # koff believes a new cluster at the same addresses after a while.
        for broker in brokers.brokers.values():
            broker.cluster_id = "new"
        with pytest.raises(ConnectError, match="belongs to another cluster, new, not fake"):
            offsets.refresh_leaders(timeout_s=30)
        monkeypatch.setattr(lister, "BELIEVE_OLDER_S", 0.0)
        offsets.refresh_leaders(timeout_s=30)


def test_a_single_broker_of_another_cluster_is_not_believed_after_an_outage_either(
    brokers, offsets, monkeypatch
):
    topic = brokers.add_topic("t", [1])
    offsets.list_offsets(at("t", 0))
    monkeypatch.setattr(lister, "BELIEVE_OLDER_S", 0.0)  # no broker was reached for so long
    brokers[2].cluster_id = "other"
    topic.move(0, 3)
    for _ in range(4):
        offsets.refresh_leaders(timeout_s=30)
    assert offsets.find_leaders("t") == (3,)


def test_the_first_broker_may_not_be_of_another_cluster_either(brokers):
    brokers.add_topic("t", [1])
    with OffsetLister(brokers.conf_of(1), cluster_id="ours") as offsets:
        with pytest.raises(ConnectError, match="belongs to another cluster, fake, not ours"):
            offsets.list_offsets(at("t", 0))
        brokers[1].cluster_id = "ours"
        assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}


def test_a_fault_of_one_chunk_of_topics_does_not_keep_the_others_from_being_refreshed(brokers, monkeypatch):
    monkeypatch.setattr(lister, "CHUNK", 1)
    with make_lister(brokers) as offsets:
        for name in ("a", "b", "c"):
            brokers.add_topic(name, [1])
            offsets.list_offsets(at(name, 0))
        for broker in brokers.brokers.values():
            broker.tamper = break_topic_a
        brokers.topics["b"].move(0, 2)
        brokers.topics["c"].move(0, 3)
        with pytest.raises(ConnectError, match="Invalid response"):
            offsets.refresh_leaders(timeout_s=30)
        assert [offsets.find_leaders(name) for name in ("a", "b", "c")] == [(1,), (2,), (3,)]


def break_topic_a(api: Api, body: bytes) -> bytes:
    return body[:-3] if api is Api.METADATA and b"\2a" in body else body


def test_metadata_without_brokers_is_not_believed(brokers, offsets):
    """A broker that starts knows none of the others (librdkafka's issue 5301)."""
    brokers.add_topic("t", [2])
    brokers[1].lists_brokers = False
    assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}
    for broker in brokers.brokers.values():
        broker.lists_brokers = False
    with pytest.raises(ConnectError, match="knows no brokers yet"):
        offsets.refresh_leaders(timeout_s=30)
    assert ends(offsets.list_offsets(at("t", 0))) == {("t", 0): 1000}


# --- Brokers that fail ------------------------------------------------------------------------------------


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


def metadata_requests(brokers: FakeBrokers) -> dict[int, int]:
    """How many requests for metadata each broker was sent."""
    return {number: broker.count(Api.METADATA) for number, broker in brokers.brokers.items()}


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
        broker.versions[Api.METADATA] = (0, 9)
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

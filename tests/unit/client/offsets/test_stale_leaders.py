"""Leaders move, and brokers that are cut off return old ones: no partition stays with an old leader."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from koff.client.offsets import known_leaders, lister
from koff.client.offsets.lister import OffsetLister
from koff.client.wire import brokers as brokers_module
from koff.errors import ConnectError
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers, FakeTopic
from tests.unit.client.offsets.listing import at, ends, make_lister, metadata_requests


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

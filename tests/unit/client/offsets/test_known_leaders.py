"""Which of several answers about the leaders counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from koff.client import TopicPartition
from koff.client.offsets.known_leaders import BELIEVE_OLDER_S, FETCH_AGAIN_S, UNSEEN_S, UNUSED_S, KnownLeaders
from koff.client.offsets.messages import BrokerMetadata, LeaderMetadata, MetadataResponse, TopicMetadata
from koff.proto.primitives import ZERO_UUID

ID, OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def metadata(
    *leaders: tuple[int, int],
    topic_id: str = ID,
    error: int = 0,
    numbers: Sequence[int] | None = None,
    brokers: Sequence[int] = (1, 2, 3),
) -> MetadataResponse:
    """Topic t with the leader and the epoch of each partition. Broker n is at port n."""
    partitions = tuple(
        LeaderMetadata(
            error_code=0,
            partition=number,
            leader=leader,
            leader_epoch=epoch,
            replicas=(),
            in_sync=(),
            offline=(),
        )
        for number, (leader, epoch) in zip(numbers or range(len(leaders)), leaders, strict=True)
    )
    topic = TopicMetadata(
        error_code=error,
        name="t",
        topic_id=topic_id,
        is_internal=0,
        partitions=partitions,
        authorized_operations=0,
    )
    named = tuple(BrokerMetadata(id=number, host="h", port=number, rack=None) for number in brokers)
    return MetadataResponse(throttle_time_ms=0, brokers=named, cluster_id="c", controller=1, topics=(topic,))


@pytest.fixture
def known() -> KnownLeaders:
    """Topic t has been requested at 0 s."""
    made = KnownLeaders()
    made.note_requested(["t"], 0)
    return made


A, B = ("a", 1), ("b", 1)


def leaders(known: KnownLeaders) -> tuple[int, ...]:
    return known.find_leaders("t")


def test_a_newer_epoch_counts_in_whatever_order_the_brokers_respond(known):
    known.add(metadata((1, 5), (2, 7)), A, 1)
    known.add(metadata((2, 6), (3, 6)), A, 2)  # partition 0 is newer, partition 1 is older
    assert leaders(known) == (2, 2)
    known.add(metadata((1, 5), (2, 7)), A, 3)
    assert leaders(known) == (2, 2)


def test_the_same_epoch_counts_again(known):
    known.add(metadata((1, 5)), A, 1)
    known.add(metadata((-1, 5)), A, 2)  # its broker died, and there is no new leader yet
    assert leaders(known) == (-1,)
    assert known.explain_unknown("t", 0) == "LEADER_NOT_AVAILABLE"


def test_a_topic_with_another_id_counts_once_two_brokers_have_it(known):
    """One of them may be cut off: which id is newer cannot be seen."""
    known.add(metadata((1, 5), (1, 5)), A, 1)
    for second in (2, 3):
        known.add(metadata((2, 0), topic_id=OTHER_ID), A, second)
        assert leaders(known) == (1, 1)
    known.add(metadata((1, 5), (1, 5)), B, 4)
    known.add(metadata((2, 0), topic_id=OTHER_ID), B, 5)
    assert leaders(known) == (1, 1)
    known.add(metadata((2, 0), topic_id=OTHER_ID), A, 6)
    assert leaders(known) == (2,)
    assert known.explain_unknown("t", 1) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_two_brokers_with_different_ids_do_not_agree(known):
    known.add(metadata((1, 5)), A, 1)
    known.add(metadata((2, 0), topic_id=OTHER_ID), A, 2)
    known.add(metadata((3, 0), topic_id=ZERO_UUID), B, 3)
    assert leaders(known) == (1,)


def test_the_only_broker_is_believed_at_once(known):
    known.add(metadata((1, 5), brokers=[1]), A, 1)
    known.add(metadata((1, 0), (1, 0), topic_id=OTHER_ID, brokers=[1]), A, 2)
    assert leaders(known) == (1, 1)


def test_older_epochs_do_not_count_without_topic_ids_either(known):
    """Brokers return no ids as long as their inter.broker.protocol is older than 2.8."""
    known.add(metadata((1, 5), topic_id=ZERO_UUID), A, 1)
    known.add(metadata((2, 4), topic_id=ZERO_UUID), B, 2)
    assert leaders(known) == (1,)


def test_a_broker_that_one_of_the_others_does_not_name_stays_known(known):
    known.add(metadata((1, 5), brokers=[1, 4]), A, 1)
    known.add(metadata((1, 5), brokers=[1, 2]), B, 2)
    assert sorted(known.brokers) == [1, 2, 4]
    known.add(metadata((1, 5), brokers=[1, 2]), B, 1 + UNSEEN_S)
    assert sorted(known.brokers) == [1, 2]


def test_a_broker_that_does_not_know_new_partitions_yet_takes_none_away(known):
    known.add(metadata((1, 5), (2, 0)), A, 1)
    known.add(metadata((1, 5)), A, 2)
    assert leaders(known) == (1, 2)


def test_older_epochs_count_once_two_brokers_have_them_and_none_confirms_the_newer_ones(known):
    known.add(metadata((1, 5)), A, 1)
    known.add(metadata((1, 5)), A, 10)
    known.add(metadata((2, 3)), B, 10 + BELIEVE_OLDER_S - 1)
    known.add(metadata((2, 3)), B, 10 + BELIEVE_OLDER_S)
    assert leaders(known) == (1,)
    known.add(metadata((2, 3)), A, 10 + BELIEVE_OLDER_S)
    assert leaders(known) == (2,)


@pytest.mark.parametrize("brokers", [(1, 2), (1, 2, 3)])
def test_older_epochs_that_two_brokers_have_wait_for_the_limit(known, brokers):
    known.add(metadata((1, 5), brokers=brokers), A, 0)
    for now_s in (1, 30, BELIEVE_OLDER_S - 1):
        known.add(metadata((2, 3), brokers=brokers), A, now_s)
        known.add(metadata((2, 3), brokers=brokers), B, now_s)
        assert leaders(known) == (1,)
    known.add(metadata((2, 3), brokers=brokers), A, BELIEVE_OLDER_S)
    assert leaders(known) == (2,)


def test_one_of_two_brokers_is_not_enough_for_another_id(known):
    known.add(metadata((1, 5), brokers=[1, 2]), A, 0)
    for now_s in (1, 30):
        known.add(metadata((2, 0), topic_id=OTHER_ID, brokers=[1, 2]), A, now_s)
    assert leaders(known) == (1,)
    # The other broker is not in the cluster any more.
    for now_s in (40, 70, 101):
        known.add(metadata((2, 0), topic_id=OTHER_ID, brokers=[2]), A, now_s)
    assert leaders(known) == (2,)


def test_a_topic_with_an_error_is_not_fetched_again_at_once(known):
    known.add(metadata(error=29), A, 10)
    assert not due(known, 10 + FETCH_AGAIN_S / 2)
    assert due(known, 10 + FETCH_AGAIN_S)


def test_an_error_of_the_topic_is_the_reason_where_no_leader_is_known(known):
    known.add(metadata(error=29), A, 1)
    assert leaders(known) == ()
    assert known.explain_unknown("t", 0) == "TOPIC_AUTHORIZATION_FAILED"
    known.add(metadata((1, 5), (1, 5)), A, 2)
    known.add(metadata(error=3), A, 3)  # a broker that has just started
    assert leaders(known) == (1, 1)


@pytest.mark.parametrize("numbers", [(1, 2), (0, 2), (0, 0), (0, 2**31 - 1), (-1, 0)])
def test_partitions_that_are_not_numbered_without_gaps_are_not_believed(known, numbers):
    known.add(metadata((1, 5), (2, 5)), A, 1)
    known.add(metadata((3, 6), (3, 6), numbers=numbers), A, 2)
    assert leaders(known) == (1, 2)


def due(known: KnownLeaders, now_s: float, *, topic: str = "t", numbers: Sequence[int] = (0, 1)) -> bool:
    """Whether metadata must be fetched before the leaders of these partitions are asked."""
    wanted = {topic: [TopicPartition(topic, number) for number in numbers]}
    _, unknown, doubted = known.split_by_address(wanted)
    return known.find_due({at.topic for at in unknown} | doubted, now_s) == [topic]


def test_what_is_known_is_not_fetched_again_unless_it_is_doubted(known):
    assert due(known, 0)
    known.add(metadata((1, 5), (2, 5)), A, 0)
    assert not due(known, 1000)
    known.doubt(TopicPartition(*at) for at in (("t", 1), ("t", 2), ("t", -1), ("never requested", 0)))
    assert not due(known, FETCH_AGAIN_S / 2)  # fetched a moment ago
    assert due(known, FETCH_AGAIN_S)
    assert not due(known, FETCH_AGAIN_S, numbers=[0])  # the leader of partition 0 is not doubted
    known.add(metadata((1, 5), (-1, 6)), A, 10)
    assert not due(known, 10.5)
    assert due(known, 12)  # partition 1 has no leader
    assert not due(known, 12, numbers=[0])
    known.add(metadata((1, 5), (9, 7)), A, 20)  # a leader that is not among the brokers
    assert due(known, 22)
    assert due(known, 0, topic="other")


def test_partitions_are_split_by_the_address_of_their_leader(known):
    known.add(metadata((1, 5), (2, 5), (1, 5), (-1, 5), (9, 5)), A, 0)
    wanted = [TopicPartition("t", number) for number in (0, 1, 2, 3, 4, 5, -1)]
    parts, unknown, doubted = known.split_by_address({"t": wanted})
    assert parts == {("h", 1): [wanted[0], wanted[2]], ("h", 2): [wanted[1]]}
    assert (unknown, doubted) == (wanted[3:], set())


def test_topics_that_are_not_requested_any_more_are_forgotten(known):
    known.note_requested(["u"], 5)
    known.add(metadata((1, 5)), A, 5)
    known.forget_unused(UNUSED_S)
    assert known.list_topics() == ["u"]
    assert leaders(known) == ()
    known.add(metadata((1, 5)), A, UNUSED_S)  # a response that was under way
    known.forget_unused(UNUSED_S + 5)
    assert known.list_topics() == []


def test_the_topics_that_were_fetched_longest_ago_come_first(known):
    known.note_requested(["v", "u"], 1)
    known.add(metadata((1, 5)), A, 2)
    assert known.list_topics() == ["v", "u", "t"]

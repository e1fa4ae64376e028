"""Messages that a member of a group handed out, until they are processed. Needs no Kafka."""

from __future__ import annotations

from typing import Any

from koff.client.cluster_conf import ClusterConf
from koff.client.multicluster import Reader, ReaderConf, Redelivery, RedeliveryCounts
from koff.kafkatest import wait_until
from tests.unit.client.multicluster.fake_member import Member, fetched, put
from tests.unit.client.multicluster.fake_producer import NOWHERE

A = {"a": ClusterConf(NOWHERE)}


def conf(**options: Any) -> ReaderConf:
    return ReaderConf(
        "t", group_id="g", fail_after_s=60, **{"redelivery": Redelivery(first_s=0.0), **options}
    )


def test_a_group_stores_what_was_acknowledged_whichever_method_returned_it(member: Member):
    with Reader(A, conf()) as reader:
        member.run(member.assign)
        put(reader, 0, 1, 2)
        messages = reader.read_message(60)
        while len(messages) < 3:
            messages += reader.read_message(60)
        messages[1].ack()
        messages[0].ack()
        wait_until(lambda: member.stored == [(0, 2)], what="the acknowledged offset")
        assert reader.stats(0).redelivery == RedeliveryCounts()
        messages[2].ack()
    assert member.stored == [(0, 2), (0, 3)]


def test_a_group_delivers_a_failed_message_again_and_then_passes_it_over(member: Member):
    with Reader(A, conf(max_redeliveries=1)) as reader:
        member.run(member.assign)
        put(reader, 0, 1)
        first, second = fetched(reader, 2)
        second.ack()
        first.nack(ValueError("bad"))
        (again,) = fetched(reader, 1)
        assert (again.offset, again.cluster, again.value) == (0, "a", b"v")
        again.nack(ValueError("still bad"))
        error = next(reader.errors())
        assert "t/0: offset 0 failed 2 times and is passed over: ValueError('still bad')" in str(error)
        wait_until(lambda: member.stored == [(0, 2)], what="both processed")
        assert reader.stats(0).redelivery == RedeliveryCounts(redelivered=1, passed_over=1)
    assert list(reader.errors()) == []


def test_what_was_acknowledged_before_a_revocation_is_stored_and_nothing_after_it(member: Member):
    with Reader(A, conf()) as reader:
        member.run(member.assign)
        put(reader, 0, 1, 2)
        early = fetched(reader, 3)

        def revoke() -> None:
            early[0].ack()
            member.revoke()
            early[1].ack()

        member.run(revoke, member.assign)
        put(reader, 1)
        (late,) = fetched(reader, 1)
        early[2].ack()
        late.ack()
        wait_until(lambda: len(member.stored) > 1, what="the message of the second assignment")
    assert member.stored == [(0, 1), (0, 2)]


def test_an_acknowledgement_does_not_set_back_what_commit_messages_has_committed(member: Member):
    with Reader(A, conf()) as reader:
        member.run(member.assign)
        put(reader, 0, 1, 2)
        messages = fetched(reader, 3)
        reader.commit_messages(messages[2])
        messages[0].ack()
    assert member.commits == [(0, 3)]
    assert {offset for _, offset in member.stored} <= {3}


def test_failed_messages_count_as_waiting(member: Member):
    with Reader(A, conf(queue_capacity=1, redelivery=Redelivery(first_s=60.0))) as reader:
        member.run(member.assign)
        put(reader, 0, 1)
        (message,) = fetched(reader, 1)
        message.nack()
        assert reader.stats(0).queue_length == 1
        assert reader.fetch_message(0.3) == []

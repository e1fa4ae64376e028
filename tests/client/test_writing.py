"""What only a real Kafka shows of producers and of committed offsets: limits, threads, other clients."""

from __future__ import annotations

import threading

import pytest

from koff.client import (
    BrokerConf,
    ConsumerConf,
    CoordinatorError,
    Message,
    OffsetCoordinatorConf,
    ProduceError,
    ProducerConf,
    RequiredAcks,
    UnknownTopic,
    dial,
)
from koff.client.addresses import parse_addresses
from koff.client.cluster_conf import ClusterConf
from koff.client.groups.offset_fetch import build_requests
from koff.client.multicluster import WriteErrors, Writer, WriterConf
from koff.client.wire.connection import Connection
from koff.errors import ConfigError
from koff.kafkatest import wait_until
from tests.kafka_groups import member


@pytest.mark.kafka
def test_a_message_that_is_too_large_is_the_only_one_that_is_not_written(kafka):
    topic = kafka.create_topic()
    messages = [Message(b"a"), Message(b"b" * 2_000_000), Message(b"c"), Message(b"c")]
    with dial(kafka.bootstrap) as broker:
        with pytest.raises(ProduceError) as caught:
            broker.producer().produce(topic, 0, *messages)
        assert (caught.value.written, caught.value.failed, caught.value.unknown) == ((0, 2, 3), (1,), ())
        assert [each.offset for each in messages] == [0, -1, 1, 2]
        assert broker.offset_latest(topic, 0) == 3


@pytest.mark.kafka
@pytest.mark.parametrize("acks", [RequiredAcks.ALL, RequiredAcks.LOCAL])
def test_calls_of_many_threads_stay_in_one_piece_each(kafka, acks):
    topic = kafka.create_topic()
    with dial(kafka.bootstrap) as broker:
        producer = broker.producer(ProducerConf(required_acks=acks))

        def write(name: int) -> None:
            for _ in range(20):
                producer.produce(topic, 0, *(Message(b"%d" % number, b"%d" % name) for number in range(50)))

        writers = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
        with broker.consumer(ConsumerConf(topic, retry_limit=2)) as consumer:
            got = list(consumer)
    assert len(got) == 4000
    for at in range(0, 4000, 50):
        assert [int(each.value or b"") for each in got[at : at + 50]] == list(range(50))
        assert len({each.key for each in got[at : at + 50]}) == 1


@pytest.mark.kafka
def test_more_messages_than_a_chunk_keep_their_order_and_offsets(kafka):
    topic = kafka.create_topic()
    with dial(kafka.bootstrap) as broker:
        messages = [Message(b"%d" % number) for number in range(25_000)]
        assert broker.producer().produce(topic, 0, *messages) == 0
        assert [each.offset for each in messages] == list(range(25_000))
        with broker.consumer(ConsumerConf(topic, retry_limit=2)) as consumer:
            got = list(consumer)
    assert [int(each.value or b"") for each in got] == list(range(25_000))


@pytest.mark.kafka
def test_committed_metadata_is_stored_as_it_was_given(kafka):
    """confluent-kafka would end it with a zero byte."""
    topic = kafka.create_topic()
    group = f"g-{topic}"
    with dial(kafka.bootstrap) as broker:
        broker.offset_coordinator(OffsetCoordinatorConf(group)).commit(topic, 0, 5, "x" * 24)
    (address,) = parse_addresses(kafka.bootstrap)
    with Connection.connect(ClusterConf(kafka.bootstrap), *address) as wire:
        (told,) = wire.send_requests(build_requests([group], 9, max_bytes=10_000))
    assert told.offsets.metadata == {0: "x" * 24}


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("offset", "metadata"), [(1 << 63, ""), (1, "x" * 40_000), (1, "\ud800")], ids=["offset", "long", "text"]
)
def test_a_commit_that_cannot_be_encoded_is_refused(kafka, offset, metadata):
    topic = kafka.create_topic()
    with dial(kafka.bootstrap) as broker:
        coordinator = broker.offset_coordinator(OffsetCoordinatorConf(topic))
        with pytest.raises(ConfigError, match="cannot be encoded"):
            coordinator.commit(topic, 0, offset, metadata)
        coordinator.commit(topic, 0, 1)
        assert coordinator.offset(topic, 0) == (1, "")


@pytest.mark.kafka
def test_the_offsets_of_a_group_with_members_are_theirs_to_commit(kafka):
    topic = kafka.create_topic()
    group = f"g-{topic}"
    with dial(kafka.bootstrap) as broker, member(kafka, group, topic, client_id="m"):
        coordinator = broker.offset_coordinator(OffsetCoordinatorConf(group))

        def refused() -> bool:
            try:
                coordinator.commit(topic, 0, 5)
            except CoordinatorError as error:
                return "UNKNOWN_MEMBER_ID" in str(error)
            return False  # the member has not joined yet

        wait_until(refused, what="the member to be in")
        assert coordinator.offset(topic, 0)[0] in (-1, 5)


@pytest.mark.kafka
def test_a_topic_is_created_only_if_the_configuration_allows_it(more_kafka):
    """On a broker with Kafka's default, which creates each topic that a metadata request names."""
    kafka = more_kafka(config={"auto.create.topics.enable": "true"})
    topic = kafka.create_topic()
    quick = ProducerConf(request_timeout_s=10.0, retry_limit=0)
    with dial(kafka.bootstrap) as broker:
        producer = broker.producer(quick)
        producer.produce(topic, 0, Message(b"x"))
        with pytest.raises(UnknownTopic):
            broker.partition_count("unknown")
        # The client believes that the topic exists, and then it does not.
        kafka.admin.delete_topics([topic])[topic].result(60)
        wait_until(lambda: topic not in broker.metadata().topics, what="the topic to be gone")
        with pytest.raises((ProduceError, UnknownTopic)):
            producer.produce(topic, 0, Message(b"y"))
        with pytest.raises((ProduceError, UnknownTopic)):
            producer.produce(topic, 3, Message(b"y"))
        assert not {topic, "unknown"} & set(broker.metadata().topics)
    conf = WriterConf("unwritten", give_up_after_s=2.0)
    with Writer({"a": ClusterConf(kafka.bootstrap)}, conf) as writer, pytest.raises(WriteErrors):
        writer.write_messages(Message(b"x"))
    assert "unwritten" not in kafka.admin.list_topics(timeout=60).topics
    with dial(kafka.bootstrap, BrokerConf(allow_topic_creation=True)) as broker:
        broker.producer(ProducerConf(request_timeout_s=30.0)).produce("made", 0, Message(b"x"))
        assert broker.partition_count("made") == 1

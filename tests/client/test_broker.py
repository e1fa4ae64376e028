"""What only a real Kafka shows: refused connections, security, sharing, limits, other clients."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from koff.client import (
    BrokerConf,
    ConsumerConf,
    Isolation,
    Message,
    NoData,
    OffsetCoordinatorConf,
    OffsetOutOfRange,
    StartOffset,
    UnknownTopic,
    dial,
    merge,
)
from koff.errors import ConfigError, ConnectError, Denied
from koff.kafkatest import free_ports, wait_until
from tests.clusters import log_in
from tests.process_threads import count_threads, wait_for_threads

QUICK = BrokerConf(dial_retry_limit=2, dial_retry_wait_s=0.05, dial_timeout_s=2)


def test_an_address_where_nobody_listens_is_tried_as_often_as_configured_and_no_longer():
    address = f"127.0.0.1:{free_ports(1)[0]}"
    began = time.monotonic()
    with pytest.raises(ConnectError, match=address):
        dial(address, QUICK)
    assert time.monotonic() - began < 40


def test_a_server_that_says_nothing_is_given_up_after_the_dial_timeout():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ConnectError, match=address):
            dial([address], BrokerConf(dial_retry_limit=0, dial_timeout_s=0.5))
        assert time.monotonic() - began < 10  # so long it takes without the timeout


def test_a_property_that_librdkafka_does_not_know_is_named():
    with pytest.raises(ConfigError, match=r"no\.such\.thing"):
        dial("localhost:1", BrokerConf(properties={"no.such.thing": "1"}))


@pytest.mark.kafka
def test_any_one_of_the_addresses_is_enough(kafka):
    with dial([f"127.0.0.1:{free_ports(1)[0]}", kafka.bootstrap]) as broker:
        assert broker.metadata().cluster_id == broker.id == kafka.cluster_id


@pytest.mark.kafka
def test_the_whole_client_runs_over_sasl_and_over_tls(more_kafka):
    kafka = more_kafka(security=True)
    topic = kafka.create_topic()
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(kafka.ca_pem)}
    values = []
    with dial(kafka.sasl_bootstrap, BrokerConf(properties=log_in("admin"))) as broker:
        broker.producer().produce(topic, 0, Message(b"by sasl"))
        with broker.consumer(ConsumerConf(topic, retry_limit=1)) as consumer:
            values += [message.value for message in consumer]
        broker.offset_coordinator(OffsetCoordinatorConf("g")).commit(topic, 0, 1, "m")
        assert broker.offset_coordinator(OffsetCoordinatorConf("g")).offset(topic, 0) == (1, "m")
    assert values == [b"by sasl"]
    with pytest.raises(Denied):
        dial(kafka.sasl_bootstrap, BrokerConf(properties=log_in("admin", "wrong")))
    with (
        dial(kafka.sasl_bootstrap, BrokerConf(properties=log_in("alice"))) as broker,
        pytest.raises(Denied, match="g"),
    ):
        broker.offset_coordinator(OffsetCoordinatorConf("g")).offset(topic, 0)
    # the TLS listener's users have no rights here; that it speaks is what counts
    with dial(kafka.ssl_bootstrap, BrokerConf(properties=tls)) as broker:
        assert broker.metadata().brokers


@pytest.mark.kafka
@pytest.mark.parametrize("name", ["", "east"])
def test_each_message_says_which_cluster_it_is_from(kafka, make_topic, name):
    topic = make_topic()
    with dial(kafka.bootstrap, BrokerConf(name=name)) as broker:
        broker.producer().produce(topic, 0, *(Message(b"%d" % number) for number in range(4)))
        with broker.consumer(ConsumerConf(topic)) as consumer:
            read = [consumer.consume(), next(iter(consumer)), *consumer.consume_batch()]
        with merge(broker.consumer(ConsumerConf(topic))) as mx:
            read.append(mx.consume())
    assert {message.cluster for message in read} == {name or kafka.bootstrap}


@pytest.mark.kafka
def test_a_merged_stream_drops_what_was_read_before_a_seek(kafka, make_topic):
    topic = make_topic()
    with dial(kafka.bootstrap) as broker:
        broker.producer().produce(topic, 0, *(Message(b"%d" % number) for number in range(100)))
        consumer = broker.consumer(ConsumerConf(topic, retry_limit=1))
        with merge(consumer) as mx:
            assert mx.consume().offset == 0
            consumer.seek(90)
            assert [message.offset for message in mx] == list(range(90, 100))


@pytest.mark.kafka
def test_a_hundred_consumers_share_the_threads_of_one(kafka):
    topic = kafka.create_topic(partitions=100)
    with dial(kafka.bootstrap) as broker:
        producer = broker.producer()
        for partition in range(100):
            producer.produce(topic, partition, Message(b"%d" % partition))
        before = count_threads()
        first = broker.consumer(ConsumerConf(topic, 0, retry_limit=1))
        assert first.consume().value == b"0"
        one = count_threads() - before
        others = [broker.consumer(ConsumerConf(topic, number, retry_limit=1)) for number in range(1, 100)]
        assert [consumer.consume().value for consumer in others] == [b"%d" % n for n in range(1, 100)]
        wait_for_threads(before + one + 1)
        with merge(first, *others):
            wait_for_threads(before + one + 2)


@pytest.mark.kafka
def test_a_slow_consumer_neither_holds_up_the_others_nor_loses_its_place(kafka):
    """What comes for it meanwhile is more than is kept: it is halted, and later read on from there."""
    topic = kafka.create_topic(partitions=2)
    count = 30
    with dial(kafka.bootstrap) as broker:
        producer = broker.producer()
        for partition in (0, 1):
            for number in range(count):
                producer.produce(topic, partition, Message(os.urandom(400_000), b"%d" % number))
        conf: dict[str, Any] = {"retry_limit": 2, "max_fetch_bytes": 500_000}
        slow = broker.consumer(ConsumerConf(topic, 0, **conf))
        quick = broker.consumer(ConsumerConf(topic, 1, **conf))
        assert slow.feed is quick.feed
        seen = [slow.consume().offset]
        assert [message.offset for message in quick] == list(range(count))

        def is_halted() -> bool:
            """A first piece counts as no bytes, however large: more comes until it is halted."""
            nonlocal count
            if slow.buffer.is_assigned:
                producer.produce(topic, 0, Message(os.urandom(400_000), b"%d" % count))
                count += 1
                with suppress(NoData):
                    quick.consume()
            return not slow.buffer.is_assigned

        wait_until(is_halted, what="the slow consumer to be halted")
        seen += [message.offset for message in slow]
    assert seen == list(range(count))


@pytest.mark.kafka
def test_a_message_larger_than_a_fetch_is_read_all_the_same(kafka):
    topic = kafka.create_topic()
    with dial(kafka.bootstrap) as broker:
        broker.producer().produce(topic, 0, Message(b"x" * 500_000))
        consumer = broker.consumer(ConsumerConf(topic, retry_limit=2, max_fetch_bytes=1000))
        assert [len(message.value or b"") for message in consumer] == [500_000]


@pytest.mark.kafka
def test_an_offset_that_has_come_meanwhile_is_not_out_of_range_again(kafka):
    """librdkafka reports the failed fetch after koff has asked for the end of the log, now and then."""
    topic = kafka.create_topic()
    with dial(kafka.bootstrap) as broker:
        broker.producer().produce(topic, 0, Message(b"x"))
        consumer = broker.consumer(ConsumerConf(topic, start_offset=2))
        with pytest.raises(OffsetOutOfRange):
            consumer.consume()
        broker.producer().produce(topic, 0, Message(b"y"), Message(b"z"))
        consumer.buffer.lost_reason = "reported late"
        assert consumer.consume().offset == 2


@pytest.mark.kafka
def test_a_topic_that_is_deleted_under_a_consumer_is_unknown_to_it(kafka):
    topic = kafka.create_topic()
    with dial(kafka.bootstrap) as broker:
        consumer = broker.consumer(ConsumerConf(topic, retry_limit=1))
        with pytest.raises(NoData):
            consumer.consume()
        kafka.admin.delete_topics([topic])[topic].result(60)

        def unknown() -> bool:
            try:
                consumer.consume()
            except NoData:
                return False
            except UnknownTopic:
                return True
            return False

        wait_until(unknown, what="the consumer to notice")


@pytest.mark.kafka
def test_a_consumer_of_a_topic_that_was_created_again_is_out_of_range_at_once(kafka):
    topic = kafka.create_topic()
    with dial(kafka.bootstrap) as broker:
        broker.producer().produce(topic, 0, *(Message(b"x") for _ in range(10)))
        with broker.consumer(ConsumerConf(topic, retry_limit=1)) as consumer:
            assert len(list(consumer)) == 10
            kafka.admin.delete_topics([topic])[topic].result(60)
            wait_until(lambda: topic not in broker.metadata().topics, what="the topic to be gone")
            kafka.create_topic(topic)
            error: Exception | None = None
            while not isinstance(error, OffsetOutOfRange):
                with pytest.raises((OffsetOutOfRange, UnknownTopic, ConnectError)) as caught:  # not `NoData`
                    consumer.consume()
                error = caught.value
            assert (error.offset, error.earliest, error.latest) == (10, 0, 0)


@pytest.mark.kafka
@pytest.mark.parametrize("ask", ["partition_count", "offset_latest", "commit"])
def test_a_topic_that_not_every_broker_has_heard_of_is_asked_for_again(kafka, monkeypatch, ask):
    """Here none has, at first: it is made a moment later."""
    for module in ("broker.broker", "cluster", "broker.group_offsets"):
        monkeypatch.setattr(f"koff.client.{module}.TOPIC_PROPAGATION_S", 60.0)
    topic = f"late-{ask.replace('_', '-')}-{os.getpid()}"
    with dial(kafka.bootstrap) as broker:
        coordinator = broker.offset_coordinator(OffsetCoordinatorConf(topic))
        later = threading.Timer(1.0, kafka.create_topic, [topic])
        later.start()
        try:
            if ask == "commit":
                coordinator.commit(topic, 0, 7)
                assert coordinator.offset(topic, 0) == (7, "")
            elif ask == "offset_latest":
                assert broker.offset_latest(topic, 0) == 0
            else:
                assert broker.partition_count(topic) == 1
        finally:
            later.join()


@pytest.mark.kafka
def test_partitions_that_are_added_are_found(kafka):
    topic = kafka.create_topic(partitions=1)
    with dial(kafka.bootstrap) as broker:
        broker.producer().produce(topic, 0, Message(b"x"))
        kafka.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
        wait_until(lambda: broker.partition_count(topic) == 2, what="the partition")
        assert broker.producer().produce(topic, 1, Message(b"y")) == 0
        with broker.consumer(ConsumerConf(topic, 1)) as consumer:
            assert consumer.consume().value == b"y"


@pytest.mark.kafka
def test_a_consumer_sees_no_aborted_messages_and_knows_the_end_behind_them(kafka):
    topic = kafka.create_topic()
    writer = kafka.producer({"transactional.id": f"tx-{topic}", "transaction.timeout.ms": 600_000})
    writer.init_transactions(60)
    for value, end in ((b"kept", writer.commit_transaction), (b"gone", writer.abort_transaction)):
        writer.begin_transaction()
        writer.produce(topic, value)
        writer.flush(60)
        end(60)
    with dial(kafka.bootstrap) as broker:
        consumer = broker.consumer(ConsumerConf(topic, retry_limit=1))
        assert [message.value for message in consumer] == [b"kept"]


@pytest.mark.kafka
def test_a_partition_has_no_data_beyond_an_open_transaction(kafka):
    """A consumer that reads committed messages is at the end at the last stable offset."""
    topic = kafka.create_topic()
    writer = kafka.producer({"transactional.id": f"tx-{topic}", "transaction.timeout.ms": 600_000})
    writer.init_transactions(60)
    with dial(kafka.bootstrap) as broker:
        broker.producer().produce(topic, 0, Message(b"before"))
        writer.begin_transaction()
        writer.produce(topic, b"held back")
        writer.flush(60)
        # The partition goes on behind the open transaction.
        broker.producer().produce(topic, 0, Message(b"behind"))
        dirty_conf = ConsumerConf(topic, retry_limit=1, isolation=Isolation.READ_UNCOMMITTED)
        with broker.consumer(dirty_conf) as dirty:
            assert [message.value for message in dirty] == [b"before", b"held back", b"behind"]
        with broker.consumer(ConsumerConf(topic, retry_limit=1)) as consumer:
            assert consumer.consume().value == b"before"
            for _ in range(2):
                with pytest.raises(NoData, match="after offset 0"):
                    consumer.consume()
            newest = ConsumerConf(topic, start_offset=StartOffset.NEWEST, retry_limit=1)
            with broker.consumer(newest) as late, pytest.raises(NoData):
                late.consume()
            writer.commit_transaction(60)
            wait_until(lambda: broker.offset_latest(topic, 0) == 4, what="the marker")
            assert [message.value for message in consumer] == [b"held back", b"behind"]

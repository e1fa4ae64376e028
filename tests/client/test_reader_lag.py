"""The lag of a reader on a real Kafka, where transactions leave records that are no messages."""

from __future__ import annotations

import pytest

from koff.client import ClusterConf
from koff.client.multicluster import Reader, ReaderConf
from koff.kafkatest import wait_until

pytestmark = pytest.mark.kafka


def test_a_reader_that_has_read_all_of_a_transactional_topic_has_no_lag(kafka):
    topic = kafka.create_topic()
    producer = kafka.producer({"transactional.id": f"x-{topic}"})
    producer.init_transactions()
    with Reader({"east": ClusterConf(kafka.bootstrap)}, ReaderConf(topic)) as reader:
        for _ in range(2):
            producer.begin_transaction()
            producer.produce(topic, b"x")
            producer.commit_transaction()
            assert [message.value for message in reader.fetch_message(timeout_s=60)] == [b"x"]
            wait_until(lambda: reader.lag(0) == 0, what="no lag")
            assert reader.read_lag(0) == 0
        assert reader.offset(0) == 4

"""The partitions of keys, compared with those that librdkafka chooses."""

from collections.abc import Callable

import pytest
from confluent_kafka import Message, Producer

from koff.client import crc32_partition, fnv1a_partition, murmur2_partition

pytestmark = pytest.mark.kafka

KEYS = [b"", b"a", b"\xff\x00", b"foobar", *(b"key-%d" % number * (number % 9 + 1) for number in range(200))]
PARTITIONS = 13


@pytest.mark.parametrize(
    ("partitioner", "find_partition"),
    [("murmur2", murmur2_partition), ("consistent", crc32_partition), ("fnv1a", fnv1a_partition)],
)
def test_a_key_goes_where_librdkafka_puts_it(
    partitioner: str, find_partition: Callable[[bytes | None, int], int], kafka, make_topic
):
    topic = make_topic(partitions=PARTITIONS)
    chosen: dict[bytes | None, int | None] = {}

    def written(error: object, message: Message) -> None:
        assert error is None
        chosen[message.key()] = message.partition()

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": partitioner, "log_level": 0})
    for key in KEYS:
        producer.produce(topic, b"v", key, on_delivery=written)
    assert producer.flush(60) == 0
    assert chosen == {key: find_partition(key, PARTITIONS) for key in KEYS}

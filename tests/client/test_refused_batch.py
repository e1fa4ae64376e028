"""A partition refuses the first batch of a producer, as one does whose leader is not ready yet.

If a second batch is in flight, Kafka accepts it, because it knows no sequence of the producer yet. librdkafka
then reports the first batch as delivered, although it was never stored.
"""

from __future__ import annotations

import select
import socket
import struct

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from koff.client import BrokerConf, ClusterConf, ConsumerConf, Message, dial
from koff.client.multicluster import Writer, WriterConf
from koff.kafkatest import KafkaCluster
from tests.broker_proxy import BrokerProxy, read_frame, send_frame
from tests.fake_brokers import written

pytestmark = pytest.mark.kafka
PRODUCE = 0
NEXT_REQUEST_S = 2.0
"""How long a client may take to send its next request, if it does not wait for the response."""


class Refusing(BrokerProxy):
    """Refuses the first batch, which is for partition 0 of `topic`: NOT_LEADER_OR_FOLLOWER.

    It does so when the next request has arrived, or after NEXT_REQUEST_S, and forwards that request later.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.refused = 0
        self._topic = topic
        super().__init__(bootstrap)

    def _relay_requests(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        while frame := read_frame(client):
            api, version, correlation = struct.unpack_from(">hhi", frame)
            if api == PRODUCE and not self.refused:
                select.select([client], [], [], NEXT_REQUEST_S)
                send_frame(client, self._make_refusal(version, correlation))
                self.refused += 1
            else:
                asked[correlation] = api, version
                send_frame(broker, frame)

    def _make_refusal(self, version: int, correlation: int) -> bytes:
        kinds = load_payload_module(PRODUCE, version, EntityType.response)
        partition = kinds.PartitionProduceResponse(
            index=0, error_code=ErrorCode.not_leader_or_follower, base_offset=-1, record_errors=()
        )
        topic = kinds.TopicProduceResponse(name=self._topic, partition_responses=(partition,))
        tags = b"\0" if version >= 9 else b""
        return struct.pack(">i", correlation) + tags + written(kinds.ProduceResponse, responses=(topic,))


def read_log(kafka: KafkaCluster, topic: str) -> list[bytes | None]:
    """The values of the messages in partition 0."""
    with dial(kafka.bootstrap) as broker, broker.consumer(ConsumerConf(topic, retry_limit=2)) as consumer:
        return [message.value for message in consumer]


@pytest.mark.parametrize("properties", [{}, {"max.in.flight": "5"}])
def test_a_producer_reports_no_batch_as_written_that_was_refused(kafka, properties):
    topic = kafka.create_topic()
    messages = [Message(b"%d" % number + bytes(600_000)) for number in range(4)]  # a batch each
    with Refusing(kafka.bootstrap, topic) as proxy:
        with dial(proxy.bootstrap, BrokerConf(properties=properties)) as broker:
            broker.producer().produce(topic, 0, *messages)
        assert proxy.refused == 1
    assert read_log(kafka, topic) == [message.value for message in messages]
    assert [message.offset for message in messages] == [0, 1, 2, 3]


def test_a_writer_acknowledges_no_batch_that_was_refused(kafka):
    topic = kafka.create_topic()
    messages = [Message(b"%d" % number) for number in range(6)]
    with Refusing(kafka.bootstrap, topic) as proxy:
        with Writer({"a": ClusterConf(proxy.bootstrap)}, WriterConf(topic, batch_size=2)) as writer:
            writer.write_messages(*messages)
        assert proxy.refused == 1
    assert read_log(kafka, topic) == [message.value for message in messages]
    assert [message.offset for message in messages] == [0, 1, 2, 3, 4, 5]

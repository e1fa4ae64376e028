"""A topic is created once, also when librdkafka drops the request."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.kafkatest.kafka_cluster import KafkaCluster

DROPPED, EXISTS = KafkaError._DESTROY_BROKER, KafkaError.TOPIC_ALREADY_EXISTS


class Cluster(KafkaCluster):
    """Its admin client has these results, None for a success; each partition has a leader."""

    def __init__(self, *results: int | None) -> None:
        super().__init__("unused:9092")
        self.results = list(results)
        self.__dict__["admin"] = SimpleNamespace(create_topics=self._respond)

    def _respond(self, topics, **_):
        future: Future[None] = Future()
        code = self.results.pop(0)
        if code is None:
            future.set_result(None)
        else:
            future.set_exception(KafkaException(KafkaError(code)))
        return {topics[0].topic: future}

    def leaders(self, topic: str) -> dict[int, int]:
        return {0: 1}


@pytest.mark.parametrize("results", [(None,), (DROPPED, None), (DROPPED, DROPPED, EXISTS)])
def test_a_dropped_request_is_sent_again_and_may_have_created_the_topic(results):
    cluster = Cluster(*results)
    assert cluster.create_topic("t") == "t"
    assert cluster.results == []


@pytest.mark.parametrize("results", [(EXISTS,), (KafkaError.INVALID_PARTITIONS,)])
def test_another_error_is_raised_at_once(results):
    with pytest.raises(KafkaException):
        Cluster(*results).create_topic("t")

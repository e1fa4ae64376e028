"""What `Cluster` makes of the responses of brokers, and of brokers that do not respond."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kio.schema.errors import ErrorCode

from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster
from koff.client.cluster_conf import TopicInfo
from koff.client.foreign_errors import make_denied_error
from koff.client.librdkafka import new_client
from koff.client.metadata import Node
from koff.errors import Closed, ConnectError, Denied
from koff.kafkatest import free_ports
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers


@pytest.fixture
def brokers() -> Iterator[FakeBrokers]:
    with FakeBrokers() as made:
        made.add_topic("t", [1, -1])
        made.add_topic("hidden", [1]).error = ErrorCode.topic_authorization_failed
        yield made


@pytest.fixture
def cluster(brokers: FakeBrokers) -> Iterator[Cluster]:
    with Cluster(brokers.conf) as made:
        yield made


def test_the_id_is_that_of_the_brokers(cluster: Cluster) -> None:
    assert cluster.connect().id == "fake"


def test_metadata_has_what_this_user_may_describe(brokers: FakeBrokers, cluster: Cluster) -> None:
    metadata = cluster.fetch_metadata()
    assert metadata.brokers == tuple(Node(n, "127.0.0.1", brokers[n].port) for n in (1, 2, 3))
    assert {name: [each.leader for each in of] for name, of in metadata.topics.items()} == {"t": [1, -1]}
    assert metadata.topic_ids.keys() == {"t"}


def test_topics_are_described_by_name(cluster: Cluster) -> None:
    topic = cluster.fetch_topic("t")
    assert topic == TopicInfo("t", 2, cluster.fetch_metadata().topic_ids["t"])
    assert cluster.fetch_topic("absent") is None
    with pytest.raises(Denied, match="grant this user READ and DESCRIBE on topic hidden"):
        cluster.fetch_topic("hidden")
    assert cluster.find_denied_topics(["t", "hidden", "absent"]) == {"hidden"}
    assert cluster.find_denied_topics([]) == set()


def test_a_topic_with_another_error_is_no_topic_that_is_not_there(
    brokers: FakeBrokers, cluster: Cluster
) -> None:
    brokers.topics["t"].error = ErrorCode.invalid_topic_exception
    with pytest.raises(ConnectError, match="INVALID_TOPIC"):
        cluster.fetch_topic("t")


def test_offsets_are_listed_without_epochs(cluster: Cluster) -> None:
    at = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert cluster.fetch_offsets(at) == {at[0]: 1000, at[1]: "LEADER_NOT_AVAILABLE"}


def test_a_broker_that_hangs_delays_a_request_a_little(brokers: FakeBrokers) -> None:
    brokers[1].hangs.add(Api.METADATA)
    with Cluster(brokers.conf_of(1, 2)) as cluster:
        assert cluster.connect().id == "fake"


def test_brokers_that_do_not_respond_in_time_are_an_error(brokers: FakeBrokers) -> None:
    for number in (1, 2, 3):
        brokers[number].hangs.add(Api.METADATA)
    conf = brokers.conf
    with Cluster(ClusterConf(conf.brokers, request_timeout_s=0.2, connect_timeout_s=0.2)) as cluster:
        for ask in (cluster.connect, cluster.fetch_metadata, lambda: cluster.fetch_topic("t")):
            with pytest.raises(ConnectError, match="no response in time"):
                ask()


def test_an_attempt_to_connect_ends_when_it_should(brokers: FakeBrokers) -> None:
    brokers[1].hangs.add(Api.METADATA)
    stopping = threading.Event()
    threading.Timer(0.1, stopping.set).start()
    began_s = time.monotonic()
    with Cluster(brokers.conf_of(1)) as cluster, pytest.raises(ConnectError):
        cluster.connect(should_stop=stopping.is_set)
    assert time.monotonic() - began_s < brokers.conf.connect_timeout_s


def test_connect_tries_again_as_long_as_it_is_to_wait() -> None:
    errors: list[str] = []

    def wait(error: ConnectError) -> bool:
        errors.append(str(error))
        return len(errors) < 3

    address = f"127.0.0.1:{free_ports(1)[0]}"
    with Cluster(ClusterConf(address)) as cluster, pytest.raises(ConnectError, match="Connection refused"):
        cluster.connect(wait=wait)
    assert len(errors) == 3


def test_after_close_nothing_is_sent(cluster: Cluster) -> None:
    cluster.close()
    cluster.close()
    with pytest.raises(Closed):
        cluster.fetch_metadata()


def test_a_missing_right_to_settings_asks_for_that_right() -> None:
    denied = make_denied_error("t", "b:1", "DESCRIBE_CONFIGS")
    assert isinstance(denied, Denied)
    assert "grant this user DESCRIBE_CONFIGS" in str(denied)


@pytest.mark.parametrize(("timeout_s", "expected_ms"), [(3.5, 3500), (0.1, 1000)])
def test_each_connection_of_librdkafka_has_the_connect_timeout(timeout_s: float, expected_ms: int) -> None:
    properties = ClusterConf("h:9092", connect_timeout_s=timeout_s).librdkafka_properties()
    new_client(Producer, properties | {"bootstrap.servers": ""})  # librdkafka takes it
    assert properties["socket.connection.setup.timeout.ms"] == expected_ms


def test_a_connect_timeout_of_the_user_s_own_stays() -> None:
    own = {"socket.connection.setup.timeout.ms": "60000"}
    assert (
        ClusterConf("h:9092", own).librdkafka_properties() | own
        == ClusterConf("h:9092", own).librdkafka_properties()
    )

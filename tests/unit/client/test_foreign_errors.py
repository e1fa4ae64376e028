"""Foreign errors in koff's words."""

import pytest
from confluent_kafka import KafkaError

from koff.client.cluster_conf import ClusterConf
from koff.client.foreign_errors import make_connect_error
from koff.client.librdkafka import new_client
from koff.errors import ConfigError, Denied

REFUSED = KafkaError(
    KafkaError._TRANSPORT,
    "a:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)",
)
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
LOGIN = KafkaError(
    KafkaError._AUTHENTICATION, "sasl_plaintext://a:1/bootstrap: SASL authentication error: no such user"
)


def test_the_telling_cause_is_chosen_and_its_tags_are_left_out():
    line = str(make_connect_error("a:1", [ALL_DOWN, REFUSED, ALL_DOWN]))
    assert line.startswith(
        "cannot reach Kafka at a:1: Connect to ipv4#127.0.0.1:1 failed: Connection refused; check"
    )


def test_a_refused_log_in_comes_before_all_else():
    error = make_connect_error("a:1", [REFUSED, LOGIN, ALL_DOWN])
    assert isinstance(error, Denied)
    assert "refused the log-in: SASL authentication error: no such user; check sasl.mechanism" in str(error)


def test_lost_connections_and_silence_are_said():
    assert "every connection was lost" in str(make_connect_error("a:1", [ALL_DOWN]))
    assert "no response in time" in str(make_connect_error("a:1", []))


def test_a_property_that_librdkafka_does_not_know_is_a_config_error():
    from confluent_kafka.admin import AdminClient

    with pytest.raises(ConfigError, match=r"no\.such\.property"):
        new_client(AdminClient, ClusterConf("a:1", {"no.such.property": "1"}).librdkafka_properties())

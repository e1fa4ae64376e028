"""Where librdkafka's properties come from."""

import pytest

from koff.client import ClusterConf
from koff.config.properties import gather_properties
from koff.errors import ConfigError


def test_pairs_win_over_the_environment_and_that_over_the_file(tmp_path):
    file = tmp_path / "kafka.properties"
    file.write_text("# comment\n\nsasl.username = file\nsasl.password=file\nssl.ca.location=a=b\n")
    environment = {
        "KOFF_PROPERTY_SASL_PASSWORD": "environment",
        "KOFF_PROPERTY_SASL_USERNAME": "environment",
        "X": "y",
    }
    properties = gather_properties(pairs=["sasl.username=pair"], file=str(file), environment=environment)
    assert properties == {"sasl.username": "pair", "sasl.password": "environment", "ssl.ca.location": "a=b"}


@pytest.mark.parametrize("pair", ["sasl.password", "=secret"])
def test_a_pair_without_key_or_value_is_refused_without_showing_it(pair):
    with pytest.raises(ConfigError) as refused:
        gather_properties(pairs=[pair], environment={})
    assert "secret" not in str(refused.value)


def test_a_bad_line_of_a_file_is_named_by_its_number_and_not_shown(tmp_path):
    file = tmp_path / "kafka.properties"
    file.write_text("security.protocol=ssl\ntop-secret\n")
    with pytest.raises(ConfigError, match="line 2") as refused:
        gather_properties(file=str(file), environment={})
    assert "top-secret" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        gather_properties(file=str(tmp_path / "nowhere"), environment={})


def test_the_users_properties_win_over_koffs_but_not_over_brokers():
    conf = ClusterConf("real:9092", {"client.id": "mine", "bootstrap.servers": "other:9092"})
    properties = conf.librdkafka_properties(**{"fetch.wait.max.ms": 10})
    assert (properties["client.id"], properties["bootstrap.servers"]) == ("mine", "real:9092")


def test_secrets_are_not_in_the_repr():
    assert "hidden" not in repr(ClusterConf("a:1", {"sasl.password": "hidden"}))

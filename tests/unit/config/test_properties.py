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
    environment["KOFF_PROPERTY_FILE"] = str(file)  # the variable of an option, and no property
    properties = gather_properties(pairs=["sasl.username=pair"], file=str(file), environment=environment)
    assert properties == {"sasl.username": "pair", "sasl.password": "environment", "ssl.ca.location": "a=b"}


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret", "ssl.key.pem"]
)
def test_a_secret_on_the_command_line_is_refused_and_the_right_way_is_named(name):
    with pytest.raises(ConfigError) as refused:
        gather_properties(pairs=[f"{name}=hunter2"], environment={})
    variable = "KOFF_PROPERTY_" + name.upper().replace(".", "_")
    assert f"set the variable {variable}, or write --property {name}=file:PATH" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_secret_may_be_in_a_file_of_its_own(tmp_path):
    secret, file = tmp_path / "password", tmp_path / "kafka.properties"
    secret.write_text("hunter2 \n")
    file.write_text(f"ssl.key.password=file:{secret}\n")
    environment = {"KOFF_PROPERTY_SASL_PASSWORD": f"file:{secret}"}
    properties = gather_properties(file=str(file), environment=environment)
    assert properties == {"sasl.password": "hunter2 ", "ssl.key.password": "hunter2 "}
    assert gather_properties(pairs=[f"sasl.password=file:{secret}"], environment={}) == {
        "sasl.password": "hunter2 "
    }


def test_a_file_of_a_secret_that_is_missing_is_named_with_the_property():
    with pytest.raises(ConfigError, match=r"sasl.password: cannot read /nowhere: No such file"):
        gather_properties(pairs=["sasl.password=file:/nowhere"], environment={})


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

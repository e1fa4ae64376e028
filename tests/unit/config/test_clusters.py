"""koff.yaml: what it says, and how what is wrong with it is told."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster, read_clusters
from koff.errors import ConfigError

pytest.importorskip("yaml")


def read(path: Path, text: str, **environment: str) -> list[WatchedCluster]:
    file = path / "koff.yaml"
    file.write_text(text)
    return read_clusters(file, environment)


def test_clusters_are_read_with_their_properties_and_filters(tmp_path):
    text = """
clusters:
  - name: europe
    brokers: a:9092,b:9092
    properties: {sasl.password: "x${PASSWORD}", security.protocol: sasl_ssl}
    groups: ^pay
    topics: orders
    offsets_topic: copy
  - {name: america, brokers: "c:9092"}
"""
    assert read(tmp_path, text, PASSWORD="secret") == [
        WatchedCluster(
            "europe",
            ClusterConf("a:9092,b:9092", {"sasl.password": "xsecret", "security.protocol": "sasl_ssl"}),
            "copy",
            "^pay",
            "orders",
        ),
        WatchedCluster("america", ClusterConf("c:9092", {})),
    ]


def test_all_that_is_wrong_is_told_with_line_and_key(tmp_path):
    text = """
clusters:
  - name: a
    broker: x:1
  - name: b
    brokers: y:1
    groups: "("
    properties: {sasl.password: "${MISSING}"}
  - {name: b, brokers: [z]}
"""
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    told = str(raised.value).split("; ")
    assert [each.partition("koff.yaml, ")[2] for each in told] == [
        "line 4: clusters[0] has the unknown key broker: use brokers, groups, name, offsets_topic, "
        "properties, topics",
        "line 3: clusters[0] has no brokers",
        "line 7: clusters[1].groups is not a regular expression: missing ), unterminated subpattern at "
        "position 0",
        "line 8: clusters[1].properties.sasl.password: set the environment variable MISSING",
        "line 9: clusters[2].brokers must be a text that is not empty",
        "line 9: two clusters have the name 'b'",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file must be a mapping"),
        ("clusters: []", "clusters must be a list of clusters"),
        ("clusters: {a: b}", "clusters must be a list of clusters"),
        ("clusters: [", "line 1, column 12: the file is not YAML"),
        ("clusters: [{? [a] : b}]", "clusters[0] has a key that is not a text"),
        ("other: 1", "the file has the unknown key other"),
        ("clusters: [x]", "clusters[0] must be a mapping"),
        ("clusters: [{name: a, name: b, brokers: c}]", "clusters[0] has the key name twice"),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path, text, told):
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert told in str(raised.value)


@pytest.mark.parametrize("password", ["*hush", "'hush", "@hush", "&hush *hush", "hush: x", "%hush", "{hush"])
def test_a_password_that_breaks_the_file_is_not_shown(tmp_path, password):
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, f"clusters:\n  - properties:\n      sasl.password: {password}\n")
    assert "hush" not in "".join(traceback.format_exception(raised.value))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.yaml"):
        read_clusters(tmp_path / "absent.yaml", {})

"""koff.yaml: what it says, how options override it, and how what is wrong with it is told."""

import re
import traceback
from pathlib import Path

import pytest

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster, list_watched_clusters
from koff.config.koff_yaml import ConfigFileError, KoffYaml, override, read_koff_yaml
from koff.config.monitors import build_metrics_conf, list_monitors
from koff.config.settings import CLUSTER_SETTINGS, NAMING_SETTINGS
from koff.errors import ConfigError
from koff.monitor.chosen_partitions import ChosenPartitions
from koff.monitor.conf import MonitorConf
from koff.monitor.requests import Display
from koff.monitor.zookeeper import ZooKeeperConf
from koff.tracker import Rule, ShownNames


def parse(path: Path, text: str, **environment: str) -> KoffYaml:
    file = path / "koff.yaml"
    file.write_text(text)
    return read_koff_yaml(file, environment)


def list_errors(path: Path, text: str) -> list[str]:
    """The errors in the file, from the line on."""
    with pytest.raises(ConfigFileError) as raised:
        parse(path, text)
    return [error.partition("koff.yaml, ")[2] for error in raised.value.errors]


def read(path: Path, text: str, **environment: str) -> list[WatchedCluster]:
    return list_watched_clusters(parse(path, text, **environment), {})


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
  - {name: b, brokers: [z, {}]}
"""
    with pytest.raises(ConfigFileError) as raised:
        read(tmp_path, text)
    assert str(raised.value) == "; ".join(raised.value.errors)
    assert [each.partition("koff.yaml, ")[2] for each in raised.value.errors] == [
        "line 3: clusters[0] has no brokers",
        "line 4: clusters[0] has the unknown key broker: use "
        + ", ".join(sorted(each.name for each in NAMING_SETTINGS + CLUSTER_SETTINGS)),
        "line 7: clusters[1].groups is not a regular expression: missing ), unterminated subpattern at "
        "position 0",
        "line 8: clusters[1].properties.sasl.password: set the environment variable MISSING",
        "line 9: clusters[2].brokers must be a text that is not empty",
        "line 9: two clusters have the name 'b'",
    ]


def test_brokers_may_be_a_list(tmp_path):
    (cluster,) = parse(tmp_path, "clusters: [{name: a, brokers: [x:1, 'y:2']}]").clusters
    assert cluster["brokers"] == "x:1,y:2"


@pytest.mark.parametrize("password", ["*hush", "'hush", "@hush", "&hush *hush", "hush: x", "%hush", "{hush"])
def test_a_password_that_breaks_the_file_is_not_shown(tmp_path, password):
    with pytest.raises(ConfigFileError) as raised:
        read(tmp_path, f"clusters:\n  - properties:\n      sasl.password: {password}\n")
    assert "hush" not in "".join(traceback.format_exception(raised.value))


EVERYTHING = """
listen: :9999
state_dir: /var/lib/koff
log_level: debug
defaults:
  properties: {security.protocol: sasl_ssl, sasl.username: koff}
  labels: {team: platform, region: none}
  source: log
clusters:
  - name: europe
    brokers: a:1
    properties: {sasl.username: other}
    labels: {region: eu}
    groups: ^pay
    topics: orders$
    start: replay
    end_offset_interval: 2.5
    zookeeper: z:2181/kafka
    offsets_topic: copy
  - {name: a/../b, brokers: "b:1", source: auto}
"""


def test_a_file_makes_one_monitor_for_each_cluster(tmp_path):
    file = parse(tmp_path, EVERYTHING)
    europe, other = list_monitors(file, {"client.id": "mine"}, shares_state_dir=True)
    assert europe == MonitorConf(
        cluster=ClusterConf(
            "a:1", {"security.protocol": "sasl_ssl", "sasl.username": "other", "client.id": "mine"}
        ),
        cluster_name="europe",
        display=Display(
            ShownNames((Rule.parse("^pay"),), (Rule.parse("orders$"),)), {"team": "platform", "region": "eu"}
        ),
        wait=True,  # it must not end the process if it is down
        start="replay",
        source="log",
        state_dir=Path("/var/lib/koff/cluster-europe"),
        offsets_topic="copy",
        end_interval_s=2.5,
        zookeeper=ZooKeeperConf("z:2181/kafka"),
    )
    assert (other.start, other.source, other.end_interval_s) == ("resume", "auto", 5.0)
    assert other.state_dir == Path("/var/lib/koff/cluster-a%2F..%2Fb")
    assert other.display.labels == {"team": "platform", "region": "none"}
    assert [file.settings[name] for name in ("listen", "log_level", "log_format")] == [
        ":9999",
        "debug",
        "auto",
    ]


def test_options_override_the_file_for_all_clusters(tmp_path):
    file = override(
        parse(tmp_path, EVERYTHING), {"source": "coordinators", "listen": ":1", "start": "snapshot"}
    )
    monitors = list_monitors(file, {}, shares_state_dir=True)
    assert [(conf.source, conf.start) for conf in monitors] == [("coordinators", "snapshot")] * 2
    assert file.settings["listen"] == ":1"


def test_options_that_name_one_cluster_override_a_file_with_one_only(tmp_path):
    one = parse(tmp_path, "clusters: [{name: a, brokers: b}]")
    (conf,) = list_monitors(override(one, {"brokers": "c:1", "name": "d"}), {}, shares_state_dir=True)
    assert (conf.cluster.brokers, conf.cluster_name, conf.wait) == ("c:1", "d", True)
    for given, named in (({"brokers": "c:1"}, "--brokers"), ({"name": "d"}, "--cluster-name")):
        with pytest.raises(ConfigError, match=rf"{named} \(or its variable\) is for one cluster, and the"):
            override(parse(tmp_path, EVERYTHING), given)


def test_without_a_file_the_options_name_the_cluster():
    file = override(KoffYaml(), {"brokers": "a:1", "state_dir": Path("/s")})
    (conf,) = list_monitors(file, {}, shares_state_dir=False)
    assert conf == MonitorConf(ClusterConf("a:1", {}), wait=True, start="resume", state_dir=Path("/s"))


def test_a_shard_and_a_group_choose_partitions_of_the_offsets_topic(tmp_path):
    text = "clusters: [{name: a, brokers: b, shard: 1/3}, {name: c, brokers: d, group: g.1, groups: x}]"
    shard, group = list_monitors(parse(tmp_path, text), {}, shares_state_dir=True)
    assert shard.only == ChosenPartitions(1, 3)
    assert (shard.display.labels, group.display.labels) == ({"shard": "1/3"}, {})
    assert shard.display.names.are_all
    assert group.only == ChosenPartitions(group="g.1")
    shown = [group.display.names.shows_group(name) for name in ("g.1", "g-1", "g.11", "ag.1", "g.1\n")]
    assert shown == [True, False, False, False, False]


def test_resume_needs_a_folder(tmp_path):
    file = parse(tmp_path, "clusters: [{name: a, brokers: b, start: resume}]")
    with pytest.raises(ConfigError, match=r"koff.yaml, line 1: clusters\[0\]: start resume needs state_dir"):
        list_monitors(file, {}, shares_state_dir=True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("start: now", "defaults.start must be one of snapshot, replay, resume"),
        ("end_offset_interval: 0", "defaults.end_offset_interval must be a number from 0.1 to 86400"),
        ("end_offset_interval: .nan", "defaults.end_offset_interval must be a number from 0.1 to 86400"),
        ("shard: 3/3", "defaults.shard must be I/N with I from 0 to N - 1"),
        ("shard: a/3", "defaults.shard must be I/N, for example 0/3"),
        ("labels: [a]", "defaults.labels must be a mapping (key: value)"),
        ("labels: {9a: x}", "defaults.labels.9a: a label has letters, digits and _, and no __ in front"),
        ("labels: {__a: x}", "defaults.labels.__a: a label has letters, digits and _, and no __ in front"),
        ("labels: {group: x}", "defaults.labels.group: koff itself sets the label group"),
        (
            "group_labels: '('",
            "defaults.group_labels is not a regular expression: missing ), unterminated subpattern at "
            "position 0",
        ),
        (
            "group_labels: ^a",
            "defaults.group_labels names no label: write (?P<LABEL>...) around the part of the name",
        ),
        (
            "group_labels: ['(?P<team>.)', '(?P<topic>.)']",
            "defaults.group_labels names the label topic: koff itself sets the label topic",
        ),
        (
            "group_labels: (?P<é>.)",
            "defaults.group_labels names the label é: a label has letters, digits and _, and no __ in front",
        ),
        (
            "{group_labels: '(?P<team>.)', labels: {team: x}}",
            "defaults: labels and group_labels both set the label team",
        ),
        (
            "properties: {sasl.password: 'file:/no/such'}",
            "defaults.properties.sasl.password: cannot read /no/such: No such file or directory",
        ),
        (
            "name: x",
            "defaults has the unknown key name: use "
            + ", ".join(sorted(each.name for each in CLUSTER_SETTINGS)),
        ),
    ],
)
def test_a_value_that_is_wrong_is_named_with_its_line(tmp_path, text, told):
    file = f"clusters: [{{name: a, brokers: b}}]\ndefaults:\n  {text}\n"
    assert list_errors(tmp_path, file) == [f"line 3: {told}"]


def test_a_label_of_a_cluster_may_not_be_one_from_the_names_of_groups(tmp_path):
    text = """
clusters:
  - {name: a, brokers: b}
  - name: c
    brokers: d
    labels: {team: x}
defaults: {group_labels: "(?P<team>.)"}
"""
    assert list_errors(tmp_path, text) == [
        "line 6: clusters[1]: labels and group_labels both set the label team"
    ]
    file = parse(tmp_path, "clusters: [{name: c, brokers: d, labels: {team: x}}]")
    given = override(file, {"group_labels": (re.compile("(?P<team>.)"),)})
    with pytest.raises(ConfigError, match="both set the label team"):
        list_monitors(given, {}, shares_state_dir=True)


def test_group_labels_are_of_a_cluster_or_of_all(tmp_path):
    text = """
clusters: [{name: a, brokers: b}, {name: c, brokers: d, group_labels: "(?P<own>.)"}]
defaults: {group_labels: ["(?P<team>.)", "(?P<other>.)"]}
"""
    found = list_monitors(parse(tmp_path, text), {}, shares_state_dir=True)
    assert [[each.pattern for each in conf.display.group_labels] for conf in found] == [
        ["(?P<team>.)", "(?P<other>.)"],
        ["(?P<own>.)"],
    ]


def test_brokers_are_checked(tmp_path):
    (told,) = list_errors(tmp_path, "clusters:\n- name: a\n  brokers: http://b:1\n")
    assert told.startswith(
        "line 3: clusters[0].brokers is wrong: http:// is not a protocol of Kafka: write HOST"
    )


def test_wait_is_true_or_false(tmp_path):
    assert list_errors(tmp_path, "wait: maybe\nclusters: [{name: a, brokers: b}]") == [
        "line 1: wait must be true or false"
    ]
    assert parse(tmp_path, "wait: True\nclusters: [{name: a, brokers: b}]").settings["wait"] is True


def test_a_secret_may_be_in_a_file_of_its_own(tmp_path):
    (tmp_path / "password").write_text("hush\n")
    text = "clusters: [{name: a, brokers: b, properties: {sasl.password: 'file:${DIR}/password'}}]"
    (cluster,) = parse(tmp_path, text, DIR=str(tmp_path)).clusters
    assert cluster["properties"] == {"sasl.password": "hush"}


@pytest.mark.parametrize("value", ["koff_nothing", "[default, koff_nothing]", "default, koff_nothing"])
def test_a_family_that_there_is_not_is_named_with_its_line(tmp_path, value):
    assert list_errors(tmp_path, f"clusters: [{{name: a, brokers: b}}]\nfamilies: {value}\n") == [
        "line 2: families has 'koff_nothing', which is no metric family: docs/metrics.md has all"
    ]


@pytest.mark.parametrize(
    ("value", "families"),
    [
        ("all", ("all",)),
        ("'default, koff_up'", ("default", "koff_up")),
        ("[default, koff_up]", ("default", "koff_up")),
    ],
)
def test_families_are_one_text_or_a_list(tmp_path, value, families):
    file = parse(tmp_path, f"clusters: [{{name: a, brokers: b}}]\nfamilies: {value}\n")
    assert build_metrics_conf(file).families == families


@pytest.mark.parametrize(
    ("value", "rules"),
    [("^a", ("^a",)), ("exclude:^a", ("exclude:^a",)), ("['exclude:^a', b]", ("exclude:^a", "b"))],
)
def test_groups_and_topics_are_one_rule_or_a_list_for_the_monitor(tmp_path, value, rules):
    file = parse(tmp_path, f"clusters: [{{name: a, brokers: b, groups: {value}, topics: {value}}}]")
    (conf,) = list_monitors(file, {}, shares_state_dir=True)
    assert tuple(map(str, conf.display.names.groups)) == tuple(map(str, conf.display.names.topics)) == rules
    if rules != ("^a",):
        with pytest.raises(ConfigError, match="for koff pipeline, groups is one regular expression"):
            list_watched_clusters(file, {})

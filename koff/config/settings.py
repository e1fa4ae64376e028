"""All settings of koff.yaml and of `koff monitor`, each declared once.

From a `Setting` follow the key of koff.yaml with its JSON schema, the option of a command with its variable,
the row in docs/configuration.md, and what `koff config show` prints. The classes of the configuration get the
values by the names of their fields (`koff.config.monitors`).
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from koff.client.addresses import check_addresses
from koff.client.topic_names import find_topic_fault
from koff.config import kinds
from koff.config.kinds import Setting, Texts
from koff.config.label_names import find_label_error, parse_group_labels
from koff.config.properties import mask_properties
from koff.config.webhook_settings import RULE, WEBHOOK_SETTINGS
from koff.errors import ConfigError
from koff.records.topics import OFFSETS_TOPIC
from koff.serve.events.standby import check_first_url
from koff.serve.listen_address import DEFAULT_LISTEN, parse_listen_address
from koff.serve.metrics.conf import check_families
from koff.tracker import compile_expression
from koff.view.owners import check_runbook_template


def _check_zookeeper(given: str) -> None:
    try:
        check_addresses(given.partition("/")[0])
    except ConfigError:
        raise ValueError("must be HOST:PORT[,...][/CHROOT]") from None


def _check_topic(given: str) -> None:
    if fault := find_topic_fault(given):
        raise ValueError(f"is wrong: {fault}")


def _parse_shard(given: str) -> tuple[int, int]:
    number, slash, count = given.partition("/")
    if not slash or not all(kinds.SHORT_NUMBER.fullmatch(part) for part in (number, count)):
        raise ValueError("must be I/N, for example 0/3")
    if not int(number) < int(count):
        raise ValueError("must be I/N with I from 0 to N - 1")
    return int(number), int(count)


ADDRESSES = replace(kinds.checked("HOST:PORT[,...]", check_addresses), joined=True)
EXPRESSION = kinds.text("REGEX", compile_expression)
FAMILIES = kinds.checked("NAMES", lambda given: check_families(given.split(",")))
FILE, FOLDER = kinds.text("FILE", Path), kinds.text("DIR", Path)
RUNBOOK = kinds.checked("URL", check_runbook_template)
GROUP_LABELS = kinds.text("REGEX", parse_group_labels)
LABELS = Texts(lambda name, _: f": {why}" if (why := find_label_error(name)) else "")
LISTEN = kinds.checked("HOST:PORT", parse_listen_address)
NAME = kinds.text("NAME")
SHARD = kinds.text("I/N", _parse_shard)
TOPIC = kinds.checked("TOPIC", _check_topic)
ZOOKEEPER = kinds.checked("HOST:PORT[,...][/CHROOT]", _check_zookeeper)

NAMING_SETTINGS = (
    Setting(
        "name",
        NAME,
        "The name of the cluster: the value of the label `cluster`, and in tables. Without koff.yaml, it may "
        "be left out: it is the cluster's id then.",
        example="europe",
        required=True,
        field="cluster_name",
        flag="--cluster-name",
        one_cluster=True,
    ),
    Setting(
        "brokers",
        ADDRESSES,
        "Brokers to connect to first. In koff.yaml also a list of them.",
        example="kafka-1:9092,kafka-2:9092",
        required=True,
        one_cluster=True,
    ),
)
"""What each cluster needs. These settings identify it, so that several clusters have no default for them."""
OBJECTIVE_SETTINGS = (
    Setting(
        "groups", EXPRESSION, "The groups in whose name this is found.", example="^nightly-", required=True
    ),
    Setting(
        "topics",
        EXPRESSION,
        "Only the topics in whose name this is found.",
        default_text="all",
        example="^orders$",
    ),
    Setting(
        "seconds",
        kinds.number("SECONDS", 1, 365 * 86_400),
        "The lag that is accepted.",
        example=28800,
        required=True,
    ),
)
OWNER_SETTINGS = (
    Setting(
        "groups",
        EXPRESSION,
        "The groups in whose name this is found.",
        example=r"^payments\.",
        required=True,
    ),
    Setting(
        "team",
        NAME,
        "Who owns them: the label `owner` of their series, and `owner` in the API and in events.",
        example="payments",
        required=True,
    ),
    Setting("contact", NAME, "How to reach the team.", example="#payments-oncall"),
    Setting(
        "runbook",
        RUNBOOK,
        "The runbook of these groups, in place of `runbook` of the cluster.",
        example="https://wiki.example.com/payments/{cause}",
    ),
    Setting(
        "webhook",
        NAME,
        "The `name` of the webhook that gets events of these groups. It gets no events of other groups then.",
        example="payments",
        see="events.md#owners",
    ),
)
"""Of each element of `owners`."""
CLUSTER_SETTINGS = (
    Setting(
        "properties",
        Texts(),
        "Properties of librdkafka, for TLS and SASL. A value `file:PATH` is the content of that file.",
        example={"security.protocol": "ssl"},
        mask=mask_properties,
        see="monitor.md#tls-and-sasl",
    ),
    Setting(
        "groups",
        RULE,
        "Only the groups that these rules include are shown: REGEX, or exclude:REGEX. The first that is "
        "found in the name decides.",
        default_text="all",
        example=["exclude:-test$", "^pay"],
        many=True,
        reload="at once",
        see="#rules",
    ),
    Setting(
        "topics",
        RULE,
        "The same for the topics that groups commit to. Sums and totals are over what is shown.",
        default_text="all",
        example="^orders",
        many=True,
        reload="at once",
        see="#rules",
    ),
    Setting(
        "offsets_topic",
        TOPIC,
        "The topic to read: another one if it is a mirrored copy.",
        OFFSETS_TOPIC,
        example="copy",
    ),
    Setting(
        "labels",
        LABELS,
        "Labels that all series of the cluster get, besides `cluster`.",
        example={"region": "eu"},
        reload="at once",
    ),
    Setting(
        "group_labels",
        GROUP_LABELS,
        "Labels for the series of a group, from its name: `^(?P<team>[^.]+)` gives the label team. The first"
        " that is found decides.",
        example=["^(?P<team>[^.]+)"],
        many=True,
        reload="at once",
        see="#labels-from-the-names-of-groups",
    ),
    Setting(
        "expected_groups",
        NAME,
        "Groups that must be there: `koff_expected_group_present` and events say when one is absent.",
        example=["payments"],
        many=True,
        flag=None,
        reload="at once",
        see="events.md",
    ),
    Setting(
        "objectives",
        OBJECTIVE_SETTINGS,
        "The lag that the owners of groups accept. The first objective that fits decides.",
        many=True,
        reload="at once",
        see="#objectives",
    ),
    Setting(
        "runbook",
        RUNBOOK,
        "Where your runbook is: a link on the page of each group, and `runbook_url` in the API. `{cluster}`,"
        " `{group}` and `{cause}` are filled in.",
        example="https://wiki.example.com/kafka/{cause}?group={group}",
        reload="at once",
    ),
    Setting(
        "owners",
        OWNER_SETTINGS,
        "Who owns which groups: a team, its contact, its runbook and its webhook. The first owner that fits "
        "decides.",
        many=True,
        reload="at once",
        see="#owners",
    ),
    Setting(
        "start",
        kinds.choice("snapshot", "replay", "resume"),
        "How to start. snapshot: ask the coordinators, then read the history from the log in the background "
        "(needs DESCRIBE on the groups). replay: read the whole log first. resume: continue from the state.",
        default_text="resume with a state_dir, else snapshot",
        example="replay",
        see="monitor.md#start",
    ),
    Setting(
        "source",
        kinds.choice("auto", "log", "coordinators"),
        "Where commits come from. log: the offsets topic (needs READ on it). coordinators: their responses "
        "(needs DESCRIBE on the groups), without commit times and the commits between two requests. auto: "
        "the log if it may be read, else the coordinators.",
        "auto",
        see="monitor.md#where-commits-come-from",
    ),
    Setting(
        "end_offset_interval",
        kinds.number("SECONDS", 0.1, kinds.LONGEST_S),
        "The time between two samples of the end offsets of all partitions.",
        5.0,
        field="end_interval_s",
    ),
    Setting(
        "shard",
        SHARD,
        "Read only every N-th partition of the offsets topic, from I on (0 to N - 1): N processes with the "
        "same N share the groups among them.",
        example="0/3",
        see="#shares-of-a-cluster",
    ),
    Setting(
        "group",
        NAME,
        "Show only the group of exactly this name, and read only its partition of the offsets topic: for "
        "sidecars.",
        example="payments",
        one_cluster=True,
        see="#shares-of-a-cluster",
    ),
    Setting(
        "watch_topics",
        kinds.choice("read", "all"),
        "Sample the end and log start offsets of topics that groups read, or of all topics.",
        "read",
        see="#topics-that-nobody-reads",
    ),
    Setting(
        "log_sizes",
        kinds.BOOLEAN,
        "Read the sizes of logs from the brokers, every minute (needs DESCRIBE on the cluster).",
        False,
        see="monitor.md#tls-and-sasl",
    ),
    Setting(
        "zookeeper",
        ZOOKEEPER,
        "Show also the groups that keep their offsets in this ZooKeeper, as Kafka's first consumers did "
        "(needs koff[zookeeper]).",
        example="zookeeper:2181/kafka",
        one_cluster=True,
    ),
)
"""The settings that each cluster may have. `defaults` may have them for all clusters."""
_of_process = partial(Setting, reload="never")
PROCESS_SETTINGS = (
    _of_process(
        "listen",
        LISTEN,
        "The address to serve on; `:9850` is all IPv4 and IPv6 addresses, and the default of the image.",
        DEFAULT_LISTEN,
        example=":9850",
    ),
    _of_process(
        "web_config_file",
        FILE,
        "A web configuration file of Prometheus: TLS, users with passwords, headers of responses.",
        example="/etc/koff/web.yml",
        flag="--web.config.file",
        see="security.md#tls-and-passwords",
    ),
    _of_process(
        "tokens_file",
        FILE,
        "A file with bearer tokens, NAME TOKEN in each line.",
        example="/etc/koff/tokens",
        see="security.md#bearer-tokens",
    ),
    _of_process(
        "tokens_for",
        kinds.choice("api", "all"),
        "The paths that need a token: those of the API, or all.",
        "api",
    ),
    _of_process(
        "state_dir",
        FOLDER,
        "Save the state in this folder every 30 s, so that the next start can resume from it. With "
        "koff.yaml, each cluster has a folder of its own in it, cluster-NAME.",
        example="/var/lib/koff",
        reload="cluster",
    ),
    _of_process(
        "wait",
        kinds.BOOLEAN,
        "Keep trying if the only cluster cannot be reached at the start. Otherwise koff ends with code 1.",
        True,
    ),
    _of_process(
        "families",
        FAMILIES,
        "The metric families to serve, separated by commas: names of docs/metrics.md, `default`, or `all`.",
        ("default",),
        example=["default"],
        many=True,
        see="metrics.md",
    ),
    _of_process(
        "granularity",
        kinds.choice("partition", "topic", "group"),
        "The finest series to serve: of each partition, of the topics of a group, or of groups.",
        "partition",
    ),
    _of_process(
        "max_series",
        kinds.count(1),
        "Serve so many series of groups and topics of each cluster at most: those with the largest lags.",
    ),
    _of_process(
        "compat",
        kinds.choice("kminion", "kafka_exporter"),
        "Serve also the families of this exporter, under their names, for dashboards and alerts that exist.",
        many=True,
        see="migration.md",
    ),
    _of_process("webhooks", WEBHOOK_SETTINGS, "Where to send events.", many=True, reload="at once"),
    _of_process(
        "standby_of",
        kinds.checked("URL", check_first_url),
        "The address of another koff with the same configuration: this one sends to `webhooks` only what the "
        "other may not send.",
        example="http://koff-1:9850",
        see="deploy.md#two-koffs",
    ),
    _of_process(
        "log_level",
        kinds.choice("debug", "info", "warning", "error"),
        "The lowest level to log.",
        "info",
        reload="at once",
    ),
    _of_process(
        "log_format",
        kinds.choice("auto", "text", "json"),
        "The format of the log. auto is text on a terminal, else JSON.",
        "auto",
        reload="at once",
    ),
)
FILE_SETTINGS = (
    Setting(
        "clusters", NAMING_SETTINGS + CLUSTER_SETTINGS, "The clusters to watch.", many=True, required=True
    ),
    Setting("defaults", CLUSTER_SETTINGS, "Values for all clusters."),
    *PROCESS_SETTINGS,
)
SETTINGS = {each.name: each for each in NAMING_SETTINGS + CLUSTER_SETTINGS + PROCESS_SETTINGS}


def build_schema() -> dict[str, Any]:
    """The JSON schema of `koff.yaml`."""
    schema = kinds.build_object(FILE_SETTINGS)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "koff.yaml", **schema}

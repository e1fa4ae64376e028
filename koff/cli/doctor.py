"""`koff doctor`: checks a connection step by step, and says what to do."""

import shlex
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import click

from koff.cli.log_lines import set_up_logs
from koff.cli.options import cluster_options, group_options, read_cluster, timeout_option
from koff.client.addresses import parse_addresses
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf
from koff.client.metadata import Metadata, Node
from koff.client.rights import Rights, fetch_broker_settings, fetch_rights
from koff.client.wire.connection import Connection, UnsupportedVersion
from koff.config.monitors import build_look
from koff.errors import ConnectError, Denied, KoffError
from koff.monitor.conf import MonitorConf
from koff.monitor.watch import take_views
from koff.records.topics import SHARE_STATE_TOPIC
from koff.serve.metrics.exposition import Exposition
from koff.tracker import PartitionLag
from koff.view.cluster_view import ClusterView
from koff.view.managed_services import find_service
from koff.view.wording import count, show

WARNED = 3
"""Exit code: there is a warning, and no failure."""


@click.command()
@cluster_options
@group_options
@timeout_option("How long the groups may take to be read.")
def doctor(timeout_s: float, **_: Any) -> None:
    """Check a connection to Kafka step by step: each step with one line, and what to do about it.

    Addresses, log-in, advertised listeners, internal topics, rights (with the commands that grant what is
    missing), retention of offsets, all groups, and what koff monitor will cost. Changes nothing. Exit codes:
    1 if a step failed, 3 if there is a warning.

    \b
    Examples:
      koff doctor --brokers localhost:9092
      koff doctor --config koff.yaml --cluster production
    """
    set_up_logs()
    conf = build_look(*read_cluster(click.get_current_context()))
    levels = print_checks(run_checks(conf, timeout_s))
    sys.exit(1 if Level.FAILURE in levels else WARNED if Level.WARNING in levels else 0)


def print_checks(checks: "Iterable[Check]") -> "set[Level]":
    """Prints each check when it is done, with its cure. Returns the levels."""
    levels = set()
    for check in checks:
        levels.add(check.level)
        click.echo(f"{check.level.value:<5} {check.name:<19} {check.text}")
        if check.cure:
            click.echo(f"{'':<25} -> {check.cure}")
        sys.stdout.flush()
    return levels


_MOST_NAMED = 5
CONNECT_S = 5.0
_BASE_MIB, _KIB_A_ROW = 94, 0.67
"""The memory of `koff monitor`, as `bench.steady` measures it (docs/deploy.md)."""


class Level(Enum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warn"
    FAILURE = "FAIL"


@dataclass(frozen=True, slots=True)
class Check:
    """One line, and what to do about it."""

    level: Level
    name: str
    text: str
    cure: str = ""


def run_checks(conf: MonitorConf, timeout_s: float) -> Iterator[Check]:
    """The checks, in the order in which one depends on the other. Ends at the first that ends all others."""
    named = list(_name_service(host for host, _ in parse_addresses(conf.cluster.brokers)))
    yield from named
    yield from _check_addresses(conf.cluster)
    try:
        with Cluster(conf.cluster).connect() as cluster:
            metadata = cluster.fetch_metadata()
            yield _describe_cluster(metadata)
            if not named:
                yield from _name_service((node.host for node in metadata.brokers), metadata.cluster_id)
            yield from _check_listeners(metadata.brokers)
            rights = _fetch_rights(conf, cluster)
            yield from _check_internal_topics(conf, cluster, metadata, rights)
            yield from _check_rights(conf, rights)
            yield from _check_settings(cluster, metadata)
    except KoffError as error:
        yield Check(Level.FAILURE, "connect", str(error))
        return
    yield from _check_groups(conf, timeout_s, metadata)


def _name_service(hosts: Iterable[str], cluster_id: str = "") -> Iterator[Check]:
    if (service := find_service(hosts, cluster_id)) is not None:
        yield Check(Level.NOTE, "service", f"{service.name}: {service.expect}", f"see {service.page}")


def _check_addresses(conf: ClusterConf) -> Iterator[Check]:
    for host, port in dict.fromkeys(parse_addresses(conf.brokers)):
        try:
            found = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        except (OSError, UnicodeError) as error:  # UnicodeError: it cannot be a name, such as a..b
            cure = "check the name, and the DNS of this machine"
            yield Check(Level.WARNING, "address", f"{show(host)} has no address: {_explain(error)}", cure)
            continue
        began_s = time.monotonic()
        text = f"{host}:{port} ({', '.join(sorted(map(str, found)))})"
        try:
            Connection.connect(conf, host, port, timeout_s=CONNECT_S).close()
        except Denied:  # it responds, and the next check says more
            pass
        except KoffError as error:
            yield Check(Level.WARNING, "address", f"{text}: {error}")
            continue
        yield Check(Level.OK, "address", f"{text} responds after {time.monotonic() - began_s:.2f} s")


def _describe_cluster(metadata: Metadata) -> Check:
    brokers, topics = count(len(metadata.brokers), "broker"), count(len(metadata.topics), "topic")
    text = f"connected and logged in: cluster {metadata.cluster_id}, {brokers}"
    return Check(Level.OK, "cluster", f"{text}, {topics} that this user may describe")


def _check_listeners(brokers: Iterable[Node]) -> Iterator[Check]:
    """Clients connect to the addresses that the brokers advertise, whatever --brokers says."""
    unreachable = []
    for node in brokers:
        try:
            socket.create_connection((node.host, node.port), CONNECT_S).close()
        except (OSError, UnicodeError) as error:
            unreachable.append(f"broker {node.id} at {show(node.host)}:{node.port} ({_explain(error)})")
    if unreachable:
        cure = "make these names and ports reachable from here, or change advertised.listeners of the brokers"
        yield Check(Level.FAILURE, "listeners", f"not reachable: {_list(unreachable)}", cure)
    else:
        yield Check(Level.OK, "listeners", "every broker can be reached at the address that it advertises")


def _fetch_rights(conf: MonitorConf, cluster: Cluster) -> Rights | None:
    try:
        return fetch_rights(cluster, [conf.offsets_topic, SHARE_STATE_TOPIC])
    except (ConnectError, UnsupportedVersion):
        return None


def _check_internal_topics(
    conf: MonitorConf, cluster: Cluster, metadata: Metadata, rights: Rights | None
) -> Iterator[Check]:
    for topic in (conf.offsets_topic, SHARE_STATE_TOPIC):
        partitions = metadata.topics.get(topic)
        if partitions is None:
            if rights is not None and rights.topics.get(topic) is None:
                why = "share group" if topic == SHARE_STATE_TOPIC else "group"
                yield Check(Level.NOTE, topic, f"not there: no {why} has ever committed")
            continue  # the rights say that it is hidden
        leaderless = sum(partition.leader < 0 for partition in partitions)
        behind = sum(len(partition.in_sync) < len(partition.replicas) for partition in partitions)
        replicas = min((len(partition.replicas) for partition in partitions), default=0)
        text = f"{count(len(partitions), 'partition')}, {count(replicas, 'replica')}"
        if leaderless:
            text += f"; {leaderless} without a leader: the lags of their groups are withheld"
            yield Check(Level.WARNING, topic, text, _find_leader_cure(metadata, [topic]))
        elif behind:
            yield Check(Level.WARNING, topic, f"{text}; {behind} with replicas that are not in sync")
        else:
            yield Check(Level.OK, topic, text)
        yield from _check_policy(cluster, topic)


def _find_leader_cure(metadata: Metadata, topics: Iterable[str]) -> str:
    """What gives the leaderless partitions of these topics a leader."""
    partitions = (each for topic in topics for each in metadata.topics.get(topic, ()) if each.leader < 0)
    absent = {replica for each in partitions for replica in each.replicas} - {n.id for n in metadata.brokers}
    if absent:
        return (
            f"start the brokers that have the replicas: {_list([str(number) for number in sorted(absent)])}"
        )
    return "all brokers with replicas are there: look into their logs for a failed disk or controller"


def _check_policy(cluster: Cluster, topic: str) -> Iterator[Check]:
    try:
        policy = cluster.fetch_topic_configs(topic, "cleanup.policy").get("cleanup.policy", "")
    except (Denied, UnsupportedVersion):
        return  # the rights say it, or the broker cannot
    if "compact" not in policy:
        cure = "koff expects compaction, as Kafka sets it: offsets that are deleted are lost for groups, too"
        yield Check(Level.WARNING, topic, f"cleanup.policy is {policy}", cure)


def _check_rights(conf: MonitorConf, rights: Rights | None) -> Iterator[Check]:
    if rights is None:
        yield Check(Level.NOTE, "rights", "the brokers do not say what this user may do")
        return
    missing = {
        topic: [name for name in ("READ", "DESCRIBE_CONFIGS") if name not in allowed]
        for topic, allowed in rights.topics.items()
        if allowed is not None
    }
    for topic, operations in missing.items():
        if not operations:
            yield Check(Level.OK, "rights", f"READ and DESCRIBE_CONFIGS on {topic}")
            continue
        if "READ" not in operations:
            level, without = Level.NOTE, "restarts are slower"
        elif topic == SHARE_STATE_TOPIC:
            level, without = Level.WARNING, "no committed offsets of share groups"
        else:
            level, without = Level.WARNING, "no commit times, rates and statuses"
        text = f"no {' and '.join(operations)} on {topic}: {without}"
        yield Check(
            level, "rights", text, _format_acls(conf.cluster, f"--topic {shlex.quote(topic)}", operations)
        )
    if any(missing.values()):
        text = "brokers leave out topics and groups on which this user has no DESCRIBE"
        cure = " && ".join(
            _format_acls(conf.cluster, f"--{kind} '*'", ["DESCRIBE"]) for kind in ("topic", "group")
        )
        yield Check(Level.NOTE, "lists", text, cure)


def _format_acls(conf: ClusterConf, resource: str, operations: Iterable[str]) -> str:
    words = "".join(
        f" --operation {''.join(word.title() for word in name.split('_'))}" for name in operations
    )
    user = conf.properties.get("sasl.username", "NAME")
    principal = shlex.quote(f"User:{user}")
    server = f"--bootstrap-server {shlex.quote(conf.brokers)}"
    return f"kafka-acls.sh {server} --add --allow-principal {principal} {resource}{words}"


def _check_settings(cluster: Cluster, metadata: Metadata) -> Iterator[Check]:
    if not metadata.brokers:
        return
    try:
        settings = fetch_broker_settings(cluster, metadata.brokers[0].id)
    except (ConnectError, UnsupportedVersion) as error:
        yield Check(Level.NOTE, "retention", f"the settings of a broker are not known: {error}")
        return
    if settings is None:
        text = "not known without DESCRIBE_CONFIGS on the cluster, which koff does not need"
        yield Check(Level.NOTE, "retention", text)
        return
    try:
        days = int(settings["offsets.retention.minutes"]) / 1440
    except (KeyError, ValueError):  # as of brokers that are not Apache Kafka
        yield Check(Level.NOTE, "retention", "the broker does not say after how long offsets expire")
        return
    span = f"{days:g} {'day' if days == 1 else 'days'}"
    text = f"offsets of a group without members expire after {span} (offsets.retention.minutes)"
    if days < 3:
        cure = "a group that is stopped over a long weekend begins anew: 7 days are Kafka's default"
        yield Check(Level.WARNING, "retention", text, cure)
    else:
        yield Check(Level.OK, "retention", text)


def _check_groups(conf: MonitorConf, timeout_s: float, metadata: Metadata) -> Iterator[Check]:
    """Reads everything once, as `koff monitor` would at its start."""
    began_s = time.monotonic()
    try:
        view = next(take_views(conf, interval_s=1.0, timeout_s=timeout_s))
    except KoffError as error:
        yield Check(Level.FAILURE, "groups", str(error))
        return
    seconds = time.monotonic() - began_s
    groups = list(view.snapshot.groups())
    rows = list(view.snapshot.rows())
    source = "the log" if view.stats.source == "log" else "the coordinators, which know no commit times"
    text = f"{count(len(groups), 'group')} with {count(len(rows), 'partition')}, from {source}"
    text += f", read in {seconds:.1f} s"
    if not view.readiness.ready:
        yield Check(Level.WARNING, "groups", f"{text}; {view.readiness.text}", "a longer --timeout may help")
    else:
        yield Check(Level.OK, "groups", text)
    for missing in view.stats.missing:
        yield Check(Level.WARNING, "groups", missing)
    if view.stats.undecodable:
        yield Check(
            Level.WARNING,
            "records",
            f"{count(view.stats.undecodable, 'record')} cannot be decoded",
            "koff printer shows them, with the reason: please report them",
        )
    yield from _check_ends(conf.cluster, metadata, rows)
    yield from _check_clock(view)
    yield _estimate_cost(view, len(rows))


def _check_ends(conf: ClusterConf, metadata: Metadata, rows: Iterable[PartitionLag]) -> Iterator[Check]:
    """Topics whose end offsets are not known, by the reason."""
    unknown = {row.topic for row in rows if row.committed is not None and row.end is None}
    leaderless = {topic for topic in unknown if any(at.leader < 0 for at in metadata.topics.get(topic, ()))}
    hidden = unknown - metadata.topics.keys()
    acls = _format_acls(conf, "--topic '*'", ["DESCRIBE"])
    for topics, why, cure in (
        (leaderless, ": partitions have no leader", _find_leader_cure(metadata, leaderless)),
        (hidden, "", f"they are deleted, or this user may not describe them: {acls}"),
        (
            unknown - leaderless - hidden,
            "",
            "their leaders do not respond in time: a longer --timeout may help",
        ),
    ):
        if topics:
            text = f"end offsets of {_list(sorted(map(show, topics)))} are not known{why}"
            yield Check(Level.WARNING, "topics", text, cure)


def _check_clock(view: ClusterView) -> Iterator[Check]:
    skews = [shard.skew_ms for shard in view.snapshot.shards.values() if shard.skew_ms]
    if skews and (worst := max(skews, key=abs)) and abs(worst) > 2000:
        where = "ahead of" if worst > 0 else "behind"
        text = f"this machine's clock is {abs(worst) / 1000:.1f} s {where} that of a broker"
        yield Check(Level.WARNING, "clock", text, "koff corrects it; check NTP all the same")


def _estimate_cost(view: ClusterView, rows: int) -> Check:
    exposition = Exposition()
    size = sum(len(chunk) for chunk in exposition.render_chunks(view))
    series = sum(count.series for count in exposition.count_series().values())
    memory = _BASE_MIB + _KIB_A_ROW * rows / 1024
    text = f"koff monitor needs about {memory:.0f} MiB of memory, and serves {series:,} series"
    return Check(Level.NOTE, "cost", f"{text} ({size / 1e6:.1f} MB a scrape, a tenth in gzip)")


def _explain(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _list(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

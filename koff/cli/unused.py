"""`koff unused`: groups and topics that nobody uses, and what deleting them would lose. Deletes nothing."""

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import click
from click import option

from koff.cli.lag import UNKNOWN, print_unknown
from koff.cli.log_lines import set_up_logs
from koff.cli.looks import take_looks
from koff.cli.options import GROUP_FILTER, cluster_options, group_options, read_cluster, timeout_option
from koff.cli.standard_streams import find_width
from koff.cli.text_table import Column, format_columns
from koff.cli.times import DURATION
from koff.client.cluster import CHUNK, Cluster
from koff.client.cluster_conf import ClusterConf, OffsetSpec, TopicPartition
from koff.client.configs import fetch_topic_configs
from koff.config.kinds import count, number
from koff.config.monitors import build_look
from koff.config.settings import EXPRESSION
from koff.serve.api.cluster_objects import build_unused
from koff.serve.api.commands import quote_word, write_delete
from koff.view.cluster_view import ClusterView
from koff.view.unused import (
    Limits,
    TopicLog,
    Unused,
    list_topics_to_check,
    list_unused_groups,
    list_unused_topics,
    measure_commits,
)


@click.command()
@cluster_options
@option("--idle", default="3d", type=DURATION, help="How long a group or a topic must have been idle.")
@option(
    "--commits-above",
    default=100.0,
    type=number("N", 0),
    help="Name groups that commit more than so many offsets a second.",
)
@option("--measure", default="5s", type=DURATION, help="For how long commits are counted.")
@option("--topics-above", default=50, type=count(0), help="Name groups that read more than so many topics.")
@GROUP_FILTER
@option("--topic", type=EXPRESSION, help="Only topics whose name matches.")
@option("--format", "form", type=click.Choice(["table", "json"]), default="table", help="The format.")
@group_options
@timeout_option("Say what is known after this time at the latest.")
def unused(
    idle: float,
    commits_above: float,
    measure: float,
    topics_above: int,
    group: re.Pattern[str] | None,
    topic: re.Pattern[str] | None,
    form: str,
    timeout_s: float,
    **_: Any,
) -> None:
    """Name groups and topics that nobody uses, what deleting each would lose, and the command that does it.

    Groups without members that have committed nothing for so long; groups with offsets of deleted topics,
    that commit too often, or read too many topics; topics that no group reads, that nobody writes, or both.

    Deletes nothing. A reader without a group leaves no trace in Kafka: ask before you delete a topic. Exit
    code 4 if something is not known: then koff may say nothing of topics.

    \b
    Examples:
      koff unused --brokers localhost:9092
      koff unused --brokers localhost:9092 --idle 14d --group '^test-'
      koff unused --brokers localhost:9092 --format json | jq -r '.unused[].command // empty'
    """
    set_up_logs()
    cluster = read_cluster(click.get_current_context())
    # The log has the times of commits that are older than the last few.
    start = "snapshot" if cluster.settings["source"] == "coordinators" else "replay"
    conf = build_look(*cluster, start=start, records_per_s=None)
    before, view = islice(take_looks(conf, interval_s=measure, timeout_s=timeout_s), 2)
    limits = Limits(idle, commits_above, topics_above)
    groups = list_unused_groups(view, limits, measure_commits(before, view))
    topics, unknown = _find_topics(cluster.conf, view, limits, groups)
    shown = [each for each in groups if group is None or group.search(each.name)]
    shown += [each for each in topics if topic is None or topic.search(each.name)]
    (_print_json if form == "json" else _print_table)(view, shown, quote_word(cluster.conf.brokers))
    sys.stdout.flush()
    is_unknown = print_unknown(view, list(view.snapshot.rows()), view.snapshot.totals())
    for text in unknown:
        click.echo(text, err=True)
    sys.exit(UNKNOWN if is_unknown or unknown else 0)


def _find_topics(
    conf: ClusterConf, view: ClusterView, limits: Limits, groups: Sequence[Unused]
) -> tuple[list[Unused], list[str]]:
    """What is to be said of topics, and what is not known of them."""
    names = list_topics_to_check(view)
    if names is None:
        return [], ["nothing is said of topics: a group that is not known may read them"]
    with Cluster(conf).connect() as cluster:
        counts = {name: view.facts.topics[name].partitions for name in names}
        logs = _fetch_logs(cluster, counts, int((time.time() - limits.idle_s) * 1000))
    idle = [each.name for each in groups if each.kind == "empty_group"]
    missing = len(names) - len(logs)
    unknown = [f"nothing is said of {missing} topics: their offsets are not known"] if missing else []
    return list_unused_topics(view, limits, logs, idle), unknown


def _fetch_logs(cluster: Cluster, counts: Mapping[str, int], since_ms: int) -> dict[str, TopicLog]:
    """The logs of these topics, given with their partition counts, as far as all their offsets are known."""
    partitions = [TopicPartition(topic, each) for topic, size in counts.items() for each in range(size)]
    specs = (OffsetSpec.EARLIEST, OffsetSpec.LATEST, since_ms)
    starts, ends, newer = (cluster.fetch_offsets(partitions, spec) for spec in specs)
    found: dict[str, list[tuple[int, bool]]] = {topic: [] for topic in counts}
    for at in partitions:
        start, end, first = starts[at], ends[at], newer[at]
        if isinstance(start, int) and isinstance(end, int) and isinstance(first, int):
            found[at.topic].append((end - start, first >= 0))
    policies = dict(_fetch_policies(cluster, list(counts)))
    return {
        topic: TopicLog(sum(size for size, _ in each), any(new for _, new in each), policies.get(topic))
        for topic, each in found.items()
        if len(each) == counts[topic]
    }


def _fetch_policies(cluster: Cluster, topics: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Whether each topic is compacted. Topics on which this user lacks DESCRIBE_CONFIGS are left out."""
    for first in range(0, len(topics), CHUNK):
        chunk, timeout_s = topics[first : first + CHUNK], cluster.conf.request_timeout_s
        configs = fetch_topic_configs(cluster.brokers, chunk, ["cleanup.policy"], timeout_s=timeout_s)
        for topic, values in configs.items():
            if not isinstance(values, str) and "cleanup.policy" in values:
                yield topic, "compact" in values["cleanup.policy"]


def _print_table(view: ClusterView, found: Sequence[Unused], brokers: str) -> None:
    if not found:
        click.echo(f"nothing is unused in cluster {view.cluster or ''}", err=True)
        return
    columns: list[Column[Unused]] = [
        Column("WHAT", attrgetter("kind")),
        Column("NAME", attrgetter("name"), is_name=True),
        Column("WHY", attrgetter("text")),
        Column("DELETING LOSES", attrgetter("loses"), left_out=1),
    ]
    click.echo(format_columns(columns, found, find_width()), nl=False)
    commands = [command for each in found if (command := write_delete(each, brokers))]
    if commands:
        click.echo("\nCommands (koff deletes nothing)")
        click.echo("".join(f"  {command}\n" for command in commands), nl=False)


def _print_json(view: ClusterView, found: Sequence[Unused], brokers: str) -> None:
    documents = [build_unused(each, brokers) for each in found]
    click.echo(json.dumps({"cluster": view.cluster or "", "unused": documents}, ensure_ascii=False))

"""`koff printer`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import click

from koff.cli.options import Regex, cluster_conf, cluster_options, option, set_up_logs
from koff.cli.record_counts import Stats
from koff.cli.record_formats import FORMATS, format_named
from koff.cli.times import When
from koff.client import RawRecord
from koff.records import RECORD_TYPES, SHARE_STATE_TYPES, Message, OffsetCommit
from koff.records.topics import OFFSETS_TOPIC
from koff.tail.messages import Consumer

Located = tuple[RawRecord, Message]
Filter = Callable[[Message], Any]


@click.command()
@cluster_options
@option("--share-state", is_flag=True, help="Read __share_group_state instead: what share groups have done.")
@option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="text",
    help="json: one object a line; kafka: exactly the line of Kafka's console formatters; raw: key and value "
    "in hex, for `koff decode`.",
)
@option("--follow/--no-follow", default=True, help="Go on with new records, or stop at the end.")
@option(
    "--from",
    "start",
    type=When("earliest", "latest"),
    default="earliest",
    help="Where to begin: a time, -1h, ...",
)
@option("--until", type=When(), help="Leave out records of this time and later, and stop there.")
@option(
    "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only these; repeatable."
)
@option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only records of this type (name or number); repeatable.",
)
@option("--group", type=Regex(), help="Only groups whose name matches (anywhere: anchor with ^ and $).")
@option("--topic", type=Regex(), help="Only commits for topics whose name matches.")
@option(
    "--stats",
    is_flag=True,
    help="Count by type, group and partition instead of printing; live on a terminal.",
)
def printer(
    brokers: str,
    properties: tuple[str, ...],
    property_file: str | None,
    offsets_topic: str,
    share_state: bool,
    form: str,
    follow: bool,
    start: Any,
    until: Any,
    partitions: tuple[int, ...],
    types: tuple[str, ...],
    group: re.Pattern[str] | None,
    topic: re.Pattern[str] | None,
    stats: bool,
) -> None:
    """Print what the records of __consumer_offsets say, one line a record.

    From the beginning, and then as they come, until Ctrl-C. Records that do not decode are printed with
    their bytes and the reason. Times are milliseconds, ISO 8601 (UTC unless it says otherwise), or -30s,
    -5m, -1h, -2d.

    \b
    Examples:
      koff printer --brokers localhost:9092
      koff printer --brokers localhost:9092 --no-follow --group '^payments$' --topic orders
      koff printer --brokers localhost:9092 --from -1h --type GroupMetadata
      koff printer --brokers localhost:9092 --format json | jq 'select(.record == "OffsetCommit")'
      koff printer --brokers localhost:9092 --no-follow --stats
    """
    set_up_logs()
    conf = cluster_conf(brokers, properties, property_file)
    wanted = _filter(_types(types, SHARE_STATE_TYPES if share_state else RECORD_TYPES), group, topic)
    with Consumer(
        brokers,
        follow,
        properties=conf.properties,
        topic=None if share_state and offsets_topic == OFFSETS_TOPIC else offsets_topic,
        partitions=partitions or None,
        start=start,
        until_ms=until,
        share_state=share_state,
    ) as messages:
        batches = ([at for at in batch if wanted(at[1])] for batch in messages.batches())
        if stats:
            _count(batches)
        else:
            _print(batches, form)


def _print(batches: Iterable[list[Located]], form: str) -> None:
    show = format_named(form)
    for batch in batches:
        sys.stdout.writelines(show(record, message) + "\n" for record, message in batch)
        sys.stdout.flush()


def _count(batches: Iterable[list[Located]]) -> None:
    """Counts until the end or Ctrl-C; on a terminal it shows the count so far, once a second."""
    stats, shown_at, live = Stats(), 0.0, sys.stdout.isatty()
    try:
        for batch in batches:
            for record, message in batch:
                stats.add(record.partition, message)
            if live and time.monotonic() > shown_at + 1:
                click.clear()
                click.echo(stats.text())
                shown_at = time.monotonic()
    finally:
        if live:
            click.clear()
        click.echo(stats.text(), nl=False)


def _types(names: tuple[str, ...], known: Any) -> set[int] | None:
    """Type numbers by name (any case) or number."""
    if not names:
        return None
    by_name = {name.lower(): number for number, name in known.items()}
    numbers = set()
    for name in names:
        if name.lstrip("-").isdecimal():
            numbers.add(int(name))
        elif name.lower() in by_name:
            numbers.add(by_name[name.lower()])
        else:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known.values())}", param_hint="--type")
    return numbers


def _filter(types: set[int] | None, group: re.Pattern[str] | None, topic: re.Pattern[str] | None) -> Filter:
    def wanted(message: Message) -> bool:
        record = message.record
        if types is not None and record.type not in types:
            return False
        if group is not None and not group.search(message.consumer):
            return False
        return topic is None or (isinstance(record, OffsetCommit) and bool(topic.search(record.topic)))

    return wanted

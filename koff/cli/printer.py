"""`koff printer`: prints the decoded records of `__consumer_offsets`."""

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import click
from click import option

from koff.cli.log_lines import set_up_logs
from koff.cli.options import GROUP_FILTER, TOPIC_FILTER, cluster_options, read_cluster
from koff.cli.record_formats import FORMATS, build_filter, find_format
from koff.cli.text_table import format_table
from koff.cli.times import when
from koff.client.batches import RawRecord
from koff.records import RECORD_TYPES, SHARE_STATE_TYPES, DecodedMessage, Undecodable, Unknown
from koff.records.record_types import record_type_name
from koff.records.topics import OFFSETS_TOPIC
from koff.tail.messages import OffsetsConsumer

Located = tuple[RawRecord, DecodedMessage]
"""A record as it was read, with partition and offset, and the message that it was decoded to."""


@click.command()
@cluster_options
@option("--share-state", is_flag=True, help="Read __share_group_state instead: the progress of share groups.")
@option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="text",
    help="text: readable; json: one object per line; kafka: exactly as Kafka's console formatters; raw: key "
    "and value in hex, for `koff decode`.",
)
@option("--follow/--no-follow", default=True, help="Wait for new records, or stop at the end.")
@option(
    "--from",
    "start",
    type=when("earliest", "latest"),
    default="earliest",
    help="Where to start: earliest, latest, or a time.",
)
@option("--until", type=when(), help="Leave out records of this time and later, and stop there.")
@option(
    "--partition",
    "partitions",
    type=click.IntRange(0, 2**31 - 1),
    multiple=True,
    help="Only this partition; repeatable.",
)
@option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only records of this type (name or number); repeatable.",
)
@GROUP_FILTER
@TOPIC_FILTER
@option(
    "--stats",
    is_flag=True,
    help="Count by type, group and partition instead of printing; live on a terminal.",
)
def printer(
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
    **_: Any,
) -> None:
    """Print the decoded records of __consumer_offsets, one line per record.

    Prints all records from the log start, then new ones as they arrive, until Ctrl-C. A record that cannot be
    decoded is printed with its bytes and the reason. A time is ISO 8601 (UTC if it has no offset),
    milliseconds since 1970, or a time ago: -30s, -5m, -1h, -2d.

    \b
    Examples:
      koff printer --brokers localhost:9092
      koff printer --brokers localhost:9092 --no-follow --group '^payments$' --topic orders
      koff printer --brokers localhost:9092 --from -1h --type GroupMetadata
      koff printer --brokers localhost:9092 --format json | jq 'select(.record == "OffsetCommit")'
      koff printer --brokers localhost:9092 --no-follow --stats
    """
    set_up_logs()
    cluster = read_cluster(click.get_current_context())
    offsets_topic = cluster.settings["offsets_topic"]
    selected_types = _parse_types(types, SHARE_STATE_TYPES if share_state else RECORD_TYPES)
    is_selected = build_filter(group, topic, selected_types)
    with OffsetsConsumer(
        cluster.conf.brokers,
        follow,
        properties=cluster.conf.properties,
        # None: the internal topic, unless the user names a copy of it
        topic=None if offsets_topic == OFFSETS_TOPIC else offsets_topic,
        partitions=partitions or None,
        start=start,
        until_ms=until,
        share_state=share_state,
    ) as messages:
        batches = ([located for located in batch if is_selected(located[1])] for batch in messages.batches())
        if stats:
            _count_records(batches)
        else:
            _print_records(batches, form)


def _print_records(batches: Iterable[list[Located]], form: str) -> None:
    show = find_format(form)
    for batch in batches:
        sys.stdout.writelines(show(record, message) + "\n" for record, message in batch)
        sys.stdout.flush()  # each batch at once, for a reader at the other end of a pipe


def _count_records(batches: Iterable[list[Located]]) -> None:
    """Prints the counts at the end or at Ctrl-C, and on a terminal once a second."""
    counts, shown_at, live = RecordCounts(), 0.0, sys.stdout.isatty()
    try:
        for batch in batches:
            for record, message in batch:
                counts.add(record.partition, message)
            if live and time.monotonic() > shown_at + 1:
                click.clear()
                click.echo(counts.format_tables())
                shown_at = time.monotonic()
    finally:
        if live:
            click.clear()
        click.echo(counts.format_tables(), nl=False)


def _parse_types(names: tuple[str, ...], type_names: Any) -> set[int] | None:
    """The record types with these names (in any case) or numbers. None: all types."""
    if not names:
        return None
    by_name = {name.lower(): number for number, name in type_names.items()}
    numbers = set()
    for name in names:
        if name.lstrip("-").isdecimal():
            numbers.add(int(name))
        elif name.lower() in by_name:
            numbers.add(by_name[name.lower()])
        else:
            message = f"{name!r} is not a record type: use {', '.join(type_names.values())}, or a number"
            raise click.BadParameter(message, param_hint="--type")
    return numbers


_BUSIEST = 20


class RecordCounts:
    """Counts messages. `format_tables` shows the counts, the highest first."""

    def __init__(self) -> None:
        self._types: Counter[str] = Counter()
        self._deleted: Counter[str] = Counter()
        self._groups: Counter[str] = Counter()
        self._partitions: Counter[int] = Counter()

    def add(self, partition: int, message: DecodedMessage) -> None:
        """Counts one message of `partition` of the internal topic."""
        record = message.record
        kind = (
            type(record).__name__ if isinstance(record, Undecodable | Unknown) else record_type_name(record)
        )
        self._types[kind] += 1
        self._deleted[kind] += message.tombstone
        self._groups[message.consumer] += 1
        self._partitions[partition] += 1

    def format_tables(self) -> str:
        """Three tables: all types, then the twenty groups and the twenty partitions with the most records."""
        types = [(name, count, self._deleted[name]) for name, count in self._types.most_common()]
        total = sum(self._types.values())
        return "\n".join(
            [
                format_table(
                    ("TYPE", "RECORDS", "DELETIONS"), [*types, ("all", total, sum(self._deleted.values()))]
                ),
                _format_busiest("GROUP", self._groups),
                _format_busiest("PARTITION", self._partitions),
            ]
        )


def _format_busiest(header: str, counts: Counter[str] | Counter[int]) -> str:
    rows: list[Sequence[str | int]] = [(name, count) for name, count in counts.most_common(_BUSIEST)]
    rest = len(counts) - len(rows)
    return format_table((header, "RECORDS"), rows) + (f"... and {rest} more\n" if rest > 0 else "")

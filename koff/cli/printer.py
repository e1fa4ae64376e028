"""`koff printer`."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime

import click

from koff.cli.options import Regex, cluster_conf, cluster_options, option, set_up_logs
from koff.client import RawRecord
from koff.reader import Consumer
from koff.records import Message, OffsetCommit, as_dict, text


@click.command()
@cluster_options
@option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="json: one object a line."
)
@option("--follow/--no-follow", default=True, help="Go on with new records, or stop at the end.")
@option("--group", type=Regex(), help="Only groups whose name matches (anywhere: anchor with ^ and $).")
@option("--topic", type=Regex(), help="Only commits for topics whose name matches.")
def printer(
    brokers: str,
    properties: tuple[str, ...],
    property_file: str | None,
    offsets_topic: str,
    form: str,
    follow: bool,
    group: re.Pattern[str] | None,
    topic: re.Pattern[str] | None,
) -> None:
    """Print what the records of __consumer_offsets say, one line a record.

    From the beginning, and then as they come, until Ctrl-C. Records that do not decode are printed with
    their bytes and the reason.

    \b
    Examples:
      koff printer --brokers localhost:9092
      koff printer --brokers localhost:9092 --no-follow --group '^payments$' --topic orders
      koff printer --brokers localhost:9092 --format json | jq 'select(.type == "OffsetCommit")'
    """
    set_up_logs()
    show = _json if form == "json" else _text
    conf = cluster_conf(brokers, properties, property_file)
    with Consumer(brokers, follow, properties=conf.properties, topic=offsets_topic) as messages:
        for batch in messages.batches():
            lines = [
                show(record, message) + "\n" for record, message in batch if _wanted(message, group, topic)
            ]
            sys.stdout.writelines(lines)
            sys.stdout.flush()


def _wanted(message: Message, group: re.Pattern[str] | None, topic: re.Pattern[str] | None) -> bool:
    if group is not None and not group.search(message.consumer):
        return False
    if topic is None:
        return True
    return isinstance(message.record, OffsetCommit) and bool(topic.search(message.record.topic))


def _text(record: RawRecord, message: Message) -> str:
    at = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"{at.removesuffix('+00:00')}Z {record.partition:>2}@{record.offset:<6} {text(message)}"


def _json(record: RawRecord, message: Message) -> str:
    where = {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp_ms}
    return json.dumps({"at": where, **as_dict(message)}, ensure_ascii=False)

"""`koff offsets`: the targets of a reset of a group's committed offsets; plans it, and carries it out."""

import csv
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
from click import option

from koff.cli.log_lines import set_up_logs
from koff.cli.options import cluster_options, read_cluster
from koff.cli.standard_streams import find_width
from koff.cli.text_table import Column, format_columns
from koff.cli.times import DURATION, parse_time
from koff.client.cluster import Cluster
from koff.client.cluster_conf import TopicPartition
from koff.client.offset_plan import Commit, OffsetPlan, PlannedOffset
from koff.client.resets import (
    GroupNow,
    MembersAlive,
    Moved,
    NothingFound,
    Target,
    apply_plan,
    fetch_group,
    make_plan,
    make_undo,
)
from koff.config.kinds import FILE, SHORT_NUMBER, text
from koff.config.settings import NAME
from koff.errors import ConfigError, KoffError
from koff.view.wording import count, show

_OFFSET = re.compile(r"[0-9]{1,19}")
_MOST_OFFSET = 2**63 - 1


def _parse_target(given: str) -> Target:
    if given in ("earliest", "latest"):
        return Target(given, given)  # type: ignore[arg-type]  # one of these two
    word, is_given, value = given.partition("=")
    if not is_given or word not in _FORMS:
        raise ValueError(f"must be earliest, latest or one of {', '.join(f'{form}=...' for form in _FORMS)}")
    return _FORMS[word](given, value)


def _parse_time(given: str, value: str) -> Target:
    timestamp_ms = parse_time(value)
    if timestamp_ms is None or not 0 <= timestamp_ms <= _MOST_OFFSET:
        raise ValueError(
            "has no time: write time=2026-01-31T12:00 (UTC), time=-1h or milliseconds since 1970"
        )
    return Target(given, "time", timestamp_ms)


def _parse_duration(given: str, value: str) -> Target:
    return Target(given, "time", max(0, int((time.time() - DURATION.parse(value)) * 1000)))


def _parse_by(given: str, value: str) -> Target:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", value):
        raise ValueError("has no number: write by=-100 to read 100 records again, by=1 to skip one")
    return Target(given, "by", int(value))


def _parse_offset(given: str, value: str) -> Target:
    return Target(given, "offset", _read_offset(value))


def _parse_file(given: str, value: str) -> Target:
    """The lines of a file as `kafka-consumer-groups.sh --export` writes it: topic,partition,offset."""
    try:
        rows = [row for row in csv.reader(Path(value).read_text().splitlines()) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    each: dict[TopicPartition, Commit | None] = {}
    for number, row in enumerate(rows, 1):
        if len(row) != 3 or not SHORT_NUMBER.fullmatch(row[1]):
            raise ValueError(f"is wrong in line {number}: each line must be topic,partition,offset")
        at = TopicPartition(row[0], int(row[1]))
        if at in each:
            raise ValueError(f"names {at.topic},{at.partition} twice")
        each[at] = Commit(_read_offset(row[2]))
    if not each:
        raise ValueError("names no partition")
    return Target(given, "each", each=each)


def _read_offset(value: str) -> int:
    if not _OFFSET.fullmatch(value) or int(value) > _MOST_OFFSET:
        raise ValueError("has no offset: an offset is a whole number from 0")
    return int(value)


_FORMS: dict[str, Callable[[str, str], Target]] = {
    "time": _parse_time,
    "duration": _parse_duration,
    "by": _parse_by,
    "offset": _parse_offset,
    "file": _parse_file,
}
TARGET = text("TO", _parse_target)
"""The value of --to: a `Target`."""


def _parse_topic(given: str) -> tuple[str, list[int]]:
    name, has_numbers, numbers = given.partition(":")
    if not name or (has_numbers and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers)):
        raise ValueError("must be a topic, or a topic and its partitions: orders:0,1")
    return name, sorted({int(number) for number in numbers.split(",")}) if has_numbers else []


TOPIC = text("TOPIC[:0,1]", _parse_topic)
"""The value of --topic: a topic and partitions of it; none stands for all. A topic's name has no colon."""


EXIT_CODES: dict[type[KoffError], int] = {NothingFound: 3, MembersAlive: 4, Moved: 5}


@click.group()
def offsets() -> None:
    """Reset the committed offsets of a group: plan it, look at the plan, apply it, undo it.

    Only `koff offsets apply` writes to Kafka. Exit codes: 2 if an option or the plan's file is wrong, or the
    plan is for another cluster; 3 if there is no such group, topic or partition; 4 if the group has members;
    5 if something has moved since the plan was made. With all of these, nothing was written. 1: the cluster
    does not respond, or refuses; one line says what was written.
    """


@offsets.command()
@click.argument("group", type=NAME, required=False)
@option(
    "--to",
    "target",
    type=TARGET,
    help="earliest, latest, time=T, duration=D (so long ago), by=N (from the committed offset; below 0: "
    "back), offset=N, or file=PATH with lines topic,partition,offset.",
)
@option(
    "--topic",
    "topics",
    type=TOPIC,
    multiple=True,
    help="Only this topic, or these partitions of it, also those without a commit; repeatable. By default, "
    "all partitions that the group has committed.",
)
@option("--undo", type=FILE, metavar="PLAN", help="Go back to what was committed before PLAN.")
@option("--file", type=FILE, metavar="FILE", help="Write the plan to FILE, which must not exist.")
@cluster_options
def plan(
    group: str | None,
    target: Target | None,
    topics: tuple[tuple[str, list[int]], ...],
    undo: Path | None,
    file: Path | None,
    **_: Any,
) -> None:
    """Print what a reset of the offsets of GROUP would change, by partition, and write the plan to a file.

    Writes nothing to Kafka. SKIPPED and READ AGAIN count offsets that the log still has; LEFT is the lag
    after the reset. While the group has members, the table is printed, but no plan is written.

    \b
    Examples:
      koff offsets plan payments --to latest --brokers localhost:9092
      koff offsets plan payments --to time=2026-01-31T12:00 --file plan.json --brokers localhost:9092
      koff offsets plan payments --to by=1 --topic orders:3 --file plan.json --brokers localhost:9092
      koff offsets plan --undo plan.json --file undo.json --brokers localhost:9092
    """
    make: Callable[[Cluster], tuple[GroupNow, OffsetPlan]]
    if undo is not None and group is None and target is None and not topics:
        make = partial(_plan_undo, _read_plan(undo))
    elif undo is None and group is not None and target is not None:
        make = partial(_plan_reset, group, target, dict(topics))
    else:
        raise click.UsageError("give GROUP and --to, or --undo alone")
    if file is not None and file.exists():
        raise click.UsageError(f"{file} exists, and may be needed for --undo: name another file")
    with _connect() as cluster, _exit_codes():
        now, planned = make(cluster)
        _print_plan(planned, now)
        now.check_empty()
        next_step = "--file FILE writes the plan for koff offsets apply"
        if file is not None:
            _write_file(file, planned)
            next_step = f"koff offsets apply {file} does it"
        click.echo(f"nothing is changed: {next_step}", err=True)


def _plan_reset(
    group: str, target: Target, topics: Mapping[str, list[int]], cluster: Cluster
) -> tuple[GroupNow, OffsetPlan]:
    now = fetch_group(cluster, group)
    return now, make_plan(cluster, now, target, topics, made=_describe_now())


def _plan_undo(plan: OffsetPlan, cluster: Cluster) -> tuple[GroupNow, OffsetPlan]:
    now = fetch_group(cluster, plan.group)
    return now, make_undo(cluster, now, plan, made=_describe_now())


@offsets.command()
@click.argument("file", type=FILE, metavar="PLAN")
@cluster_options
def apply(file: Path, **_: Any) -> None:
    """Do what PLAN says, unless something has moved since: committed offsets, members, topics, the log.

    Reads the offsets back, and prints one line of JSON that says what was done.

    \b
    Examples:
      koff offsets apply plan.json --brokers localhost:9092
    """
    planned = _read_plan(file)
    with _connect() as cluster, _exit_codes():
        apply_plan(cluster, planned)
    click.echo(json.dumps(_describe_event(planned, file), ensure_ascii=False))


@contextmanager
def _connect() -> Iterator[Cluster]:
    set_up_logs()
    with Cluster(read_cluster(click.get_current_context()).conf) as cluster:
        yield cluster.connect()


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Ends the command with the exit code of an error that stands for a decision of koff."""
    try:
        yield
    except tuple(EXIT_CODES) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(EXIT_CODES[type(error)])


def _read_plan(file: Path) -> OffsetPlan:
    try:
        return OffsetPlan.parse_file(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except ConfigError as error:
        raise ConfigError(f"{file} {error}") from None


def _write_file(file: Path, planned: OffsetPlan) -> None:
    try:
        with file.open("x") as opened:
            opened.write(planned.format_file())
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None


def _print_plan(planned: OffsetPlan, now: GroupNow) -> None:
    click.echo(format_columns(_COLUMNS, planned.offsets, find_width()), nl=False)
    sys.stdout.flush()
    left_out = {at.topic for at in now.commits} - {each.at.topic for each in planned.offsets}
    if left_out:
        named = ", ".join(map(show, sorted(left_out)))
        click.echo(f"not in the plan: {named}", err=True)
    click.echo(_summarize(planned), err=True)


def _summarize(planned: OffsetPlan) -> str:
    changes = f"{len(planned.changes)} of {count(len(planned.offsets), 'partition')}"
    skipped, again = planned.sum_skipped(), planned.sum_read_again()
    return f"{show(planned.group)}: {changes} change, {skipped:,} records skipped, {again:,} read again"


def _describe_event(planned: OffsetPlan, file: Path) -> dict[str, Any]:
    """What was done, with the names that events of koff have (docs/events.md)."""
    return {
        "time": _describe_now(),
        "cluster": planned.cluster,
        "kind": "offsets_applied",
        "severity": "info",
        "text": _summarize(planned),
        "group": planned.group,
        "details": {
            "to": planned.to,
            "plan": str(file),
            "planned": planned.made,
            "partitions": len(planned.changes),
            "skipped": planned.sum_skipped(),
            "read_again": planned.sum_read_again(),
        },
    }


def _describe_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


_COLUMNS: list[Column[PlannedOffset]] = [
    Column("TOPIC", lambda each: each.at.topic, is_name=True),
    Column("PARTITION", lambda each: each.at.partition),
    Column("BEFORE", lambda each: each.before and each.before.offset),
    Column("AFTER", lambda each: each.after and each.after.offset),
    Column("SKIPPED", lambda each: each.skipped),
    Column("READ AGAIN", lambda each: each.read_again),
    Column("LEFT", lambda each: each.after and each.log.end - each.after.offset, left_out=1),
    Column("NOTE", lambda each: each.note),
]

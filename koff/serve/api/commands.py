"""The commands of Kafka's own tools that help with a group, or delete what nobody uses."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from koff.records.topics import OFFSETS_TOPIC
from koff.view.unused import Unused

Json = dict[str, Any]

_DESCRIBE = {
    "share": "kafka-share-groups.sh {} --describe --members",
    "streams": "kafka-streams-groups.sh {} --describe --members",
}
"""By type of the group, the command that describes it. The tool for consumer groups does not know these."""


def list_commands(group: Json, brokers: str) -> list[str]:
    """Commands of Kafka's own tools for a group as the API shows it. They change nothing.

    Resets are dry runs. `brokers` is a word of a shell command.
    """
    return list(_list_commands(group, f"--bootstrap-server {brokers}"))


def _list_commands(group: Json, server: str) -> Iterator[str]:
    kind = group["group"]["type"]
    if kind == "zookeeper":  # brokers do not know it
        return
    about = f"{server} --group {quote_word(group['group']['group'])}"
    tool = f"kafka-consumer-groups.sh {about}"
    yield _DESCRIBE[kind].format(about) if kind in _DESCRIBE else f"{tool} --describe --members --verbose"
    for cause in group["group"]["causes"] or ():
        yield from _list_cures(cause, kind, server, tool, group["partitions"])


def _list_cures(cause: Json, kind: str, server: str, tool: str, rows: Sequence[Json]) -> Iterator[str]:
    topic, partition = quote_word(cause["topic"]), cause["partition"]
    reset = f"{tool} --reset-offsets --dry-run --topic {topic}:{partition}"
    can_reset = kind not in _DESCRIBE
    match cause["cause"]:
        case "stuck_partition":
            where = f"--topic {topic} --partition {partition} --offset {_find_committed(rows, cause)}"
            yield f"kafka-console-consumer.sh {server} {where} --max-messages 1"
            if can_reset:
                yield f"{reset} --shift-by 1   # skips the record; stop the members first"
        case "open_transaction":
            yield f"kafka-transactions.sh {server} find-hanging --topic {topic} --partition {partition}"
        case "held_back_commits":
            yield f"kafka-transactions.sh {server} find-hanging --topic {OFFSETS_TOPIC}"
        case "fell_out_of_log" if can_reset:
            yield f"{reset} --to-earliest"


def write_delete(unused: Unused, brokers: str) -> str | None:
    """The command that deletes the group or the topic; None if koff does not advise that.

    It asks nobody, and changes the cluster. `brokers` is a word of a shell command.
    """
    if not unused.deletes:
        return None
    server = f"--bootstrap-server {brokers}"
    if unused.kind == "unused_topic":
        # kafka-topics.sh takes the name for a regular expression. Of its characters, only dots mean others.
        pattern = unused.name.replace(".", "\\.")
        return f"kafka-topics.sh {server} --topic {quote_word(pattern)} --delete"
    tool = unused.group_type if unused.group_type in _DESCRIBE else "consumer"
    return f"kafka-{tool}-groups.sh {server} --group {quote_word(unused.name)} --delete"


def _find_committed(rows: Sequence[Json], cause: Json) -> Any:
    place = cause["topic"], cause["partition"]
    return next(row["committed"] for row in rows if (row["topic"], row["partition"]) == place)


def quote_word(text: str) -> str:
    """The text as a word of a shell command. Bash reads `$'...'`: a terminal must not act on the name."""
    if text.isprintable():
        return shlex.quote(text)
    word = "".join(
        character if character.isprintable() and character not in "'\\" else _escape(character)
        for character in text
    )
    return f"$'{word}'"


def _escape(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="replace"))

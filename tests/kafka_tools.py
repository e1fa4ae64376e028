"""Kafka's own admin tools, many times a second; and what they, and koff, say of all groups, to compare.

A `Picture` is flat: a line of text per fact, so that two of them differ in lines that people can read.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec

from koff.kafkatest import LocalKafka, reap, spawn
from koff.kafkatest.java import KafkaTestError, java_command
from koff.tracker import Group, Member, PartitionLag, Snapshot
from koff.tracker.groups import Assignment

SOURCE = Path(__file__).with_name("java") / "Workbench.java"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"

Picture = Mapping[str, str]
"""What is said by what it is said of, such as "a-group orders/0 lag"; "-" where it is not known."""
Row = dict[str, str]
UNKNOWN = "-"
UNTOLD = "cannot be told"


class Workbench:
    """Kafka's tools and consumers, in one JVM between `with` and its end; see Workbench.java."""

    def __init__(self, kafka: LocalKafka) -> None:
        self.kafka = kafka
        options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
        self._java = spawn(
            [java_command(), *options, "-cp", f"{kafka.jars}/*", str(SOURCE), kafka.bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reap(self._java)

    def run(self, tool: str, *args: str) -> str:
        """What the tool printed; raises `KafkaTestError` when it failed."""
        code, printed = self._ask("run", tool, "--bootstrap-server", self.kafka.bootstrap, *args)
        if code or "Error: Executing" in printed:  # some print it and end well
            raise KafkaTestError(f"{tool} {' '.join(args)} ended with code {code}:\n{printed}")
        return printed

    def join(self, name: str, kind: str, topic: str, **properties: str) -> None:
        """Makes a consumer join the group that `group_id` names; `properties` have _ for the point."""
        pairs = (f"{key.replace('_', '.')}={value}" for key, value in properties.items())
        self._ask("join", name, kind, topic, *pairs)

    def leave(self, name: str) -> None:
        self._ask("leave", name)

    def _ask(self, *words: str) -> tuple[int, str]:
        assert self._java.stdout is not None
        self._java.stdin.write(("\t".join(words) + "\n").encode())
        self._java.stdin.flush()
        lines: list[str] = []
        for line in self._java.stdout:
            if line.startswith(b"\0"):
                return int(line[1:]), "".join(lines)
            lines.append(line.decode())
        raise KafkaTestError(f"the workbench ended at {' '.join(words)}")


def table(printed: str) -> Iterator[Row]:
    """The rows that a tool printed in one table or several, by column."""
    header: list[str] = []
    for line in re.sub(r" +\((ID|\d+)\)", "", printed).splitlines():  # without a coordinator's number
        if line.startswith("GROUP "):
            header = line.split()
        elif header and line.strip():
            cells = line.split(None, len(header) - 1)
            names = header
            if len(cells) < len(names) and "GROUP-INSTANCE-ID" in names:  # left blank where there is none
                names = [name for name in names if name != "GROUP-INSTANCE-ID"]
            yield dict(zip(names, (cell.strip() for cell in cells), strict=False))
        else:
            header = []


def kafkas_picture(workbench: Workbench) -> Picture:
    """What kafka-consumer-groups, kafka-share-groups and kafka-streams-groups say of all groups."""

    def described(tool: str, what: str) -> Iterator[Row]:
        return table(workbench.run(tool, "--describe", "--all-groups", what, "--verbose"))

    picture: dict[str, str] = {}
    for row in table(workbench.run(CONSUMER_GROUPS, "--list", "--type", "--state")):
        picture[f"{row['GROUP']} type"] = row["TYPE"]
    for tool, kind in ((SHARE_GROUPS, "Share"), (STREAMS_GROUPS, "Streams"), (CONSUMER_GROUPS, "")):
        for row in described(tool, "--state"):
            picture |= _kafkas_group(row, kind or picture.get(f"{row['GROUP']} type", UNKNOWN))
        for row in described(tool, "--members"):
            picture |= _kafkas_member(row)
        try:
            for row in described(tool, "--offsets"):
                picture |= _kafkas_row(row)
        except KafkaTestError:
            picture |= _rows_one_by_one(workbench, tool, [at for at in picture if at.endswith(" state")])
    for group in [at.removesuffix(" type") for at, kind in picture.items() if kind == "Streams"]:
        if picture[f"{group} members"] == "0":
            picture |= _commits(workbench.kafka, group)
    return picture


def _rows_one_by_one(workbench: Workbench, tool: str, states: list[str]) -> Picture:
    """The rows of each group by itself, as one whose members are still assigned a topic that is gone
    makes the tool die. Of such a group it is only told that nothing is."""
    picture: dict[str, str] = {}
    for group in (at.removesuffix(" state") for at in states):
        try:
            for row in table(workbench.run(tool, "--describe", "--group", group, "--offsets", "--verbose")):
                picture |= _kafkas_row(row)
        except KafkaTestError as failure:
            if "UnknownTopicOrPartition" in str(failure):
                picture[f"{group} rows"] = UNTOLD
    return picture


def _commits(kafka: LocalKafka, group: str) -> Picture:
    """By the admin client: kafka-streams-groups shows commits of what members read, and so none here."""
    asked = kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    offsets = {(at.topic, at.partition): at.offset for at in asked.result(60).topic_partitions}
    wanted = {TopicPartition(*at): OffsetSpec.latest() for at in offsets}
    answers = kafka.admin.list_offsets(wanted) if wanted else {}
    ends = {(at.topic, at.partition): answer.result(60).offset for at, answer in answers.items()}
    picture: dict[str, str] = {}
    for (topic, partition), offset in offsets.items():
        said = {"committed": offset, "end": ends[topic, partition], "lag": ends[topic, partition] - offset}
        picture |= {f"{group} {topic}/{partition} {what}": str(value) for what, value in said.items()}
    return picture


def _kafkas_group(row: Row, kind: str) -> Picture:
    group = row["GROUP"]
    return {
        f"{group} type": kind,
        f"{group} state": row["STATE"],
        f"{group} epoch": row["GROUP-EPOCH"],
        f"{group} target epoch": row.get("TARGET-ASSIGNMENT-EPOCH") or row["ASSIGNMENT-EPOCH"],
        f"{group} assignor": row.get("ASSIGNMENT-STRATEGY", UNKNOWN),
        f"{group} members": row["#MEMBERS"],
    }


def _kafkas_member(row: Row) -> Picture:
    if "PROCESS" in row:
        return _kafkas_streams_member(row)
    at = f"{row['GROUP']} {row['CONSUMER-ID']}"
    return {
        f"{at} client": f"{row['CLIENT-ID']}@{row['HOST']}",
        f"{at} instance": row.get("GROUP-INSTANCE-ID", UNKNOWN),
        f"{at} epoch": row.get("CURRENT-EPOCH") or row["MEMBER-EPOCH"],
        f"{at} assigned": row.get("CURRENT-ASSIGNMENT") or row.get("ASSIGNMENT", UNKNOWN),
        f"{at} target": row.get("TARGET-ASSIGNMENT", UNKNOWN),
    }


def _kafkas_streams_member(row: Row) -> Picture:
    """Of its tasks: the tool names no host."""
    at = f"{row['GROUP']} {row['MEMBER']}"
    tasks = dict(re.findall(r"([A-Z-]+): ((?:\S+:\[[\d,]*\]; )*)", row["ASSIGNMENTS"] + " "))
    return {
        f"{at} client": row["CLIENT-ID"],
        f"{at} process": row["PROCESS"],
        f"{at} epoch": row["MEMBER-EPOCH"],
        **{f"{at} {kind.lower()}": _tasks(text) for kind, text in tasks.items()},
    }


def _tasks(text: str) -> str:
    return ";".join(sorted(text.replace("[", "").replace("]", "").replace(" ", "").strip(";").split(";")))


def _kafkas_row(row: Row) -> Picture:
    at = f"{row['GROUP']} {row['TOPIC']}/{row['PARTITION']}"
    if "START-OFFSET" in row:  # a share group's; koff keeps what is done, which only the lag tells
        return {f"{at} lag": row["LAG"]}
    committed = row["CURRENT-OFFSET"]
    # For want of a commit kafka-streams-groups calls all of the log the lag.
    lag = UNKNOWN if committed == UNKNOWN else row.get("LAG") or row["OFFSET-LAG"]
    picture = {f"{at} committed": committed, f"{at} end": row["LOG-END-OFFSET"], f"{at} lag": lag}
    if "CONSUMER-ID" in row:
        picture[f"{at} owner"] = " ".join(row[name] for name in ("CONSUMER-ID", "HOST", "CLIENT-ID"))
    return picture


def koffs_picture(snapshot: Snapshot) -> Picture:
    """What koff says, of the same things."""
    picture: dict[str, str] = {}
    types = {group.name: group.type for group in snapshot.groups()}
    for group in snapshot.groups():
        picture |= _koffs_group(group)
        for member in group.members:
            picture |= _koffs_member(group, member, snapshot.topic_names)
    for row in snapshot.rows():
        picture |= _koffs_row(row, types[row.group])
    return picture


def _koffs_group(group: Group) -> Picture:
    classic = group.type in ("classic", "simple")
    # A consumer group whose members name no assignor has the broker's first.
    assignor = group.protocol or ("uniform" if group.type == "consumer" else "")
    return {
        f"{group.name} type": "Classic" if classic else group.type.capitalize(),
        f"{group.name} state": group.state,
        f"{group.name} epoch": UNKNOWN if classic else str(group.epoch),
        f"{group.name} target epoch": UNKNOWN if classic else str(group.assignment_epoch),
        f"{group.name} assignor": assignor or UNKNOWN,
        f"{group.name} members": str(len(group.members)),
    }


def _koffs_member(group: Group, member: Member, names: Mapping[str, str]) -> Picture:
    at = f"{group.name} {member.id}"
    if member.tasks is not None:
        active = _assigned(member.tasks.active, {})
        return {
            f"{at} client": member.client_id,
            f"{at} process": member.process_id,
            f"{at} epoch": str(member.epoch),
            f"{at} active": active,
            # Of its target koff keeps what is to be read, not the tasks.
            f"{at} target-active": active if member.target in (None, member.assigned) else "other",
        }
    names = names if group.assigned_by_id else {}
    revoking = {topic: set(of) for topic, of in member.revoking.items()}
    kept = {
        topic: tuple(each for each in of if each not in revoking.get(topic, ()))
        for topic, of in member.assigned.items()
    }
    return {
        f"{at} client": f"{member.client_id}@{member.client_host}",
        f"{at} instance": member.instance_id or UNKNOWN,
        f"{at} epoch": UNKNOWN if group.type == "classic" else str(member.epoch),
        f"{at} assigned": _assigned(kept, names),
        f"{at} target": _assigned(member.target or {}, names) if group.type == "consumer" else UNKNOWN,
    }


def _assigned(assignment: Assignment, names: Mapping[str, str]) -> str:
    """As the tools have it: "clicks:0;orders:0,1"."""
    parts = (
        f"{names.get(topic, topic)}:{','.join(map(str, sorted(of)))}"
        for topic, of in assignment.items()
        if of
    )
    return ";".join(sorted(parts)) or UNKNOWN


def _koffs_row(row: PartitionLag, kind: str) -> Picture:
    at = f"{row.group} {row.topic}/{row.partition}"
    picture = {f"{at} lag": _number(row.lag)}
    if kind == "share":
        return picture
    picture |= {f"{at} committed": _number(row.committed), f"{at} end": _number(row.end)}
    if kind != "streams":
        who = row.member
        picture[f"{at} owner"] = f"{who.id} {who.client_host} {who.client_id}" if who else "- - -"
    return picture


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def differences(kafkas: Picture, koffs: Picture) -> list[str]:
    """A line for each fact that the two do not tell alike; rows that the tool cannot tell are left out."""
    untold = {at.split()[0] for at, value in kafkas.items() if value == UNTOLD}
    told = [
        at
        for at in kafkas.keys() | koffs.keys()
        if not (at.split()[0] in untold and (at.endswith(" rows") or "/" in at.split()[1]))
    ]
    return [
        f"{at}: Kafka {kafkas.get(at, 'says nothing')}, koff {koffs.get(at, 'says nothing')}"
        for at in sorted(told)
        if kafkas.get(at) != koffs.get(at)
    ]

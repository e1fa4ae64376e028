"""The JSON objects of groups, members and rows. `koff lag` uses the same names."""

from collections.abc import Iterator
from typing import Any

from koff.lag import Reason
from koff.lag.late_causes import Cause
from koff.lag.verdict import Basis, Verdict
from koff.serve.api.shapes import (
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    SHARE,
    STRING,
    JsonField,
    JsonObject,
    list_of,
    nullable,
    object_of,
    one_of,
    told,
)
from koff.tracker import Group, GroupTotal, Member, PartitionLag, Snapshot
from koff.tracker.groups.views import Assignment
from koff.view.cause_texts import ADVICE, Finding
from koff.view.owners import Owner
from koff.view.sentences import describe_verdict

GROUP_TYPES = ("simple", "classic", "consumer", "share", "streams", "zookeeper")
STATUSES = tuple(verdict.name for verdict in Verdict)
TOTAL_REASONS = ("", "commits_not_current", "rows_missing", "lags_withheld", "lags_unknown", "no_partitions")
TREND_POINTS = 30
CAUSES = tuple(cause.label for cause in Cause if cause is not Cause.NONE)
REASONS = tuple(str(reason.name).lower() for reason in Reason)
_OFFSET = nullable(COUNT)
_RATE = nullable(NUMBER)
_FLAG = nullable(BOOLEAN)


CAUSE: JsonObject[Finding] = JsonObject(
    JsonField("cause", one_of(CAUSES), "The name.", "cause.label"),
    JsonField("text", STRING, "A sentence, with the numbers that show the cause."),
    JsonField("advice", STRING, "What helps.", lambda f: ADVICE[f.cause]),
    JsonField("offsets", COUNT, "The offsets of the lag that it explains."),
    JsonField("share", SHARE, "The same as a share of the group's lag."),
    JsonField("partitions", COUNT, "In how many partitions."),
    JsonField("topic", STRING, "Where it explains most."),
    JsonField("partition", COUNT, "Where it explains most."),
    JsonField("member_id", nullable(STRING), "The member with that partition.", "member?.id"),
    JsonField("client_id", nullable(STRING), "Of the member.", "member?.client_id"),
    JsonField("client_host", nullable(STRING), "Of the member.", "member?.client_host"),
)

OWNER: JsonObject[Owner] = JsonObject(
    JsonField("team", STRING, "The team."),
    JsonField("contact", nullable(STRING), "How to reach it."),
)

GROUP: JsonObject[GroupTotal] = JsonObject(
    JsonField("group", STRING, "The name.", "group.name"),
    JsonField("type", nullable(one_of(GROUP_TYPES)), "Null: not current.", lambda t: t.group.type or None),
    JsonField("state", nullable(STRING), "As Kafka names it. Null: not current."),
    JsonField("members", nullable(COUNT), "How many members are present. Null: not current.", "member_count"),
    JsonField("partitions", COUNT, "How many partitions it has committed or is assigned."),
    JsonField("lag", _OFFSET, "The sum of the known lags, in offsets."),
    JsonField("reason", one_of(TOTAL_REASONS), 'Why `lag` is null; "" if it is not.'),
    JsonField("unknown", COUNT, "How many partitions have no known lag."),
    JsonField("withheld", COUNT, "How many of these lags are not current."),
    JsonField("time_lag_s", _RATE, "The age of the oldest uncommitted record."),
    JsonField("status", one_of(STATUSES), "The verdict on the group.", "status.name"),
    JsonField("allowance_s", _RATE, "So late it may be before that is WARN."),
    JsonField(
        "allowance_from",
        one_of([basis.name.lower() for basis in Basis]),
        "Where that comes from: twice `usual_s`, two minutes at least (floor), half of a topic's retention "
        "at most, or an objective.",
        lambda total: total.basis.name.lower(),
    ),
    JsonField(
        "usual_s", _RATE, "Within so many seconds, four of five records are committed. Null: not known yet."
    ),
    JsonField(
        "complete", nullable(SHARE), "The share of partitions with a full window of commits behind `status`."
    ),
    JsonField("consume_per_s", _RATE, "Offsets per second.", "pace.consume_per_s"),
    JsonField("catch_up_s", _RATE, "When it will have caught up.", "pace.catch_up_s"),
    JsonField("never_catches_up", _FLAG, "At these rates, it never does.", "pace.never"),
    JsonField("sentence", STRING, "What is wrong, since when, and how much waits."),
    JsonField(
        "causes",
        nullable(list_of(CAUSE.schema)),
        "Why it lags, the cause that explains most first. Null: its lag is withheld.",
    ),
    JsonField(
        "owner",
        nullable(OWNER.schema),
        "Who owns it, by `owners` of koff.yaml: `team`, and `contact` or null. Null: nobody.",
    ),
)


def build_group(total: GroupTotal, causes: list[Finding] | None, owner: Owner | None) -> dict[str, Any]:
    """The object of a group, with the causes of its lag (None: withheld)."""
    return GROUP.build(
        total,
        sentence=describe_verdict(total, causes),
        causes=None if causes is None else [CAUSE.build(cause) for cause in causes],
        owner=OWNER.build(owner) if owner else None,
    )


LAST_KNOWN = nullable(
    object_of(
        {
            "lag": NUMBER,
            "time_lag_s": _RATE,
            "age_s": told(COUNT, "Its age: 15 s less, or not as much."),
        }
    )
)

CLUSTER_GROUP = object_of(
    {
        "cluster": told(STRING, "The cluster."),
        **GROUP.schema["properties"],
        "trend": told(
            list_of(nullable(NUMBER)),
            "The largest lag of each two minutes of the last hour. Empty: nothing is kept.",
        ),
        "last_known": told(
            LAST_KNOWN, "If `lag` is null: the newest lag of the last hour. Null: none is known."
        ),
    }
)

DETAILS: JsonObject[GroupTotal] = JsonObject(
    JsonField(
        "protocol_type", nullable(STRING), "Of a classic group.", lambda t: _text(t, t.group.protocol_type)
    ),
    JsonField("protocol", nullable(STRING), "The assignor.", lambda t: _text(t, t.group.protocol)),
    JsonField(
        "epoch",
        nullable(COUNT),
        "The group epoch; the generation of a classic group.",
        lambda t: t.group.epoch if t.current and t.group.epoch >= 0 else None,
    ),
    JsonField("coordinator", nullable(COUNT), "The id of the broker."),
    JsonField("commits_held_back", BOOLEAN, "An open transaction may hold back commits of this group."),
)


def _text(total: GroupTotal, text: str) -> str | None:
    return text or None if total.current else None


# Without `lag_to_stable`: `koff monitor` samples the last stable offsets once a minute, which is too old.
ROW: JsonObject[PartitionLag] = JsonObject(
    JsonField("topic", STRING, "The topic."),
    JsonField("partition", COUNT, "The partition."),
    JsonField("committed", _OFFSET, "The committed offset."),
    JsonField("start", _OFFSET, "The log start offset."),
    JsonField("end", _OFFSET, "The end offset."),
    JsonField("lag", _OFFSET, "In offsets, never below 0. `reasons` say why it is null.", "published_lag"),
    JsonField("readable", _OFFSET, "The offsets of the lag that are in the log."),
    JsonField("lost", _OFFSET, "The offsets that left the log before they were committed."),
    JsonField(
        "retention_margin",
        _OFFSET,
        "How many offsets the log start may advance until records are lost. Null without a lag above 0.",
    ),
    JsonField("time_lag_s", _RATE, "The age of the oldest uncommitted record."),
    JsonField(
        "time_lag_source",
        nullable(one_of(("record", "ends"))),
        "record: that record was read. ends: estimated.",
    ),
    JsonField("at_least", _FLAG, "`time_lag_s` is a lower bound."),
    JsonField("status", one_of(STATUSES), "The verdict on the row.", "status.name"),
    JsonField(
        "cause",
        nullable(one_of(CAUSES)),
        "Why it is late.",
        lambda r: None if r.cause is Cause.NONE else r.cause.label,
    ),
    JsonField(
        "reasons", list_of(one_of(REASONS)), "Why `lag` is null, or is not what it seems.", "reasons.names"
    ),
    JsonField("client_id", nullable(STRING), "Of the member.", "member?.client_id"),
    JsonField("client_host", nullable(STRING), "Of the member.", "member?.client_host"),
    JsonField("member_id", nullable(STRING), "The member with this partition.", "member?.id"),
    JsonField("complete", nullable(SHARE), "The filled share of the window of commits."),
    JsonField("consume_per_s", _RATE, "Offsets per second.", "pace.consume_per_s"),
    JsonField("produce_per_s", _RATE, "Offsets per second.", "pace.produce_per_s"),
    JsonField("catch_up_s", _RATE, "When it will have caught up.", "pace.catch_up_s"),
    JsonField("never_catches_up", _FLAG, "At these rates, it never does.", "pace.never"),
)

_ASSIGNMENT = list_of(
    object_of(
        {
            "topic": told(nullable(STRING), "Null: the name is not known yet."),
            "topic_id": told(nullable(STRING), "Null: the assignment has names."),
            "partitions": told(list_of(COUNT), "The partitions."),
        }
    )
)
MEMBER: JsonObject[Member] = JsonObject(
    JsonField("member_id", STRING, "The id.", "id"),
    JsonField("client_id", STRING, "The client id."),
    JsonField("client_host", STRING, "The host."),
    JsonField("instance_id", nullable(STRING), "Of a static member."),
    JsonField("rack_id", nullable(STRING), "The rack."),
    JsonField("epoch", INTEGER, "The member epoch, or the generation; -1: unknown."),
    JsonField("state", STRING, "Stable, or what the member has to do."),
    JsonField("present", BOOLEAN, "False: a static member that left for a while."),
    JsonField("assigned", _ASSIGNMENT, "What it may be reading."),
    JsonField("revoking", _ASSIGNMENT, "What of this it must give up."),
    JsonField("awaited", _ASSIGNMENT, "What it will get."),
)


def build_rows(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """The rows of a snapshot, the highest lag first."""
    partitions, starts = snapshot.partitions, dict[tuple[str, int], int]()
    for shard in snapshot.shards.values():
        for number in shard.partition.tolist():
            key = partitions.topic[number], partitions.partition[number]
            starts[key] = int(partitions.start[number])
    for row in snapshot.rows():
        start = starts.get((row.topic, row.partition), -1)
        is_known = start >= 0 and row.end is not None
        margin = None
        if is_known and row.committed is not None and row.published_lag:
            margin = max(row.committed - start, 0)
        yield ROW.build(row, start=start if is_known else None, retention_margin=margin)


def build_members(snapshot: Snapshot, group: Group) -> list[dict[str, Any]]:
    def name_topics(assignment: Assignment) -> list[dict[str, Any]]:
        names = snapshot.topic_names
        named: list[dict[str, Any]] = [
            {
                "topic": names.get(key) if group.assigned_by_id else key,
                "topic_id": key if group.assigned_by_id else None,
                "partitions": list(partitions),
            }
            for key, partitions in assignment.items()
        ]
        return [each for each in named if each["topic"] is None or snapshot.shown.shows_topic(each["topic"])]

    return [
        MEMBER.build(
            member,
            assigned=name_topics(member.assigned),
            revoking=name_topics(member.revoking),
            awaited=name_topics(member.awaited),
        )
        for member in group.members
    ]

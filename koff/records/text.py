"""Messages as text: one readable line each, whatever the bytes were."""

from itertools import groupby
from typing import assert_never

from koff.records.classic_records import GroupMetadata
from koff.records.commit_records import OffsetCommit
from koff.records.consumer_records import (
    AssignedPartitions,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    TopicPartitions,
)
from koff.records.message import GroupMember, GroupMessage, Message, TopicAndPartition, moment
from koff.records.record import DecodedRecord, Undecodable, Unknown
from koff.records.share_records import (
    NamedTopic,
    NamedTopicPartitions,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupPartitionMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
)
from koff.records.share_state_records import ShareSnapshot, ShareUpdate
from koff.records.streams_records import (
    AssignedTasks,
    StreamsGroupCurrentMemberAssignment,
    StreamsGroupMemberMetadata,
    StreamsGroupMetadata,
    StreamsGroupTargetAssignmentMember,
    StreamsGroupTargetAssignmentMetadata,
    StreamsGroupTopology,
    TaskIds,
)

_KIND_WIDTH = 8
_STATES = {0: "stable", 1: "gives-up", 2: "waits"}
_STREAMS_STATES = {1: "stable", 2: "gives-up", 3: "waits"}


def text(message: Message) -> str:
    """One line without its end; control characters are escaped."""
    record = message.record
    match record:
        case Unknown():
            return _line("unknown", f"type {record.type}", _bytes(record.key, record.value))
        case Undecodable():
            group = shown(message.consumer) if message.consumer else ""
            return _line("bad", group, record.reason, _bytes(record.key, record.value))
        case OffsetCommit():
            return _line("offset", shown(message.consumer), _commit(record))
        case GroupMetadata():
            found = message.group_message
            return _line("group", shown(message.consumer), _classic(found) if found else "deleted")
        case _:
            kind, subject, said = _other(record)
            return _line(
                kind, shown(message.consumer), subject, said if record.value is not None else "deleted"
            )


def shown(name: str) -> str:
    """The name with what would not print, or would move the cursor, escaped; '' for the empty one."""
    if name.isprintable():
        return name or "''"
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in name
    )


def _quoted(words: str) -> str:
    return "'" + (shown(words) if words else "").replace("'", "\\'") + "'"


def _line(kind: str, *words: str) -> str:
    return " ".join([kind.ljust(_KIND_WIDTH - 1), *filter(None, words)])


def _bytes(key: bytes | None, value: bytes | None) -> str:
    """As `koff decode` takes them: hex, `-` for null, `e` for none."""
    key_hex, value_hex = ("-" if data is None else data.hex() or "e" for data in (key, value))
    return f"key={key_hex} value={value_hex}"


def _at(timestamp_ms: int) -> str:
    when = moment(timestamp_ms)
    return (
        str(timestamp_ms)
        if when is None
        else when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"
    )


def _commit(record: OffsetCommit) -> str:
    slot, value = f"{shown(record.topic)}/{record.partition}", record.value
    if value is None:
        return f"{slot} deleted"
    words = [f"{slot} = {value.offset}"]
    if value.leader_epoch != -1:
        words.append(f"epoch={value.leader_epoch}")
    if value.metadata:
        words.append(f"metadata={_quoted(value.metadata)}")
    words.append(f"at {_at(value.commit_timestamp)}")
    if value.expire_timestamp != -1:
        words.append(f"expires {_at(value.expire_timestamp)}")
    return " ".join(words)


def _classic(group: GroupMessage) -> str:
    words = [f"generation {group.generation_id}", "Stable" if group.members else "Empty"]
    if group.protocol_type not in ("", "consumer"):
        words.append(f"({shown(group.protocol_type)})")
    if group.protocol:
        words.append(shown(group.protocol))
    if group.leader_id:
        words.append(f"leader={shown(group.leader_id)}")
    members = ", ".join(_member(member) for member in group.members)
    words.append(f"members={len(group.members)}" + (f": {members}" if members else ""))
    return " ".join(words)


def _member(member: GroupMember) -> str:
    who = f"{shown(member.client_id)}@{shown(member.client_host)}"
    return f"{who} [{_slots(member.assignment)}]" if member.complete else f"{who} [?]"


def _slots(slots: tuple[TopicAndPartition, ...]) -> str:
    topics = groupby(
        sorted(slots, key=lambda slot: (slot.topic, slot.partition)), key=lambda slot: slot.topic
    )
    return " ".join(f"{shown(topic)}/{ranges([slot.partition for slot in found])}" for topic, found in topics)


def ranges(numbers: list[int]) -> str:
    """Ascending numbers as `0-3,5`."""
    words: list[str] = []
    start = None
    for at, number in enumerate(numbers):
        start = number if start is None else start
        if at + 1 == len(numbers) or numbers[at + 1] != number + 1:
            words.append(str(start) if start == number else f"{start}-{number}")
            start = None
    return ",".join(words)


def _other(record: DecodedRecord) -> tuple[str, str, str]:  # noqa: PLR0912 - one branch a type
    """Kind, subject (the member, the pattern) and what is said of it ("" in a tombstone)."""
    match record:
        case ConsumerGroupMetadata() | ShareGroupMetadata() | StreamsGroupMetadata():
            return "group", _PROTOCOL[record.type], f"epoch {record.value.epoch}" if record.value else ""
        case (
            ConsumerGroupTargetAssignmentMetadata()
            | ShareGroupTargetAssignmentMetadata()
            | StreamsGroupTargetAssignmentMetadata()
        ):
            return "target", "", f"epoch {record.value.assignment_epoch}" if record.value else ""
        case ConsumerGroupMemberMetadata() | ShareGroupMemberMetadata() | StreamsGroupMemberMetadata():
            return "member", shown(record.member_id), _member_metadata(record)
        case ConsumerGroupTargetAssignmentMember() | ShareGroupTargetAssignmentMember():
            return (
                "target",
                shown(record.member_id),
                _topics(record.value.topic_partitions) if record.value else "",
            )
        case StreamsGroupTargetAssignmentMember():
            return "target", shown(record.member_id), _tasks(record)
        case ConsumerGroupCurrentMemberAssignment() | ShareGroupCurrentMemberAssignment():
            return "current", shown(record.member_id), _current(record)
        case StreamsGroupCurrentMemberAssignment():
            return "current", shown(record.member_id), _tasks(record)
        case ConsumerGroupRegularExpression():
            topics = record.value.topics if record.value else ()
            return "pattern", _quoted(record.regular_expression), "[" + " ".join(map(shown, topics)) + "]"
        case StreamsGroupTopology():
            return "group", "topology", _topology(record)
        case ConsumerGroupPartitionMetadata() | ShareGroupPartitionMetadata():
            found = record.value.topics if record.value else ()
            return (
                "topics",
                "",
                " ".join(f"{shown(each.topic_name)}={each.num_partitions}" for each in found) or "none",
            )
        case ShareGroupStatePartitionMetadata():
            return "group", "share state", _share_partitions(record)
        case ShareSnapshot() | ShareUpdate():
            return _share_state(record)
        case OffsetCommit() | GroupMetadata():
            raise AssertionError("these have lines of their own")
        case _:
            assert_never(record)


_PROTOCOL = {3: "consumer", 11: "share", 17: "streams"}


def _member_metadata(
    record: ConsumerGroupMemberMetadata | ShareGroupMemberMetadata | StreamsGroupMemberMetadata,
) -> str:
    if record.value is None:
        return ""
    who = f"{shown(record.value.client_id)}@{shown(record.value.client_host)}"
    if isinstance(record, StreamsGroupMemberMetadata):
        return f"{who} topology {record.value.topology_epoch}"
    wants = " ".join(map(shown, record.value.subscribed_topic_names))
    if isinstance(record, ConsumerGroupMemberMetadata) and record.value.subscribed_topic_regex:
        wants = f"{wants} ~{_quoted(record.value.subscribed_topic_regex)}".strip()
    return f"{who} wants [{wants}]"


def _topics(topics: tuple[TopicPartitions, ...] | tuple[AssignedPartitions, ...]) -> str:
    return "[" + " ".join(f"{each.topic_id}/{ranges(sorted(each.partitions))}" for each in topics) + "]"


def _current(record: ConsumerGroupCurrentMemberAssignment | ShareGroupCurrentMemberAssignment) -> str:
    value = record.value
    if value is None:
        return ""
    words = [
        f"epoch {value.member_epoch} {_STATES.get(value.state, 'unknown')}",
        _topics(value.assigned_partitions),
    ]
    if isinstance(record, ConsumerGroupCurrentMemberAssignment) and record.value:
        pending = record.value.partitions_pending_revocation
        words += [f"gives up {_topics(pending)}"] if pending else []
    return " ".join(words)


def _task_list(name: str, tasks: tuple[TaskIds, ...] | tuple[AssignedTasks, ...]) -> str:
    found = " ".join(f"{shown(each.subtopology_id)}_{ranges(sorted(each.partitions))}" for each in tasks)
    return f"{name} [{found}]" if found or name == "active" else ""


def _tasks(record: StreamsGroupTargetAssignmentMember | StreamsGroupCurrentMemberAssignment) -> str:
    value = record.value
    if value is None:
        return ""
    words = [
        _task_list("active", value.active_tasks),
        _task_list("standby", value.standby_tasks),
        _task_list("warmup", value.warmup_tasks),
    ]
    if isinstance(record, StreamsGroupCurrentMemberAssignment) and record.value:
        state = _STREAMS_STATES.get(record.value.state, "unknown")
        words.insert(0, f"epoch {record.value.member_epoch} {state}")
        words.append(_task_list("gives up", record.value.active_tasks_pending_revocation))
    return " ".join(filter(None, words))


def _topology(record: StreamsGroupTopology) -> str:
    if record.value is None:
        return ""
    parts = (
        f"{shown(each.subtopology_id)} [{' '.join(map(shown, each.source_topics))}]"
        for each in record.value.subtopologies
    )
    return " ".join([f"epoch {record.value.epoch}", *parts])


def _share_partitions(record: ShareGroupStatePartitionMetadata) -> str:
    value = record.value
    if value is None:
        return ""
    named: dict[str, tuple[NamedTopicPartitions, ...] | tuple[NamedTopic, ...]] = {
        "starts": value.initializing_topics,
        "has": value.initialized_topics,
        "ends": value.deleting_topics,
    }
    return (
        " ".join(f"{word} [{' '.join(map(_named, topics))}]" for word, topics in named.items() if topics)
        or "none"
    )


def _named(topic: NamedTopicPartitions | NamedTopic) -> str:
    if isinstance(topic, NamedTopicPartitions):
        return f"{shown(topic.topic_name)}/{ranges(sorted(topic.partitions))}"
    return shown(topic.topic_name)


def _share_state(record: ShareSnapshot | ShareUpdate) -> tuple[str, str, str]:
    kind = "snapshot" if isinstance(record, ShareSnapshot) else "update"
    slot, value = f"{record.topic_id}/{record.partition} {kind}", record.value
    if value is None:
        return "share", slot, ""
    words = [f"= {value.start_offset}", f"epoch={value.leader_epoch}"]
    if value.delivery_complete_count != -1:
        words.append(f"complete={value.delivery_complete_count}")
    batches = " ".join(
        f"{each.first_offset}-{each.last_offset}:{_DELIVERY.get(each.delivery_state, each.delivery_state)}"
        f"x{each.delivery_count}"
        for each in value.state_batches
    )
    return "share", slot, " ".join([*words, f"[{batches}]"])


_DELIVERY = {0: "available", 2: "acknowledged", 4: "archived"}

"""Messages as text, one readable line each, also for records that cannot be decoded."""

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
from koff.records.decoded_message import (
    DecodedMessage,
    GroupMember,
    GroupMessage,
    TopicAndPartition,
    to_datetime,
)
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
_MEMBER_STATES = {0: "stable", 1: "gives-up", 2: "waits"}
# Streams groups number the states from 1, consumer and share groups from 0.
_STREAMS_STATES = {1: "stable", 2: "gives-up", 3: "waits"}


def text_line(message: DecodedMessage) -> str:
    """The message as one line, without its end. Control characters in it are escaped."""
    record = message.record
    match record:
        case Unknown():
            return _format_line("unknown", f"type {record.type}", _format_bytes(record.key, record.value))
        case Undecodable():
            group = escape_name(message.consumer) if message.consumer else ""
            return _format_line("bad", group, record.reason, _format_bytes(record.key, record.value))
        case OffsetCommit():
            return _format_line("offset", escape_name(message.consumer), _format_commit(record))
        case GroupMetadata():
            view = message.group_message
            state = _format_classic_group(view) if view else "deleted"
            return _format_line("group", escape_name(message.consumer), state)
        case _:
            # In a tombstone the record has no value, whatever its type.
            kind, subject, state = _format_other(record)
            state = state if record.value is not None else "deleted"
            return _format_line(kind, escape_name(message.consumer), subject, state)


def escape_name(name: str) -> str:
    """The name, with escapes for characters that do not print or that move the cursor; '' if it is empty."""
    if name.isprintable():
        return name or "''"
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in name
    )


def _quote(words: str) -> str:
    return "'" + (escape_name(words) if words else "").replace("'", "\\'") + "'"


def _format_line(kind: str, *words: str) -> str:
    return " ".join([kind.ljust(_KIND_WIDTH - 1), *filter(None, words)])


def _format_bytes(key: bytes | None, value: bytes | None) -> str:
    """The bytes as `koff decode` reads them: hex, `-` for null, `e` for empty."""
    key_hex, value_hex = ("-" if data is None else data.hex() or "e" for data in (key, value))
    return f"key={key_hex} value={value_hex}"


def _format_time(timestamp_ms: int) -> str:
    """The time in ISO 8601, in UTC with milliseconds; the number itself if it is not a time."""
    time = to_datetime(timestamp_ms)
    if time is None:
        return str(timestamp_ms)
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def _format_commit(record: OffsetCommit) -> str:
    partition, value = f"{escape_name(record.topic)}/{record.partition}", record.value
    if value is None:
        return f"{partition} deleted"
    # A leader epoch or an expiry of -1 means that the record has none.
    words = [f"{partition} = {value.offset}"]
    if value.leader_epoch != -1:
        words.append(f"epoch={value.leader_epoch}")
    if value.metadata:
        words.append(f"metadata={_quote(value.metadata)}")
    words.append(f"at {_format_time(value.commit_timestamp)}")
    if value.expire_timestamp != -1:
        words.append(f"expires {_format_time(value.expire_timestamp)}")
    return " ".join(words)


def _format_classic_group(group: GroupMessage) -> str:
    # A group that is rebalancing writes no record, so the state is one of these two.
    words = [f"generation {group.generation_id}", "Stable" if group.members else "Empty"]
    if group.protocol_type not in ("", "consumer"):
        words.append(f"({escape_name(group.protocol_type)})")
    if group.protocol:
        words.append(escape_name(group.protocol))
    if group.leader_id:
        words.append(f"leader={escape_name(group.leader_id)}")
    members = ", ".join(_format_classic_member(member) for member in group.members)
    words.append(f"members={len(group.members)}" + (f": {members}" if members else ""))
    return " ".join(words)


def _format_classic_member(member: GroupMember) -> str:
    client = f"{escape_name(member.client_id)}@{escape_name(member.client_host)}"
    return f"{client} [{_format_partitions(member.assignment)}]" if member.complete else f"{client} [?]"


def _format_partitions(partitions: tuple[TopicAndPartition, ...]) -> str:
    # Sorted, because groupby joins only neighbours.
    in_order = sorted(partitions, key=lambda p: (p.topic, p.partition))
    return " ".join(
        f"{escape_name(topic)}/{format_ranges([p.partition for p in of_topic])}"
        for topic, of_topic in groupby(in_order, key=lambda p: p.topic)
    )


def format_ranges(numbers: list[int]) -> str:
    """Ascending numbers as ranges, for example `0-3,5`."""
    words: list[str] = []
    start = None
    for index, number in enumerate(numbers):
        # A range ends where the next number is not its successor.
        start = number if start is None else start
        if index + 1 == len(numbers) or numbers[index + 1] != number + 1:
            words.append(str(start) if start == number else f"{start}-{number}")
            start = None
    return ",".join(words)


def _format_other(record: DecodedRecord) -> tuple[str, str, str]:  # noqa: PLR0912 - one branch for each type
    """The kind of record, its subject (a member, a pattern) and the state of the subject, which may be ""."""
    match record:
        case ConsumerGroupMetadata() | ShareGroupMetadata() | StreamsGroupMetadata():
            return "group", _PROTOCOLS[record.type], f"epoch {record.value.epoch}" if record.value else ""
        case (
            ConsumerGroupTargetAssignmentMetadata()
            | ShareGroupTargetAssignmentMetadata()
            | StreamsGroupTargetAssignmentMetadata()
        ):
            return "target", "", f"epoch {record.value.assignment_epoch}" if record.value else ""
        case ConsumerGroupMemberMetadata() | ShareGroupMemberMetadata() | StreamsGroupMemberMetadata():
            return "member", escape_name(record.member_id), _format_member(record)
        case ConsumerGroupTargetAssignmentMember() | ShareGroupTargetAssignmentMember():
            return (
                "target",
                escape_name(record.member_id),
                _format_topics(record.value.topic_partitions) if record.value else "",
            )
        case StreamsGroupTargetAssignmentMember():
            return "target", escape_name(record.member_id), _format_tasks(record)
        case ConsumerGroupCurrentMemberAssignment() | ShareGroupCurrentMemberAssignment():
            return "current", escape_name(record.member_id), _format_current_assignment(record)
        case StreamsGroupCurrentMemberAssignment():
            return "current", escape_name(record.member_id), _format_tasks(record)
        case ConsumerGroupRegularExpression():
            topics = record.value.topics if record.value else ()
            return (
                "pattern",
                _quote(record.regular_expression),
                "[" + " ".join(map(escape_name, topics)) + "]",
            )
        case StreamsGroupTopology():
            return "group", "topology", _format_topology(record)
        case ConsumerGroupPartitionMetadata() | ShareGroupPartitionMetadata():
            counts = record.value.topics if record.value else ()
            words = " ".join(f"{escape_name(topic.topic_name)}={topic.num_partitions}" for topic in counts)
            return "topics", "", words or "none"
        case ShareGroupStatePartitionMetadata():
            return "group", "share state", _format_share_partitions(record)
        case ShareSnapshot() | ShareUpdate():
            return _format_share_state(record)
        case OffsetCommit() | GroupMetadata():
            raise AssertionError("text_line formats these itself")
        case _:
            assert_never(record)


_PROTOCOLS = {3: "consumer", 11: "share", 17: "streams"}


def _format_member(
    record: ConsumerGroupMemberMetadata | ShareGroupMemberMetadata | StreamsGroupMemberMetadata,
) -> str:
    if record.value is None:
        return ""
    client = f"{escape_name(record.value.client_id)}@{escape_name(record.value.client_host)}"
    if isinstance(record, StreamsGroupMemberMetadata):
        return f"{client} topology {record.value.topology_epoch}"
    wants = " ".join(map(escape_name, record.value.subscribed_topic_names))
    if isinstance(record, ConsumerGroupMemberMetadata) and record.value.subscribed_topic_regex:
        wants = f"{wants} ~{_quote(record.value.subscribed_topic_regex)}".strip()
    return f"{client} wants [{wants}]"


def _format_topics(topics: tuple[TopicPartitions, ...] | tuple[AssignedPartitions, ...]) -> str:
    return (
        "["
        + " ".join(f"{topic.topic_id}/{format_ranges(sorted(topic.partitions))}" for topic in topics)
        + "]"
    )


def _format_current_assignment(
    record: ConsumerGroupCurrentMemberAssignment | ShareGroupCurrentMemberAssignment,
) -> str:
    value = record.value
    if value is None:
        return ""
    words = [
        f"epoch {value.member_epoch} {_MEMBER_STATES.get(value.state, 'unknown')}",
        _format_topics(value.assigned_partitions),
    ]
    # The record of share groups, type 14, has no partitions to give up.
    if isinstance(record, ConsumerGroupCurrentMemberAssignment) and record.value:
        pending = record.value.partitions_pending_revocation
        words += [f"gives up {_format_topics(pending)}"] if pending else []
    return " ".join(words)


def _format_task_list(name: str, tasks: tuple[TaskIds, ...] | tuple[AssignedTasks, ...]) -> str:
    task_ids = " ".join(
        f"{escape_name(part.subtopology_id)}_{format_ranges(sorted(part.partitions))}" for part in tasks
    )
    return f"{name} [{task_ids}]" if task_ids or name == "active" else ""


def _format_tasks(record: StreamsGroupTargetAssignmentMember | StreamsGroupCurrentMemberAssignment) -> str:
    value = record.value
    if value is None:
        return ""
    words = [
        _format_task_list("active", value.active_tasks),
        _format_task_list("standby", value.standby_tasks),
        _format_task_list("warmup", value.warmup_tasks),
    ]
    if isinstance(record, StreamsGroupCurrentMemberAssignment) and record.value:
        state = _STREAMS_STATES.get(record.value.state, "unknown")
        words.insert(0, f"epoch {record.value.member_epoch} {state}")
        words.append(_format_task_list("gives up", record.value.active_tasks_pending_revocation))
    return " ".join(filter(None, words))


def _format_topology(record: StreamsGroupTopology) -> str:
    if record.value is None:
        return ""
    parts = (
        f"{escape_name(part.subtopology_id)} [{' '.join(map(escape_name, part.source_topics))}]"
        for part in record.value.subtopologies
    )
    return " ".join([f"epoch {record.value.epoch}", *parts])


def _format_share_partitions(record: ShareGroupStatePartitionMetadata) -> str:
    value = record.value
    if value is None:
        return ""
    topics_by_word: dict[str, tuple[NamedTopicPartitions, ...] | tuple[NamedTopic, ...]] = {
        "starts": value.initializing_topics,
        "has": value.initialized_topics,
        "ends": value.deleting_topics,
    }
    lists = (
        f"{word} [{' '.join(map(_format_named_topic, topics))}]"
        for word, topics in topics_by_word.items()
        if topics
    )
    return " ".join(lists) or "none"


def _format_named_topic(topic: NamedTopicPartitions | NamedTopic) -> str:
    if isinstance(topic, NamedTopicPartitions):
        return f"{escape_name(topic.topic_name)}/{format_ranges(sorted(topic.partitions))}"
    return escape_name(topic.topic_name)


def _format_share_state(record: ShareSnapshot | ShareUpdate) -> tuple[str, str, str]:
    kind = "snapshot" if isinstance(record, ShareSnapshot) else "update"
    subject, value = f"{record.topic_id}/{record.partition} {kind}", record.value
    if value is None:
        return "share", subject, ""
    words = [f"= {value.start_offset}", f"epoch={value.leader_epoch}"]
    if value.delivery_complete_count != -1:
        words.append(f"complete={value.delivery_complete_count}")
    batches = " ".join(
        f"{batch.first_offset}-{batch.last_offset}"
        f":{_DELIVERY_STATES.get(batch.delivery_state, batch.delivery_state)}x{batch.delivery_count}"
        for batch in value.state_batches
    )
    return "share", subject, " ".join([*words, f"[{batches}]"])


_DELIVERY_STATES = {0: "available", 2: "acknowledged", 4: "archived"}

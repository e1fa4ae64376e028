"""Messages as text, one readable line each, also for records that cannot be decoded."""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from koff.records import consumer_records as consumer
from koff.records import share_records as share
from koff.records import streams_records as streams
from koff.records.classic_records import GroupMetadata, OffsetCommit
from koff.records.decoded_message import (
    DecodedMessage,
    GroupMember,
    GroupMessage,
    TopicAndPartition,
    to_datetime,
)
from koff.records.record import Undecodable, Unknown
from koff.records.share_state_records import ShareSnapshot, ShareUpdate

_KIND_WIDTH = 8
_MEMBER_STATES = {0: "stable", 1: "gives-up", 2: "waits"}
# Streams groups number the states from 1, consumer and share groups from 0.
_STREAMS_STATES = {1: "stable", 2: "gives-up", 3: "waits"}
_DELIVERY_STATES = {0: "available", 2: "acknowledged", 4: "archived"}


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
            kind, subject, format_value = _LINES[type(record)]
            state = format_value(record.value) if record.value else "deleted"
            return _format_line(kind, escape_name(message.consumer), subject(record), state)


def escape_name(name: str) -> str:
    """The name, with escapes for characters that do not print or that move the cursor; '' if it is empty."""
    if name.isprintable():
        return name or "''"
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in name
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


def _quote(words: str) -> str:
    return "'" + (escape_name(words) if words else "").replace("'", "\\'") + "'"


def _list(words: Iterable[str]) -> str:
    return f"[{' '.join(words)}]"


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
    partitions = _list(_format_partitions(member.assignment)) if member.complete else "[?]"
    return f"{_format_client(member)} {partitions}"


def _format_partitions(partitions: tuple[TopicAndPartition, ...]) -> Iterable[str]:
    # Sorted, because groupby joins only neighbours.
    in_order = sorted(partitions, key=lambda p: (p.topic, p.partition))
    return (
        f"{escape_name(topic)}/{format_ranges([p.partition for p in of_topic])}"
        for topic, of_topic in groupby(in_order, key=lambda p: p.topic)
    )


# --- The other records: the state that a value describes ----------------------------------------------------


def _format_client(value: Any) -> str:
    return f"{escape_name(value.client_id)}@{escape_name(value.client_host)}"


def _format_epoch(value: Any) -> str:
    return f"epoch {value.epoch}"


def _format_target_epoch(value: Any) -> str:
    return f"epoch {value.assignment_epoch}"


def _format_member(value: Any) -> str:
    wants = " ".join(map(escape_name, value.subscribed_topic_names))
    if pattern := getattr(value, "subscribed_topic_regex", None):  # only consumer groups have one
        wants = f"{wants} ~{_quote(pattern)}".strip()
    return f"{_format_client(value)} wants [{wants}]"


def _format_streams_member(value: streams.StreamsGroupMemberMetadataValue) -> str:
    return f"{_format_client(value)} topology {value.topology_epoch}"


def _format_topics(topics: Iterable[Any]) -> str:
    return _list(f"{topic.topic_id}/{format_ranges(sorted(topic.partitions))}" for topic in topics)


def _format_target(value: Any) -> str:
    return _format_topics(value.topic_partitions)


def _format_current(value: Any) -> str:
    state = f"epoch {value.member_epoch} {_MEMBER_STATES.get(value.state, 'unknown')}"
    # Members of share groups have no partitions to give up.
    pending = getattr(value, "partitions_pending_revocation", ())
    gives_up = f" gives up {_format_topics(pending)}" if pending else ""
    return f"{state} {_format_topics(value.assigned_partitions)}{gives_up}"


def _format_tasks(value: Any) -> str:
    task_lists = {"active": value.active_tasks, "standby": value.standby_tasks, "warmup": value.warmup_tasks}
    words = []
    if isinstance(value, streams.StreamsGroupCurrentMemberAssignmentValue):
        words = [f"epoch {value.member_epoch} {_STREAMS_STATES.get(value.state, 'unknown')}"]
        task_lists["gives up"] = value.active_tasks_pending_revocation
    for name, tasks in task_lists.items():
        words += [f"{name} {_list(map(_format_task, tasks))}"] if tasks or name == "active" else []
    return " ".join(words)


def _format_task(task: Any) -> str:
    return f"{escape_name(task.subtopology_id)}_{format_ranges(sorted(task.partitions))}"


def _format_pattern(value: consumer.ConsumerGroupRegularExpressionValue) -> str:
    return _list(map(escape_name, value.topics))


def _format_topology(value: streams.StreamsGroupTopologyValue) -> str:
    parts = (
        f"{escape_name(part.subtopology_id)} {_list(map(escape_name, part.source_topics))}"
        for part in value.subtopologies
    )
    return " ".join([_format_epoch(value), *parts])


def _format_counts(value: consumer.ConsumerGroupPartitionMetadataValue) -> str:
    counts = (f"{escape_name(topic.topic_name)}={topic.num_partitions}" for topic in value.topics)
    return " ".join(counts) or "none"


def _format_share_partitions(value: share.ShareGroupStatePartitionMetadataValue) -> str:
    topics_by_word: dict[str, tuple[Any, ...]] = {
        "starts": value.initializing_topics,
        "has": value.initialized_topics,
        "ends": value.deleting_topics,
    }
    lists = (
        f"{word} {_list(map(_format_named_topic, topics))}"
        for word, topics in topics_by_word.items()
        if topics
    )
    return " ".join(lists) or "none"


def _format_named_topic(topic: share.NamedTopicPartitions | share.NamedTopic) -> str:
    partitions = getattr(topic, "partitions", None)
    name = escape_name(topic.topic_name)
    return name if partitions is None else f"{name}/{format_ranges(sorted(partitions))}"


def _format_share_state(value: Any) -> str:
    words = [f"= {value.start_offset}", f"epoch={value.leader_epoch}"]
    if value.delivery_complete_count != -1:
        words.append(f"complete={value.delivery_complete_count}")
    batches = (
        f"{batch.first_offset}-{batch.last_offset}"
        f":{_DELIVERY_STATES.get(batch.delivery_state, batch.delivery_state)}x{batch.delivery_count}"
        for batch in value.state_batches
    )
    return " ".join([*words, _list(batches)])


def _say(words: str) -> Callable[[Any], str]:
    return lambda record: words


def _name_member(record: Any) -> str:
    return escape_name(record.member_id)


def _name_share_partition(record: ShareSnapshot | ShareUpdate) -> str:
    kind = "snapshot" if isinstance(record, ShareSnapshot) else "update"
    return f"{record.topic_id}/{record.partition} {kind}"


_LINES: dict[type[Any], tuple[str, Callable[[Any], str], Callable[[Any], str]]] = {
    consumer.ConsumerGroupMetadata: ("group", _say("consumer"), _format_epoch),
    share.ShareGroupMetadata: ("group", _say("share"), _format_epoch),
    streams.StreamsGroupMetadata: ("group", _say("streams"), _format_epoch),
    streams.StreamsGroupTopology: ("group", _say("topology"), _format_topology),
    share.ShareGroupStatePartitionMetadata: ("group", _say("share state"), _format_share_partitions),
    consumer.ConsumerGroupMemberMetadata: ("member", _name_member, _format_member),
    share.ShareGroupMemberMetadata: ("member", _name_member, _format_member),
    streams.StreamsGroupMemberMetadata: ("member", _name_member, _format_streams_member),
    consumer.ConsumerGroupTargetAssignmentMetadata: ("target", _say(""), _format_target_epoch),
    share.ShareGroupTargetAssignmentMetadata: ("target", _say(""), _format_target_epoch),
    streams.StreamsGroupTargetAssignmentMetadata: ("target", _say(""), _format_target_epoch),
    consumer.ConsumerGroupTargetAssignmentMember: ("target", _name_member, _format_target),
    share.ShareGroupTargetAssignmentMember: ("target", _name_member, _format_target),
    streams.StreamsGroupTargetAssignmentMember: ("target", _name_member, _format_tasks),
    consumer.ConsumerGroupCurrentMemberAssignment: ("current", _name_member, _format_current),
    share.ShareGroupCurrentMemberAssignment: ("current", _name_member, _format_current),
    streams.StreamsGroupCurrentMemberAssignment: ("current", _name_member, _format_tasks),
    consumer.ConsumerGroupRegularExpression: (
        "pattern",
        lambda record: _quote(record.regular_expression),
        _format_pattern,
    ),
    consumer.ConsumerGroupPartitionMetadata: ("topics", _say(""), _format_counts),
    share.ShareGroupPartitionMetadata: ("topics", _say(""), _format_counts),
    ShareSnapshot: ("share", _name_share_partition, _format_share_state),
    ShareUpdate: ("share", _name_share_partition, _format_share_state),
}
"""By type: the kind of line, what it is about (a member, a pattern), and the state that its value has."""

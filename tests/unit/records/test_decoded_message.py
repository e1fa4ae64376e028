"""Messages in the seed's terms, and records that are not as they should be."""

import json
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from koff.proto.primitives import write_uvarint
from koff.records import (
    ClassicMember,
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    GroupMessage,
    GroupMetadata,
    GroupMetadataValue,
    Malformed,
    OffsetCommit,
    OffsetCommitValue,
    ShareSnapshot,
    ShareSnapshotValue,
    StateBatch,
    TopicAndPartition,
    Undecodable,
    as_dict,
    decode,
    encode,
    kafka_json,
    kafka_line,
)
from koff.records.consumer_records import ClassicProtocol
from tests.unit.records.decoding import decoded

SUBSCRIPTION = bytes.fromhex(
    "00030000000200067265632d743100067265632d74320000000000000000ffffffff00067261636b2d61"
)
ASSIGNMENT = bytes.fromhex("000000000002000161000000020000000000000001000161000000020000000100000002ffffffff")


def commit(**fields: Any) -> tuple[bytes | None, bytes | None]:
    value = OffsetCommitValue(
        **{"version": 3, "offset": 9, "metadata": "m", "commit_timestamp": 1000, **fields}
    )
    return encode(OffsetCommit(group="g", topic="t", partition=2, value=value))


def classic(protocol_type: str = "consumer", **fields: Any) -> tuple[bytes | None, bytes | None]:
    given: dict[str, Any] = {
        "member_id": "m",
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout": 300_000,
        "session_timeout": 10_000,
        "subscription": SUBSCRIPTION,
        "assignment": ASSIGNMENT,
    }
    value = GroupMetadataValue(
        version=3,
        protocol_type=protocol_type,
        generation=4,
        protocol="range",
        leader="m",
        members=(ClassicMember(**(given | fields)),),
    )
    return encode(GroupMetadata(group="g", value=value))


def test_an_offset_message_has_times_in_utc():
    message = decoded(*commit(version=1, expire_timestamp=61_000))
    offset = message.offset_message
    assert offset is not None
    assert (message.consumer, offset.topic, offset.partition, offset.offset, offset.metadata) == (
        "g",
        "t",
        2,
        9,
        "m",
    )
    assert offset.committed_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert offset.expires_at == datetime(1970, 1, 1, 0, 1, 1, tzinfo=UTC)
    assert message.group_message is None
    assert not message.tombstone


@pytest.mark.parametrize("timestamp", [-1, -(2**63), 2**63 - 1])
def test_times_beyond_the_calendar_are_none(timestamp):
    offset = decoded(*commit(commit_timestamp=timestamp)).offset_message
    assert offset is not None
    assert offset.committed_at is None


def test_a_tombstone_is_a_message_too():
    message = decoded(commit()[0], None)
    assert message.tombstone
    assert message.consumer == "g"
    assert message.offset_message is None
    assert isinstance(message.record, OffsetCommit)


def test_a_group_message_has_its_members_decoded():
    group = decoded(*classic()).group_message
    assert group is not None
    assert group.complete
    assert (group.protocol_type, group.generation_id, group.leader_id, group.protocol) == (
        "consumer",
        4,
        "m",
        "range",
    )
    (member,) = group.members
    assert member.subscription == (TopicAndPartition("rec-t1", -1), TopicAndPartition("rec-t2", -1))
    assert member.assignment == tuple(TopicAndPartition("a", partition) for partition in (0, 1, 2))
    assert (member.session_timeout, member.rebalance_timeout) == (timedelta(seconds=10), timedelta(minutes=5))


def test_a_group_without_members_is_not_complete():
    empty = GroupMessage("consumer", 5, "", "", ())
    assert not empty.complete


@pytest.mark.parametrize(
    "broken", [{"subscription": b"\0\3\0"}, {"assignment": b"\xff\xff"}, {"subscription": b""}]
)
def test_a_blob_that_does_not_decode_does_not_lose_the_member(broken):
    group = decoded(*classic(**broken)).group_message
    assert group is not None
    assert not group.complete
    assert group.members[0].client_id == "c"


def test_blobs_of_other_protocols_are_kept_and_named():
    message = decoded(*classic("connect"))
    assert message.group_message is not None
    assert not message.group_message.complete
    member = as_dict(message)["value"]["members"][0]
    assert member["subscription"] == {"format": "connect", "data": SUBSCRIPTION.hex()}


@pytest.mark.parametrize(
    ("key", "value", "reason", "type_"),
    [
        (None, b"", "the key is null", None),
        (b"", None, "the key ends before its type does", None),
        (b"\0", None, "the key ends before its type does", None),
        (b"\0\1", None, "key: ends early", 1),
        (b"\0\2\xff\xff", None, "key: group is null", 2),
        (b"\0\2\0\1g", b"", "value: is empty", 2),
        (b"\0\2\0\1g", b"\0", "value: ends before its version does", 2),
        (b"\0\2\0\1g", b"\0\5", "value: unknown version 5", 2),
        (b"\0\2\0\1g", b"\xff\xff", "value: unknown version -1", 2),
        (b"\0\2\0\1g", b"\0\0\0\2g", "value: ends inside protocol_type", 2),
    ],
)
def test_bytes_that_are_no_record_say_why(key, value, reason, type_):
    message = decode(key, value)
    assert message.record == Undecodable(key, value, reason, type_)
    assert not message.tombstone
    assert message.consumer == ("g" if reason.startswith("value") else "")
    assert kafka_json(message) == {"error": reason}


def test_trailing_bytes_and_unknown_tags_are_kept():
    key, value = commit(version=4)
    assert key is not None
    assert value is not None
    tagged = value[:-1] + b"\1\x07\3abc" + b"rest"
    record = decoded(key + b"more", tagged).record
    assert isinstance(record, OffsetCommit)
    assert record.value is not None
    assert (record.key_trailing, record.value.trailing) == (b"more", b"rest")
    assert record.value.unknown_tags == ((7, b"abc"),)
    assert encode(record) == (key + b"more", tagged)
    assert as_dict(decode(key, tagged))["value"]["unknown_tags"] == [{"tag": 7, "data": "616263"}]


def test_strings_that_are_not_utf_8_are_what_java_makes_of_them():
    key = b"\0\2\0\5\xed\xa0\x80\xffg"
    assert decoded(key, None).consumer == "\ufffd\ufffdg"


def test_messages_are_frozen_hashable_and_can_be_pickled():
    message = decode(*classic())
    assert pickle.loads(pickle.dumps(message)) == message
    assert hash(message) == hash(decode(*classic()))
    with pytest.raises(AttributeError):
        message.record.group = "other"  # type: ignore[misc]  # on purpose
    assert not hasattr(message, "__dict__")
    assert not hasattr(message.record, "__dict__")


def test_the_share_state_of_4_0_is_read():
    batch = StateBatch(first_offset=0, last_offset=1, delivery_state=2, delivery_count=1)
    early = ShareSnapshotValue(
        version=0,
        layout="4.0",
        snapshot_epoch=65535,
        state_epoch=1,
        leader_epoch=2,
        start_offset=3,
        state_batches=(batch,),
    )
    snapshot = ShareSnapshot(group_id="g", topic_id="A" * 22, partition=1, value=early)
    assert decoded(*encode(snapshot), share_state=True).record == snapshot


def test_an_array_longer_than_its_bytes_is_refused_before_it_is_made():
    huge = bytearray(b"\0\0")
    write_uvarint(huge, 0x7FFFFFFF)
    record = decoded(b"\0\x07\0\1g\0\1m", bytes(huge)).record
    assert isinstance(record, Undecodable)
    assert record.reason == "value: topic_partitions has 2147483646 items in 0 bytes"


def test_json_has_a_classic_members_subscription_decoded():
    protocol = ClassicProtocol(name="range", metadata=SUBSCRIPTION)
    classic_metadata = ClassicMemberMetadata(session_timeout_ms=10_000, supported_protocols=(protocol,))
    value = ConsumerGroupMemberMetadataValue(
        version=0,
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=(),
        subscribed_topic_regex=None,
        rebalance_timeout_ms=1,
        server_assignor=None,
        classic_member_metadata=classic_metadata,
    )
    pair = encode(ConsumerGroupMemberMetadata(group_id="g", member_id="m", value=value))
    (shown,) = as_dict(decoded(*pair))["value"]["classic_member_metadata"]["supported_protocols"]
    assert shown["name"] == "range"
    assert shown["metadata"]["topics"] == ["rec-t1", "rec-t2"]


def test_escapes_in_kafkas_line_have_upper_case_digits():
    key, _ = encode(OffsetCommit(group="\x1f\\u001f\n", topic="t", partition=0, value=None))
    line = kafka_line(decode(key, None))
    assert '"group":"\\u001F\\\\u001f\\n"' in line
    assert json.loads(line)["key"]["data"]["group"] == "\x1f\\u001f\n"


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    "wrong", [{"offset": 2**63}, {"metadata": "x" * 40000}, {"metadata": None}, {"version": 9}]
)
def test_what_cannot_be_written_is_refused(wrong, version):
    with pytest.raises(Malformed):
        commit(**({"version": version} | wrong))

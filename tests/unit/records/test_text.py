"""The line that a person reads."""

from typing import Any

import pytest

from koff.records import DecodedMessage, OffsetCommit, OffsetCommitValue, decode, encode, text_line
from tests.unit.records.decoding import decoded, golden, key_and_value


def commit(**fields: Any) -> str:
    value = OffsetCommitValue(
        **{"version": 3, "offset": 1234, "metadata": "", "commit_timestamp": 0, **fields}
    )
    return text_line(DecodedMessage("g", OffsetCommit(group="g", topic="orders", partition=3, value=value)))


def test_a_commit_tells_epoch_metadata_and_expiry_when_it_has_them():
    line = commit(leader_epoch=5, metadata="it's", commit_timestamp=1795223298551, expire_timestamp=-2)
    assert (
        line == "offset  g orders/3 = 1234 epoch=5 metadata='it\\'s' at 2026-11-21T01:08:18.551Z expires -2"
    )


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "a\x00", "\u202eright to left"])
def test_control_characters_are_escaped(name):
    key, _ = encode(OffsetCommit(group=name, topic=name, partition=0, value=None))
    line = text_line(decode(key, None))
    assert line.isprintable()
    assert line.endswith(" deleted")


def test_what_does_not_decode_is_shown_whole():
    assert text_line(decode(b"\0\1\0", b"")) == "bad     key: ends early key=000100 value=e"
    assert text_line(decode(None, None)) == "bad     the key is null key=- value=-"
    assert text_line(decode(b"\0\x63\0", b"\1")) == "unknown type 99 key=006300 value=01"


def test_records_off_a_broker_read_like_this():
    lines: dict[tuple[str, int | None, bool], str] = {}
    for case in golden("golden"):
        message = decoded(*key_and_value(case), share_state=case["topic"] == "__share_group_state")
        lines.setdefault((case["topic"], message.record.type, message.tombstone), text_line(message))
    consumer = {
        (type_, gone): line for (topic, type_, gone), line in lines.items() if topic == "__consumer_offsets"
    }
    assert consumer[3, False] == "group   rec-consumer2 consumer epoch 2"
    assert consumer[3, True] == "group   rec-consumer2 consumer deleted"
    assert consumer[8, False].endswith(" epoch 2 stable [Lt0Eht-HRa2GCmvQvFtJdg/0-2]")
    assert (
        consumer[5, False] == "member  rec-consumer2 SK9x94MCTGSzU/zrDsk2Ag rdkafka@/127.0.0.1 wants [rec-t1]"
    )
    assert consumer[15, False] == "group   rec-share share state starts [rec-t1/0-2]"
    assert consumer[23, False] == "group   rec-streams topology epoch 0 0 [rec-t1] 1 []"
    assert lines["__share_group_state", 0, False] == (
        "share   rec-share Lt0Eht-HRa2GCmvQvFtJdg/2 snapshot = 3 epoch=0 complete=0 "
        "[3-4:availablex3 5-9:availablex3]"
    )


def test_a_classic_group_names_its_members_and_what_they_hold():
    lines = [
        text_line(decoded(*key_and_value(case)))
        for case in golden("golden")
        if case["oracle_key"]["type"] == 2 and case.get("blobs") and case["group"] == "rec-classic-coop"
    ]
    leader = "leader=rec-classic-coop-i1-35bca2d9-fe87-48d7-bedd-077318fbefe8"
    assert lines[0] == (
        f"group   rec-classic-coop generation 1 Stable cooperative-sticky {leader} "
        "members=1: c-1@/127.0.0.1 [rec-t1/0-2 rec-t2/0-1]"
    )

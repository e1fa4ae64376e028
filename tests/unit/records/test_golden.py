"""What koff decodes is what Kafka's own code decodes: records off a broker, and made from the schemas."""

import json
from typing import Any

from koff.proto.json_data import kafka_data
from koff.records import (
    OffsetCommit,
    Undecodable,
    UndecodableBlob,
    decode_assignment,
    decode_subscription,
    encode,
    kafka_json,
    kafka_line,
)
from tests.unit.records.decoding import decoded, golden, key_and_value

BROKER = golden("golden")
SYNTHETIC = [case for case in golden("synthetic") if "blob" not in case]
BLOBS = [case for case in golden("synthetic") if "blob" in case]
ACCEPTED = [case for case in BROKER + SYNTHETIC if case["oracle_key"] and not case.get("oracle_error")]
REJECTED = [case for case in SYNTHETIC if case.get("oracle_error")]
TOLERATED = {"legacy-key-value-v1", "legacy-key-value-v2", "legacy-key-value-v3", "legacy-key-value-v4"}


def message_of(case: dict[str, Any]):
    return decoded(*key_and_value(case), share_state=case["topic"] == "__share_group_state")


def test_records_decode_to_what_kafka_says():
    for case in ACCEPTED:
        expected = {"key": case["oracle_key"], "value": case["oracle_value"]}
        assert json.dumps(kafka_json(message_of(case))) == json.dumps(expected), case


def test_lines_in_kafkas_format_are_those_of_its_console_formatters():
    printed = [case for case in BROKER if "formatter_json" in case]
    assert len(printed) > 100
    for case in printed:
        expected = json.dumps(case["formatter_json"], separators=(",", ":"), ensure_ascii=False)
        assert kafka_line(message_of(case)) == expected


def test_what_kafka_rejects_is_undecodable_with_its_bytes():
    for case in REJECTED:
        if case["variant"].removesuffix("+trailing") in TOLERATED:
            continue
        record = message_of(case).record
        assert isinstance(record, Undecodable), case
        assert (record.key, record.value) == key_and_value(case)


def test_values_of_any_version_are_read_behind_keys_of_type_0():
    tolerated = [case for case in REJECTED if case["variant"].removesuffix("+trailing") in TOLERATED]
    assert len(tolerated) > 3
    for case in tolerated:
        record = message_of(case).record
        assert isinstance(record, OffsetCommit)
        assert record.type == 0
        assert record.value.version == int(case["variant"].removesuffix("+trailing")[-1])


def test_what_brokers_write_is_encoded_byte_for_byte():
    for case in ACCEPTED:
        assert encode(message_of(case).record) == key_and_value(case), case


def test_blobs_decode_to_what_kafka_says():
    for case in BLOBS:
        data = bytes.fromhex(case["hex"])
        blob = (decode_subscription if case["blob"] == "subscription" else decode_assignment)(data)
        if case["oracle_value"] is None:
            assert isinstance(blob, UndecodableBlob), case
        else:
            expected = case["oracle_value"]
            assert not isinstance(blob, UndecodableBlob)
            assert blob.version == expected["version"]
            assert kafka_data(blob, expected["read_as"]) == expected["data"]


def test_members_blobs_are_those_kafka_decodes():
    for case in [case for case in BROKER if case.get("blobs")]:
        members = {member.member_id: member for member in message_of(case).record.value.members}
        for expected in case["blobs"]:
            member = members[expected["member"]]
            read = decode_subscription if expected["kind"] == "subscription" else decode_assignment
            blob = read(getattr(member, expected["kind"]))
            if "value" in expected["oracle"] or "data" in expected["oracle"]:
                assert kafka_data(blob, blob.version) == expected["oracle"]["data"]

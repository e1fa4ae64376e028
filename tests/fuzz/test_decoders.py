"""Mutated records, and what must hold for each of them without asking Kafka."""

import os

from koff.records import (
    Binary,
    DecodedRecord,
    OffsetCommit,
    as_dict,
    decode,
    decode_columns,
    decode_share_state,
    encode,
    kafka_line,
    text_line,
)
from tests.fuzz.mutation import mutated
from tests.fuzz.oracle import Case

CASES = [
    case
    for case in mutated(
        int(os.environ.get("KOFF_FUZZ_CASES", "5000")), int(os.environ.get("KOFF_FUZZ_SEED", "2"))
    )
    if case.mode in ("offsets", "share")
]


def test_no_record_makes_a_decoder_or_a_printer_raise():
    for case in CASES:
        message = (
            decode_share_state(case.key, case.value) if case.mode == "share" else decode(case.key, case.value)
        )
        assert text_line(message).isprintable()
        assert kafka_line(message)
        assert as_dict(message)


def test_what_is_decoded_can_be_encoded_and_decoded_to_the_same():
    decoded = 0
    for case in CASES:
        read = decode_share_state if case.mode == "share" else decode
        record = read(case.key, case.value).record
        if isinstance(record, DecodedRecord) and not longer_in_utf_8(case):
            decoded += 1
            written = encode(record)  # with its tags in order
            assert encode(read(*written).record) == written, case.line()
    assert decoded > len(CASES) / 4


def longer_in_utf_8(case: Case) -> bool:
    """A replacement has three bytes where one stood: a long string would grow beyond what it may have."""
    return len(case.key) + len(case.value or b"") > 10_000


def test_columns_agree_with_records():
    cases = [case for case in CASES if case.mode == "offsets"]
    columns = decode_columns(
        Binary.from_values([case.key for case in cases]), Binary.from_values([case.value for case in cases])
    )
    for row, case in enumerate(cases):
        message = decode(case.key, case.value)
        record = message.record
        if not isinstance(record, OffsetCommit):
            assert columns.others[row] == message
            continue
        assert columns.ok[row]
        names = columns.groups[columns.group[row]], columns.topics[columns.topic[row]]
        assert (*names, columns.partition[row]) == (record.group, record.topic, record.partition)
        assert columns.tombstone[row] == (record.value is None)
        if record.value is not None:
            assert columns.offset[row] == record.value.offset
            assert columns.commit_timestamp[row] == record.value.commit_timestamp
            assert columns.metadata[row] == record.value.metadata

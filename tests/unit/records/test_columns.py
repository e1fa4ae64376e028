"""Whole batches in columns: row by row what the scalar decoder says, whatever the bytes are."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koff.proto.buffers import Binary
from koff.records import OffsetCommit, OffsetCommitValue, decode, encode
from koff.records import columns as batches
from koff.records import key_codes as names
from koff.records.columns import RecordColumns, decode_columns
from koff.records.key_codes import KeyCodes
from tests.unit.records.decoding import golden, key_and_value

Pair = tuple[bytes | None, bytes | None]
GOLDEN: list[Pair] = [
    key_and_value(case)
    for case in golden("golden") + golden("synthetic")
    if case.get("topic") == "__consumer_offsets" and len(case["value_hex"] or "") < 2000
]


def commit(group: str = "g", topic: str = "t", partition: int = 0, **fields: Any) -> Pair:
    value = OffsetCommitValue(**{"version": 4, "offset": 1, "metadata": "", "commit_timestamp": 2, **fields})
    return encode(OffsetCommit(group=group, topic=topic, partition=partition, value=value))


def tombstone(group: str = "g", topic: str = "t", partition: int = 0) -> Pair:
    return encode(OffsetCommit(group=group, topic=topic, partition=partition, value=None))


def columns_of(pairs: list[Pair], keys: KeyCodes | None = None) -> RecordColumns:
    return decode_columns(
        Binary.from_values([key for key, _ in pairs]),
        Binary.from_values([value for _, value in pairs]),
        names=keys,
    )


def assert_agrees(pairs: list[Pair], keys: KeyCodes | None = None) -> RecordColumns:
    columns = columns_of(pairs, keys)
    assert len(columns.ok) == len(pairs)
    assert sorted(columns.others) == np.flatnonzero(~columns.ok).tolist()
    for row, pair in enumerate(pairs):
        message = decode(*pair)
        if isinstance(message.record, OffsetCommit):
            assert columns.ok[row]
            assert_row(columns, row, message.record)
        else:
            assert columns.others[row] == message
            assert columns.group[row] == columns.topic[row] == columns.partition[row] == -1
            key = pair[0] or b""
            assert columns.type[row] == (int.from_bytes(key[:2], "big", signed=True) if len(key) > 1 else -1)
    return columns


def assert_row(columns: RecordColumns, row: int, record: OffsetCommit) -> None:
    assert (
        columns.type[row],
        columns.groups[columns.group[row]],
        columns.topics[columns.topic[row]],
        columns.partition[row],
        columns.tombstone[row],
    ) == (record.type, record.group, record.topic, record.partition, record.value is None)
    value = record.value or OffsetCommitValue(version=3, offset=-1, metadata="", commit_timestamp=-1)
    assert (
        columns.offset[row],
        columns.leader_epoch[row],
        columns.metadata[row],
        columns.commit_timestamp[row],
        columns.expire_timestamp[row],
    ) == (value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp)
    topic_id = columns.topic_id[row].tobytes() if columns.topic_id is not None else bytes(16)
    assert topic_id == encode_topic_id(value.topic_id)


def encode_topic_id(topic_id: str) -> bytes:
    data = commit(topic_id=topic_id)[1] or b""
    return data[-16:] if len(data) > 30 else bytes(16)


@st.composite
def mutated(draw: st.DrawFn) -> Pair:
    key, value = draw(st.sampled_from(GOLDEN))
    if draw(st.booleans()):
        key = draw(changed(key or b""))
    if value is not None and draw(st.booleans()):
        value = draw(changed(value))
    return key, value


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data)))
    new = draw(st.binary(max_size=3) | st.sampled_from([b"\xed\xa0\x80", b"\xff", b"\x80\x01"]))
    return data[:at] + new + data[at + draw(st.integers(0, 3)) :]


some_commit = st.builds(
    commit,
    group=st.sampled_from(["", "g", "ü", "x" * 62, "x" * 63, "y" * 130, "z" * 700]),
    topic=st.sampled_from(["", "t", "t" * 249]),
    partition=st.integers(-1, 3),
    version=st.integers(0, 4),
    metadata=st.sampled_from(["", "m", "ü", "m" * 200, "\ufffd"]),
    offset=st.integers(-(2**63), 2**63 - 1),
)
anything = st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30))


@given(st.lists(some_commit | st.just(tombstone()) | mutated() | anything, max_size=20))
@settings(max_examples=150)
def test_columns_agree_with_the_scalar_decoder(pairs):
    assert_agrees(pairs)


def test_golden_records_in_one_batch_agree():
    columns = assert_agrees(GOLDEN)
    assert columns.ok.sum() > 100


def test_every_block_of_a_long_batch_agrees(monkeypatch):
    monkeypatch.setattr(batches, "BLOCK_ROWS", 7)
    assert_agrees(GOLDEN)


def test_keys_with_equal_hashes_are_not_mixed_up(monkeypatch):
    monkeypatch.setattr(names, "_MIX", np.uint64(0))
    assert_agrees([commit(f"g{n % 7}", f"t{n % 5}", n) for n in range(60)] + GOLDEN)


def test_more_names_than_the_table_first_had_room_for():
    pairs = [commit(f"group-{n}", f"t{n % 50}") for n in range(3000)]
    columns = assert_agrees(pairs)
    assert len(columns.groups) == 3000
    assert columns.groups[:3] == ["group-0", "group-1", "group-2"]


def test_codes_stay_the_same_while_the_names_are_kept():
    keys = KeyCodes()
    first = assert_agrees([commit("a", "t"), commit("b", "u")], keys)
    second = assert_agrees([commit("b", "t"), commit("c", "t")], keys)
    assert first.group.tolist() == [0, 1]
    assert second.group.tolist() == [1, 2]
    assert second.topic.tolist() == [0, 0]


def test_keys_and_values_must_be_as_many():
    with pytest.raises(ValueError, match="1 keys but 0 values"):
        decode_columns(Binary.from_values([b"k"]), Binary.from_values([]))


def test_buffers_of_arrow_are_read_where_they_are():
    values: list[bytes | None] = [b"before", b"one", None, b"", b"four", b"after"]
    present = [value or b"" for value in values]
    offsets = np.cumsum([0, *map(len, present)]).astype(np.int32).tobytes()
    validity = bytes([0b111011])
    column = Binary.from_arrow(4, 1, validity, offsets, b"".join(present))
    assert list(column) == values[1:5]
    assert list(Binary.from_arrow(6, 0, None, offsets, b"".join(present))) == present
    assert list(Binary.from_arrow(0, 0, None, bytes(4), None)) == []

"""Columns say what the scalar decoder says, or leave the row to it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koff.records import OffsetCommit, OffsetCommitValue, decode_commit_values, encode
from tests.unit.records import test_columns as batches
from tests.unit.records.decoding import golden

KEY, _ = encode(OffsetCommit(group="g", topic="t", partition=0, value=None))
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC_ID = "Lt0Eht-HRa2GCmvQvFtJdg"


def value_of(version: int, **fields: Any) -> bytes:
    value = OffsetCommitValue(
        version=version, **{"offset": 7, "metadata": "", "commit_timestamp": 99, **fields}
    )
    return encode(OffsetCommit(group="g", topic="t", partition=0, value=value))[1] or b""


def assert_agrees(values: list[bytes]) -> np.ndarray:
    columns = decode_commit_values(values)
    with_keys = batches.assert_agrees([(KEY, value) for value in values])
    for name in ("offset", "leader_epoch", "commit_timestamp", "expire_timestamp"):
        assert (getattr(columns, name) == getattr(with_keys, name))[columns.ok].all(), name
    none = np.zeros((len(values), 16), np.uint8)
    ids, expected = (none if each is None else each for each in (columns.topic_id, with_keys.topic_id))
    assert (ids == expected)[columns.ok].all()
    return columns.ok


@st.composite
def commit(draw: st.DrawFn) -> bytes:
    version = draw(st.integers(0, 4))
    fields: dict[str, object] = {"offset": draw(INT64), "commit_timestamp": draw(INT64)}
    fields["metadata"] = draw(
        st.text(max_size=5) | st.sampled_from(["", "x" * 125, "x" * 126, "x" * 127, "x" * 20000])
    )
    if version >= 3:
        fields["leader_epoch"] = draw(st.integers(-(2**31), 2**31 - 1))
    if version == 4:
        fields["topic_id"] = draw(st.sampled_from(["A" * 22, TOPIC_ID]))
    if version == 1:
        fields["expire_timestamp"] = draw(INT64)
    return value_of(version, **fields)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(commit())[:200])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 1)) if data else 0
        match draw(st.sampled_from(["set", "cut", "add"])):
            case "set" if data:
                data[at] = draw(st.sampled_from([0, 1, 2, 15, 16, 17, 127, 128, 255]))
            case "cut":
                del data[at:]
            case _:
                data[at:at] = draw(st.binary(min_size=1, max_size=4))
    return bytes(data)


@given(st.lists(commit() | broken() | st.binary(max_size=60), max_size=12))
@settings(max_examples=150)
def test_columns_agree_with_the_scalar_decoder(values):
    assert_agrees(values)


@given(st.data(), st.integers(1, 8))
@settings(max_examples=150)
def test_columns_agree_where_all_values_are_equally_long(data, rows):
    one = data.draw(commit() | broken())
    others = [bytearray(one) for _ in range(rows)]
    for other in others:
        if other:
            other[data.draw(st.integers(0, len(other) - 1))] = data.draw(st.integers(0, 255))
    assert_agrees([one, *map(bytes, others)])


def test_golden_commits_are_ok_unless_they_carry_tags_of_their_own():
    rows = [
        row
        for row in golden("golden")
        if row["oracle_key"]["type"] == 1 and row["topic"] == "__consumer_offsets"
    ]
    values = [bytes.fromhex(row["value_hex"]) for row in rows if row["value_hex"]]
    assert len(values) > 30
    assert assert_agrees(values).all()


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("metadata", ["", "ü", "m" * 126, "m" * 127, "m" * 9000])
def test_every_version_is_ok_with_and_without_metadata(version, metadata):
    assert assert_agrees([value_of(version, metadata=metadata)] * 3).all()
    assert assert_agrees([value_of(version, metadata=metadata), value_of(3)]).all()


def test_topic_ids_are_none_when_no_row_has_one():
    assert decode_commit_values([value_of(4), value_of(3)]).topic_id is None
    ids = decode_commit_values([value_of(4), value_of(4, topic_id=TOPIC_ID)]).topic_id
    assert ids is not None
    assert not ids[0].any()
    assert ids[1].any()

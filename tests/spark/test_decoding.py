"""Decoding Arrow batches says of every record what the decoder for single records says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from koff.records import OffsetCommit, Undecodable, Unknown, decode
from koff.records.record_types import record_type_name
from koff.spark.rows.decoding import RAW, SCHEMA, Decoder, RecordFilter, decode_batch
from tests.unit.builders import commit

GOLDEN = Path(__file__).parents[1] / "golden"
Pair = tuple[bytes | None, bytes | None]


def golden(name: str) -> list[Pair]:
    """Keys and values of `__consumer_offsets` in a golden file."""
    cases = map(json.loads, (GOLDEN / f"{name}.jsonl").read_text().splitlines())
    return [
        (_bytes(case["key_hex"]), _bytes(case["value_hex"]))
        for case in cases
        if "blob" not in case and case.get("topic", "__consumer_offsets") == "__consumer_offsets"
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


ODD: list[Pair] = [
    (None, b"a value"),
    (b"", b""),
    (b"\x00\x01", None),
    (b"\x00\x63unknown", b"\x00\x00"),
    (commit("g", "t", 0, 1)[0], b""),
    (commit("g", "t", 0, 1)[0], b"\x00\x09far too new"),
    (commit("g", "t", 0, 1)[0], None),
]
EVERY = [*golden("golden"), *golden("synthetic"), *ODD]


def raw(pairs: list[Pair], timestamp_ms: int = 1_763_740_800_123) -> pa.RecordBatch:
    keys, values = zip(*pairs, strict=True)
    rows = len(pairs)
    columns = [[7] * rows, list(range(rows)), [timestamp_ms] * rows, keys, values]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, RAW, strict=True)], schema=RAW
    )


def expected(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """What the columns are to hold, by the scalar decoder."""
    message = decode(key, value)
    record = message.record
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    row |= {"group": message.consumer or None, "tombstone": message.tombstone}
    if not isinstance(record, OffsetCommit):
        kind = (
            type(record).__name__ if isinstance(record, Undecodable | Unknown) else record_type_name(record)
        )
        return row | {"kind": kind, "key": key, "value": value, "reason": getattr(record, "reason", None)}
    row |= {
        "kind": record_type_name(record),
        "topic": record.topic,
        "partition": record.partition,
        "group": record.group,
    }
    if record.value is None:
        return row
    said = record.value
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    at = said.commit_timestamp
    return row | {
        "committed": said.offset,
        "leader_epoch": None if said.leader_epoch < 0 else said.leader_epoch,
        "metadata": said.metadata,
        "commit_timestamp": epoch + timedelta(milliseconds=at) if 0 <= at < 253402300800000 else None,
        "topic_id": None if set(said.topic_id) == {"A"} else said.topic_id,
    }


def test_every_golden_record_in_one_batch_says_what_it_says_alone() -> None:
    rows = decode_batch(raw(EVERY), "blue").to_pylist()
    assert len(rows) == len(EVERY) > 250
    assert {row["kind"] for row in rows} > {"OffsetCommit", "GroupMetadata", "Undecodable", "Unknown"}
    for number, (row, pair) in enumerate(zip(rows, EVERY, strict=True)):
        at = datetime(2025, 11, 21, 16, 0, 0, 123000, UTC)
        place = {"cluster": "blue", "offsets_partition": 7, "log_offset": number, "timestamp": at}
        assert row == expected(*pair) | place, pair


def test_a_sliced_batch_is_decoded_like_a_whole_one() -> None:
    batch, decoder = raw(EVERY), Decoder("blue")
    whole = decode_batch(batch, "blue").to_pylist()
    pieces = [row for at in range(0, len(EVERY), 17) for row in decoder(batch.slice(at, 17)).to_pylist()]
    assert pieces == whole


def test_an_empty_batch_has_the_columns_and_no_rows() -> None:
    rows = decode_batch(raw(EVERY).slice(0, 0), "blue")
    assert rows.schema == SCHEMA
    assert len(rows) == 0


@pytest.mark.parametrize(
    ("wanted", "offsets"),
    [
        (RecordFilter(), [0, 1, 2, 3]),
        (RecordFilter(group="^pay"), [0, 2]),
        (RecordFilter(topic="^clicks$"), [1]),
        (RecordFilter(group="s$", topic="orders"), [0]),
        (RecordFilter(since_ms=1000), [0, 1, 2, 3]),
        (RecordFilter(since_ms=1001), []),
        (RecordFilter(until_ms=1000), []),
        (RecordFilter(commits_to="(?P<kind>^click)"), [1, 2, 3]),  # Java knows no such group
        (RecordFilter(commits_to="^orders$", group="^pay"), [0, 2]),
        (RecordFilter(since_ms=0, until_ms=1001), [0, 1, 2, 3]),
    ],
)
def test_only_what_is_wanted_is_kept(wanted: RecordFilter, offsets: list[int]) -> None:
    group_key = commit("pays", "orders", 0, 1)[0]
    assert group_key is not None
    pairs = [
        commit("pays", "orders", 0, 1),
        commit("web", "clicks", 0, 1),
        (b"\x00\x02\x00\x04pays", None),
        (None, None),
    ]
    rows = wanted.filter_rows(decode_batch(raw(pairs, timestamp_ms=1000), "blue"))
    assert rows.column("log_offset").to_pylist() == offsets

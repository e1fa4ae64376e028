"""How fast records are decoded: one by one, by the batch, and out of log segments.

Prints JSON: records a second on one core, unless a name says megabytes. Beside koff's figures stand those of
plain `struct` reading of the two hot records (the floor: numbers and strings, no types, no checks), and
of kio's generated readers on the same bytes, where kio reads them. kio is for this file only.

    python bench/decode.py --records 1000000
"""

import json
import platform
import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from koff.records import (
    RECORD_TYPES,
    SHARE_STATE_TYPES,
    Binary,
    OffsetCommit,
    OffsetCommitValue,
    decode,
    decode_assignment,
    decode_columns,
    decode_commit_values,
    decode_share_state,
    decode_subscription,
    encode,
)
from koff.records.segments import read_segment

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
TOPIC_ID = "Lt0Eht-HRa2GCmvQvFtJdg"
NOW = 1_795_223_298_551
Pair = tuple[bytes, bytes]
Figures = dict[str, Any]


def rate(work: Callable[[], int], *, repeats: int = 7, seconds: float = 0.15) -> float:
    """Units of work a second, at its best: what else runs on the machine only takes away."""
    best = 0.0
    for _ in range(repeats):
        done, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            done += work()
        best = max(best, done / spent)
    return best


def times(function: Callable[..., object], *arguments: Any, count: int = 2000) -> Callable[[], int]:
    """Work that calls the function `count` times."""

    def work() -> int:
        for _ in range(count):
            function(*arguments)
        return count

    return work


def commit(group: int, topic: int, partition: int, version: int, metadata: str = "") -> Pair:
    newest: dict[str, Any] = {"topic_id": TOPIC_ID} if version == 4 else {}
    value = OffsetCommitValue(
        version=version,
        offset=123_456_789 + partition,
        leader_epoch=5 if version >= 3 else -1,
        metadata=metadata,
        commit_timestamp=NOW + group,
        **newest,
    )
    name, about = f"consumer-group-{group}", f"orders.topic-{topic}"
    key, data = encode(OffsetCommit(group=name, topic=about, partition=partition, value=value))
    assert key is not None
    assert data is not None
    return key, data


def commits(rows: int, *versions: int, metadata: bool = False) -> list[Pair]:
    """Commits of 200 groups, 5 topics, 20 partitions, in no order."""
    dice = random.Random(1)
    pool = [
        commit(group, topic, partition, dice.choice(versions), "m" * dice.randrange(9) if metadata else "")
        for group in range(200)
        for topic in range(5)
        for partition in range(20)
    ]
    return [pool[dice.randrange(len(pool))] for _ in range(rows)]


def floor(key: bytes, value: bytes) -> tuple[str, str, int, int, int, str, int]:
    """The least that Python can do: the numbers and strings of a commit v3 or v4."""
    size = key[2] << 8 | key[3]
    group = key[4 : 4 + size].decode()
    at = 6 + size
    behind = at + (key[at - 2] << 8 | key[at - 1])
    topic = key[at:behind].decode()
    (partition,) = FLOOR_PARTITION(key, behind)
    if value[1] == 3:
        offset, epoch, size = FLOOR_V3(value, 2)
        metadata = value[16 : 16 + size].decode()
        (timestamp,) = FLOOR_TIMESTAMP(value, 16 + size)
    else:
        offset, epoch, size = FLOOR_V4(value, 2)
        metadata = value[15 : 14 + size].decode()
        (timestamp,) = FLOOR_TIMESTAMP(value, 14 + size)
    return group, topic, partition, offset, epoch, metadata, timestamp


FLOOR_PARTITION, FLOOR_TIMESTAMP = struct.Struct(">i").unpack_from, struct.Struct(">q").unpack_from
FLOOR_V3, FLOOR_V4 = struct.Struct(">qih").unpack_from, struct.Struct(">qiB").unpack_from


def scalar() -> Figures:
    v3, v4 = commit(7, 3, 2, 3), commit(7, 3, 2, 4)
    return {
        "offset_commit_v3": rate(times(decode, *v3)),
        "offset_commit_v4": rate(times(decode, *v4)),
        "struct_floor_v3": rate(times(floor, *v3)),
        "struct_floor_v4": rate(times(floor, *v4)),
        "by_type": {
            name: rate(times(read_, *pair, count=500), repeats=3) for name, read_, pair in one_of_each_type()
        },
    }


def one_of_each_type() -> Iterator[tuple[str, Callable[..., object], Pair]]:
    """A golden record of every type, off a broker if there is one."""
    rows = [
        json.loads(line)
        for name in ("golden", "synthetic")
        for line in (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    for topic, names, read_ in (
        ("__consumer_offsets", RECORD_TYPES, decode),
        ("__share_group_state", SHARE_STATE_TYPES, decode_share_state),
    ):
        for type_, name in names.items():
            for row in rows:
                if (
                    row.get("topic") == topic
                    and row.get("oracle_value")
                    and row["oracle_key"]["type"] == type_
                ):
                    yield name, read_, (bytes.fromhex(row["key_hex"]), bytes.fromhex(row["value_hex"]))
                    break


def blobs() -> Figures:
    """ConsumerProtocol's blobs, against kio."""
    rows = [json.loads(line) for line in (GOLDEN / "golden.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [blob for row in rows for blob in row.get("blobs", []) if blob["oracle"].get("version") in (0, 3)]
    asked = next(bytes.fromhex(blob["hex"]) for blob in found if blob["kind"] == "subscription")
    given = next(
        bytes.fromhex(blob["hex"]) for blob in found if blob["kind"] == "assignment" and len(blob["hex"]) > 60
    )
    figures = {
        "subscription": rate(times(decode_subscription, asked)),
        "assignment": rate(times(decode_assignment, given)),
    }
    try:
        from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
        from kio.schema.consumer_protocol_subscription.v3.data import ConsumerProtocolSubscription
        from kio.serial import entity_reader
    except ImportError:
        return figures
    return figures | {
        "kio_subscription": rate(times(entity_reader(ConsumerProtocolSubscription), asked, 2)),
        "kio_assignment": rate(times(entity_reader(ConsumerProtocolAssignment), given, 2)),
    }


def columnar(rows: int) -> Figures:
    shapes = {
        "v3": commits(rows, 3),
        "v4": commits(rows, 4),
        "v4_with_metadata": commits(rows, 4, metadata=True),
        "v0_to_v4_mixed": commits(rows, 0, 1, 2, 3, 4, metadata=True),
    }
    figures: Figures = {}
    for name, pairs in shapes.items():
        keys, values = (
            Binary.from_values([key for key, _ in pairs]),
            Binary.from_values([value for _, value in pairs]),
        )

        def whole(keys: Binary = keys, values: Binary = values) -> int:
            assert decode_columns(keys, values).ok.all()
            return rows

        data = [value for _, value in pairs]

        def numbers(data: list[bytes] = data) -> int:
            assert decode_commit_values(data).ok.all()
            return rows

        figures[name] = rate(whole)
        figures[f"{name}_values_of_bytes_objects"] = rate(numbers)
    return figures


def segments(records: int) -> Figures:
    """Segments without compression, checksums checked."""
    pairs = commits(20_000, 4)
    figures: Figures = {}
    for size in (1, 10, 1000):
        log, batch = segment(pairs, size, records)

        def chunks(log: bytes = log) -> int:
            assert sum(len(chunk.records) for chunk in read_segment(log)) > 0
            return len(log)

        def columns(log: bytes = log) -> int:
            for chunk in read_segment(log):
                decode_columns(chunk.records.keys, chunk.records.values)
            return len(log)

        figures[f"batches_of_{size}_mb"] = rate(chunks) / 1e6
        figures[f"batches_of_{size}_with_columns_mb"] = rate(columns) / 1e6
        try:
            from kio.records.readers import read_batch
        except ImportError:
            continue
        count = max(1, 500 // size)
        figures[f"batches_of_{size}_kio_mb"] = (
            rate(times(read_batch, batch, 0, count=count)) * len(batch) / 1e6
        )
    return figures


def segment(pairs: list[Pair], size: int, records: int) -> tuple[bytes, bytes]:
    """A log of batches of that many records, and the first of them."""
    batches = [record_batch(pairs[start : start + size]) for start in range(0, len(pairs) - size + 1, size)]
    needed = max(1, records // (len(batches) * size))
    return b"".join(batches * needed), batches[0]


def record_batch(pairs: list[Pair]) -> bytes:
    from crc32c import crc32c

    body = b""
    for number, (key, value) in enumerate(pairs):
        record = b"\0\0" + varint(number) + varint(len(key)) + key + varint(len(value)) + value + b"\0"
        body += varint(len(record)) + record
    tail = struct.pack(">hiqqqhii", 0, len(pairs) - 1, NOW, NOW, -1, -1, -1, len(pairs)) + body
    return struct.pack(">qiiBI", 0, len(tail) + 9, 5, 2, crc32c(tail)) + tail


def varint(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number > 127:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def rounded(figures: Figures) -> Figures:
    return {
        name: rounded(figure) if isinstance(figure, dict) else round(figure, 1 if figure < 10_000 else None)
        for name, figure in figures.items()
    }


@click.command()
@click.option(
    "--records", default=1_000_000, show_default=True, help="Rows of a columnar batch, and of a segment."
)
def main(records: int) -> None:
    """Print how many records a second koff decodes, as JSON."""
    figures = {
        "scalar": scalar(),
        "blobs": blobs(),
        "columnar": columnar(records),
        "segments": segments(records),
    }
    where = {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}
    print(json.dumps({"bench": "decode", "records": records, **where, **rounded(figures)}, indent=2))


if __name__ == "__main__":
    main()

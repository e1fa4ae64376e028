"""Record batches and message sets, compared with what Kafka's own code writes and reads."""

import itertools
import subprocess
from pathlib import Path

import pytest

from koff.kafkatest import kafka_jars
from koff.kafkatest.java import java_command
from koff.proto import Batch, Codec, Record, decode_batches, encode_batch

pytestmark = pytest.mark.kafka

SOURCE = Path(__file__).parents[1] / "java" / "Records.java"
CREATE_TIME, LOG_APPEND_TIME = "CREATE_TIME", "LOG_APPEND_TIME"
WRITTEN = [
    (magic, codec, times)
    for magic, codec, times in itertools.product((0, 1, 2), Codec, (CREATE_TIME, LOG_APPEND_TIME))
    if (codec is not Codec.ZSTD or magic == 2) and (magic or times == CREATE_TIME)
]


def ask(lines: list[str]) -> list[str]:
    """The answers of Records.java."""
    command = [java_command(), "-XX:+UseSerialGC", "-cp", f"{kafka_jars()}/*", str(SOURCE)]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=False, timeout=170
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def written() -> dict[tuple[int, Codec, str], bytes]:
    """What Kafka's code writes, by format, codec and kind of time."""
    answers = ask([f"write {magic} {codec.name.lower()} {times}" for magic, codec, times in WRITTEN])
    return dict(zip(WRITTEN, map(bytes.fromhex, answers), strict=True))


@pytest.mark.parametrize(("magic", "codec", "times"), WRITTEN)
def test_koff_reads_what_kafka_writes(
    magic: int, codec: Codec, times: str, written: dict[tuple[int, Codec, str], bytes]
):
    batches = list(decode_batches(written[magic, codec, times]))
    assert {(batch.magic, batch.codec) for batch in batches} == {(magic, codec)}
    assert {batch.log_append_time for batch in batches} == {times == LOG_APPEND_TIME}
    timestamps = {0: [-1] * 3}.get(magic, [5000] * 3 if times == LOG_APPEND_TIME else [1000, 1001, 1002])
    headers = (("h", b"\1"), ("\u00fc", None)) if magic == 2 else ()
    assert [record for batch in batches for record in batch.records] == [
        Record(b"value", None, (), timestamps[0], 100),
        Record(None, b"key1", (), timestamps[1], 101),
        Record(b"value" * 81, b"key2", headers, timestamps[2], 102),
    ]


def test_kafka_reads_what_koff_writes():
    records = [
        Record(b"first", None, (("h", b"\1"), ("\u00fc", None)), 1_700_000_000_000),
        Record(None, b"key", (), 1_600_000_000_000),  # earlier than the first: a negative delta
        Record(b"long" * 20_000, b"", (), 1_700_000_000_001),  # more than a block of snappy
    ]
    batches = [
        Batch(records, codec, 500, None, 4, times, 77, 3, 9, transactional=True)
        for codec in Codec
        for times in (False, True)
    ]
    answers = ask(["read " + encode_batch(batch).hex() for batch in batches])
    for batch, answer in zip(batches, answers, strict=True):
        assert answer.split(";") == [describe(batch, number) for number in range(len(records))]


def describe(batch: Batch, number: int) -> str:
    """A record of the batch as Records.java prints it."""
    record = batch.records[number]
    times = "LogAppendTime" if batch.log_append_time else "CreateTime"
    latest_ms = max(each.timestamp_ms for each in batch.records)
    headers = (f"{name.encode().hex()}={word(value)}" for name, value in record.headers)
    return " ".join(
        [
            f"2 {batch.codec.name.lower()} {times}",
            f"{batch.producer_id} {batch.producer_epoch} {batch.base_sequence} true false",
            f"{batch.leader_epoch} {batch.base_offset + number}",
            f"{latest_ms if batch.log_append_time else record.timestamp_ms}",
            f"{word(record.key)} {word(record.value)}",
            *headers,
        ]
    )


def word(data: bytes | None) -> str:
    return "null" if data is None else data.hex()

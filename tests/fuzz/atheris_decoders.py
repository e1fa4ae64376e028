"""Coverage-guided fuzzing with atheris.

    python -m tests.fuzz.atheris_decoders scalar|columns|segments [SECONDS [FOLDER]]

What must hold: nothing is raised, the ways to decode agree, and no input takes long or much memory
(libFuzzer's `-timeout`, `-rss_limit_mb` and `-malloc_limit_mb`). It starts from the golden data.
"""

import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["koff.proto", "koff.records"]):
    from koff.proto import readers as reading
    from koff.records import (
        Binary,
        DecodedRecord,
        OffsetCommit,
        as_dict,
        decode,
        decode_assignment,
        decode_columns,
        decode_share_state,
        decode_subscription,
        encode,
        kafka_line,
        text_line,
    )
    from koff.records.segments import TransactionOutcomes, read_segment

from tests.fuzz.mutation import GOLDEN, golden

ROUND_S = 30
COMMIT, _ = encode(OffsetCommit(group="g", topic="t", partition=0, value=None))


def scalar(data: bytes) -> None:
    """The first byte says how many bytes of the rest are the key."""
    key, value = data[1 : 1 + data[0]] if data else None, data[1 + data[0] :] if data else None
    for message in (
        decode(key, value),
        decode(key, None),
        decode_share_state(key, value),
        decode(COMMIT, data),
    ):
        assert text_line(message).isprintable()
        kafka_line(message)
        as_dict(message)
        if isinstance(message.record, DecodedRecord) and len(data) < 10_000:
            written = encode(message.record)
            read_again = decode if message.record.type in (0, 1) and message.offset_message else None
            if read_again is not None:
                assert encode(read_again(*written).record) == written
    decode_subscription(data)
    decode_assignment(data)


def columns(data: bytes) -> None:
    """Pieces as long as a byte in front of each says, keys and values in turn; 255 is a null."""
    pieces: list[bytes | None] = []
    while data:
        size, data = data[0], data[1:]
        pieces.append(None if size == 255 else data[:size])
        data = data if size == 255 else data[size:]
    pairs = list(zip(pieces[::2], pieces[1::2], strict=False))
    found = decode_columns(
        Binary.from_values([key for key, _ in pairs]), Binary.from_values([value for _, value in pairs])
    )
    for row, pair in enumerate(pairs):
        record = decode(*pair).record
        assert found.ok[row] == isinstance(record, OffsetCommit)
        if isinstance(record, OffsetCommit):
            assert found.groups[found.group[row]] == record.group
            assert found.topics[found.topic[row]] == record.topic
            assert found.tombstone[row] == (record.value is None)
            if record.value is not None:
                assert found.offset[row] == record.value.offset
                assert found.metadata[row] == record.value.metadata
                assert found.commit_timestamp[row] == record.value.commit_timestamp
                assert found.expire_timestamp[row] == record.value.expire_timestamp
                assert found.leader_epoch[row] == record.value.leader_epoch


def segments(data: bytes) -> None:
    outcomes = TransactionOutcomes()
    outcomes.scan(data)
    for chunk in read_segment(data, outcomes=outcomes, check_crc=False):
        assert 7 * len(chunk.records) <= 2000 * len(data)
        decode_columns(chunk.records.keys, chunk.records.values)


def seeds(target: str, folder: Path) -> None:
    """Golden data in the shape that the target takes."""
    if target == "segments":
        for log in (GOLDEN / "segments").glob("*.log"):
            (folder / log.name).write_bytes(log.read_bytes()[:2000])
        return
    for number, case in enumerate(golden()):
        key, value = case.key, case.value or b""
        if len(key) < 255 and len(value) < 255 and number % 5 == 0:
            piece = bytes([len(key)]) + key + (bytes([len(value)]) if target == "columns" else b"") + value
            (folder / str(number)).write_bytes(piece)


def instrument_generated_readers() -> None:
    """Readers are functions that are generated later than any import."""
    make = reading._Source.compile_function

    def made(source: reading._Source, name: str, parameters: str) -> Callable[..., Any]:
        return atheris.instrument_func(make(source, name, parameters))

    reading._Source.compile_function = made  # type: ignore[assignment]  # made names self `source`
    reading.compile_value_reader.cache_clear()  # type: ignore[attr-defined]  # `cached` hides it
    reading.compile_key_reader.cache_clear()  # type: ignore[attr-defined]  # `cached` hides it


def fuzz(target: str, seconds: str, corpus: str) -> None:
    seeds(target, Path(corpus))
    instrument_generated_readers()
    limits = ["-timeout=5", "-rss_limit_mb=2048", "-malloc_limit_mb=512", f"-max_total_time={seconds}"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={corpus}/found-", corpus], globals()[target])
    atheris.Fuzz()


def main() -> None:
    """Rounds in processes of their own: atheris's tracing of comparisons leaks the arrays compared.

    With a folder, there is one round, in this process.
    """
    if len(sys.argv) > 3:
        fuzz(*sys.argv[1:])
        return
    target, seconds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60
    corpus = tempfile.mkdtemp(prefix="koff-fuzz-")
    end = time.monotonic() + seconds
    while (left := math.ceil(end - time.monotonic())) > 0:
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.atheris_decoders",
            target,
            str(min(left, ROUND_S)),
            corpus,
        ]
        if subprocess.run(command, check=False).returncode:
            sys.exit(f"what was found is in {corpus}")
    shutil.rmtree(corpus)


if __name__ == "__main__":
    main()

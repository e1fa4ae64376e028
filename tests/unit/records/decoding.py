"""The one way in which tests decode: every case also tries each of its truncations."""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from koff.records import DecodedMessage, as_dict, decode, decode_share_state, kafka_line, text_line

GOLDEN = Path(__file__).parents[2] / "golden"


@functools.cache
def decoded(key: bytes | None, value: bytes | None, *, share_state: bool = False) -> DecodedMessage:
    """The message; asserts that no beginning of key or value makes the decoder, or a printer, raise."""
    read = decode_share_state if share_state else decode
    for cut in _cuts(len(value or b"")):
        assert isinstance(read(key, (value or b"")[:cut]), DecodedMessage)
    for cut in _cuts(len(key or b"")):
        assert isinstance(read((key or b"")[:cut], value), DecodedMessage)
    message = read(key, value)
    _shown(message)
    return message


def _cuts(size: int) -> Iterable[int]:
    """Every length below `size`; of long records both ends and some between, for time's sake."""
    return (
        range(size)
        if size <= 256
        else [*range(160), *range(160, size - 64, size // 128), *range(size - 64, size)]
    )


def _shown(message: DecodedMessage) -> None:
    assert text_line(message).isprintable()
    json.dumps(as_dict(message))
    kafka_line(message)


@functools.cache
def golden(name: str) -> list[dict[str, Any]]:
    with (GOLDEN / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def key_and_value(case: dict[str, Any]) -> tuple[bytes, bytes | None]:
    value = case["value_hex"]
    return bytes.fromhex(case["key_hex"]), None if value is None else bytes.fromhex(value)


def golden_messages(topic: str = "__consumer_offsets") -> list[DecodedMessage]:
    """What a broker wrote, in log order, one partition after the other."""
    read = decode if topic == "__consumer_offsets" else decode_share_state
    return [read(*key_and_value(case)) for case in golden("golden") if case["topic"] == topic]

"""Records that are nearly right: golden ones, changed where decoders tend to be careless."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.oracle import Case

GOLDEN = Path(__file__).parents[1] / "golden"

NUMBERS = [0, 1, 2, 3, 4, 5, 9, 15, 16, 17, 127, 128, 129, 254, 255]
PIECES = [
    bytes.fromhex(piece)
    for piece in (
        "8080808008",  # a length of 2**31
        "ffffffff0f",  # of 2**32 - 1
        "ffffffff7f",  # bits beyond 32
        "808080808001",  # a varint too long
        "8000",  # one longer than needed
        "808002",  # 32768
        "818002",  # 32769
        "00000000",
        "ffffffff",
        "7fffffff",
        "80000000",
        "7fff",
        "8000",
        "eda080",  # an encoded surrogate
        "edb0bf41",
        "c080",
        "f5808080",
        "e282",
        "01000100",  # a tag that is null
        "01001011111111111111111111111111111111",
        "0200080102030405060708070161",
        "0105026162",
    )
]


def golden() -> list[Case]:
    """Every golden record and blob once."""
    cases = []
    for name in ("golden.jsonl", "synthetic.jsonl"):
        for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "blob" in row:
                cases.append(Case(row["blob"], bytes.fromhex(row["hex"])))
                continue
            mode = "share" if row["topic"] == "__share_group_state" else "offsets"
            value = row["value_hex"]
            cases.append(
                Case(mode, bytes.fromhex(row["key_hex"]), None if value is None else bytes.fromhex(value))
            )
    return cases


def mutated(count: int, seed: int) -> Iterator[Case]:
    """`count` cases, the same for the same seed."""
    dice = random.Random(seed)
    seeds = [case for case in golden() if len(case.key) + len(case.value or b"") < 2000]
    for _ in range(count):
        case = dice.choice(seeds)
        key, value = case.key, case.value
        if case.value is None or dice.random() < 0.2:
            key = _mutate(dice, key, dice.choice(seeds).key)
        if case.value is not None and (key is case.key or dice.random() < 0.5):
            value = _mutate(dice, case.value, dice.choice(seeds).value or b"")
        if dice.random() < 0.03:
            value = dice.choice(seeds).value
        yield Case(case.mode, key, value if case.mode in ("offsets", "share") else None)


def _mutate(dice: random.Random, data: bytes, other: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 6))):
        at = dice.randrange(len(out) + 1)
        match dice.randrange(9):
            case 0 | 1 if at < len(out):
                out[at] = dice.choice(NUMBERS)
            case 2 if at < len(out):
                out[at] ^= 1 << dice.randrange(8)
            case 3:
                out[at:at] = dice.choice(PIECES)
            case 4:
                piece = dice.choice(PIECES)
                out[at : at + len(piece)] = piece
            case 5:
                del out[at : at + dice.choice((1, 1, 2, 4, 8, 1000))]
            case 6:
                out[at:at] = dice.randbytes(dice.choice((1, 2, 4, 8, 40)))
            case 7:
                start = dice.randrange(len(other) + 1)
                out[at : at + dice.choice((0, 4, 1000))] = other[start : start + 40]
            case _:
                out[:2] = dice.choice((0, 1, 2, 3, 4, 5, 9, 18, 24, 65535)).to_bytes(2, "big")
    return bytes(out)

"""Where the records of a batch are."""

import random

import numpy as np
import pytest

from koff.proto import record_batch
from koff.proto.slices import PAD
from tests.record_batches import varint


def build(sizes: list[int]) -> tuple[bytes, list[int]]:
    """Records of these sizes, and where they end. Their bytes are those of lengths, to mislead a guess."""
    data, ends = bytearray(), []
    for size in sizes:
        data += varint(size) + (varint(size) * (size + 1))[:size]
        ends.append(len(data))
    return bytes(data), ends


def find(data: bytes, count: int) -> record_batch.RecordBounds:
    return record_batch.find_records(
        data + bytes(PAD), np.array([0]), np.array([len(data)]), np.array([count])
    )


@pytest.mark.parametrize("seed", range(20))
def test_records_of_equal_and_of_other_sizes_are_found(seed):
    rng = random.Random(seed)
    sizes: list[int] = []
    while len(sizes) < 400:
        # 64 apart: the first byte of the length is the same. 6 to 64, 8191 to 8192: a byte more.
        sizes += [rng.choice((6, 7, 63, 64, 75, 139, 203, 8191, 8192))] * rng.choice(
            (1, 1, 2, 3, 15, 16, 17, 70)
        )
    data, ends = build(sizes)
    bounds = find(data, len(sizes))
    assert not bounds.bad.any()
    assert bounds.end.tolist() == ends
    assert (bounds.end - bounds.begin).tolist() == sizes


@pytest.mark.parametrize("size", [20, 75])
def test_a_batch_with_one_wrong_length_is_bad(size):
    data, ends = build([size] * 100)
    for row in (1, 2, 40, 99):
        at = ends[row - 1]
        for wrong in (size - 1, size + 1, size + 64, -1):
            changed = data[:at] + varint(wrong) + data[at + len(varint(wrong)) :]
            assert find(changed, 100).bad.all(), (row, wrong)
    for count in (99, 101):
        assert find(data, count).bad.all()


@pytest.mark.parametrize(
    "number",
    [0, -1, 1, 63, 64, -64, -65, 2**31, -(2**31), 2**55 - 1, -(2**55), 2**55, 2**62, 2**63 - 1, -(2**63)],
)
def test_varints_of_any_length_are_read(number: int):
    written = varint(number)
    data = np.frombuffer(written + b"\xff" * 9, np.uint8)
    found, behind, ok = record_batch.read_varints(data, np.array([0]))
    assert (found[0], behind[0], ok[0]) == (number, len(written), True)


def test_a_varint_without_an_end_is_none():
    _, _, ok = record_batch.read_varints(np.frombuffer(b"\xff" * 20, np.uint8), np.array([0, 3]))
    assert not ok.any()

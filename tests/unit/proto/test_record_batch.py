"""Where the records of a batch are."""

import random

import numpy as np
import pytest

from koff.proto import record_batch
from koff.proto.slices import PAD


def zigzag(number: int) -> bytes:
    value, written = number << 1 if number >= 0 else (-number << 1) - 1, bytearray()
    while value >= 128:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes((*written, value))


def build(sizes: list[int]) -> tuple[bytes, list[int]]:
    """Records of these sizes, and where they end. Their bytes are those of lengths, to mislead a guess."""
    data, ends = bytearray(), []
    for size in sizes:
        data += zigzag(size) + (zigzag(size) * (size + 1))[:size]
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
            changed = data[:at] + zigzag(wrong) + data[at + len(zigzag(wrong)) :]
            assert find(changed, 100).bad.all(), (row, wrong)
    for count in (99, 101):
        assert find(data, count).bad.all()

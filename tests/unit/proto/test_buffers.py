"""Columns of bytes in one buffer."""

import random

import numpy as np

from koff.proto.buffers import Binary


def test_the_hashes_of_rows_are_those_of_their_bytes():
    rng = random.Random(1)
    values = [rng.choice((None, b"", b"\0\0", rng.randbytes(rng.randrange(40)))) for _ in range(500)]
    column = Binary.from_values(values)
    assert column.hash_rows().tolist() == [hash(value) for value in values]
    backwards = column.select_rows(np.arange(500)[::-1])
    assert backwards.hash_rows().tolist() == [hash(value) for value in reversed(values)]
    assert Binary.from_values([]).hash_rows().tolist() == []


def test_a_slice_of_a_column_has_the_rows_of_the_slice():
    values = [b"a", None, b"", b"ccc"]
    assert list(Binary.from_values(values)[1:]) == values[1:]
    assert list(Binary.from_values([b"a", b"bb"])[:1]) == [b"a"]

"""The hash table from numbers to rows, against a dictionary."""

import random

import numpy as np

from koff.tracker.row_index import RowIndex, spread_bits


def test_it_does_what_a_dictionary_does():
    rng = random.Random(1)
    index = RowIndex()
    model: dict[int, int] = {}
    for _ in range(300):
        new = {rng.randrange(-500, 500) for _ in range(rng.randrange(20))} - model.keys()
        rows = rng.sample(range(100_000), len(new))
        model.update(zip(new, rows, strict=True))
        index.add(np.array(list(new), np.int64), np.array(rows, np.int64))
        gone = rng.sample(sorted(model), min(len(model), rng.randrange(15)))
        for key in gone:
            del model[key]
        index.remove(np.array(gone, np.int64))
        asked = np.arange(-600, 600)
        assert index.find(asked).tolist() == [model.get(key, -1) for key in asked.tolist()]
        assert len(index) == len(model)


def test_keys_that_come_and_go_do_not_make_it_grow():
    index = RowIndex()
    for number in range(20_000):
        key = np.array([number * 7], np.int64)
        index.add(key, np.array([3]))
        index.remove(key)
    assert len(index._rows) <= 64


def test_spreading_is_one_to_one_and_moves_high_bits_down():
    numbers = np.arange(100_000, dtype=np.int64) << 32
    spread_ = spread_bits(numbers)
    assert len(np.unique(spread_)) == len(numbers)
    assert len(np.unique(spread_ & 0xFFFF)) > 40_000

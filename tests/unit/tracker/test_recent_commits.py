"""The last commits of each row, against a plain list."""

import random

import numpy as np
import pytest

from koff.tracker.recent_commits import WIDTH, WindowTable

EPOCH = 1_790_000_000_000


def table(rows: int) -> WindowTable:
    made = WindowTable()
    made.reserve(rows)
    return made


def add(windows: WindowTable, *commits: tuple[int, int, int, int]) -> None:
    """(row, offset, seconds, lag) each."""
    columns = np.array(commits, np.int64).reshape(-1, 4).T
    windows.add(columns[0], columns[1], columns[2] * 1000 + EPOCH, columns[3])


def contents(windows: WindowTable, row: int) -> list[tuple[int, int, int]]:
    """(offset, seconds, lag), oldest first."""
    got = windows.get(np.array([row]))
    count = int(got.count[0])
    seconds = (got.time_ms[0] - EPOCH) // 1000
    return list(zip(got.offset[0].tolist(), seconds.tolist(), got.lag[0].tolist(), strict=True))[
        WIDTH - count :
    ]


def test_commits_within_a_second_are_one_the_newest_offset_under_the_earliest_time():
    windows = table(1)
    windows.add(
        np.zeros(3, np.int64),
        np.array([1, 2, 3]),
        np.array([EPOCH, EPOCH + 300, EPOCH + 600]),
        np.array([5, 4, 3]),
    )
    assert contents(windows, 0) == [(3, 0, 3)]
    windows.add(np.zeros(1, np.int64), np.array([4]), np.array([EPOCH + 900]), np.array([2]))
    assert contents(windows, 0) == [(4, 0, 2)]


@pytest.mark.parametrize("batch", [1, 3, 7, 1000])
def test_any_cut_into_batches_keeps_what_a_list_would(batch):
    rng = random.Random(batch)
    commits, second = [], 0
    model: dict[int, list[tuple[int, int, int]]] = {row: [] for row in range(5)}
    for _ in range(600):
        row, offset, second, lag = (
            rng.randrange(5),
            rng.randrange(10**12),
            second + rng.randrange(3),
            rng.randrange(-1, 99),
        )
        commits.append((row, offset, second, lag))
        kept = model[row]
        if kept and kept[-1][1] == second:
            kept[-1] = (offset, second, lag)
        else:
            kept.append((offset, second, lag))
    # offsets so far apart do not fit 32 bits: keep them near each other
    near = [(row, offset % 10**9, second, lag) for row, offset, second, lag in commits]
    windows = table(5)
    for at in range(0, len(near), batch):
        add(windows, *near[at : at + batch])
    for row, kept in model.items():
        assert contents(windows, row) == [(o % 10**9, s, lag) for o, s, lag in kept[-WIDTH:]]


def test_a_jump_of_billions_moves_the_base_and_keeps_the_newest_exact():
    windows = table(1)
    add(windows, (0, 5, 0, 0), (0, 9 * 10**15, 2, 0), (0, 9 * 10**15 + 1, 4, 0))
    newest = [offset for offset, _, _ in contents(windows, 0)][-2:]
    assert newest == [9 * 10**15, 9 * 10**15 + 1]


@pytest.mark.parametrize("batch", [1, 3, 7, 1000])
def test_the_last_commit_that_changed_the_offset_is_known_however_many_follow(batch):
    rng = random.Random(batch)
    commits, second = [], 0
    newest: dict[int, tuple[int, int]] = {}
    for _ in range(600):
        row, second = rng.randrange(5), second + rng.randrange(3)
        offset = rng.choice([0, 1, 5 * 10**12]) if rng.random() < 0.05 else newest.get(row, (0, 0))[0]
        commits.append((row, offset, second, 0))
        if row not in newest or newest[row][0] != offset:
            newest[row] = offset, second
    windows = table(6)
    for at in range(0, len(commits), batch):
        if batch == 1:
            windows.add_one(commits[at][0], commits[at][1], commits[at][2] * 1000 + EPOCH, 0)
        else:
            add(windows, *commits[at : at + batch])
    moved_ms = windows.moved_ms(np.arange(6)).tolist()
    assert moved_ms == [newest[row][1] * 1000 + EPOCH for row in range(5)] + [0]
    copy = table(6)
    copy.restore(np.arange(6), windows.save(np.arange(6)))
    assert copy.moved_ms(np.arange(6)).tolist() == moved_ms

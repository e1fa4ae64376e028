"""The folder of saved state: what was written comes back, and nothing else ever does."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koff.errors import ConfigError, KoffError
from koff.monitor import state as statedir
from koff.monitor.state import Origin, Saved, StateDir, reasons_not_to_resume
from koff.tracker import State, Tracker
from tests.unit.builders import classic_group, commit

ORIGIN = Origin("cluster", "__consumer_offsets", "AAAAAAAAAAAAAAAAAAAAAQ", 3)
HOUR_MS = 3_600_000
NOW_MS = 1_790_000_000_000


def a_state(size: int = 3, seed: int = 0) -> State:
    tracker = Tracker()
    pairs = [commit(f"g{seed}", "größer", p, p + seed) for p in range(size)]
    pairs.append(classic_group(f"g{seed}", {"client": b""}))
    tracker.apply(0, [key for key, _ in pairs], [value for _, value in pairs])
    state = tracker.save_partition(0)
    assert state is not None
    return state


def same(one: State, other: State) -> bool:
    return contents(one) == contents(other)


def contents(state: State) -> tuple[Any, ...]:
    columns = {name: (column.dtype, column.tolist()) for name, column in state.columns.items()}
    return json.loads(json.dumps(dict(state.facts))), columns


def loaded(path: Path, origin: Origin = ORIGIN) -> dict[int, Saved | str]:
    return dict(StateDir(path).load(origin))


def one(path: Path, origin: Origin = ORIGIN) -> Saved | str:
    return loaded(path, origin)[1]


def saved(path: Path, *, size: int = 3) -> Path:
    """The file of partition 1, and the only one, at position 10."""
    StateDir(path).save(ORIGIN, 1, a_state(size), position=10, leader_epoch=4, now_ms=NOW_MS)
    (file,) = path.iterdir()
    return file


def test_what_was_saved_is_loaded_and_of_the_rest_it_is_said_that_there_is_nothing(tmp_path):
    written = saved(tmp_path).stat().st_size
    found = loaded(tmp_path)
    assert (found[0], found[2]) == ("nothing was saved", "nothing was saved")
    back = found[1]
    assert isinstance(back, Saved)
    assert same(back.state, a_state())
    assert (back.partition, back.position, back.leader_epoch) == (1, 10, 4)
    assert (back.saved_at_ms, back.as_of_ms) == (NOW_MS, NOW_MS)
    again = StateDir(tmp_path).save(ORIGIN, 1, a_state(), position=10, leader_epoch=4, now_ms=NOW_MS)
    assert again == written


def test_a_loaded_state_can_be_restored(tmp_path):
    saved(tmp_path)
    back = one(tmp_path)
    assert isinstance(back, Saved)
    tracker = Tracker()
    tracker.restore_partition(1, back.state)
    assert [row.committed for row in tracker.take_snapshot().rows()] == [0, 1, 2]
    assert [group.state for group in tracker.take_snapshot().groups()] == ["Stable"]


SAVE_ONCE = """
import sys
from koff.monitor.state import StateDir
from koff.tracker import Tracker
from tests.unit.builders import commit
from tests.unit.monitor.test_state import NOW_MS, ORIGIN

tracker = Tracker()
for p in range(100):
    tracker.apply(1, *([part] for part in commit("g", "t", p, p)))
StateDir(sys.argv[1]).save(ORIGIN, 1, tracker.save_partition(1), position=10, now_ms=NOW_MS)
"""


def test_another_process_which_hashes_otherwise_finds_every_row_again(tmp_path):
    here, other = Path(__file__).parents[3], {**os.environ, "PYTHONHASHSEED": "20261121"}
    subprocess.run([sys.executable, "-c", SAVE_ONCE, str(tmp_path)], cwd=here, env=other, check=True)
    back = one(tmp_path)
    assert isinstance(back, Saved)
    tracker = Tracker()
    tracker.restore_partition(1, back.state)
    for p in range(100):
        tracker.apply(1, *([part] for part in commit("g", "t", p, p + 7 if p % 2 else None)))
    found = {row.partition: row.committed for row in tracker.take_snapshot().rows()}
    assert found == {p: p + 7 for p in range(1, 100, 2)}


def test_columns_start_where_their_numbers_can_be_read_at_once(tmp_path):
    saved(tmp_path)
    back = one(tmp_path)
    assert isinstance(back, Saved)
    assert all(column.flags.aligned for column in back.state.columns.values())


def test_the_last_save_counts(tmp_path):
    saved(tmp_path)
    StateDir(tmp_path).save(ORIGIN, 1, a_state(5), position=11, now_ms=NOW_MS + 1)
    back = one(tmp_path)
    assert isinstance(back, Saved)
    assert (back.position, back.leader_epoch) == (11, -1)
    assert same(back.state, a_state(5))


def test_what_is_forgotten_is_not_loaded_any_more(tmp_path):
    saved(tmp_path)
    StateDir(tmp_path).forget(1)
    StateDir(tmp_path).forget(2)
    assert one(tmp_path) == "nothing was saved"


# damage


def test_every_truncation_is_refused_with_a_reason(tmp_path):
    file = saved(tmp_path)
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        found = one(tmp_path)
        assert isinstance(found, str), size
        assert "truncated" in found


def test_a_flipped_bit_anywhere_is_refused_with_a_reason(tmp_path):
    file = saved(tmp_path)
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        found = one(tmp_path)
        assert isinstance(found, str), at
        assert found.startswith(("it is damaged", "it is truncated", "it is not", "it has format"))


def test_bytes_behind_the_end_and_bytes_of_something_else_are_refused(tmp_path):
    file = saved(tmp_path)
    whole = file.read_bytes()
    for content, reason in (
        (whole + b"\0", "damaged"),
        (whole + whole, "damaged"),
        (b"", "truncated"),
        (b"#!/bin/sh\necho this is no state of anybody's\n", "not a state of koff's"),
    ):
        file.write_bytes(content)
        found = one(tmp_path)
        assert isinstance(found, str)
        assert reason in found


def test_a_file_that_cannot_be_read_is_refused_with_a_reason(tmp_path):
    file = saved(tmp_path)
    file.unlink()
    file.mkdir()
    found = one(tmp_path)
    assert isinstance(found, str)
    assert "cannot be read" in found


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"[]",
        b"7",
        b"\xff",
        b'{"columns": 7, "facts": {}}',
        b'{"columns": [["x", "no such type", 1]], "facts": {}}',
        b'{"columns": [["x", "<i8", 1099511627776]], "facts": {}}',
        b'{"columns": [], "facts": {}}',
    ],
)
def test_a_sound_file_with_a_head_that_makes_no_sense_is_refused(tmp_path, head):
    front = statedir._FRONT.pack(b"koff\0st\n", 1, len(head), statedir._FRONT.size + len(head) + 32)
    saved(tmp_path).write_bytes(front + head + hashlib.sha256(front + head).digest())
    found = one(tmp_path)
    assert isinstance(found, str)
    assert found.startswith("it is damaged: ")


# another origin


@pytest.mark.parametrize(
    ("field", "value"),
    [("cluster_id", "other"), ("topic", "offsets"), ("topic_id", ""), ("partitions", 50)],
)
def test_the_state_of_another_cluster_or_topic_is_refused(tmp_path, field, value):
    saved(tmp_path)
    found = one(tmp_path, dataclasses.replace(ORIGIN, **{field: value}))
    assert isinstance(found, str)
    assert f"{value!r}" in found
    assert field.replace("_", " ") in found


def test_a_state_of_another_schema_is_refused(tmp_path, monkeypatch):
    saved(tmp_path)
    monkeypatch.setattr(statedir, "STATE_SCHEMA", [99, 1])
    found = one(tmp_path)
    assert isinstance(found, str)
    assert "this koff reads [99, 1]" in found


def test_a_file_of_another_partition_under_this_ones_name_is_refused(tmp_path):
    file = saved(tmp_path)
    file.rename(file.with_name("partition-00002"))
    found = loaded(tmp_path)[2]
    assert isinstance(found, str)
    assert "partition-00001" in found


# the index


def as_of(path: Path) -> int:
    found = one(path)
    assert isinstance(found, Saved)
    return found.as_of_ms


def test_a_file_is_as_good_as_new_when_the_index_knows_its_position(tmp_path):
    saved(tmp_path)
    assert as_of(tmp_path) == NOW_MS
    StateDir(tmp_path).note(ORIGIN, {1: (10, NOW_MS + HOUR_MS)}, now_ms=NOW_MS + HOUR_MS)
    assert as_of(tmp_path) == NOW_MS + HOUR_MS
    StateDir(tmp_path).note(ORIGIN, {1: (11, NOW_MS + HOUR_MS)}, now_ms=NOW_MS + HOUR_MS)
    assert as_of(tmp_path) == NOW_MS
    StateDir(tmp_path).note(ORIGIN, {2: (10, NOW_MS + HOUR_MS)}, now_ms=NOW_MS + HOUR_MS)
    assert as_of(tmp_path) == NOW_MS


def test_an_index_that_is_damaged_or_of_another_topic_says_nothing(tmp_path):
    folder = StateDir(tmp_path)
    file = saved(tmp_path)
    folder.note(dataclasses.replace(ORIGIN, topic_id="other"), {1: (10, NOW_MS + 1)}, now_ms=NOW_MS)
    assert as_of(tmp_path) == NOW_MS
    folder.note(ORIGIN, {1: (10, NOW_MS + 1)}, now_ms=NOW_MS)
    (index,) = set(tmp_path.iterdir()) - {file}
    index.write_bytes(index.read_bytes()[:-1])
    assert as_of(tmp_path) == NOW_MS


# the history of ends


def test_the_history_of_ends_comes_back_unless_it_is_of_the_future_or_of_another_topic(tmp_path):
    tracker = Tracker()
    tracker.apply(0, *([part] for part in commit("g", "t", 0, 1)))
    tracker.add_samples(ends={("t", 0): 5}, at_ms=NOW_MS)
    ends = tracker.save_ends()
    folder = StateDir(tmp_path)
    assert folder.load_ends(ORIGIN, now_ms=NOW_MS) == "nothing was saved"
    folder.save_ends(ORIGIN, ends, now_ms=NOW_MS)
    found = folder.load_ends(ORIGIN, now_ms=NOW_MS)
    assert isinstance(found, State)
    assert same(found, ends)
    assert len(found.columns["offset"]) == 1
    of_the_future = folder.load_ends(ORIGIN, now_ms=NOW_MS - 1)
    assert isinstance(of_the_future, str)
    assert "a time that is yet to come" in of_the_future
    of_another_topic = folder.load_ends(dataclasses.replace(ORIGIN, topic_id=""), now_ms=NOW_MS)
    assert isinstance(of_another_topic, str)
    assert "topic id" in of_another_topic


# the lock


def test_a_folder_is_made_and_has_one_owner_at_a_time(tmp_path):
    path = tmp_path / "a" / "b"
    with StateDir(path).lock() as first:
        assert first.lock() is first
        with pytest.raises(ConfigError, match="b is in use by another koff"):
            StateDir(path).lock()
    with StateDir(path).lock():
        pass


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    file = saved(tmp_path)
    left = file.with_name(file.name + ".new")
    left.write_bytes(file.read_bytes()[:50])
    with StateDir(tmp_path).lock():
        assert not left.exists()
        assert isinstance(one(tmp_path), Saved)


@pytest.mark.parametrize("below", ["", "below"])
def test_what_is_no_folder_is_refused_with_cause_and_cure(tmp_path, below):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ConfigError, match=r"file.*: (File exists|Not a directory); name a folder"):
        StateDir(file / below).lock()
    assert file.read_text() == "mine"


def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path):
    with StateDir(tmp_path).lock():
        pass
    tmp_path.chmod(0o500)
    root = os.geteuid() == 0
    if root:  # may write everywhere
        os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match="Permission denied; name a folder"):
            StateDir(tmp_path).lock()
    finally:
        if root:
            os.seteuid(0)
        tmp_path.chmod(0o700)


def test_a_save_that_fails_says_so_and_leaves_what_there_was(tmp_path):
    file = saved(tmp_path)
    before = file.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(KoffError, match=r"cannot write to --state-dir .*File too large"):
            StateDir(tmp_path).save(ORIGIN, 1, a_state(100), position=11, now_ms=NOW_MS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == before


# kill -9

SAVE_FOR_EVER = """
import itertools, os, sys
import numpy as np
from koff.monitor.state import Origin, StateDir
from koff.tracker import State

ORIGIN = Origin("cluster", "__consumer_offsets", "AAAAAAAAAAAAAAAAAAAAAQ", 3)


def save_for_ever(first):
    with StateDir(sys.argv[1]).lock() as folder:
        print("begun", os.getpid(), flush=True)
        for number in itertools.count(first):
            state = State({"number": number}, {"numbers": np.full(40_000, number)})
            for partition in range(ORIGIN.partitions):
                folder.save(ORIGIN, partition, state, position=number, now_ms=number)
            folder.note(ORIGIN, {p: (number, number + 1) for p in range(ORIGIN.partitions)}, now_ms=number)
            print(number, flush=True)


while line := sys.stdin.readline():
    if (child := os.fork()) == 0:
        save_for_ever(int(line))
    assert os.waitpid(child, 0)[1] == 9
    print("killed", flush=True)
"""
"""For each number on stdin a process that saves, from that number on, until it is killed."""


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", SAVE_FOR_EVER, str(tmp_path)]
    here = Path(__file__).parents[3]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0, cwd=here) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
    assert process.returncode == 0


def run_and_kill(saver: subprocess.Popen[bytes], first: int, after_s: float) -> int:
    """Has a process save from that number on, kills it some time after it began; the last that it said."""
    assert saver.stdin is not None
    assert saver.stdout is not None
    saver.stdin.write(b"%d\n" % first)
    said = saver.stdout.readline()
    pid = int(said.removeprefix(b"begun "))
    due, said = time.monotonic() + after_s, b""
    while (left := due - time.monotonic()) > 0:
        if select.select([saver.stdout], [], [], left)[0]:
            said += os.read(saver.stdout.fileno(), 65536)
    os.kill(pid, signal.SIGKILL)
    while not said.endswith(b"killed\n"):
        said += os.read(saver.stdout.fileno(), 65536)
    return max([first - 1, *map(int, said.removesuffix(b"killed\n").split())])


def test_a_process_killed_at_any_moment_leaves_a_state_that_it_saved(tmp_path, saver):
    rng = random.Random(20261121)
    there = dict.fromkeys(range(ORIGIN.partitions), 0)
    left_behind = 0
    for _ in range(20):
        first = max(there.values()) + 1
        last = run_and_kill(saver, first, rng.uniform(0, 0.03))
        left_behind += any(tmp_path.glob("*.new"))
        for partition, found in loaded(tmp_path).items():
            if there[partition] == 0 and found == "nothing was saved":
                continue
            assert isinstance(found, Saved), found
            number = found.position
            assert number in {there[partition] if last < first else last, last + 1}
            assert found.state.facts == {"number": number}
            assert found.state.columns["numbers"].tolist() == [number] * 40_000
            assert found.as_of_ms in {number, number + 1}
            there[partition] = number
    assert min(there.values()) > 0
    assert left_behind, "no kill came while a file was being written: nothing was shown"


# whether to resume

RESUMABLE = {
    "position": 100,
    "as_of_ms": NOW_MS,
    "now_ms": NOW_MS + HOUR_MS,
    "delete_retention_ms": 24 * HOUR_MS,
    "log_start": 0,
    "last_stable": 200,
}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"now_ms": NOW_MS},
        {"now_ms": NOW_MS + 24 * HOUR_MS * 9 // 10},
        {"log_start": 100},
        {"last_stable": 100},
        {"position": 0, "last_stable": 0},
    ],
)
def test_a_state_is_resumed_while_nothing_that_it_missed_can_be_gone(change):
    assert reasons_not_to_resume(**RESUMABLE | change) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"now_ms": NOW_MS + 24 * HOUR_MS * 9 // 10 + 1}, "tombstones may be gone"),
        ({"delete_retention_ms": 0}, "tombstones may be gone"),
        ({"now_ms": NOW_MS - 1}, "a time that is yet to come"),
        ({"log_start": 101}, "the log starts at 101 now"),
        ({"last_stable": 99}, "the log was truncated: it ends at 99"),
    ],
)
def test_a_state_is_not_resumed_when_something_may_be_gone(change, reason):
    found = reasons_not_to_resume(**RESUMABLE | change)
    assert found is not None
    assert reason in found
    assert "\n" not in found


def test_partitions_that_were_saved_one_after_another_are_too_old_for_one_reason():
    """So that they are one line of the log."""
    days_later = NOW_MS + 48 * HOUR_MS
    found = {
        reasons_not_to_resume(**RESUMABLE | {"now_ms": days_later, "as_of_ms": NOW_MS + seconds * 1000})
        for seconds in range(50)
    }
    assert len(found) == 1

"""The folder of saved state: what was written comes back, and nothing else ever does."""

import dataclasses
import errno
import hashlib
import json
import os
import random
import resource
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from koff.errors import ConfigError, KoffError
from koff.monitor import state as statedir
from koff.monitor import state_file
from koff.monitor.moment import Moment
from koff.monitor.saved import Origin, Saved
from koff.monitor.state import StateDir
from koff.tracker import State, Tracker
from koff.tracker.saved_ends import save_ends
from tests.unit.builders import apply, classic_group, commit, save

ORIGIN = Origin("cluster", "__consumer_offsets", "AAAAAAAAAAAAAAAAAAAAAQ", 3)
HOUR_S = 3600
NOW = Moment(1000.5, 1_790_000_000_000, "this boot")


def later(seconds: float, *, boot: str = NOW.boot) -> Moment:
    """So many seconds after `NOW`. Of another boot, `at_s` counts from there."""
    at_s = NOW.at_s + seconds if boot == NOW.boot else 1.0
    return Moment(at_s, NOW.wall_ms + round(seconds * 1000), boot)


def a_state(size: int = 3, seed: int = 0) -> State:
    tracker = Tracker()
    pairs = [commit(f"g{seed}", "größer", p, p + seed) for p in range(size)]
    pairs.append(classic_group(f"g{seed}", {"client": b""}))
    apply(tracker, *pairs)
    return save(tracker)


def same(one: State, other: State) -> bool:
    return contents(one) == contents(other)


def contents(state: State) -> tuple[Any, ...]:
    columns = {name: (column.dtype, column.tolist()) for name, column in state.columns.items()}
    return json.loads(json.dumps(dict(state.facts))), columns


def loaded(path: Path, origin: Origin = ORIGIN) -> dict[int, Saved | str]:
    return dict(StateDir(path).load(origin))


def one(path: Path, origin: Origin = ORIGIN) -> Saved | str:
    return loaded(path, origin)[1]


def refusal(path: Path, origin: Origin = ORIGIN) -> str:
    """Why the file of partition 1 is not used."""
    found = one(path, origin)
    assert isinstance(found, str)
    return found


def saved(path: Path, *, size: int = 3) -> Path:
    """The file of partition 1, and the only one, at position 10."""
    StateDir(path).save(ORIGIN, Saved(1, 10, 4, NOW, a_state(size)))
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
    assert back.stamp == NOW
    again = StateDir(tmp_path).save(ORIGIN, Saved(1, 10, 4, NOW, a_state()))
    assert again == written


def test_columns_start_where_their_numbers_can_be_read_at_once(tmp_path):
    saved(tmp_path)
    back = one(tmp_path)
    assert isinstance(back, Saved)
    assert all(column.flags.aligned for column in back.state.columns.values())


# damage


def test_every_truncation_is_refused_with_a_reason(tmp_path):
    file = saved(tmp_path)
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        assert "truncated" in refusal(tmp_path), size


def test_a_flipped_bit_anywhere_is_refused_with_a_reason(tmp_path):
    file = saved(tmp_path)
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        why = ("it is damaged", "it is truncated", "it is not", "it has format")
        assert refusal(tmp_path).startswith(why), at


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
        assert reason in refusal(tmp_path)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"[]",
        b"7",
        b"\xff",
        b"[" * 200_000,
        b'{"columns": 7, "facts": {}}',
        b'{"columns": [["x", "no such type", 1]], "facts": {}}',
        b'{"columns": [["x", "<i8", 1099511627776]], "facts": {}}',
        b'{"columns": [], "facts": {}}',
    ],
    ids=lambda head: head[:20],
)
def test_a_sound_file_with_a_head_that_makes_no_sense_is_refused(tmp_path, head):
    write_sound_file(saved(tmp_path), head)
    assert refusal(tmp_path).startswith("it is damaged: ")


@pytest.mark.parametrize(
    "change",
    [
        {"at_s": None},
        {"at_s": float("nan")},
        {"at_s": -1e999},
        {"wall_ms": "now"},
        {"boot": 7},
        {"position": "far"},
        {"leader_epoch": None},
        {"columns": [["x", "|O", 1]]},
        {"columns": [["x", "|V1000000000", 1]]},
        {"columns": [["x", "|S8", 0]]},
        {"columns": [["x", "(3,)<i8", 0]]},
        {"columns": [["x", "<i8", -1]]},
        {"columns": [["x", "<i8", 10**30]]},
        {"columns": [["x", "<i8", 5]]},
        {"columns": [["x", ["<i8"], 1]]},
        {"columns": 10**4000},
    ],
)
def test_a_sound_file_with_a_field_that_makes_no_sense_is_refused(tmp_path, change):
    file = saved(tmp_path)
    write_sound_file(file, json.dumps(read_head(file) | change).encode())
    assert refusal(tmp_path).startswith("it is damaged: ")


def read_head(file: Path) -> dict[str, Any]:
    content, front = file.read_bytes(), state_file._FRONT
    head: dict[str, Any] = json.loads(content[front.size : front.size + front.unpack_from(content)[2]])
    return head


def write_sound_file(file: Path, head: bytes) -> None:
    """A file without columns whose sizes and checksum are right."""
    size = state_file._FRONT.size + len(head) + 32
    content = state_file._FRONT.pack(b"koff\0st\n", 2, len(head), size) + head
    file.write_bytes(content + hashlib.sha256(content).digest())


def test_a_file_of_the_format_before_is_refused(tmp_path):
    file = saved(tmp_path)
    content = bytearray(file.read_bytes())
    content[8] = 1
    file.write_bytes(content)
    assert one(tmp_path) == "it has format 1, this koff reads 2"


SIZES = st.integers(0, 2**32 - 1), st.one_of(st.integers(0, 200), st.integers(0, 2**64 - 1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(content=st.binary(max_size=200), head_size=SIZES[0], size=SIZES[1], genuine=st.booleans())
def test_random_files_are_refused_and_take_no_memory(tmp_path, content, head_size, size, genuine):
    if genuine:  # as far as the sizes
        content = state_file._FRONT.pack(b"koff\0st\n", 2, head_size, size) + content
    for name in ("partition-00001", "index", "ends"):
        (tmp_path / name).write_bytes(content)
    tracemalloc.start()
    try:
        found, ends = one(tmp_path), StateDir(tmp_path).load_file("ends", ORIGIN)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    for why in (found, ends):
        assert isinstance(why, str)
        assert why.startswith(("it is truncated", "it is damaged", "it is not a state"))
    assert most < 8 << 20


def test_a_huge_file_is_checked_in_little_memory(tmp_path):
    size = 1 << 26
    with (tmp_path / "partition-00001").open("wb") as file:  # a file with a hole, and no checksum
        file.write(state_file._FRONT.pack(b"koff\0st\n", 2, size - 100, size))
        file.truncate(size)
    tracemalloc.start()
    try:
        assert one(tmp_path) == "it is damaged: its checksum is not that of its bytes"
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 8 << 20


# another origin


@pytest.mark.parametrize(
    ("field", "value"),
    [("cluster_id", "other"), ("topic", "offsets"), ("topic_id", ""), ("partitions", 50)],
)
def test_the_state_of_another_cluster_or_topic_is_refused(tmp_path, field, value):
    saved(tmp_path)
    found = refusal(tmp_path, dataclasses.replace(ORIGIN, **{field: value}))
    assert f"{value!r}" in found
    assert field.replace("_", " ") in found


def test_a_state_of_another_schema_is_refused(tmp_path, monkeypatch):
    saved(tmp_path)
    monkeypatch.setattr(statedir, "STATE_SCHEMA", [99, 1])
    assert "this koff reads [99, 1]" in refusal(tmp_path)


def test_a_file_of_another_partition_under_this_ones_name_is_refused(tmp_path):
    file = saved(tmp_path)
    file.rename(file.with_name("partition-00002"))
    found = loaded(tmp_path)[2]
    assert isinstance(found, str)
    assert "partition-00001" in found


# the index


def stamp(path: Path) -> Moment:
    found = one(path)
    assert isinstance(found, Saved)
    return found.stamp


def test_a_file_is_as_good_as_new_when_the_index_knows_its_position(tmp_path):
    saved(tmp_path)
    assert stamp(tmp_path) == NOW
    StateDir(tmp_path).note(ORIGIN, {1: (10, later(HOUR_S))}, stamp=later(HOUR_S))
    assert stamp(tmp_path) == later(HOUR_S)
    StateDir(tmp_path).note(ORIGIN, {1: (11, later(HOUR_S))}, stamp=later(HOUR_S))
    assert stamp(tmp_path) == NOW
    StateDir(tmp_path).note(ORIGIN, {2: (10, later(HOUR_S))}, stamp=later(HOUR_S))
    assert stamp(tmp_path) == NOW


def test_an_index_of_another_boot_or_older_than_the_file_counts_only_if_it_is_newer(tmp_path):
    saved(tmp_path)
    for noted, newest in (
        (later(-1), NOW),
        (later(-1, boot="another boot"), NOW),
        (later(1, boot="another boot"), later(1, boot="another boot")),
    ):
        StateDir(tmp_path).note(ORIGIN, {1: (10, noted)}, stamp=noted)
        assert stamp(tmp_path) == newest


def logged(path: Path, origin: Origin = ORIGIN) -> list[tuple[str, str, str]]:
    """The warnings of a load: level, file and reason."""
    with capture_logs() as lines:
        loaded(path, origin)
        StateDir(path).load_file("ends", origin)
    return [(line["log_level"], line["file"], line["why"]) for line in lines]


@pytest.mark.parametrize("name", ["index", "ends"])
def test_a_damaged_index_or_history_is_not_used_and_gives_one_line(tmp_path, name):
    folder = StateDir(tmp_path)
    saved(tmp_path)
    folder.note(ORIGIN, {1: (10, later(1))}, stamp=later(1))
    folder.save_file("ends", ORIGIN, some_ends(), stamp=later(1))
    assert logged(tmp_path) == []
    file = tmp_path / name
    file.write_bytes(file.read_bytes()[:-1])
    ((level, named, why),) = logged(tmp_path)
    assert (level, named) == ("warning", name)
    assert why.startswith("it is truncated")
    assert stamp(tmp_path) == (NOW if name == "index" else later(1))


@pytest.mark.parametrize(
    "known",
    [
        7,
        {"1": 10},
        [[1, 10]],
        [[1, 10, "soon", 5, ""]],
        [[1, 10, float("nan"), 5, ""]],
        [[1, 10, 1e999, 5, ""]],
        [[1, 10, 10**400, 5, ""]],
        [[1, 10, 1.0, 5.5, ""]],
        [[1, 10, 1.0, 5, None]],
        [[1e999, 10, 1.0, 5, ""]],
    ],
)
def test_an_index_that_makes_no_sense_gives_one_line(tmp_path, known):
    saved(tmp_path)
    StateDir(tmp_path)._put("index", ORIGIN, {}, NOW, State({"known": known}, {}))
    ((_, named, why),) = logged(tmp_path)
    assert named == "index"
    assert why.startswith("it is damaged: ")


# the history of ends


def some_ends() -> State:
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 1))
    tracker.add_samples(ends={("t", 0): 5}, at_ms=NOW.wall_ms)
    return save_ends(tracker.partitions)


def test_the_history_of_ends_comes_back_unless_it_is_of_another_topic(tmp_path):
    folder = StateDir(tmp_path)
    assert folder.load_file("ends", ORIGIN) == "nothing was saved"
    folder.save_file("ends", ORIGIN, some_ends(), stamp=NOW)
    found = folder.load_file("ends", ORIGIN)
    assert isinstance(found, tuple)
    state, stamp = found
    assert stamp == NOW
    assert same(state, some_ends())
    assert len(state.columns["offset"]) == 1
    of_another_topic = folder.load_file("ends", dataclasses.replace(ORIGIN, topic_id=""))
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


OWN = [
    "partition-00000.new",
    "partition-00049.new",
    "partition-100000.new",
    "index.new",
    "ends.new",
    "try.new",
]
FOREIGN = [
    "notes.new",
    "partition-1.new",
    "partition-0000x.new",
    "partition-00001.new.new",
    "xindex.new",
    ".new",
]


def test_files_of_others_are_left_alone(tmp_path):
    for name in (*OWN, *FOREIGN):
        (tmp_path / name).write_text(name)
    with StateDir(tmp_path).lock():
        assert {file.name for file in tmp_path.iterdir()} == {*FOREIGN, "lock"}


def test_a_disk_that_is_full_at_the_start_does_not_refuse_the_folder(tmp_path, monkeypatch):
    saved(tmp_path)
    monkeypatch.setattr(statedir, "create_file", failing(errno.ENOSPC))
    with capture_logs() as lines, StateDir(tmp_path).lock():
        assert isinstance(one(tmp_path), Saved)
    assert [(line["event"], line["why"]) for line in lines] == [
        ("state cannot be saved", "No space left on device")
    ]


@pytest.mark.parametrize("fault", [errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_a_folder_that_cannot_be_written_at_the_start_is_refused(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(statedir, "create_file", failing(fault))
    with pytest.raises(ConfigError, match=f"{os.strerror(fault)}; name a folder"):
        StateDir(tmp_path).lock()


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
            StateDir(tmp_path).save(ORIGIN, Saved(1, 11, -1, NOW, a_state(100)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == before


FAULTS = [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.ESTALE]


@pytest.mark.parametrize("fault", FAULTS, ids=errno.errorcode.get)
@pytest.mark.parametrize("function", ["open", "fdopen", "fsync", "replace"])
def test_a_disk_that_fails_at_any_step_of_a_save_gives_an_error_with_the_cause(
    tmp_path, monkeypatch, function, fault
):
    file = saved(tmp_path)
    before = file.read_bytes()
    *calls, _forget = list_writes(StateDir(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, function, failing(fault))
        for call in calls:
            with pytest.raises(KoffError) as raised:
                call()
            assert os.strerror(fault) in str(raised.value)
            assert str(tmp_path) in str(raised.value)
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == before
    for call in calls:
        call()
    assert {found.name for found in tmp_path.iterdir()} == {"partition-00001", "ends", "index"}


def failing(fault: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(fault, os.strerror(fault))

    return fail


@pytest.mark.parametrize("fault", FAULTS, ids=errno.errorcode.get)
@pytest.mark.parametrize("function", ["open", "fstat", "fdopen"])
def test_a_disk_that_fails_while_a_file_is_read_gives_a_reason(tmp_path, monkeypatch, function, fault):
    saved(tmp_path)
    with monkeypatch.context() as patch:  # not for long: pytest itself needs these functions
        patch.setattr(os, function, failing(fault))
        found = one(tmp_path)
    assert found == f"it cannot be read: {os.strerror(fault)}"


@pytest.mark.parametrize("fault", FAULTS, ids=errno.errorcode.get)
def test_a_state_that_cannot_be_removed_gives_an_error_with_the_cause(tmp_path, monkeypatch, fault):
    saved(tmp_path)
    monkeypatch.setattr(Path, "unlink", failing(fault))
    with pytest.raises(KoffError, match=f"partition-00001: {os.strerror(fault)}"):
        StateDir(tmp_path).forget(1)


def test_a_folder_whose_names_cannot_be_forced_to_the_disk_is_used(tmp_path, monkeypatch):
    """Some network file systems refuse fsync of a folder."""
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    saved(tmp_path)
    assert isinstance(one(tmp_path), Saved)


def test_a_file_in_the_place_of_the_folder_gives_errors_with_the_cause(tmp_path):
    path = tmp_path / "state"
    with StateDir(path).lock() as folder:
        shutil.rmtree(path)
        path.write_text("mine")
        for call in list_writes(folder):
            with pytest.raises(KoffError, match=f"--state-dir {path}: it is no longer a folder"):
                call()
        assert all(isinstance(found, str) for found in dict(folder.load(ORIGIN)).values())
        assert isinstance(folder.load_file("ends", ORIGIN), str)
    assert path.read_text() == "mine"


def list_writes(folder: StateDir) -> list[Callable[[], object]]:
    return [
        lambda: folder.save(ORIGIN, Saved(1, 11, -1, NOW, a_state())),
        lambda: folder.save_file("ends", ORIGIN, a_state(), stamp=NOW),
        lambda: folder.note(ORIGIN, {1: (11, NOW)}, stamp=NOW),
        lambda: folder.forget(1),
    ]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("goes", ["folder", "content"])
def test_a_folder_that_was_removed_is_made_and_locked_again(tmp_path, number, goes):
    path = tmp_path / "state"
    with StateDir(path).lock() as folder:
        shutil.rmtree(path)
        if goes == "content":
            path.mkdir()
        assert not folder.take_emptied()
        list_writes(folder)[number]()
        assert (folder.take_emptied(), folder.take_emptied()) == (True, False)
        assert stat.S_IMODE((path / "lock").stat().st_mode) == 0o600
        with pytest.raises(ConfigError, match="in use by another koff"):
            StateDir(path).lock()
    with StateDir(path).lock():  # nothing keeps it locked
        pass


def test_a_removed_folder_that_another_koff_has_made_is_left_to_it(tmp_path):
    path = tmp_path / "state"
    with StateDir(path).lock() as first:
        shutil.rmtree(path)
        with StateDir(path).lock() as second:
            second.save(ORIGIN, Saved(1, 12, -1, NOW, a_state()))
            for call in list_writes(first):
                with pytest.raises(ConfigError, match="in use by another koff"):
                    call()
            assert not first.take_emptied()
            found = dict(second.load(ORIGIN))[1]
            assert isinstance(found, Saved)
            assert found.position == 12
        # The other has ended.
        first.save(ORIGIN, Saved(1, 13, -1, NOW, a_state()))
        assert first.take_emptied()


# names that are not what koff made


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path):
    path, mine = tmp_path / "state", tmp_path / "mine"
    path.mkdir()
    file = saved(path)
    mine.write_bytes(file.read_bytes())
    for name in ("partition-00001", "partition-00001.new"):
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(mine)
    before = mine.read_bytes()
    assert one(path) == "it cannot be read: it is a symbolic link"
    StateDir(path).save(ORIGIN, Saved(1, 11, -1, NOW, a_state(5)))
    assert isinstance(one(path), Saved)
    assert [found.name for found in path.iterdir()] == ["partition-00001"]
    assert not (path / "partition-00001").is_symlink()
    assert mine.read_bytes() == before


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    path = tmp_path / "state"
    path.mkdir()
    (path / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigError, match="lock: it is a symbolic link; name a folder"):
        StateDir(path).lock()
    assert not (tmp_path / "mine").exists()


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "partition-00001")
    assert one(tmp_path) == "it cannot be read: it is not a regular file"


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path):
    saved(tmp_path).unlink()
    (tmp_path / "partition-00001").mkdir()
    with pytest.raises(KoffError, match="partition-00001: Is a directory"):
        StateDir(tmp_path).save(ORIGIN, Saved(1, 11, -1, NOW, a_state()))
    with pytest.raises(KoffError, match="partition-00001: Is a directory"):
        StateDir(tmp_path).forget(1)
    (tmp_path / "partition-00002.new").mkdir()
    with pytest.raises(ConfigError, match=r"partition-00002\.new: Is a directory"):
        StateDir(tmp_path).lock()


def test_only_this_user_can_read_what_is_saved(tmp_path):
    path = tmp_path / "made" / "state"
    old_mask = os.umask(0)
    try:
        with StateDir(path).lock() as folder:
            folder.save(ORIGIN, Saved(1, 11, -1, NOW, a_state()))
            folder.save_file("ends", ORIGIN, some_ends(), stamp=NOW)
            folder.note(ORIGIN, {1: (11, NOW)}, stamp=NOW)
    finally:
        os.umask(old_mask)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (path.parent, path, *path.iterdir())}
    assert modes == {"made": 0o700, "state": 0o700} | dict.fromkeys(
        ["lock", "partition-00001", "ends", "index"], 0o600
    )


# kill -9

SAVE_FOR_EVER = """
import itertools, os, sys
import numpy as np
from koff.monitor.moment import Moment
from koff.monitor.saved import Origin, Saved
from koff.monitor.state import StateDir
from koff.tracker import State

ORIGIN = Origin("cluster", "__consumer_offsets", "AAAAAAAAAAAAAAAAAAAAAQ", 3)


def save_for_ever(first):
    with StateDir(sys.argv[1]).lock() as folder:
        print("begun", os.getpid(), flush=True)
        for number in itertools.count(first):
            state = State({"number": number}, {"numbers": np.full(40_000, number)})
            for partition in range(ORIGIN.partitions):
                folder.save(ORIGIN, Saved(partition, number, -1, Moment(number, 0, "b"), state))
            stamp = Moment(number + 1, 0, "b")
            folder.note(ORIGIN, {p: (number, stamp) for p in range(ORIGIN.partitions)}, stamp=stamp)
            print(number, flush=True)


while line := sys.stdin.readline():
    if (child := os.fork()) == 0:
        save_for_ever(int(line))
    assert os.waitpid(child, 0)[1] == 9
    print("killed", flush=True)
"""
"""For each number on stdin a process that saves, from that number on, until it is killed."""


@pytest.fixture
def saver(tmp_path):
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
    left_behind = kills = 0
    deadline = time.monotonic() + 150.0
    while kills < 20 or not left_behind or not min(there.values()):
        assert time.monotonic() < deadline, f"{kills} kills, {left_behind} while a file was written; {there}"
        kills += 1
        first = max(there.values()) + 1
        last = run_and_kill(saver, first, rng.uniform(0, 0.03 + 0.001 * kills))  # a busy machine saves slowly
        left_behind += any(tmp_path.glob("*.new"))
        for partition, found in loaded(tmp_path).items():
            if there[partition] == 0 and found == "nothing was saved":
                continue
            assert isinstance(found, Saved), found
            number = found.position
            assert number in {there[partition] if last < first else last, last + 1}
            assert found.state.facts == {"number": number}
            assert found.state.columns["numbers"].tolist() == [number] * 40_000
            assert found.stamp.at_s in {number, number + 1}
            there[partition] = number

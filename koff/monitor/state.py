"""The folder in which state outlives the process: a file a partition of the offsets topic, and an index.

A file is: magic, format, the sizes of head and file (`_FRONT`), the head in JSON, columns of numbers as they
are in memory (little-endian), and the SHA-256 of all that. It is written beside the old one, forced to the
disk, and put in its place: a process that is killed, or a machine that loses its power, leaves the old file
or the new one. What was damaged all the same is found out when it is read, and is a reason, never an error.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from koff.client.closing import Closing
from koff.errors import ConfigError, KoffError
from koff.tracker import STATE_SCHEMA, State
from koff.version import VERSION

MARGIN = 0.1
"""The part of `delete.retention.ms` that is left for reading what was missed."""
_MAGIC = b"koff\0st\n"
_FORMAT = 1
_FRONT = struct.Struct("<8sIIQ")
_SUM_BYTES = 32
_LOCK, _INDEX, _ENDS = "lock", "index", "ends"
_TEMPORARY = ".new"
_Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic that states are of. Those of another, or of one that has grown, are of no use."""

    cluster_id: str
    topic: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """The state of a partition as of `position`, the next offset to read.

    `leader_epoch` of the last record (-1: not known). `as_of_ms` is when the log was last seen to end there.
    """

    partition: int
    position: int
    leader_epoch: int
    saved_at_ms: int
    as_of_ms: int
    state: State


class StateDir(Closing):
    """A folder of one process, from `lock` to `close`. One thread at a time may call it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock: int | None = None

    def lock(self) -> Self:
        """Takes the folder for this process, makes it if need be, removes what a killed one left half done.

        Raises `ConfigError` when it cannot be used, or another process uses it.
        """
        if self._lock is not None:
            return self
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as failure:
            raise self._unusable(failure) from failure
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.path / f"try{_TEMPORARY}").touch()
            for left in self.path.glob(f"*{_TEMPORARY}"):
                left.unlink()
        except BlockingIOError as failure:
            os.close(lock)
            raise ConfigError(
                f"--state-dir {self.path} is in use by another koff: give each a folder of its own"
            ) from failure
        except OSError as failure:
            os.close(lock)
            raise self._unusable(failure) from failure
        self._lock = lock
        return self

    def close(self) -> None:
        """Lets others have the folder. Safe to call twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def save(
        self,
        origin: Origin,
        partition: int,
        state: State,
        *,
        position: int,
        now_ms: int,
        leader_epoch: int = -1,
    ) -> int:
        """Writes the state of a partition, gives the bytes written. Only when the log was seen to end at
        `position` just now: `now_ms` counts as the time until which nothing was missed.

        Raises `KoffError` when it cannot be written; what was saved before is then still there.
        """
        about = {"position": position, "leader_epoch": leader_epoch}
        return self._put(_file(partition), origin, about, now_ms, state)

    def save_ends(self, origin: Origin, state: State, *, now_ms: int) -> int:
        """Writes the history of ends, as `save` does."""
        return self._put(_ENDS, origin, {}, now_ms, state)

    def note(self, origin: Origin, known: Mapping[int, tuple[int, int]], *, now_ms: int) -> int:
        """Writes the index: by partition, a position and when (ms) the log was last seen to end there.

        So a file with that position is as good as new, as long as `save` came first where state had changed.
        """
        places = [[partition, position, at_ms] for partition, (position, at_ms) in known.items()]
        return self._put(_INDEX, origin, {}, now_ms, State({"known": places}, {}))

    def forget(self, partition: int) -> None:
        """Removes the state of a partition that has to be read anew."""
        try:
            (self.path / _file(partition)).unlink(missing_ok=True)
            self._sync()
        except OSError as failure:
            raise self._failed("remove from", failure) from failure

    def load(self, origin: Origin) -> Iterator[tuple[int, Saved | str]]:
        """Of each partition what was saved, or why that is of no use; one after the other is read."""
        index = self._get(_INDEX, origin)
        places = [] if isinstance(index, str) else index[1].facts["known"]
        known = {partition: (position, at_ms) for partition, position, at_ms in places}
        for partition in range(origin.partitions):
            yield partition, self._load(origin, partition, known.get(partition))

    def load_ends(self, origin: Origin, *, now_ms: int) -> State | str:
        """The history of ends as it was saved, or why that is of no use."""
        found = self._get(_ENDS, origin)
        if isinstance(found, str):
            return found
        head, state = found
        return state if head["saved_at_ms"] <= now_ms else _IN_THE_FUTURE

    def _load(self, origin: Origin, partition: int, known: tuple[int, int] | None) -> Saved | str:
        found = self._get(_file(partition), origin)
        if isinstance(found, str):
            return found
        head, state = found
        position, saved_at_ms = head["position"], head["saved_at_ms"]
        as_of_ms = known[1] if known is not None and known[0] == position else saved_at_ms
        return Saved(partition, position, head["leader_epoch"], saved_at_ms, as_of_ms, state)

    def _get(self, name: str, origin: Origin) -> tuple[dict[str, Any], State] | str:
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            return "nothing was saved"
        except OSError as failure:
            return f"it cannot be read: {failure.strerror}"
        try:
            found = _decode(data)
            return found if isinstance(found, str) else _foreign(found[0], name, origin) or found
        except (KeyError, TypeError, ValueError) as failure:
            return f"it is damaged: {failure}"

    def _put(self, name: str, origin: Origin, about: Mapping[str, int], now_ms: int, state: State) -> int:
        head = {"schema": STATE_SCHEMA, "koff": VERSION, "file": name, "saved_at_ms": now_ms}
        head |= {**asdict(origin), **about}
        try:
            return self._write(name, head | {"facts": state.facts}, state.columns)
        except OSError as failure:
            raise self._failed("write to", failure) from failure

    def _write(self, name: str, head: Mapping[str, Any], columns: _Columns) -> int:
        pieces = _encode(head, columns)
        new = self.path / (name + _TEMPORARY)
        try:
            with new.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path / name)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        self._sync()
        return sum(map(len, pieces))

    def _sync(self) -> None:
        """Forces the folder's names to the disk."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _failed(self, verb: str, failure: OSError) -> KoffError:
        return KoffError(f"cannot {verb} --state-dir {self.path}: {failure.strerror}")

    def _unusable(self, failure: OSError) -> ConfigError:
        return ConfigError(
            f"cannot use --state-dir {self.path}: {failure.strerror}; name a folder that koff may write to"
        )


def reasons_not_to_resume(
    *,
    position: int,
    as_of_ms: int,
    now_ms: int,
    delete_retention_ms: int,
    log_start: int,
    last_stable: int,
) -> str | None:
    """Why reading on at `position` could miss what compaction removed meanwhile, or read another log.

    None where all that was written since `as_of_ms`, tombstones too, is still there
    (docs/records-format.md 4.2).
    """
    pause_ms = now_ms - as_of_ms
    if pause_ms < 0:
        return _IN_THE_FUTURE
    if pause_ms > delete_retention_ms * (1 - MARGIN):
        return f"it is so old that tombstones may be gone, with delete.retention.ms {delete_retention_ms}"
    if position < log_start:
        return f"the log starts at {log_start} now, behind its position {position}"
    if position > last_stable:
        return f"the log was truncated: it ends at {last_stable}, before its position {position}"
    return None


_IN_THE_FUTURE = "it was saved at a time that is yet to come: a clock was, or is, wrong"


def _file(partition: int) -> str:
    return f"partition-{partition:05d}"


def _foreign(head: Mapping[str, Any], file: str, origin: Origin) -> str | None:
    """Why what has this head is not that file of that origin, or not for this koff."""
    if head["schema"] != STATE_SCHEMA:
        return f"it has schema {head['schema']} (koff {head['koff']}), this koff reads {STATE_SCHEMA}"
    for name, ours in {"file": file, **asdict(origin)}.items():
        if head[name] != ours:
            return f"its {name.replace('_', ' ')} is {head[name]!r}, not {ours!r}"
    return None


def _encode(head: Mapping[str, Any], columns: _Columns) -> list[bytes | memoryview]:
    """A file in pieces."""
    wide_first = sorted(columns.items(), key=lambda item: -item[1].itemsize)
    arrays = {name: np.ascontiguousarray(c, c.dtype.newbyteorder("<")) for name, c in wide_first}
    table = [[name, array.dtype.str, len(array)] for name, array in arrays.items()]
    text = json.dumps({**head, "columns": table}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = [array.data.cast("B") for array in arrays.values() if len(array)]
    size = _FRONT.size + len(text) + sum(map(len, data)) + _SUM_BYTES
    pieces: list[bytes | memoryview] = [_FRONT.pack(_MAGIC, _FORMAT, len(text), size), text, *data]
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return [*pieces, digest.digest()]


def _decode(data: bytes) -> tuple[dict[str, Any], State] | str:
    """Head and state of a file, or why there are none."""
    if len(data) < _FRONT.size:
        return f"it is truncated: {len(data)} bytes"
    magic, format_, head_size, size = _FRONT.unpack_from(data)
    if magic != _MAGIC:
        return "it is not a state of koff's"
    if format_ != _FORMAT:
        return f"it has format {format_}, this koff reads {_FORMAT}"
    if len(data) < size:
        return f"it is truncated: {len(data)} of {size} bytes"
    if hashlib.sha256(memoryview(data)[:-_SUM_BYTES]).digest() != data[-_SUM_BYTES:]:
        return "it is damaged: its checksum is not that of its bytes"
    at = _FRONT.size + head_size
    head = json.loads(data[_FRONT.size : at])
    columns = {}
    for name, kind, length in head["columns"]:
        columns[name] = np.frombuffer(data, kind, length, at)
        at += columns[name].nbytes
    return head, State(head["facts"], columns)

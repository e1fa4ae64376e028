"""The state directory: a file for each partition of the offsets topic, of end offsets, of verdicts, an index.

A new file (`state_file` has the format) is written beside the old one, forced to the disk, and renamed: a
process that is killed, or a machine that loses its power, leaves the old file or the new one.

Names of groups may be confidential: only the user of koff can read the files.
"""

import errno
import fcntl
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import structlog

from koff.client.closing import Closing
from koff.errors import ConfigError, KoffError
from koff.monitor.moment import Moment
from koff.monitor.resume_rules import NOTHING_SAVED, newest_stamp
from koff.monitor.saved import Origin, Saved, StateFile
from koff.monitor.state_file import (
    MALFORMED,
    Columns,
    create_file,
    decode_state,
    encode_state,
    read_sound_file,
)
from koff.tracker import STATE_SCHEMA, State
from koff.version import VERSION

log = structlog.get_logger(component="monitor.state")
_LOCK, _INDEX, _TRY = "lock", "index", "try"
_TEMPORARY = ".new"
_OWN_TEMPORARY = re.compile(r"(partition-\d{5,}|index|ends|verdicts|try)\.new")
_STAMP = Moment._fields
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_FSYNC = {errno.EINVAL, errno.ENOTSUP}
"""The errors of file systems that cannot force the names of a folder to the disk."""
_Positions = Mapping[int, tuple[int, Moment]]


class StateDir(Closing):
    """The folder of one process, from `lock` to `close`. Only one thread at a time may call it.

    A locked folder that somebody removes is made and locked again before the next file is written: a lock on
    a removed file keeps no other koff out.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock: int | None = None
        self._was_emptied = False

    def lock(self) -> Self:
        """Locks the folder for this process, after making it if it does not exist.

        Removes the half-written files that a killed koff left there. Raises `ConfigError` if koff cannot
        write to the folder, or another process has locked it. A full disk is logged only.
        """
        if self._lock is not None:
            return self
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            _make_folders(self.path)
            lock = os.open(self.path / _LOCK, flags, 0o600)
        except OSError as failure:
            raise self._unusable(failure) from failure
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._try_to_write()
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
        """Unlocks the folder. May be called twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def take_emptied(self) -> bool:
        """Whether the folder was made again since the last call: what was saved before is gone."""
        was_emptied, self._was_emptied = self._was_emptied, False
        return was_emptied

    def save(self, origin: Origin, saved: Saved) -> int:
        """Writes the state of a partition; returns the number of bytes.

        Raises `KoffError` if the file cannot be written; the old file is then still there.
        """
        about = {"position": saved.position, "leader_epoch": saved.leader_epoch}
        return self._put(_file(saved.partition), origin, about, saved.stamp, saved.state)

    def save_file(self, name: StateFile, origin: Origin, state: State, *, stamp: Moment) -> int:
        """Writes state that is of no partition, as `save` does."""
        return self._put(name, origin, {}, stamp, state)

    def note(self, origin: Origin, known: _Positions, *, stamp: Moment) -> int:
        """Writes the index: by partition, a position and when the log was last known to end there.

        A file with that position is then as good as a file that is written now. If the state of the partition
        has changed, `save` must be called first. Raises `KoffError`, as `save` does.
        """
        places = [[partition, position, *at] for partition, (position, at) in known.items()]
        return self._put(_INDEX, origin, {}, stamp, State({"known": places}, {}))

    def forget(self, partition: int) -> None:
        """Removes the saved state of a partition. Raises `KoffError` if that is not possible."""
        self._lock_again()
        name = _file(partition)
        try:
            (self.path / name).unlink(missing_ok=True)
            self._sync()
        except OSError as failure:
            raise self._failed("remove from", name, failure) from failure

    def load(self, origin: Origin) -> Iterator[tuple[int, Saved | str]]:
        """Yields each partition with its saved state, or why that is useless. Reads one file at a time.

        The stamp is that of the file or that of the index, whichever is newer. Logs why an index is useless.
        """
        known = self._load_index(origin)
        for partition in range(origin.partitions):
            yield partition, self._load(origin, partition, known.get(partition))

    def load_file(self, name: StateFile, origin: Origin) -> tuple[State, Moment] | str:
        """The state of `save_file` and its stamp, or why it is useless; logs that reason."""
        found = self._get(name, origin)
        if isinstance(found, str):
            _log_unusable(name, found)
            return found
        return found[2], found[1]

    def _load_index(self, origin: Origin) -> dict[int, tuple[int, Moment]]:
        found = self._get(_INDEX, origin)
        if not isinstance(found, str):
            try:
                return {int(p): (int(at), _read_stamp(*stamp)) for p, at, *stamp in found[2].facts["known"]}
            except MALFORMED as failure:
                found = _damage(failure)
        _log_unusable(_INDEX, found)
        return {}

    def _load(self, origin: Origin, partition: int, known: tuple[int, Moment] | None) -> Saved | str:
        found = self._get(_file(partition), origin)
        if isinstance(found, str):
            return found
        head, stamp, state = found
        try:
            position, epoch = int(head["position"]), int(head["leader_epoch"])
        except MALFORMED as failure:
            return _damage(failure)
        if known is not None and known[0] == position:
            stamp = newest_stamp(stamp, known[1])
        return Saved(partition, position, epoch, stamp, state)

    def _get(self, name: str, origin: Origin) -> tuple[dict[str, Any], Moment, State] | str:
        """Head, stamp and state of a file, or why it is useless."""
        try:
            data = read_sound_file(self.path / name)
        except FileNotFoundError:
            return NOTHING_SAVED
        except OSError as failure:
            return f"it cannot be read: {_cause(failure)}"
        if isinstance(data, str):
            return data
        try:
            head, state = decode_state(data)
            return _foreign(head, name, origin) or (head, _read_stamp(*(head[key] for key in _STAMP)), state)
        except MALFORMED as failure:
            return _damage(failure)

    def _put(self, name: str, origin: Origin, about: Mapping[str, int], stamp: Moment, state: State) -> int:
        self._lock_again()
        head = {"schema": STATE_SCHEMA, "koff": VERSION, "file": name, **stamp._asdict()}
        head |= {**asdict(origin), **about}
        try:
            return self._write(name, head | {"facts": state.facts}, state.columns)
        except OSError as failure:
            raise self._failed("write to", name, failure) from failure

    def _write(self, name: str, head: Mapping[str, Any], columns: Columns) -> int:
        pieces = encode_state(head, columns)
        new = self.path / (name + _TEMPORARY)
        try:
            with create_file(new) as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path / name)
        except OSError:
            with suppress(OSError):  # the first error has the cause
                new.unlink(missing_ok=True)
            raise
        self._sync()
        return sum(map(len, pieces))

    def _sync(self) -> None:
        """Forces the folder's names to the disk."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        except OSError as failure:
            if failure.errno not in _NO_FSYNC:
                raise
        finally:
            os.close(folder)

    def _lock_again(self) -> None:
        """Makes and locks the folder again if it was removed. Raises `ConfigError`, as `lock` does."""
        if self._lock is None or not self._is_removed(self._lock):
            return
        removed, self._lock = self._lock, None
        try:
            self.lock()
        except ConfigError:
            self._lock = removed  # the next call tries again
            raise
        os.close(removed)
        self._was_emptied = True
        log.warning("the folder for state was removed: koff has made it again", path=str(self.path))

    def _is_removed(self, lock: int) -> bool:
        """Whether the locked file is no longer that of the folder."""
        try:
            present = os.stat(self.path / _LOCK, follow_symlinks=False)
        except FileNotFoundError:
            return True
        except OSError:  # a disk that fails, or a file in the place of the folder: writing says why
            return False
        return not os.path.samestat(present, os.fstat(lock))

    def _try_to_write(self) -> None:
        """Removes koff's half-written files, and creates a file and removes it. Raises OSError."""
        for name in os.listdir(self.path):
            if _OWN_TEMPORARY.fullmatch(name):
                (self.path / name).unlink()
        attempt = self.path / (_TRY + _TEMPORARY)
        try:
            create_file(attempt).close()
            attempt.unlink()
        except OSError as failure:
            if failure.errno not in _FULL:
                raise
            # The earlier state can be loaded, and the disk may have room again by the next save.
            log.warning("state cannot be saved", path=str(self.path), why=_cause(failure))

    def _failed(self, verb: str, name: str, failure: OSError) -> KoffError:
        cause = f"{name}: {_cause(failure)}"
        if failure.errno in {errno.ENOENT, errno.ENOTDIR} and not os.path.isdir(self.path):
            cause = "it is no longer a folder" if os.path.lexists(self.path) else "the folder is gone"
        return KoffError(f"cannot {verb} --state-dir {self.path}: {cause}")

    def _unusable(self, failure: OSError) -> ConfigError:
        cause = _cause(failure)
        if failure.filename and os.path.dirname(failure.filename) == str(self.path):
            cause = f"{os.path.basename(failure.filename)}: {cause}"
        return ConfigError(
            f"cannot use --state-dir {self.path}: {cause}; name a folder that koff may write to"
        )


def _make_folders(path: Path) -> None:
    """Makes the folder, and those above it that are missing. Only the user of koff may look into them."""
    if not path.parent.exists():
        _make_folders(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def _file(partition: int) -> str:
    return f"partition-{partition:05d}"


def _foreign(head: Mapping[str, Any], file: str, origin: Origin) -> str | None:
    """Why a file with this head is not `file` of `origin`, or not for this koff. None if it is."""
    if head["schema"] != STATE_SCHEMA:
        return f"it has schema {head['schema']} (koff {head['koff']}), this koff reads {STATE_SCHEMA}"
    for name, ours in {"file": file, **asdict(origin)}.items():
        if head[name] != ours:
            return f"its {name.replace('_', ' ')} is {head[name]!r}, not {ours!r}"
    return None


def _read_stamp(at_s: float, wall_ms: int, boot: str) -> Moment:
    """A moment as it was written. Raises one of `MALFORMED`."""
    if not math.isfinite(at_s) or not isinstance(wall_ms, int) or not isinstance(boot, str):
        raise ValueError(f"no moment: {at_s}, {wall_ms}, {boot}")
    return Moment(at_s, wall_ms, boot)


def _damage(failure: Exception) -> str:
    return f"it is damaged: {failure}"


def _cause(failure: OSError) -> str:
    if failure.errno == errno.ELOOP and failure.filename and os.path.islink(failure.filename):
        return "it is a symbolic link"
    return failure.strerror or str(failure)


def _log_unusable(name: str, why: str) -> None:
    if why != NOTHING_SAVED:
        log.warning("saved file is not used", file=name, why=why)

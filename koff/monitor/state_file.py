"""The format of a state file.

A file has the magic bytes, the format, the sizes of head and file (`_FRONT`), the head in JSON, columns of
numbers as they are in memory (little-endian), and the SHA-256 of all that. A file that is damaged gives a
reason when it is read, not an error.
"""

import hashlib
import json
import os
import re
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from koff.tracker import State

_MAGIC = b"koff\0st\n"
_FORMAT = 2
_FRONT = struct.Struct("<8sIIQ")
_SUM_BYTES = 32
_READ_BYTES = 1 << 20
_NUMBERS = re.compile(r"[<|][biuf][1248]")
"""The types of columns. Others may hold objects, or take no bytes."""
MALFORMED = (AttributeError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of code that takes apart a head which koff did not write."""
Columns = Mapping[str, NDArray[Any]]


def encode_state(head: Mapping[str, Any], columns: Columns) -> list[bytes | memoryview]:
    """The content of a file, in pieces."""
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


def create_file(path: Path) -> BinaryIO:
    """Opens a new file that only this user can read. A file or a link of that name is removed first."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def read_sound_file(path: Path) -> bytes | str:
    """The bytes of a file with the right size and checksum, or why it has none. Raises OSError.

    A file of any size is checked in little memory, so that a damaged one of many gigabytes does no harm.
    """
    # A named pipe must not be waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return "it cannot be read: it is not a regular file"
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            size = status.st_size
            why = _check_front(file.read(_FRONT.size), size) or _check_sum(file, size)
            if why is not None:
                return why
            file.seek(0)
            return file.read(size)
    finally:
        os.close(descriptor)


def _check_front(front: bytes, actual: int) -> str | None:
    """Why a file of `actual` bytes that begins with `front` is useless. Returns None if it may be good."""
    if len(front) < _FRONT.size:
        return f"it is truncated: {actual} bytes"
    magic, format_, _, size = _FRONT.unpack(front)
    if magic != _MAGIC:
        return "it is not a state of koff's"
    if format_ != _FORMAT:
        return f"it has format {format_}, this koff reads {_FORMAT}"
    if actual < size:
        return f"it is truncated: {actual} of {size} bytes"
    if actual > size:
        return f"it is damaged: {actual} bytes, where its head says {size}"
    return None


def _check_sum(file: BinaryIO, size: int) -> str | None:
    """Why a file of `size` bytes is useless. Returns None if its checksum is right."""
    file.seek(0)
    digest, left = hashlib.sha256(), size - _SUM_BYTES
    while left > 0 and (piece := file.read(min(left, _READ_BYTES))):
        digest.update(piece)
        left -= len(piece)
    if file.read(_SUM_BYTES) != digest.digest():
        return "it is damaged: its checksum is not that of its bytes"
    return None


def decode_state(data: bytes) -> tuple[dict[str, Any], State]:
    """Head and state of a file whose checksum is right. Raises one of `MALFORMED`."""
    _, _, head_size, _ = _FRONT.unpack_from(data)
    at = _FRONT.size + head_size
    head = json.loads(data[_FRONT.size : at])
    columns, numbers = {}, memoryview(data)[:-_SUM_BYTES]
    for name, kind, length in head["columns"]:
        if not _NUMBERS.fullmatch(kind) or not 0 <= length <= len(data):
            raise ValueError(f"a column of {length} numbers of type {kind}")
        columns[name] = np.frombuffer(numbers, kind, length, at)
        at += columns[name].nbytes
    return head, State(head["facts"], columns)

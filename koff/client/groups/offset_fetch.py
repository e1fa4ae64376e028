"""OffsetFetch for thousands of groups at once: requests and responses straight from and to columns.

Versions 8 and 9 (KIP-709: many groups a request). Version 10 has topic ids for names: those that the topics
have now, not those of the commits, so that they tell nothing, and commits for topics that are gone are left
out (seen with 4.3.1). kio takes four times as long over an answer as what is here, and ten over a request.
Layouts: OffsetFetchRequest.json and OffsetFetchResponse.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from koff.client.groups.responses import Offsets
from koff.client.wire.requests import Api, Question, error_name
from koff.proto.primitives import JAVA_TEXT, Malformed, uvarint, write_uvarint

FIRST, LAST = 8, 9
BATCH_GROUPS = 1000

_ROW = np.dtype(
    {
        "names": ["partition", "offset", "leader_epoch", "metadata", "error", "tags"],
        "formats": [">i4", ">i8", ">i4", "u1", ">i2", "u1"],
    }
)
_ROW_BYTES = _ROW.itemsize
_PLAIN_END = b"\x01\0\0\0"
"""How a row ends that has empty metadata, no error and no tags: what brokers nearly always write."""
_ALL_TOPICS = {8: b"\0\0", 9: b"\0\xff\xff\xff\xff\0\0"}
"""Behind a group's name: no member, no member epoch (9), topics null which means all, no tags."""


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """The answer to one request: offsets of the groups that are `answered`, error names of the others."""

    offsets: Offsets
    answered: tuple[str, ...]
    errors: Mapping[str, str]


def questions(groups: Sequence[str], version: int, *, max_bytes: int) -> Iterator[Question[FetchedOffsets]]:
    """Requests for all offsets of the groups, so that none is larger than `max_bytes` (but for one group)."""
    behind = _ALL_TOPICS[version]
    entries: list[bytes] = []
    size = 0
    for group in groups:
        name = group.encode()
        if len(entries) >= BATCH_GROUPS or (entries and size + len(name) + 12 > max_bytes):
            yield _question(entries, version)
            entries, size = [], 0
        head = bytearray()
        write_uvarint(head, len(name) + 1)
        entries.append(bytes(head) + name + behind)
        size += len(entries[-1])
    if entries:
        yield _question(entries, version)


def _question(entries: list[bytes], version: int) -> Question[FetchedOffsets]:
    body = bytearray()
    write_uvarint(body, len(entries) + 1)
    body += b"".join(entries)
    body += b"\0\0"  # not only stable offsets; no tags
    return Question(Api.OFFSET_FETCH, version, bytes(body), read)


def read(buffer: bytes, at: int) -> FetchedOffsets:
    """A response's body, from `at` on. Raises `Malformed` or IndexError for what is none."""
    try:
        reading = _ResponseReader(buffer)
        rows = reading.response(at + 4)  # behind the throttle time
    except (Malformed, IndexError):
        reading = _ResponseReader(buffer, careful=True)
        rows = reading.response(at + 4)
    return FetchedOffsets(
        Offsets(
            names=reading.names,
            topics=reading.topics,
            counts=reading.counts,
            partition=rows["partition"].astype(np.int32),
            offset=rows["offset"].astype(np.int64),
            leader_epoch=rows["leader_epoch"].astype(np.int32),
            metadata=reading.metadata,
        ),
        tuple(reading.answered),
        reading.errors,
    )


class _Texts(dict[bytes, str]):
    """Topic names by their bytes."""

    def __missing__(self, data: bytes) -> str:
        text = self[data] = data.decode("utf-8", JAVA_TEXT)
        return text


class _ResponseReader:
    """One pass over a response. A topic's rows are taken as they stand when its last one looks plain.

    Only then does the next topic begin where we look, and that all of them were is checked at the end. If
    not, what was read is void (`Malformed`), and a pass that is `careful` has to read row by row.
    """

    def __init__(self, buffer: bytes, *, careful: bool = False) -> None:
        self.names: list[str] = []
        self.topics: list[str] = []
        self.counts: list[int] = []
        self.blocks: list[bytes] = []
        self.metadata: dict[int, str] = {}
        self.answered: list[str] = []
        self.errors: dict[str, str] = {}
        self._buffer = buffer
        self._careful = careful
        self._rows = 0
        self._texts = _Texts()

    def response(self, at: int) -> npt.NDArray[np.void]:
        """All rows."""
        count, at = uvarint(self._buffer, at)
        for _ in range(count - 1):
            at = self._group(at)
        if self._tags(at) != len(self._buffer):
            raise Malformed("the response does not end where it should")
        return _plain_rows(self.blocks)

    def _group(self, at: int) -> int:
        buffer = self._buffer
        length, at = uvarint(buffer, at)
        start, at = at, at + length - 1
        name = buffer[start:at].decode("utf-8", JAVA_TEXT)
        mark = len(self.names), len(self.blocks), self._rows
        failed = 0
        count, at = uvarint(buffer, at)
        for _ in range(count - 1):
            at, error = self._topic(name, at)
            failed = failed or error
        failed = buffer[at] << 8 | buffer[at + 1] or failed
        if failed:
            self._undo(*mark)
            self.errors[name] = error_name(failed if failed < 1 << 15 else failed - (1 << 16))
        else:
            self.answered.append(name)
        return self._tags(at + 2)

    def _topic(self, group: str, at: int) -> tuple[int, int]:
        """Where the topic ends, and the first error in it, 0 if there is none."""
        buffer = self._buffer
        length, start = uvarint(buffer, at)
        at = start + length - 1
        topic = self._texts[buffer[start:at]]
        count, at = uvarint(buffer, at)
        if count <= 1:
            return self._tags(at), 0
        count -= 1
        end, error = at + count * _ROW_BYTES, 0
        if buffer[end - 4 : end] == _PLAIN_END and not self._careful:
            self.blocks.append(buffer[at:end])
        else:
            end, error = self._odd_rows(at, count)
        self.names.append(group)
        self.topics.append(topic)
        self.counts.append(count)
        self._rows += count
        return self._tags(end), error

    def _odd_rows(self, at: int, count: int) -> tuple[int, int]:
        """Rows one by one: those with metadata, or with an error."""
        buffer, first = self._buffer, 0
        for row in range(self._rows, self._rows + count):
            numbers = buffer[at : at + 16]
            at += 17
            length = buffer[at - 1]
            if length > 1:
                if length > 127:
                    length, at = uvarint(buffer, at - 1)
                start, at = at, at + length - 1
                self.metadata[row] = buffer[start:at].decode("utf-8", JAVA_TEXT)
            first = first or buffer[at] << 8 | buffer[at + 1]
            at = at + 3 if not buffer[at + 2] else self._tags(at + 2)
            self.blocks.append(numbers + _PLAIN_END)
        return at, first

    def _undo(self, topics: int, blocks: int, rows: int) -> None:
        """Forgets what was read of a group that turned out to have an error."""
        _plain_rows(self.blocks[blocks:])
        del self.names[topics:], self.topics[topics:], self.counts[topics:], self.blocks[blocks:]
        for row in [row for row in self.metadata if row >= rows]:
            del self.metadata[row]
        self._rows = rows

    def _tags(self, at: int) -> int:
        buffer = self._buffer
        if not buffer[at]:
            return at + 1
        count, at = uvarint(buffer, at)
        for _ in range(count):
            _, at = uvarint(buffer, at)
            size, at = uvarint(buffer, at)
            at += size
        return at


def _plain_rows(blocks: list[bytes]) -> npt.NDArray[np.void]:
    rows = np.frombuffer(b"".join(blocks), _ROW)
    if (rows["metadata"] != 1).any() or rows["tags"].any() or rows["error"].any():
        raise Malformed("rows of another size than they were taken for")
    return rows

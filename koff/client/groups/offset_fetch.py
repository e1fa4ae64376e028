"""OffsetFetch for up to 1,000 groups in a request: encodes requests, and decodes responses into columns.

koff uses versions 8 and 9 (KIP-709: many groups in a request), and 7 with brokers before Kafka 3.0 (one group
in a request). Version 10 has topic ids in place of names.
These are the topics' present ids, not the ids at the time of the commits, so they add nothing; and version 10
leaves out commits for deleted topics (seen with 4.3.1). kio takes four times as long to decode a response,
and ten times as long to encode a request. Layouts: OffsetFetchRequest.json and OffsetFetchResponse.json.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from koff.client.groups.responses import PackedOffsets
from koff.proto.primitives import JAVA_REPLACEMENT, Malformed, read_uvarint, write_uvarint
from koff.proto.requests import Api, EncodedRequest, error_name, skip_tags

FIRST_VERSION, LAST_VERSION = 7, 9
BATCH_GROUPS = 1000
"""The most groups in one request."""

_ROW = np.dtype(
    {
        "names": ["partition", "offset", "leader_epoch", "metadata", "error", "tags"],
        "formats": [">i4", ">i8", ">i4", "u1", ">i2", "u1"],
    }
)
_ROW_BYTES = _ROW.itemsize
_ONE_GROUP = 7
_REST = b"\0\0"
"""What follows the groups: require_stable false, no tags."""
_PLAIN_END = b"\x01\0\0\0"
"""The end of a plain row: empty metadata, no error, no tags. Nearly all rows of a response end so."""
_ALL_TOPICS = {7: b"\0", 8: b"\0\0", 9: b"\0\xff\xff\xff\xff\0\0"}
"""What follows a group's name: member null, member epoch -1 (both only 9), topics null (all), no tags."""


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """The response to one request: the offsets of `groups`, and by name the errors of all other groups."""

    offsets: PackedOffsets
    groups: tuple[str, ...]
    errors: Mapping[str, str]


def build_requests(
    groups: Sequence[str], version: int, *, max_bytes: int
) -> Iterator[EncodedRequest[FetchedOffsets]]:
    """Requests for all offsets of the groups.

    No request is larger than `max_bytes`, unless the name of a single group is.
    """
    all_topics = _ALL_TOPICS[version]
    entries: list[bytes] = []
    size = 0
    for group in groups:
        name = group.encode()
        # 12: room for the lengths and the fields behind the name.
        if len(entries) >= BATCH_GROUPS or (entries and size + len(name) + 12 > max_bytes):
            yield _build_request(entries, version)
            entries, size = [], 0
        head = bytearray()
        write_uvarint(head, len(name) + 1)
        entries.append(bytes(head) + name + all_topics)
        size += len(entries[-1])
        if version == _ONE_GROUP:
            yield EncodedRequest(Api.OFFSET_FETCH, version, entries.pop() + _REST, partial(decode_one, group))
    if entries:
        yield _build_request(entries, version)


def _build_request(entries: list[bytes], version: int) -> EncodedRequest[FetchedOffsets]:
    body = bytearray()
    write_uvarint(body, len(entries) + 1)
    body += b"".join(entries)
    body += _REST
    return EncodedRequest(Api.OFFSET_FETCH, version, bytes(body), decode_response)


def decode_one(group: str, buffer: bytes, at: int) -> FetchedOffsets:
    """Decodes a response in version 7, which is about this group. Raises what `decode_response` raises."""
    return decode_response(buffer, at, group=group)


def decode_response(buffer: bytes, at: int, *, group: str | None = None) -> FetchedOffsets:
    """Decodes a response's body from `at` on. Raises `Malformed` or IndexError for an invalid response."""
    try:
        reader = _ResponseReader(buffer)
        rows = reader.read_response(at + 4, group)  # 4: the throttle time
    except (Malformed, IndexError):
        # A row was not plain although the last row of its topic was: read the response again, row by row.
        reader = _ResponseReader(buffer, careful=True)
        rows = reader.read_response(at + 4, group)
    return FetchedOffsets(
        PackedOffsets(
            names=reader.names,
            topics=reader.topics,
            counts=reader.counts,
            partition=rows["partition"].astype(np.int32),
            offset=rows["offset"].astype(np.int64),
            leader_epoch=rows["leader_epoch"].astype(np.int32),
            metadata=reader.metadata,
        ),
        tuple(reader.groups),
        reader.errors,
    )


class _TopicNames(dict[bytes, str]):
    """Topic names by their bytes: each name is decoded once."""

    def __missing__(self, data: bytes) -> str:
        name = self[data] = data.decode("utf-8", JAVA_REPLACEMENT)
        return name


class _ResponseReader:
    """Reads one response once, front to back.

    If the last row of a topic looks plain, the reader assumes that all rows of the topic are plain, and
    copies them as one block. `read_response` checks at the end that all of them were plain. If one was not,
    the reader may have looked for the next topic at a wrong position, so the whole result is invalid
    (`Malformed`). A `careful` reader reads each row by itself instead.
    """

    def __init__(self, buffer: bytes, *, careful: bool = False) -> None:
        self.names: list[str] = []
        self.topics: list[str] = []
        self.counts: list[int] = []
        self.blocks: list[bytes] = []
        self.metadata: dict[int, str] = {}
        self.groups: list[str] = []
        self.errors: dict[str, str] = {}
        self._buffer = buffer
        self._careful = careful
        self._rows = 0
        self._topic_names = _TopicNames()

    def read_response(self, at: int, group: str | None) -> npt.NDArray[np.void]:
        """All rows of the response whose list of groups is at `at`. The attributes have the other columns.

        A response about one `group` has no list.
        """
        if group is not None:
            end = self._read_group(group, at)
        else:
            count, at = read_uvarint(self._buffer, at)
            for _ in range(count - 1):
                length, at = read_uvarint(self._buffer, at)
                start, at = at, at + length - 1
                at = self._read_group(self._buffer[start:at].decode("utf-8", JAVA_REPLACEMENT), at)
            end = self._skip_tags(at)
        if end != len(self._buffer):
            raise Malformed("the response does not end where it should")
        return _decode_plain_rows(self.blocks)

    def _read_group(self, name: str, at: int) -> int:
        """Reads what follows the group's name. Returns the position behind it."""
        buffer = self._buffer
        rows_before = len(self.names), len(self.blocks), self._rows
        first_error = 0
        count, at = read_uvarint(buffer, at)
        for _ in range(count - 1):
            at, error = self._read_topic(name, at)
            first_error = first_error or error
        # The group's own error code follows its topics. A group with any error counts as failed.
        code = buffer[at] << 8 | buffer[at + 1] or first_error
        if code:
            self._discard_rows(*rows_before)
            self.errors[name] = error_name(code if code < 1 << 15 else code - (1 << 16))  # an int16
        else:
            self.groups.append(name)
        return self._skip_tags(at + 2)

    def _read_topic(self, group: str, at: int) -> tuple[int, int]:
        """The position behind the topic, and its first error code, 0 if there is none."""
        buffer = self._buffer
        length, start = read_uvarint(buffer, at)
        at = start + length - 1
        topic = self._topic_names[buffer[start:at]]
        count, at = read_uvarint(buffer, at)
        if count <= 1:  # a compact array: its length plus one
            return self._skip_tags(at), 0
        count -= 1
        end, error = at + count * _ROW_BYTES, 0
        if buffer[end - 4 : end] == _PLAIN_END and not self._careful:
            self.blocks.append(buffer[at:end])
        else:
            end, error = self._read_irregular_rows(at, count)
        self.names.append(group)
        self.topics.append(topic)
        self.counts.append(count)
        self._rows += count
        return self._skip_tags(end), error

    def _read_irregular_rows(self, at: int, count: int) -> tuple[int, int]:
        """Reads rows one by one; they may have metadata, errors or tags.

        Returns the position behind them, and the first error code.
        """
        buffer, first = self._buffer, 0
        for row in range(self._rows, self._rows + count):
            numbers = buffer[at : at + 16]  # partition, offset, leader epoch
            at += 17
            length = buffer[at - 1]
            if length > 1:  # metadata: 0 is null, 1 is empty
                if length > 127:  # an unsigned varint of more than one byte
                    length, at = read_uvarint(buffer, at - 1)
                start, at = at, at + length - 1
                self.metadata[row] = buffer[start:at].decode("utf-8", JAVA_REPLACEMENT)
            first = first or buffer[at] << 8 | buffer[at + 1]  # the error code
            at = at + 3 if not buffer[at + 2] else self._skip_tags(at + 2)
            self.blocks.append(numbers + _PLAIN_END)
        return at, first

    def _discard_rows(self, topics: int, blocks: int, rows: int) -> None:
        """Discards the rows of a group that has an error."""
        # The check at the end of the response does not see these blocks, so check them here.
        _decode_plain_rows(self.blocks[blocks:])
        del self.names[topics:], self.topics[topics:], self.counts[topics:], self.blocks[blocks:]
        for row in [row for row in self.metadata if row >= rows]:
            del self.metadata[row]
        self._rows = rows

    def _skip_tags(self, at: int) -> int:
        return skip_tags(self._buffer, at) if self._buffer[at] else at + 1  # nearly always there is none


def _decode_plain_rows(blocks: list[bytes]) -> npt.NDArray[np.void]:
    # `metadata` is a compact string's length plus one: 1 is the empty string.
    rows = np.frombuffer(b"".join(blocks), _ROW)
    if (rows["metadata"] != 1).any() or rows["tags"].any() or rows["error"].any():
        raise Malformed("a row that was taken for a plain row is not plain")
    return rows

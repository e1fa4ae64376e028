"""Log segments: what a broker's `.log` files hold, chunk by chunk, as columns of keys and values.

Give `read` the bytes of a file (an mmap will do), file after file in the order of their names. Batches
that do not hold together are reported as `Damage` and stepped over; nothing is raised for them.

What transactions came to, is in markers that stand behind their records: for a read_committed view
let `Outcomes` scan all files first, then read.
"""

import dataclasses
from collections.abc import Iterator
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.proto import record_batch as recordbatch
from koff.proto.buffers import Binary
from koff.proto.compression import decompress, library
from koff.proto.primitives import Malformed
from koff.proto.slices import PAD, Ints, Mask

Buffer = bytes | bytearray | memoryview | mmap

CHUNK = 4 << 20
"""Bytes of a file that are read at a time, at least a batch."""
BATCH_LIMIT = 128 << 20
"""What a batch may be when decompressed."""

_MARKERS = {0: "abort", 1: "commit"}


@dataclasses.dataclass(frozen=True, slots=True)
class Marker:
    """A control record: what became of a producer's transaction."""

    offset: int
    timestamp: int
    """Milliseconds."""
    kind: str
    """commit, abort, or `control` and a number that only KRaft's own log has."""
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """-1 where the record does not say."""


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no batch, or a batch that does not hold together."""

    position: int
    """In the file."""
    size: int
    reason: str
    offset: int | None = None
    """The first offset of the batch, if that much can be read."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Records:
    """One row a record, in the order of the log."""

    offset: Ints
    timestamp: Ints
    """Milliseconds."""
    producer_id: Ints
    """-1 where there was none."""
    transactional: Mask
    keys: Binary
    values: Binary

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, rows: Mask) -> "Records":
        return Records(
            self.offset[rows],
            self.timestamp[rows],
            self.producer_id[rows],
            self.transactional[rows],
            self.keys.take(rows),
            self.values.take(rows),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some batches of a file. Records, markers and damage are each in order; offsets tell how they mix."""

    position: int
    """In the file, behind what was read."""
    records: Records
    markers: tuple[Marker, ...]
    damage: tuple[Damage, ...]


class Outcomes:
    """What became of the transactions in the files that were scanned."""

    def __init__(self) -> None:
        self._markers: dict[int, list[tuple[int, bool]]] = {}
        self._begun: dict[int, int] = {}

    @property
    def undecided(self) -> bool:
        """Whether a transaction is open behind the last file that was scanned."""
        return any(
            producer not in self._markers or self._markers[producer][-1][0] < offset
            for producer, offset in self._begun.items()
        )

    def scan(self, buffer: Buffer) -> None:
        """Takes in the markers of a file; files in order. Reads headers and control batches only."""
        for piece in _pieces(buffer):
            headers = recordbatch.headers(np.frombuffer(piece.data, np.uint8), piece.begins)
            control = _is(headers, recordbatch.CONTROL)
            begun = headers[_is(headers, recordbatch.TRANSACTIONAL) & ~control]
            offsets = begun["base_offset"].tolist()
            self._begun.update(zip(begun["producer_id"].tolist(), offsets, strict=True))
            for row in np.flatnonzero(control).tolist():
                marker = _marker(piece, row, headers)
                if isinstance(marker, Marker) and marker.kind in _MARKERS.values():
                    decided = self._markers.setdefault(marker.producer_id, [])
                    decided.append((marker.offset, marker.kind == "commit"))

    def committed(self, records: Records) -> Mask:
        """Which records a read_committed consumer gets: not those aborted, nor those still undecided."""
        visible: Mask = ~records.transactional
        for producer in np.unique(records.producer_id[records.transactional]).tolist():
            rows = np.flatnonzero(records.transactional & (records.producer_id == producer))
            decided = self._markers.get(producer, [])
            offsets = np.array([offset for offset, _ in decided] + [np.iinfo(np.int64).max], np.int64)
            commits = np.array([commit for _, commit in decided] + [False], np.bool_)
            visible[rows] = commits[np.searchsorted(offsets[:-1], records.offset[rows])]
        return visible


def read(buffer: Buffer, *, outcomes: Outcomes | None = None, check_crc: bool = True) -> Iterator[Chunk]:
    """The file in chunks; only what a read_committed consumer gets if `outcomes` are given.

    Raises `MissingLibrary` when a checksum or a codec needs one that is not installed.
    """
    for piece in _pieces(buffer):
        draft = _Draft(piece)
        records = draft.records(check_crc=check_crc)
        if outcomes is not None:
            records = records.take(outcomes.committed(records))
        tail = () if piece.tail is None else (piece.tail,)
        yield Chunk(piece.end, records, tuple(draft.markers), (*draft.damage, *tail))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Whole batches of a file, with room behind them."""

    data: bytes
    base: int
    """Where in the file the data begins."""
    begins: Ints
    """Of the batches, in the data."""
    end: int
    """In the file."""
    tail: Damage | None = None
    """What stopped the reading, in the last piece."""


def _pieces(buffer: Buffer) -> Iterator[_Piece]:
    base, size, room = 0, len(buffer), CHUNK
    while base < size:
        data = bytes(buffer[base : base + room])
        begins, end, needed = recordbatch.walk(data)
        if not begins:
            if room < needed <= size - base:  # a batch of more than a chunk
                room = needed
                continue
            yield _Piece(bytes(PAD), base, np.zeros(0, np.int64), size, _tail(buffer, base, needed))
            return
        yield _Piece(data[:end] + bytes(PAD), base, np.array(begins, np.int64), base + end)
        base, room = base + end, CHUNK


def _tail(buffer: Buffer, at: int, needed: int) -> Damage | None:
    """What is wrong with the end of a file. Nothing, if there are only zeros: Kafka may allocate ahead."""
    size = len(buffer) - at
    if size < recordbatch.SMALLEST:
        return Damage(at, size, f"the last batch is torn: {size} bytes are left")
    if not any(bytes(buffer[start : start + CHUNK]).strip(b"\0") for start in range(at, len(buffer), CHUNK)):
        return None
    offset = int.from_bytes(buffer[at : at + 8], "big", signed=True)
    if needed <= size:
        return Damage(at, size, f"a batch says that it is {needed} bytes long: all behind it is lost", offset)
    return Damage(at, size, f"the last batch is torn: {size} bytes of {needed}", offset)


def _is(headers: NDArray[Any], attribute: int) -> Mask:
    found: Mask = (headers["attributes"] & attribute != 0) & (headers["magic"] == 2)
    return found


class _Draft:
    """A chunk in the making: batches that cannot be read become damage, the records of the others columns."""

    def __init__(self, piece: _Piece) -> None:
        self.piece = piece
        self.headers = recordbatch.headers(np.frombuffer(piece.data, np.uint8), piece.begins)
        self.ends = np.append(piece.begins, len(piece.data) - PAD)[1:]
        self.markers: list[Marker] = []
        self._damage: dict[int, str] = {}

    @property
    def damage(self) -> list[Damage]:
        return [self._damaged(row, reason) for row, reason in sorted(self._damage.items())]

    def _damaged(self, row: int, reason: str) -> Damage:
        begin, end = int(self.piece.begins[row]), int(self.ends[row])
        return Damage(self.piece.base + begin, end - begin, reason, int(self.headers["base_offset"][row]))

    def records(self, *, check_crc: bool) -> Records:
        """The records of all batches that can be read. Finds markers and damage on the way."""
        self._check_headers(check_crc=check_crc)
        self._read_markers()
        rows = self._sound(~_is(self.headers, recordbatch.CONTROL))
        data, begins, ends = self._payloads(rows)
        found = recordbatch.bounds(data, begins, ends, self.headers["count"][rows].astype(np.int64))
        self._spoil(rows[found.bad], "it has not as many records as it says")
        fields = recordbatch.fields(np.frombuffer(data, np.uint8), found.begin, found.end)
        batch = rows[found.batch]
        if not fields.ok.all():
            self._spoil(batch[~fields.ok], "a record in it does not hold together")
        records = _records(self.headers[batch], fields)
        return records if fields.ok.all() else records.take(~np.isin(batch, batch[~fields.ok]))

    def _spoil(self, rows: NDArray[np.intp], reason: str) -> None:
        """Batches that are damaged; those known to be have their reason already."""
        self._damage = dict.fromkeys(rows.tolist(), reason) | self._damage

    def _sound(self, rows: Mask) -> NDArray[np.intp]:
        rows[list(self._damage)] = False
        return np.flatnonzero(rows)

    def _check_headers(self, *, check_crc: bool) -> None:
        for row in np.flatnonzero(self.headers["magic"] != 2).tolist():
            self._damage[row] = f"message format {self.headers['magic'][row]} is not read, only 2"
        if not check_crc:
            return
        crc32c, view = library("crc32c").crc32c, memoryview(self.piece.data)
        spans = zip(self.piece.begins.tolist(), self.ends.tolist(), self.headers["crc"].tolist(), strict=True)
        for row, (begin, end, crc) in enumerate(spans):
            if crc32c(view[begin + recordbatch.CRC_BEGIN : end]) != crc and row not in self._damage:
                self._damage[row] = "its checksum is wrong"

    def _read_markers(self) -> None:
        for row in self._sound(_is(self.headers, recordbatch.CONTROL)).tolist():
            marker = _marker(self.piece, row, self.headers)
            if isinstance(marker, Marker):
                self.markers.append(marker)
            else:
                self._damage[row] = marker

    def _payloads(self, rows: NDArray[np.intp]) -> tuple[bytes, Ints, Ints]:
        """The records of those batches, decompressed, in one buffer; where in it they begin and end."""
        begins = self.piece.begins[rows] + recordbatch.HEADER.itemsize
        ends = self.ends[rows]
        compressed = np.flatnonzero(self.headers["attributes"][rows] & recordbatch.CODEC)
        if len(compressed) == 0:
            return self.piece.data, begins, ends
        parts, size = [self.piece.data], len(self.piece.data)
        for at in compressed.tolist():
            row = int(rows[at])
            codec = int(self.headers["attributes"][row]) & recordbatch.CODEC
            try:
                part = decompress(codec, self.piece.data[begins[at] : ends[at]], BATCH_LIMIT)
            except Malformed as error:
                self._damage[row] = str(error)
                part = b""
            begins[at], ends[at] = size, size + len(part)
            parts.append(part)
            size += len(part)
        return b"".join((*parts, bytes(PAD))), begins, ends


def _records(headers: NDArray[Any], fields: recordbatch.Fields) -> Records:
    """Columns out of records and the header of the batch of each."""
    timestamp = headers["base_timestamp"].astype(np.int64) + fields.timestamp_delta
    appended = headers["attributes"] & recordbatch.LOG_APPEND_TIME != 0
    if appended.any():
        timestamp = np.where(appended, headers["max_timestamp"], timestamp)
    return Records(
        offset=headers["base_offset"].astype(np.int64) + fields.offset_delta,
        timestamp=timestamp,
        producer_id=headers["producer_id"].astype(np.int64),
        transactional=headers["attributes"] & recordbatch.TRANSACTIONAL != 0,
        keys=fields.keys,
        values=fields.values,
    )


def _marker(piece: _Piece, row: int, headers: NDArray[Any]) -> Marker | str:
    """The control record of a batch, or why there is none to be read."""
    header = headers[row]
    begin = int(piece.begins[row]) + recordbatch.HEADER.itemsize
    end = int(piece.begins[row]) + recordbatch.LOG_OVERHEAD + int(header["length"])
    count = int(header["count"])
    found = recordbatch.bounds(piece.data, np.array([begin]), np.array([end]), np.array([count]))
    if len(found.begin) != 1:
        return "a control batch that does not hold one record"
    fields = recordbatch.fields(np.frombuffer(piece.data, np.uint8), found.begin, found.end)
    key, value = fields.keys[0], fields.values[0]
    if not fields.ok[0] or key is None or len(key) < 4:
        return "a control record whose key is none"
    kind = int.from_bytes(key[2:4], "big", signed=True)
    records = _records(headers[row : row + 1], fields)
    return Marker(
        offset=int(records.offset[0]),
        timestamp=int(records.timestamp[0]),
        kind=_MARKERS.get(kind, f"control {kind}"),
        producer_id=int(header["producer_id"]),
        producer_epoch=int(header["producer_epoch"]),
        coordinator_epoch=int.from_bytes(value[2:6], "big", signed=True) if value and len(value) >= 6 else -1,
    )

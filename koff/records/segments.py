"""Log segments: reads a broker's `.log` files, chunk by chunk, into columns of keys and values.

Give `read_segment` the bytes of each file (an mmap will do), file after file in the order of their names. A
damaged batch is reported as `Damage` and left out. It raises no error.

The marker that commits or aborts a transaction comes after the records of the transaction. For a
read_committed view let `TransactionOutcomes` scan all files first, then read.
"""

import dataclasses
from collections.abc import Iterator
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.proto import record_batch
from koff.proto.buffers import Binary
from koff.proto.compression import decompress, import_library
from koff.proto.primitives import Malformed
from koff.proto.slices import PAD, Ints, Mask

Buffer = bytes | bytearray | memoryview | mmap

CHUNK_SIZE = 4 << 20
"""The bytes of a file that are read at a time. A larger batch is read as a whole."""
BATCH_LIMIT = 128 << 20
"""The most bytes that a batch may have when it is decompressed."""

_MARKERS = {0: "abort", 1: "commit"}


@dataclasses.dataclass(frozen=True, slots=True)
class Marker:
    """A control record: it commits or aborts a producer's transaction."""

    offset: int
    timestamp: int
    """Milliseconds."""
    kind: str
    """One of "commit", "abort", or "control" and the number of a type that only KRaft's own log has."""
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """-1 if the record does not have it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """A damaged batch, or bytes that are not a batch."""

    position: int
    """The position of the first byte in the file."""
    size: int
    reason: str
    offset: int | None = None
    """The base offset of the batch; None if it cannot be read."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SegmentRecords:
    """Columns of records, one row for each record, in the order of the log."""

    offset: Ints
    timestamp: Ints
    """Milliseconds."""
    producer_id: Ints
    """-1 if the producer is neither idempotent nor transactional."""
    transactional: Mask
    keys: Binary
    values: Binary

    def __len__(self) -> int:
        return len(self.offset)

    def select_rows(self, rows: Mask) -> "SegmentRecords":
        """Returns the columns of the rows for which the mask is true."""
        return SegmentRecords(
            self.offset[rows],
            self.timestamp[rows],
            self.producer_id[rows],
            self.transactional[rows],
            self.keys.select_rows(rows),
            self.values.select_rows(rows),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some batches of a file. Records, markers and damage are each in order: merge them by their offsets."""

    position: int
    """The position in the file after this chunk."""
    records: SegmentRecords
    markers: tuple[Marker, ...]
    damage: tuple[Damage, ...]


class TransactionOutcomes:
    """Which transactions were committed and which aborted, in the files that were scanned."""

    def __init__(self) -> None:
        self._markers: dict[int, list[tuple[int, bool]]] = {}
        """By producer id: the offset of each marker, and whether it is a commit."""
        self._last_batches: dict[int, int] = {}
        """By producer id: the base offset of its last transactional batch."""
        self._open_since: dict[int, int] = {}
        """By producer id: the base offset of the first batch after its last marker."""

    @property
    def has_open_transaction(self) -> bool:
        """Whether a transaction is still open at the end of the last file that was scanned."""
        return any(
            producer not in self._markers or self._markers[producer][-1][0] < offset
            for producer, offset in self._last_batches.items()
        )

    @property
    def first_open_offset(self) -> int | None:
        """Where the first transaction that is still open begins; None if there is none.

        Records from here on may be hidden that a later marker shows.
        """
        return min(self._open_since.values(), default=None)

    def scan(self, buffer: Buffer) -> None:
        """Reads the markers of a file. Scan files in order. Only headers and control batches are read."""
        for piece in _split_file(buffer):
            # A data batch after its producer's last marker means that a transaction is open.
            headers = record_batch.read_headers(np.frombuffer(piece.data, np.uint8), piece.begins)
            control = _has_attribute(headers, record_batch.CONTROL)
            transactional = headers[_has_attribute(headers, record_batch.TRANSACTIONAL) & ~control]
            offsets = transactional["base_offset"].tolist()
            self._last_batches.update(zip(transactional["producer_id"].tolist(), offsets, strict=True))
            # A damaged marker is skipped here: `read_segment` reports it.
            for row in np.flatnonzero(control).tolist():
                marker = _read_marker(piece, row, headers)
                if isinstance(marker, Marker) and marker.kind in _MARKERS.values():
                    markers = self._markers.setdefault(marker.producer_id, [])
                    markers.append((marker.offset, marker.kind == "commit"))
            self._note_open(transactional["producer_id"].tolist(), offsets)

    def _note_open(self, producers: list[int], offsets: list[int]) -> None:
        """Updates `_open_since` with the transactional batches of a piece, after its markers were read."""
        last_marker = {producer: markers[-1][0] for producer, markers in self._markers.items()}
        for producer in [p for p, at in self._open_since.items() if at < last_marker.get(p, -1)]:
            del self._open_since[producer]
        for producer, offset in zip(producers, offsets, strict=True):
            if offset > last_marker.get(producer, -1):
                self._open_since.setdefault(producer, offset)

    def committed_rows(self, records: SegmentRecords) -> Mask:
        """The mask of the records that a read_committed consumer gets: none aborted, and none still open."""
        # The producer's first marker after a record decides. A record without such a marker is hidden.
        visible: Mask = ~records.transactional
        for producer in np.unique(records.producer_id[records.transactional]).tolist():
            rows = np.flatnonzero(records.transactional & (records.producer_id == producer))
            markers = self._markers.get(producer, [])
            offsets = np.array([offset for offset, _ in markers] + [np.iinfo(np.int64).max], np.int64)
            commits = np.array([commit for _, commit in markers] + [False], np.bool_)
            # An index after the last marker selects the False that was appended.
            visible[rows] = commits[np.searchsorted(offsets[:-1], records.offset[rows])]
        return visible


def read_segment(
    buffer: Buffer, *, outcomes: TransactionOutcomes | None = None, check_crc: bool = True
) -> Iterator[Chunk]:
    """Yields the file in chunks. With `outcomes` these have only what a read_committed consumer gets.

    Raises `MissingLibrary` if a checksum or a codec needs a library that is not installed.
    """
    for piece in _split_file(buffer):
        reader = _PieceReader(piece)
        records = reader.read_records(check_crc=check_crc)
        if outcomes is not None:
            records = records.select_rows(outcomes.committed_rows(records))
        tail = () if piece.tail is None else (piece.tail,)
        yield Chunk(piece.end, records, tuple(reader.markers), (*reader.damage, *tail))


def read_batches(data: bytes, begins: Ints) -> Chunk:
    """Reads whole batches, without their checksums. Each begins where the one before it ends.

    `data` must continue for `PAD` bytes after the last batch. All batches together may have `BATCH_LIMIT`
    bytes when they are decompressed. Raises `MissingLibrary` as `read_segment` does.
    """
    reader = _PieceReader(_Piece(data, 0, begins, len(data) - PAD), BATCH_LIMIT)
    records = reader.read_records(check_crc=False)
    return Chunk(len(data) - PAD, records, tuple(reader.markers), tuple(reader.damage))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Whole batches of a file, with `PAD` zeros after them."""

    data: bytes
    base: int
    """The position in the file at which the data begins."""
    begins: Ints
    """The position of each batch in the data."""
    end: int
    """The position in the file after the last batch."""
    tail: Damage | None = None
    """In the last piece: what is wrong with the bytes after the last whole batch."""


def _split_file(buffer: Buffer) -> Iterator[_Piece]:
    """Yields the file in pieces of whole batches. The last piece has the damage at the end of the file."""
    base, size, room = 0, len(buffer), CHUNK_SIZE
    while base < size:
        data = bytes(buffer[base : base + room])  # a copy, so that no array keeps an mmap open
        begins, end, needed = record_batch.find_batches(data)
        if not begins:
            if room < needed <= size - base:  # the batch is larger than a chunk: read it as a whole
                room = needed
                continue
            yield _Piece(bytes(PAD), base, np.zeros(0, np.int64), size, _check_tail(buffer, base, needed))
            return
        yield _Piece(data[:end] + bytes(PAD), base, np.array(begins, np.int64), base + end)
        base, room = base + end, CHUNK_SIZE


def _check_tail(buffer: Buffer, at: int, needed: int) -> Damage | None:
    """Returns what is wrong with the end of a file, from position `at` on; None if nothing is wrong.

    Zeros are fine, since Kafka may preallocate files. `needed` is the size that the header at `at` states.
    """
    size = len(buffer) - at
    if size < record_batch.SMALLEST_BATCH:
        return Damage(at, size, f"the last batch is torn: {size} bytes are left")
    if not any(
        bytes(buffer[start : start + CHUNK_SIZE]).strip(b"\0") for start in range(at, len(buffer), CHUNK_SIZE)
    ):
        return None
    # A batch begins with its base offset, in every format.
    offset = int.from_bytes(buffer[at : at + 8], "big", signed=True)
    if needed <= size:  # too small for a batch: without its size the next batch cannot be found
        reason = f"a batch header states a size of {needed} bytes: the rest of the file cannot be read"
        return Damage(at, size, reason, offset)
    return Damage(at, size, f"the last batch is torn: {size} bytes of {needed}", offset)


def _has_attribute(headers: NDArray[Any], attribute: int) -> Mask:
    """Which batches have the attribute. Formats before 2 have other attributes: false for their batches."""
    rows: Mask = (headers["attributes"] & attribute != 0) & (headers["magic"] == 2)
    return rows


class _PieceReader:
    """Reads the batches of a piece: sound batches into columns and markers, the others into `damage`."""

    def __init__(self, piece: _Piece, limit: int | None = None) -> None:
        """`limit`: the most bytes that all batches together may have when they are decompressed."""
        self.piece, self._limit = piece, limit
        self.headers = record_batch.read_headers(np.frombuffer(piece.data, np.uint8), piece.begins)
        self.ends = np.append(piece.begins, len(piece.data) - PAD)[1:]
        self.markers: list[Marker] = []
        self._damage: dict[int, str] = {}
        """By batch: the first reason found."""

    @property
    def damage(self) -> list[Damage]:
        """The damaged batches, in the order of the file."""
        return [self._describe_damage(row, reason) for row, reason in sorted(self._damage.items())]

    def _describe_damage(self, row: int, reason: str) -> Damage:
        begin, end = int(self.piece.begins[row]), int(self.ends[row])
        return Damage(self.piece.base + begin, end - begin, reason, int(self.headers["base_offset"][row]))

    def read_records(self, *, check_crc: bool) -> SegmentRecords:
        """Returns the records of all sound batches. Fills `markers` and `damage`."""
        self._check_headers(check_crc=check_crc)
        self._read_markers()
        # Find the records of all data batches, then read them all at once.
        rows = self._find_undamaged(~_has_attribute(self.headers, record_batch.CONTROL))
        data, begins, ends = self._decompress_batches(rows)
        bounds = record_batch.find_records(data, begins, ends, self.headers["count"][rows].astype(np.int64))
        self._mark_damaged(rows[bounds.bad], "the batch does not hold as many records as its header states")
        fields = record_batch.read_fields(np.frombuffer(data, np.uint8), bounds.begin, bounds.end)
        batch = rows[bounds.batch]
        # A batch with one malformed record is left out as a whole.
        if not fields.ok.all():
            self._mark_damaged(batch[~fields.ok], "a record in the batch is malformed")
        records = _build_records(self.headers, batch, fields)
        return records if fields.ok.all() else records.select_rows(~np.isin(batch, batch[~fields.ok]))

    def _mark_damaged(self, rows: NDArray[np.intp], reason: str) -> None:
        """Notes that batches are damaged. A batch keeps the first reason."""
        self._damage = dict.fromkeys(rows.tolist(), reason) | self._damage

    def _find_undamaged(self, rows: Mask) -> NDArray[np.intp]:
        """The batches for which the mask is true and no damage is known. Changes the mask."""
        rows[list(self._damage)] = False  # an empty list selects no row
        return np.flatnonzero(rows)

    def _check_headers(self, *, check_crc: bool) -> None:
        """Notes batches of other formats, and with `check_crc` batches with a wrong checksum."""
        for row in np.flatnonzero(self.headers["magic"] != 2).tolist():
            magic = self.headers["magic"][row]
            self._damage[row] = f"message format {magic} is not supported, only 2 (Kafka 0.11 and later)"
        if not check_crc:
            return
        # A memoryview: no batch is copied. Old formats have another checksum, but are in `_damage` already.
        crc32c, view = import_library("crc32c").crc32c, memoryview(self.piece.data)
        spans = zip(self.piece.begins.tolist(), self.ends.tolist(), self.headers["crc"].tolist(), strict=True)
        for row, (begin, end, crc) in enumerate(spans):
            if crc32c(view[begin + record_batch.CRC_BEGIN : end]) != crc and row not in self._damage:
                self._damage[row] = "the checksum is wrong"

    def _read_markers(self) -> None:
        """Reads control batches, which Kafka never compresses and which hold one record each, or none.

        Compaction removes old markers, but keeps the empty batch if it is the last one of its producer.
        """
        size = self.ends - self.piece.begins
        is_empty = (self.headers["count"] == 0) & (size == record_batch.HEADER.itemsize)
        control = _has_attribute(self.headers, record_batch.CONTROL) & ~is_empty
        for row in self._find_undamaged(control).tolist():
            marker = _read_marker(self.piece, row, self.headers)
            if isinstance(marker, Marker):
                self.markers.append(marker)
            else:
                self._damage[row] = marker

    def _decompress_batches(self, rows: NDArray[np.intp]) -> tuple[bytes, Ints, Ints]:
        """Returns a buffer with the decompressed records of the batches, and each batch's begin and end.

        The buffer is the data of the piece itself if no batch is compressed.
        """
        begins = self.piece.begins[rows] + record_batch.HEADER.itemsize
        ends = self.ends[rows]
        compressed = np.flatnonzero(self.headers["attributes"][rows] & record_batch.CODEC)
        if len(compressed) == 0:
            return self.piece.data, begins, ends
        # Append what is decompressed to the data of the piece.
        parts, size = [self.piece.data], len(self.piece.data)
        most = None if self._limit is None else size + self._limit
        for index in compressed.tolist():
            row = int(rows[index])
            codec = int(self.headers["attributes"][row]) & record_batch.CODEC
            # At least 1: zlib takes 0 for no limit.
            limit = BATCH_LIMIT if most is None else max(1, min(BATCH_LIMIT, most - size))
            try:
                part = decompress(codec, self.piece.data[begins[index] : ends[index]], limit)
            except Malformed as error:
                self._damage[row] = str(error)
                part = b""
            begins[index], ends[index] = size, size + len(part)
            parts.append(part)
            size += len(part)
        return b"".join((*parts, bytes(PAD))), begins, ends


def _build_records(headers: NDArray[Any], batch: Ints, fields: record_batch.RecordFields) -> SegmentRecords:
    """Returns the columns of records, from their fields and the header of each record's batch."""
    # By columns: to copy a whole header for each record would take as long as all else.
    timestamp = headers["base_timestamp"].astype(np.int64)[batch] + fields.timestamp_delta
    appended = headers["attributes"] & record_batch.LOG_APPEND_TIME != 0
    if appended.any():
        # The broker set the time of the whole batch when it appended it.
        timestamp = np.where(appended[batch], headers["max_timestamp"].astype(np.int64)[batch], timestamp)
    return SegmentRecords(
        offset=headers["base_offset"].astype(np.int64)[batch] + fields.offset_delta,
        timestamp=timestamp,
        producer_id=headers["producer_id"].astype(np.int64)[batch],
        transactional=(headers["attributes"] & record_batch.TRANSACTIONAL != 0)[batch],
        keys=fields.keys,
        values=fields.values,
    )


def _read_marker(piece: _Piece, row: int, headers: NDArray[Any]) -> Marker | str:
    """Returns the control record of a control batch, or why it cannot be read."""
    header = headers[row]
    begin = int(piece.begins[row]) + record_batch.HEADER.itemsize
    end = int(piece.begins[row]) + record_batch.LOG_OVERHEAD + int(header["length"])
    count = int(header["count"])
    bounds = record_batch.find_records(piece.data, np.array([begin]), np.array([end]), np.array([count]))
    if len(bounds.begin) != 1:
        return "the control batch does not hold exactly one record"
    fields = record_batch.read_fields(np.frombuffer(piece.data, np.uint8), bounds.begin, bounds.end)
    # Key: int16 version, int16 type. Value: int16 version, int32 coordinator epoch.
    key, value = fields.keys[0], fields.values[0]
    if not fields.ok[0] or key is None or len(key) < 4:
        return "the key of the control record is malformed"
    kind = int.from_bytes(key[2:4], "big", signed=True)
    records = _build_records(headers, np.array([row]), fields)
    return Marker(
        offset=int(records.offset[0]),
        timestamp=int(records.timestamp[0]),
        kind=_MARKERS.get(kind, f"control {kind}"),
        producer_id=int(header["producer_id"]),
        producer_epoch=int(header["producer_epoch"]),
        coordinator_epoch=int.from_bytes(value[2:6], "big", signed=True) if value and len(value) >= 6 else -1,
    )

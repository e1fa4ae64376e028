"""Decoded commits as bytes of records again, because the tracker takes records as the log has them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from koff.proto.primitives import parse_uuid
from koff.tracker.commit_keys import commit_key

_VALUE = np.dtype(
    [
        ("version", ">i2"),
        ("offset", ">i8"),
        ("leader_epoch", ">i4"),
        ("metadata", "u1"),  # 1: an empty text
        ("commit_timestamp", ">i8"),
        ("tags", "V3"),  # one tag, its number, its size
        ("topic_id", "V16"),
    ]
)
"""A value of OffsetCommit (version 4), without metadata. A topic id of zeros stands for none."""
_VERSION, _ONE_TAG = 4, b"\x01\x00\x10"


def encode_commits(rows: pa.Table) -> tuple[list[bytes | None], list[bytes | None]]:
    """The keys and values of commits, in their order. A value is None if the commit was deleted."""
    names = zip(*(rows.column(name).to_pylist() for name in ("group", "topic", "partition")), strict=True)
    keys: list[bytes | None] = [commit_key(*name) for name in names]
    values = np.zeros(len(rows), _VALUE)
    values["version"], values["metadata"], values["tags"] = _VERSION, 1, np.void(_ONE_TAG)
    values["offset"], values["leader_epoch"] = _read_ints(rows, "committed"), _read_ints(rows, "leader_epoch")
    microseconds = _read_ints(rows, "commit_timestamp")
    values["commit_timestamp"] = np.where(microseconds < 0, -1, microseconds // 1000)
    values["topic_id"] = _encode_topic_ids(rows.column("topic_id"))
    kept = pc.invert(pc.is_null(rows.column("committed"))).to_numpy(zero_copy_only=False)
    whole, size = values.tobytes(), _VALUE.itemsize
    return keys, [
        whole[n * size : (n + 1) * size] if is_kept else None for n, is_kept in enumerate(kept.tolist())
    ]


def _read_ints(rows: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    column = rows.column(name).cast(pa.int64()).fill_null(-1)
    values: np.ndarray[Any, np.dtype[np.int64]] = column.to_numpy()
    return values


def _encode_topic_ids(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.void]]:
    """The sixteen bytes of each topic id."""
    ids = column.combine_chunks().dictionary_encode()
    known = [parse_uuid(text) for text in ids.dictionary.to_pylist()]
    codes = ids.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    encoded: np.ndarray[Any, np.dtype[np.void]] = np.array([*known, bytes(16)], "V16")[codes]
    return encoded

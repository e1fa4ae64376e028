"""Arrow tables as compressed bytes."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import ipc


def encode_table(rows: pa.Table) -> bytes:
    """The table, with the metadata of its schema, as a compressed IPC stream of Arrow."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema, options=ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def decode_table(encoded: bytes) -> pa.Table:
    """The table that `encode_table` made bytes of."""
    return ipc.open_stream(encoded).read_all()

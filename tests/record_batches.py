"""Record batches of format 2, as tests want them."""

import struct

from koff.proto.primitives import write_varint


def varint(number: int) -> bytes:
    written = bytearray()
    write_varint(written, number)
    return bytes(written)


def batch(
    first: int,
    count: int,
    *,
    epoch: int = 5,
    attributes: int = 0,
    last: int | None = None,
    at_ms: int = 0,
    every_ms: int = 0,
    key: bytes | None = None,
) -> bytes:
    """A record batch. The keys and values say where they are from, unless all have this `key`."""
    records = b""
    for delta in range(count):
        own, value = key or b"k%d" % (first + delta), b"v%d" % (first + delta)
        head = b"\0" + varint(delta * every_ms) + varint(delta)
        body = head + varint(len(own)) + own + varint(len(value)) + value + b"\0"
        records += varint(len(body)) + body
    last_delta, last_ms = count - 1 if last is None else last - first, at_ms + (count - 1) * every_ms
    head = struct.pack(">hiqqqhii", attributes, last_delta, at_ms, last_ms, -1, -1, -1, count)
    return struct.pack(">qiibI", first, 9 + len(head) + len(records), epoch, 2, 0) + head + records

"""Kafka's binary protocol, without I/O: requests and responses, record batches, and what they are made of.

- `requests`: frames, headers, and the bodies of requests and responses, whose schemas are those of kio;
- `messages`: record batches and message sets, as Python objects;
- `record_batch`: the same as columns, for many records at once;
- `schema`, `readers`, `writers`: codecs compiled from tables, for the records of `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

    from koff.proto.messages import Batch, Codec, Record, decode_batches, encode_batch
    from koff.proto.primitives import Malformed, Truncated
    from koff.proto.requests import (
        Api,
        Frames,
        Request,
        RequestHeader,
        build_request,
        build_response,
        build_struct,
        decode_request,
        decode_response,
        encode_request,
        encode_response,
        kio_versions,
    )

_MODULES = {
    "kio.schema.errors": ("ErrorCode",),
    "koff.proto.messages": ("Batch", "Codec", "Record", "decode_batches", "encode_batch"),
    "koff.proto.primitives": ("Malformed", "Truncated"),
    "koff.proto.requests": (
        "Api",
        "Frames",
        "Request",
        "RequestHeader",
        "build_request",
        "build_response",
        "build_struct",
        "decode_request",
        "decode_response",
        "encode_request",
        "encode_response",
        "kio_versions",
    ),
}
__all__ = [
    "Api",
    "Batch",
    "Codec",
    "ErrorCode",
    "Frames",
    "Malformed",
    "Record",
    "Request",
    "RequestHeader",
    "Truncated",
    "build_request",
    "build_response",
    "build_struct",
    "decode_batches",
    "decode_request",
    "decode_response",
    "encode_batch",
    "encode_request",
    "encode_response",
    "kio_versions",
]


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used: kio is large. Raises `AttributeError`."""
    for module, names in _MODULES.items():
        if name in names:
            import importlib

            globals()[name] = getattr(importlib.import_module(module), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

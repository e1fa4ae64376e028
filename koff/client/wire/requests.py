"""Kafka's requests and responses as the library kio defines them. kio is imported when it is first needed.

No other module of koff imports kio.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import Any, Generic, TypeVar

from koff.errors import ConfigError
from koff.proto.primitives import format_uuid

T = TypeVar("T")


class Api(IntEnum):
    """The API keys of the requests that koff sends over its own connections."""

    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CONSUMER_GROUP_DESCRIBE = 69
    SHARE_GROUP_DESCRIBE = 77
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """An encoded request and the decoder of its response.

    `decode(buffer, at)` decodes the response's body, which starts at position `at`, behind the header.
    """

    api: int
    version: int
    body: bytes
    decode: Callable[[bytes, int], T]
    flexible: bool = True
    """Whether the request's header has a tag section."""
    flexible_response: bool = True
    """Whether the response's header has a tag section."""

    def encode_frame(self, correlation: int, client_id: str) -> bytes:
        """The bytes to send: size, header, body."""
        # The client id keeps its two-byte length in flexible versions too (RequestHeader.json): an old broker
        # must be able to read the header of a newer ApiVersions request.
        name = client_id.encode()
        # API key, version, correlation id, client id with its length; all numbers are big-endian.
        head = struct.pack(f">hhih{len(name)}s", self.api, self.version, correlation, len(name), name)
        tags = b"\0" if self.flexible else b""
        return struct.pack(">i", len(head) + len(tags) + len(self.body)) + head + tags + self.body


def encode_request(request: Any) -> Request[Any]:
    """A request of kio, encoded; its response is decoded into kio's response class."""
    from kio.index import load_response_from_request
    from kio.serial import entity_reader, entity_writer

    kind, response = type(request), load_response_from_request(request)
    body = io.BytesIO()
    entity_writer(kind)(body, request)
    reader = entity_reader(response)
    return Request(
        request.__api_key__,
        request.__version__,
        body.getvalue(),
        lambda buffer, at: reader(buffer, at)[0],
        # Request headers have tags from header version 2 on, response headers from version 1 on.
        flexible=request.__header_schema__.__version__ >= 2,
        flexible_response=response.__header_schema__.__version__ >= 1,
    )


def build_request(api: Api, version: int, /, **fields: Any) -> Any:
    """A request of kio in that version. `fields` that this version lacks are left out."""
    module = load_request_module(api, version)
    return _build_entity(getattr(module, f"{_class_name(api)}Request"), fields)


def build_struct(api: Api, version: int, name: str, /, **fields: Any) -> Any:
    """A struct for use within a request, by kio's class name. Unknown `fields` are left out."""
    return _build_entity(getattr(load_request_module(api, version), name), fields)


def load_request_module(api: Api, version: int) -> ModuleType:
    """kio's module with the classes of a request in that version. Imports the module."""
    from kio.index import load_payload_module
    from kio.static.constants import EntityType

    return load_payload_module(api, version, EntityType.request)


@functools.cache
def kio_versions(api: Api) -> range:
    """The versions of a request that kio has. Raises `ConfigError` when kio is not installed."""
    try:
        from kio.schema.index import schema_name_map
    except ImportError as error:
        raise ConfigError("requests to the coordinators need the library kio: pip install kio") from error
    versions = schema_name_map[api.name.lower()]
    return range(min(versions), max(versions) + 1)


@functools.cache
def error_names() -> Mapping[int, str]:
    """The names of Kafka's error codes."""
    from kio.schema.errors import ErrorCode

    return {int(code): code.name.upper() for code in ErrorCode}


def error_name(code: int) -> str:
    """The name of an error code: "" for 0, and "error N" for a code N that kio does not know."""
    return error_names().get(code, f"error {code}") if code else ""


def format_topic_id(uuid: Any) -> str:
    """A UUID of kio as Kafka prints it, "" for None."""
    return format_uuid(uuid.bytes) if uuid is not None else ""


def _build_entity(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in fields.items() if name in names})


def _class_name(api: Api) -> str:
    # kio's classes have the names of Kafka's schema files: OFFSET_FETCH is OffsetFetch.
    return "".join(word.capitalize() for word in api.name.split("_"))

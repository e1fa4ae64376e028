"""Kafka's requests and responses, as the library kio has them, loaded when they are first needed.

kio comes with `pip install koff[snapshot]`; nothing else in koff imports it.
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
from koff.proto.primitives import uuid_text

T = TypeVar("T")


class Api(IntEnum):
    """The requests that koff makes itself."""

    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    SASL_AUTHENTICATE = 36
    CONSUMER_GROUP_DESCRIBE = 69
    SHARE_GROUP_DESCRIBE = 77
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A request in bytes, and how its response is read: `read(buffer, at)`, behind the header."""

    api: int
    version: int
    body: bytes
    read: Callable[[bytes, int], T]
    flexible: bool = True
    """Whether the request's header has a tag section."""
    flexible_answer: bool = True
    """Whether the response's header has one."""

    def frame(self, correlation: int, client_id: str) -> bytes:
        """The request as it goes over the connection: size, header, body."""
        name = client_id.encode()
        head = struct.pack(f">hhih{len(name)}s", self.api, self.version, correlation, len(name), name)
        tags = b"\0" if self.flexible else b""
        return struct.pack(">i", len(head) + len(tags) + len(self.body)) + head + tags + self.body


def question(request: Any) -> Question[Any]:
    """A request of kio's, ready to be asked; the answer is a response of kio's."""
    from kio.index import load_response_from_request
    from kio.serial import entity_reader, entity_writer

    kind, response = type(request), load_response_from_request(request)
    body = io.BytesIO()
    entity_writer(kind)(body, request)
    reader = entity_reader(response)
    return Question(
        request.__api_key__,
        request.__version__,
        body.getvalue(),
        lambda buffer, at: reader(buffer, at)[0],
        flexible=request.__header_schema__.__version__ >= 2,
        flexible_answer=response.__header_schema__.__version__ >= 1,
    )


def build(api: Api, version: int, /, **fields: Any) -> Any:
    """A request of kio's in that version, which need not have all of the `fields`."""
    module = parts(api, version)
    return _build(getattr(module, f"{_class_name(api)}Request"), fields)


def part(api: Api, version: int, name: str, /, **fields: Any) -> Any:
    """A struct within a request, by kio's name for it."""
    return _build(getattr(parts(api, version), name), fields)


def parts(api: Api, version: int) -> ModuleType:
    """kio's module of a request."""
    from kio.index import load_payload_module
    from kio.static.constants import EntityType

    return load_payload_module(api, version, EntityType.request)


@functools.cache
def versions(api: Api) -> range:
    """The versions that kio has of a request. Raises `ConfigError` when there is no kio."""
    try:
        from kio.schema.index import schema_name_map
    except ImportError as missing:
        raise ConfigError(
            "asking the coordinators needs the library kio: pip install koff[snapshot]"
        ) from missing
    known = schema_name_map[api.name.lower()]
    return range(min(known), max(known) + 1)


@functools.cache
def error_names() -> Mapping[int, str]:
    """Kafka's names of its error codes."""
    from kio.schema.errors import ErrorCode

    return {int(code): code.name.upper() for code in ErrorCode}


def error_name(code: int) -> str:
    return error_names().get(code, f"error {code}") if code else ""


def topic_id(of: Any) -> str:
    """A UUID of kio's as Kafka prints it, "" where there is none."""
    return uuid_text(of.bytes) if of is not None else ""


def _build(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    known = {each.name for each in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in fields.items() if name in known})


def _class_name(api: Api) -> str:
    return "".join(word.capitalize() for word in api.name.split("_"))

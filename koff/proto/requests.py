"""Kafka's requests and responses: frames, headers, and bodies as the library kio defines them. No I/O.

A client encodes requests and decodes responses:

    request = encode_request(build_request(Api.METADATA, 12, topics=None))
    sock.sendall(request.encode_frame(correlation=1, client_id="me"))
    for frame in frames.feed(sock.recv(65536)):  # frames = Frames()
        correlation, response = decode_response(frame, request)

A broker, or a stand-in for one, decodes requests and encodes responses (`decode_request`, `encode_response`).
kio is imported when it is first needed, and by no other module of koff.
"""

import dataclasses
import functools
import importlib
import io
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import Any, Generic, TypeVar

from koff.errors import ConfigError
from koff.proto.defaults import find_defaults
from koff.proto.primitives import Malformed, format_uuid, read_uvarint

T = TypeVar("T")
LARGEST_FRAME = 100_000_000
"""The most bytes of a frame that `Frames` accepts, unless a caller says otherwise (librdkafka's default)."""


class Api(IntEnum):
    """The API keys of Kafka's requests, without those that only brokers and controllers send each other."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@dataclass(frozen=True, slots=True)
class EncodedRequest(Generic[T]):
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


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of a request."""

    api: int
    """An `Api`, or the number of one that is not there."""
    version: int
    correlation: int
    """The response has the same number."""
    client_id: str | None


class Frames:
    """Cuts a stream of bytes into frames: each is a request or a response, behind its size."""

    def __init__(self, largest: int = LARGEST_FRAME) -> None:
        self._largest = largest
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole now, without their sizes. `data` are the next bytes of the stream.

        Raises `Malformed` for a size below zero or above the largest: the stream cannot be read any further.
        """
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big", signed=True)
            if not 0 <= size <= self._largest:  # for example the text of an HTTP server
                raise Malformed(f"a frame of {size} bytes: this is not Kafka's protocol")
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            yield frame


def encode_request(request: Any) -> EncodedRequest[Any]:
    """A request of kio, encoded; its response is decoded into kio's response class."""
    from kio.index import load_response_from_request
    from kio.serial import entity_reader

    response = load_response_from_request(request)
    reader = entity_reader(response)
    return EncodedRequest(
        request.__api_key__,
        request.__version__,
        _encode_entity(request),
        lambda buffer, at: reader(buffer, at)[0],
        # Request headers have tags from header version 2 on, response headers from version 1 on.
        flexible=request.__header_schema__.__version__ >= 2,
        flexible_response=response.__header_schema__.__version__ >= 1,
    )


def decode_response(frame: bytes, request: EncodedRequest[T]) -> tuple[int, T]:
    """The correlation id and the response in a frame that answers `request`. Raises `Malformed`."""
    with _readable("response", request.api, request.version):
        (correlation,) = struct.unpack_from(">i", frame)
        at = skip_tags(frame, 4) if request.flexible_response else 4
        return correlation, request.decode(frame, at)


def decode_request(frame: bytes) -> tuple[RequestHeader, Any]:
    """The header of a request, and kio's request. Raises `Malformed`, also for a version that kio has not."""
    with _readable("request", -1, -1):
        api, version, correlation, size = struct.unpack_from(">hhih", frame)
        at = 10 + max(size, 0)
        client_id = None if size < 0 else frame[10:at].decode()
    header = RequestHeader(api, version, correlation, client_id)
    with _readable("request", api, version):
        from kio.index import load_request_schema
        from kio.serial import entity_reader

        kind = load_request_schema(api, version)
        if kind.__header_schema__.__version__ >= 2:
            at = skip_tags(frame, at)
        request, size = entity_reader(kind)(frame, at)
        if at + size != len(frame):
            raise Malformed("bytes follow")
    return header, request


def encode_response(response: Any, correlation: int) -> bytes:
    """The frame, its size included, with a response of kio to the request with that correlation id."""
    # Responses to ApiVersions never have tags in their headers (KIP-511).
    tags = b"\0" if response.__header_schema__.__version__ >= 1 else b""
    body = struct.pack(">i", correlation) + tags + _encode_entity(response)
    return struct.pack(">i", len(body)) + body


def build_request(api: Api, version: int, /, **fields: Any) -> Any:
    """A request of kio in that version. `fields` that this version lacks are left out.

    A field that is not given has Kafka's default. Raises `ConfigError` for a field that no version has, and
    for a version that kio does not have.
    """
    module = load_request_module(api, version)
    return _build_entity(getattr(module, f"{_class_name(api)}Request"), fields)


def build_response(api: Api, version: int, /, **fields: Any) -> Any:
    """A response of kio in that version. Fields are as for `build_request`."""
    from kio.index import load_response_schema

    _check_version(api, version)
    return _build_entity(load_response_schema(api, version), fields)


def build_struct(api: Api, version: int, name: str, /, **fields: Any) -> Any:
    """A struct for use within a request, by kio's class name. Fields are as for `build_request`."""
    return _build_entity(getattr(load_request_module(api, version), name), fields)


def load_request_module(api: Api, version: int) -> ModuleType:
    """kio's module with the classes of a request in that version. Imports the module."""
    from kio.index import load_payload_module
    from kio.static.constants import EntityType

    _check_version(api, version)
    return load_payload_module(api, version, EntityType.request)


def _check_version(api: Api, version: int) -> None:
    if version not in (versions := kio_versions(api)):
        raise ConfigError(f"{api.name} has no version {version}: use {versions[0]} to {versions[-1]}")


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


@contextmanager
def _readable(what: str, api: int, version: int) -> Iterator[None]:
    """Turns what the body raises into `Malformed`: kio's readers have no common family of errors."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        name = f" {Api(api).name} in version {version}" if api in _APIS else ""
        raise Malformed(f"not a {what}{name}: {type(error).__name__} {error}".rstrip()) from error


def skip_tags(buffer: bytes, at: int) -> int:
    """The end of the tag section that starts at `at`."""
    count, at = read_uvarint(buffer, at)
    for _ in range(count):
        _, at = read_uvarint(buffer, at)
        size, at = read_uvarint(buffer, at)
        at += size
    return at


def _encode_entity(entity: Any) -> bytes:
    from kio.serial import entity_writer

    body = io.BytesIO()
    try:
        entity_writer(type(entity))(body, entity)
    except Exception as error:  # one of many of kio, struct and Python
        name = type(entity).__name__
        raise ConfigError(f"{name} cannot be encoded: {error}; check the types of its fields") from error
    return body.getvalue()


def _build_entity(kind: Any, fields: Mapping[str, Any]) -> Any:
    names = {field.name for field in dataclasses.fields(kind)}
    given = {name: value for name, value in fields.items() if name in names}
    missing = find_defaults(kind).keys() - given.keys()
    # First the cheap comparison: `_find_fields` imports the modules of all versions.
    others = fields.keys() - names
    if others and (unknown := others - _find_fields(kind)):
        raise ConfigError(f"{kind.__name__} has no field {min(unknown)} in any version: check its name")
    return kind(**given, **{name: find_defaults(kind)[name] for name in missing})


@functools.cache
def _find_fields(kind: Any) -> frozenset[str]:
    """The fields that a class of kio has in any version."""
    modules = (
        importlib.import_module(re.sub(r"\.v\d+\.", f".v{version}.", kind.__module__))
        for version in kio_versions(Api(kind.__api_key__))
    )
    kinds = (getattr(module, kind.__name__, None) for module in modules)
    return frozenset(field.name for each in kinds if each for field in dataclasses.fields(each))


def _class_name(api: Api) -> str:
    # kio's classes have the names of Kafka's schema files: OFFSET_FETCH is OffsetFetch.
    return "".join(word.capitalize() for word in api.name.split("_"))


_APIS = frozenset(Api)

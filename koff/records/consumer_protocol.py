"""What classic consumers say of themselves: the subscription and assignment inside a member.

Clients write these, so anything may stand there; what is no such thing is an `UndecodableBlob`.
The format promises only to append: a version above 3 is read as 3, and the rest ignored.
"""

import dataclasses
from typing import TypeVar

from koff.proto.frozen import frozen
from koff.proto.readers import READ_ERRORS, outer_reader, reason
from koff.proto.schema import BYTES, INT32, STRING, array, field, nested, nullable, struct
from koff.records.structs import Part, Value

NEWEST = 3
CONSUMER = "consumer"
"""The protocol type whose members carry these blobs. Connect's workers and others have their own."""


@struct()
class OwnedPartitions(Part):
    topic: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@struct(versions=(0, NEWEST))
class Subscription(Value):
    """ConsumerProtocolSubscription. A pattern is resolved by the client: `topics` are what it found."""

    topics: tuple[str, ...] = field(array(STRING))
    user_data: bytes | None = field(nullable(BYTES))
    owned_partitions: tuple[OwnedPartitions, ...] = field(array(nested(OwnedPartitions)), since=1, default=())
    generation_id: int = field(INT32, since=2, default=-1)
    rack_id: str | None = field(nullable(STRING), since=3, default=None)


@struct(versions=(0, NEWEST))
class Assignment(Value):
    """ConsumerProtocolAssignment. A topic may occur twice: take the union."""

    assigned_partitions: tuple[OwnedPartitions, ...] = field(array(nested(OwnedPartitions)))
    user_data: bytes | None = field(nullable(BYTES))


@frozen
class UndecodableBlob:
    data: bytes
    reason: str


Blob = TypeVar("Blob", Subscription, Assignment)


def subscription(data: bytes) -> Subscription | UndecodableBlob:
    """What a member asked for."""
    return _blob(Subscription, data)


def assignment(data: bytes) -> Assignment | UndecodableBlob:
    """What a member was given. No bytes at all are normal: it was given nothing, or not yet."""
    if not data:
        return Assignment(version=0, assigned_partitions=(), user_data=None)
    return _blob(Assignment, data)


def _blob(of: type[Blob], data: bytes) -> Blob | UndecodableBlob:
    if len(data) < 2:
        return UndecodableBlob(data, "ends before its version does")
    version = int.from_bytes(data[:2], "big", signed=True)
    read = outer_reader(of, min(version, NEWEST), lenient=True)
    if read is None:
        return UndecodableBlob(data, f"unknown version {version}")
    try:
        blob: Blob = read(data)
    except READ_ERRORS as error:
        return UndecodableBlob(data, reason(error))
    return dataclasses.replace(blob, version=version) if version > NEWEST else blob

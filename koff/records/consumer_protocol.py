"""The subscription and the assignment of a classic consumer: two blobs inside a member of its group.

Clients write these blobs, so they may hold any bytes. A blob that cannot be decoded becomes an
`UndecodableBlob`, and the member is not lost. A newer version may only append fields, so a version above 3 is
read as 3, and the rest is ignored.
"""

import dataclasses
from typing import TypeVar

from koff.proto.frozen import frozen
from koff.proto.readers import READ_ERRORS, compile_value_reader, describe_error
from koff.proto.schema import BYTES, INT32, STRING, array, field, nested, nullable, struct
from koff.records.structs import Part, Value

NEWEST = 3
"""The newest version of both formats."""
CONSUMER = "consumer"
"""The protocol type whose members have these blobs. Kafka Connect and others have formats of their own."""


@struct()
class OwnedPartitions(Part):
    topic: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@struct(versions=(0, NEWEST))
class Subscription(Value):
    """Kafka's ConsumerProtocolSubscription. The client resolves a pattern itself: `topics` has the result."""

    topics: tuple[str, ...] = field(array(STRING))
    user_data: bytes | None = field(nullable(BYTES))
    owned_partitions: tuple[OwnedPartitions, ...] = field(array(nested(OwnedPartitions)), since=1, default=())
    generation_id: int = field(INT32, since=2, default=-1)
    rack_id: str | None = field(nullable(STRING), since=3, default=None)


@struct(versions=(0, NEWEST))
class Assignment(Value):
    """Kafka's ConsumerProtocolAssignment. A topic may occur twice: its partitions are the union of both."""

    assigned_partitions: tuple[OwnedPartitions, ...] = field(array(nested(OwnedPartitions)))
    user_data: bytes | None = field(nullable(BYTES))


@frozen
class UndecodableBlob:
    """A blob that cannot be decoded, and why."""

    data: bytes
    reason: str


Blob = TypeVar("Blob", Subscription, Assignment)


def decode_subscription(data: bytes) -> Subscription | UndecodableBlob:
    """Decodes the subscription of a member: the topics that it wants to read."""
    return _decode_blob(Subscription, data)


def decode_assignment(data: bytes) -> Assignment | UndecodableBlob:
    """Decodes the assignment of a member.

    No bytes mean no partitions, which is normal: the member was assigned none, or the leader has not
    sent its SyncGroup request yet. Kafka's deserialiser throws for them.
    """
    if not data:
        return Assignment(version=0, assigned_partitions=(), user_data=None)
    return _decode_blob(Assignment, data)


def _decode_blob(cls: type[Blob], data: bytes) -> Blob | UndecodableBlob:
    if len(data) < 2:
        return UndecodableBlob(data, "ends before its version does")
    version = int.from_bytes(data[:2], "big", signed=True)
    read = compile_value_reader(cls, min(version, NEWEST), lenient=True)
    if read is None:
        return UndecodableBlob(data, f"unknown version {version}")
    # READ_ERRORS is complete: a lenient reader replaces invalid UTF-8.
    try:
        blob: Blob = read(data)
    except READ_ERRORS as error:
        return UndecodableBlob(data, describe_error(error))
    return dataclasses.replace(blob, version=version) if version > NEWEST else blob

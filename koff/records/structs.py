"""What all records have in common beside their fields on the wire."""

from koff.proto.schema import Tag, base


@base
class Part:
    """A struct inside a value."""

    __slots__ = ()

    unknown_tags: tuple[Tag, ...] = ()
    """Tagged fields of a newer Kafka, kept as they came."""


@base
class Value(Part):
    """A record's value: the struct behind its version number."""

    __slots__ = ()

    version: int
    trailing: bytes = b""
    """Bytes behind the last field, which Kafka ignores."""
    layout: str = ""
    """The early-access release whose layout the bytes have; "" for the one that stayed."""


@base
class Key:
    """A record: the fields of its key, and its value, None in a tombstone."""

    __slots__ = ()

    key_trailing: bytes = b""
    """Bytes behind the last field of the key, which Kafka ignores."""

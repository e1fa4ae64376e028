"""The fields that all records have in addition to the encoded fields."""

from koff.proto.schema import Tag, struct_base


@struct_base
class Part:
    """A struct inside a value."""

    __slots__ = ()

    unknown_tags: tuple[Tag, ...] = ()
    """Tagged fields that the table does not have, so they are usually from a newer Kafka."""


@struct_base
class Value(Part):
    """A record's value: the struct after its int16 version."""

    __slots__ = ()

    version: int
    trailing: bytes = b""
    """Bytes after the last field. Kafka ignores them."""
    layout: str = ""
    """The early-access release whose layout the bytes have, for example "3.7"; "" for the current layout."""


@struct_base
class Key:
    """A record: the fields of its key, and its value, which is None in a tombstone."""

    __slots__ = ()

    key_trailing: bytes = b""
    """Bytes after the last field of the key. Kafka ignores them."""

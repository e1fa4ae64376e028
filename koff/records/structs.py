"""The fields that all records have in addition to the encoded fields."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar, dataclass_transform

from koff.proto.schema import Tag, field, struct, struct_base

Record = TypeVar("Record", bound="Key")


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

    type: int = -1
    key_trailing: bytes = b""
    """Bytes after the last field of the key. Kafka ignores them."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, dataclasses.field))
def record(number: int) -> Callable[[type[Record]], type[Record]]:
    """Makes the class the struct of the record type with this number: of its key, with its value."""

    def declare(cls: type[Record]) -> type[Record]:
        cls.type = number
        return struct()(cls)

    return declare

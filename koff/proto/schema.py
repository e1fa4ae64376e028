"""Struct tables: Kafka's message layouts, declared once as typed frozen dataclasses.

    @struct(versions=(0, 4), flexible_since=4)
    class OffsetCommitValue(Value):
        offset: int = field(INT64)
        leader_epoch: int = field(INT32, since=3, default=-1)

The fields are in the order that they have on the wire and in Kafka's JSON. `since` and `until` are
versions, both inclusive. A field that a version does not have gets its default.

Some early-access releases wrote other fields under the same version number. Such a layout has a name, the
release ("3.7"), and the parameters `only_in`, `not_in` and `instead` of a field describe the field in that
layout. The name of the current layout is "".

Readers, writers and JSON are all made from these tables. No other module knows a layout.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack, dataclass_transform

from koff.proto.frozen import freeze
from koff.proto.primitives import cached

T = TypeVar("T")
_SPEC = "koff.wire"
_STRUCT = "__wire_struct__"
_NO_DEFAULT: Any = dataclasses.MISSING


@dataclasses.dataclass(frozen=True, slots=True)
class Wire(Generic[T]):
    """How a value is encoded. `kind` is number, string, bytes, uuid, array or struct."""

    kind: str
    format: str = ""
    """The number's character in Python's struct module."""
    item: "Wire[Any] | None" = None
    """How an item of the array is encoded."""
    struct: type[Any] | None = None
    nullable: bool = False


INT8: Wire[int] = Wire("number", format="b")
INT16: Wire[int] = Wire("number", format="h")
UINT16: Wire[int] = Wire("number", format="H")
INT32: Wire[int] = Wire("number", format="i")
INT64: Wire[int] = Wire("number", format="q")
UUID: Wire[str] = Wire("uuid")
STRING: Wire[str] = Wire("string")
BYTES: Wire[bytes] = Wire("bytes")


def array(item: Wire[T]) -> Wire[tuple[T, ...]]:
    """An array of items that are encoded like `item`."""
    return Wire("array", item=item)


def nested(struct: type[T]) -> Wire[T]:
    """A struct inside another, in the version of the outer one."""
    return Wire("struct", struct=struct)


def nullable(wire: Wire[T]) -> Wire[T | None]:
    """A value that may be null, in all versions that have the field."""
    return Wire(wire.kind, wire.format, wire.item, wire.struct, nullable=True)


class Tag(NamedTuple):
    """A tagged field that the table does not have, with its bytes."""

    tag: int
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a struct: its encoding, the versions and layouts that have it, its default in the others."""

    wire: Wire[Any]
    name: str = ""
    since: int = 0
    until: int | None = None
    tag: int | None = None
    default: Any = _NO_DEFAULT
    only_in: str | None = None
    not_in: str | None = None
    instead: Mapping[str, Wire[Any]] = dataclasses.field(default_factory=dict)
    schema_name: str | None = None

    @property
    def kafka_name(self) -> str:
        """The name in Kafka's schema: `leader_epoch` is `leaderEpoch`, unless there is a `schema_name`."""
        first, *rest = self.name.split("_")
        return self.schema_name or first + "".join(word.capitalize() for word in rest)

    def exists_in(self, version: int, layout: str) -> bool:
        """Whether this version in this layout has the field."""
        if self.only_in is not None and layout != self.only_in:
            return False
        if self.not_in is not None and layout == self.not_in:
            return False
        return self.since <= version and (self.until is None or version <= self.until)

    def in_layout(self, layout: str) -> "Field":
        """The field with the encoding that it has in the layout."""
        return dataclasses.replace(self, wire=self.instead[layout]) if layout in self.instead else self


class Conditions(TypedDict, total=False):
    """Which versions and layouts have a field, and in which form: see `Field`."""

    since: int
    until: int
    tag: int
    only_in: str
    not_in: str
    instead: Mapping[str, Wire[Any]]
    schema_name: str


def field(wire: Wire[T], *, default: T = _NO_DEFAULT, **conditions: Unpack[Conditions]) -> T:
    """Declares a field. It needs a default if a version, a layout or a tag may leave it out.

    `only_in` and `not_in` name a layout. `instead` maps a layout to the encoding that the field has there.
    `schema_name` is the name in Kafka's schema, if it is not this one in camel case. Raises TypeError if
    the default is missing.
    """
    if default is _NO_DEFAULT and conditions.keys() - {"instead", "schema_name"}:
        raise TypeError("a field that can be absent needs a default")
    # The spec travels in the dataclass field's metadata until `struct` collects it.
    declared: T = dataclasses.field(
        default=default, metadata={_SPEC: Field(wire=wire, default=default, **conditions)}
    )
    return declared


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, dataclasses.field))
def struct(
    *, versions: tuple[int, int] = (0, 0), flexible_since: int | None = None
) -> Callable[[type[T]], type[T]]:
    """Makes the class a struct: a frozen slotted dataclass with keyword-only fields, described by a table.

    `versions` are the first and the last one. `versions` and `flexible_since` count only for the outermost
    struct. A nested one has the version and the encoding of the struct around it.
    """

    def declare(cls: type[T]) -> type[T]:
        struct_class = freeze(cls, kw_only=True)
        # Fields without a wire spec (`value`, `version`, `trailing`) are not in the table.
        fields = tuple(
            dataclasses.replace(declared.metadata[_SPEC], name=declared.name)
            for declared in dataclasses.fields(struct_class)  # type: ignore[arg-type]  # T is not known as a dataclass
            if _SPEC in declared.metadata
        )
        setattr(struct_class, _STRUCT, (fields, versions, flexible_since))
        return struct_class

    return declare


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, dataclasses.field))
def struct_base(cls: type[T]) -> type[T]:
    """Declares fields that several structs have in common.

    The class needs `__slots__ = ()`, since each struct that derives from it makes the slots itself.
    """
    return cls


def wire_fields(struct: type[Any]) -> tuple[Field, ...]:
    """The fields on the wire that any version or layout of the struct has."""
    fields: tuple[Field, ...] = getattr(struct, _STRUCT)[0]
    return fields


def list_layouts(struct: type[Any]) -> tuple[str, ...]:
    """The names of the layouts that the fields of the struct name, other than the current one."""
    fields = wire_fields(struct)
    return tuple(
        {each: None for field in fields for each in (field.only_in, field.not_in, *field.instead) if each}
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The fields of one version of a struct in one layout.

    `find_shape` always returns the same instance for these, so that compiled readers can be cached by it.
    """

    struct: type[Any]
    version: int
    flexible: bool
    layout: str
    fields: tuple[Field, ...]
    """The fields that exist, in wire order, tagged ones among them."""
    absent: tuple[Field, ...]
    """The fields that do not exist here: a reader gives them their defaults."""

    def nested_shape(self, struct: type[Any]) -> "Shape":
        """The shape of a struct nested in this one."""
        return _find_shape(struct, self.version, self.flexible, self.layout)

    @property
    def plain_fields(self) -> tuple[Field, ...]:
        """The fields outside the tag section."""
        return tuple(field for field in self.fields if field.tag is None)

    @property
    def tagged_fields(self) -> tuple[Field, ...]:
        """The fields in the tag section."""
        return tuple(field for field in self.fields if field.tag is not None)


def find_shape(struct: type[Any], version: int, layout: str = "") -> Shape | None:
    """Returns the shape of a version in a layout; None if the table has no such version."""
    _, (first, last), flexible_since = getattr(struct, _STRUCT)
    if not first <= version <= last:
        return None
    return _find_shape(struct, version, flexible_since is not None and version >= flexible_since, layout)


@cached
def _find_shape(struct: type[Any], version: int, flexible: bool, layout: str) -> Shape:
    # A struct in another layout is another shape, although its version is the same.
    fields = wire_fields(struct)
    present = tuple(field.in_layout(layout) for field in fields if field.exists_in(version, layout))
    absent = tuple(field for field in fields if not field.exists_in(version, layout))
    return Shape(struct, version, flexible, layout, present, absent)

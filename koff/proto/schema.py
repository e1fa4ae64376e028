"""Struct tables: Kafka's message layouts, declared once as typed frozen dataclasses.

    @struct(versions=(0, 4), flexible_since=4)
    class OffsetCommitValue(Value):
        offset: int = field(INT64)
        leader_epoch: int = field(INT32, since=3, default=-1)

The order of the fields is their order on the wire, and in Kafka's JSON. `since` and `until` are
versions, both inclusive; a field that a version does not have is its default. Early-access releases
wrote other fields under the same version number: such a layout has a name, and fields say what
becomes of them in it (`only_in`, `not_in`, `instead`).

Readers, writers and JSON all come from these tables; nothing else knows a layout.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar, dataclass_transform, overload

from koff.proto.frozen import freeze
from koff.proto.primitives import ZERO_UUID, cached

__all__ = [
    "BYTES",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "STRING",
    "UINT16",
    "UUID",
    "ZERO_UUID",
    "Field",
    "Shape",
    "Tag",
    "Wire",
    "array",
    "base",
    "field",
    "fields_of",
    "nested",
    "nullable",
    "shape",
    "struct",
]

T = TypeVar("T")
_SPEC = "koff.wire"
_STRUCT = "__wire_struct__"


@dataclasses.dataclass(frozen=True, slots=True)
class Wire(Generic[T]):
    """How one value is laid out. `kind` is number, string, bytes, uuid, array or struct."""

    kind: str
    format: str = ""
    """Of a number: its character in the struct module."""
    item: "Wire[Any] | None" = None
    """Of an array: what it is of."""
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
    return Wire("array", item=item)


def nested(struct: type[T]) -> Wire[T]:
    return Wire("struct", struct=struct)


def nullable(wire: Wire[T]) -> Wire[T | None]:
    return Wire(wire.kind, wire.format, wire.item, wire.struct, nullable=True)


class Tag(NamedTuple):
    """A tagged field that the schema does not know, kept as it came."""

    tag: int
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field on the wire: where it exists, and what it is where it does not."""

    name: str
    wire: Wire[Any]
    since: int
    until: int | None
    tag: int | None
    default: Any
    only_in: str | None
    not_in: str | None
    instead: dict[str, Wire[Any]]
    called: str | None

    @property
    def kafka_name(self) -> str:
        """The name in Kafka's schema: `leader_epoch` is `leaderEpoch`, unless the table says otherwise."""
        first, *rest = self.name.split("_")
        return self.called or first + "".join(word.capitalize() for word in rest)

    def exists(self, version: int, layout: str) -> bool:
        if self.only_in is not None and layout != self.only_in:
            return False
        if self.not_in is not None and layout == self.not_in:
            return False
        return self.since <= version and (self.until is None or version <= self.until)

    def within(self, layout: str) -> "Field":
        """The field as it is laid out there."""
        return dataclasses.replace(self, wire=self.instead[layout]) if layout in self.instead else self


@overload
def field(
    wire: Wire[T],
    *,
    since: int = 0,
    until: int | None = None,
    tag: int | None = None,
    only_in: str | None = None,
    not_in: str | None = None,
    instead: dict[str, Wire[T]] | None = None,
    called: str | None = None,
) -> T: ...
@overload
def field(
    wire: Wire[T],
    *,
    default: T,
    since: int = 0,
    until: int | None = None,
    tag: int | None = None,
    only_in: str | None = None,
    not_in: str | None = None,
    instead: dict[str, Wire[T]] | None = None,
    called: str | None = None,
) -> T: ...
def field(
    wire: Wire[Any],
    *,
    default: Any = dataclasses.MISSING,
    since: int = 0,
    until: int | None = None,
    tag: int | None = None,
    only_in: str | None = None,
    not_in: str | None = None,
    instead: dict[str, Wire[Any]] | None = None,
    called: str | None = None,
) -> Any:
    """A field on the wire. It needs a default where a version, a layout or a tag may leave it out.

    `called` is its name in Kafka's schema, where that is not ours in camel case.
    """
    conditions = (since or None, until, tag, only_in, not_in)
    if default is dataclasses.MISSING and conditions != (None,) * len(conditions):
        raise TypeError("a field that can be absent needs a default")
    spec = {
        "wire": wire,
        "since": since,
        "until": until,
        "tag": tag,
        "only_in": only_in,
        "not_in": not_in,
        "instead": instead or {},
        "called": called,
    }
    return dataclasses.field(default=default, metadata={_SPEC: spec})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, dataclasses.field))
def struct(
    *, versions: tuple[int, int] = (0, 0), flexible_since: int | None = None
) -> Callable[[type[T]], type[T]]:
    """A frozen slotted keyword-only dataclass that codecs can be made for.

    `versions` and `flexible_since` matter for the outermost struct only: what is nested follows it.
    """

    def declare(cls: type[T]) -> type[T]:
        made = freeze(cls, kw_only=True)
        fields = tuple(
            Field(name=each.name, default=each.default, **each.metadata[_SPEC])
            for each in dataclasses.fields(made)  # type: ignore[arg-type]
            if _SPEC in each.metadata
        )
        setattr(made, _STRUCT, (fields, versions, flexible_since))
        return made

    return declare


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, dataclasses.field))
def base(cls: type[T]) -> type[T]:
    """Fields that several structs have in common. Needs `__slots__ = ()`: those are made in each struct."""
    return cls


def fields_of(struct: type[Any]) -> tuple[Field, ...]:
    """Every field on the wire that some version or layout of the struct has."""
    fields: tuple[Field, ...] = getattr(struct, _STRUCT)[0]
    return fields


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What one version of a struct looks like. There is one of each: codecs are cached by it."""

    struct: type[Any]
    version: int
    flexible: bool
    layout: str
    fields: tuple[Field, ...]
    """In wire order, tagged ones among them."""
    absent: tuple[Field, ...]
    """Those that are their default here."""

    def inner(self, struct: type[Any]) -> "Shape":
        """Of a struct nested in this one."""
        return _shape(struct, self.version, self.flexible, self.layout)

    @property
    def plain(self) -> tuple[Field, ...]:
        return tuple(each for each in self.fields if each.tag is None)

    @property
    def tagged(self) -> tuple[Field, ...]:
        return tuple(each for each in self.fields if each.tag is not None)


def shape(struct: type[Any], version: int, layout: str = "") -> Shape | None:
    """The shape of that version, None when the table has no such version."""
    _, (first, last), flexible_since = getattr(struct, _STRUCT)
    if not first <= version <= last:
        return None
    return _shape(struct, version, flexible_since is not None and version >= flexible_since, layout)


@cached
def _shape(struct: type[Any], version: int, flexible: bool, layout: str) -> Shape:
    fields = fields_of(struct)
    present = tuple(each.within(layout) for each in fields if each.exists(version, layout))
    absent = tuple(each for each in fields if not each.exists(version, layout))
    return Shape(struct, version, flexible, layout, present, absent)

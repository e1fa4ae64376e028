"""Readers: one Python function per shape of a struct, its source written from the schema table.

The source lives in memory only. It does what one would write by hand: neighbouring numbers are one
`struct.unpack_from`, the first byte of a length comes with the numbers before it, values go straight
into the slots of the object being built (see `frozen`).

A reader raises one of `READ_ERRORS`, and nothing else, on bytes that do not fit.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from koff.proto import primitives
from koff.proto.frozen import building
from koff.proto.schema import Shape, Tag, Wire, shape

READ_ERRORS = (primitives.Malformed, struct.error, IndexError)
"""IndexError and struct.error mean that the buffer ends early: checking first would cost each number."""

Nested = Callable[[bytes, int], tuple[Any, int]]


def reason(error: Exception) -> str:
    """Why a reader refused, in words."""
    return str(error) if isinstance(error, primitives.Malformed) else "ends early"


@dataclass(slots=True)
class _Source:
    """Lines of a function in the making, and the numbers that wait to be read in one go."""

    names: dict[str, Any]
    lenient: bool
    lines: list[str] = field(default_factory=list)
    indent: int = 1
    at: str | int = "at"
    """The position: a literal as long as it is known, then the variable `at`."""
    formats: str = ""
    targets: list[str] = field(default_factory=list)
    made: int = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, stem: str) -> str:
        self.made += 1
        return f"{stem}{self.made}"

    def bind(self, stem: str, value: Any) -> str:
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def number(self, format: str, target: str) -> None:
        self.formats += format
        self.targets.append(target)

    def flush(self) -> None:
        """Reads the numbers that wait. Afterwards `at` stands behind them."""
        if self.formats:
            layout = struct.Struct(">" + self.formats)
            unpack = f"unpack_{self.formats}"
            self.names[unpack] = layout.unpack_from
            if self.formats == "B":
                self.line(f"{self.targets[0]} = buffer[{self.at}]")
            elif self.formats == "h" and self.targets[0].isalnum():  # a length, and faster so
                self.line(f"{self.targets[0]} = buffer[{self.at}] << 8 | buffer[{self.at} + 1]")
                self.line(f"if {self.targets[0]} > 32767: {self.targets[0]} = -1")
            else:
                self.line(
                    f"{', '.join(self.targets)}{',' * (len(self.targets) == 1)} = {unpack}(buffer, {self.at})"
                )
            self._advance(layout.size)
            self.formats, self.targets = "", []
        elif self.at != "at":
            self._advance(0)

    def _advance(self, size: int) -> None:
        self.line(f"at = {self.at + size}" if isinstance(self.at, int) else f"at += {size}")
        self.at = "at"

    def function(self, name: str, arguments: str) -> Callable[..., Any]:
        source = f"def {name}({arguments}):\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, f"<koff {name}>", "exec"), self.names)  # noqa: S102 - the source is ours, from the tables
        made: Callable[..., Any] = self.names[name]
        return made


class _Uuids(dict[bytes, str]):
    """Uuids by their bytes: about as many as topics. Hostile input does not make it grow without end."""

    def __missing__(self, data: bytes) -> str:
        if len(data) != 16:
            raise primitives.Truncated("ends inside a uuid")
        if len(self) >= 65536:
            self.clear()
        text = self[data] = primitives.uuid_text(data)
        return text


_UUIDS = _Uuids()
_BEHIND_VERSION = 2


def _new_source(of: type[Any], start: str | int, *, lenient: bool) -> _Source:
    names: dict[str, Any] = {
        "Building": building(of),
        "Final": of,
        "Malformed": primitives.Malformed,
        "Truncated": primitives.Truncated,
        "Tag": Tag,
        "uvarint": primitives.uvarint,
        "uuids": _UUIDS,
        "texts": primitives.texts,
        "compact_texts": primitives.compact_texts,
        "unpack_from": struct.unpack_from,
    }
    source = _Source(names, lenient, at=start)
    source.line("end = len(buffer)")
    source.line("made = Building()")
    return source


@primitives.cached
def outer_reader(
    of: type[Any], version: int, layout: str = "", *, lenient: bool = False
) -> Callable[[bytes], Any] | None:
    """Reads a versioned struct from the bytes behind its version; None when there is no such version.

    The struct has `version`, `layout`, `trailing` and `unknown_tags` beside its fields on the wire.
    A strict reader lets UnicodeDecodeError out: read again leniently then (asking for replacements
    costs each string 30 ns).
    """
    found = shape(of, version, layout)
    if found is None:
        return None
    source = _new_source(of, _BEHIND_VERSION, lenient=lenient)
    source.line(f"made.version = {version}")
    source.line(f"made.layout = {layout!r}")
    _write_fields(source, found)
    source.line('made.trailing = buffer[at:] if at != end else b""')
    source.line("made.__class__ = Final")
    source.line("return made")
    return source.function(f"read_{of.__name__}_v{version}", "buffer")


@primitives.cached
def key_reader(of: type[Any], *, lenient: bool = False) -> Callable[[bytes, int, Any], tuple[Any, Any]]:
    """Reads the fields of a record's key, and completes the record with its type and value.

    Gives the record, and its first field: the group, whatever that is called.
    """
    found = shape(of, 0)
    assert found is not None
    source = _new_source(of, _BEHIND_VERSION, lenient=lenient)
    source.line("made.type = type_")
    source.line("made.value = value")
    _write_fields(source, found)
    source.line('made.key_trailing = buffer[at:] if at != end else b""')
    source.line("made.__class__ = Final")
    source.line(f"return made, made.{found.fields[0].name}")
    return source.function(f"read_{of.__name__}", "buffer, type_, value")


@primitives.cached
def _nested_reader(of: Shape, *, lenient: bool) -> Nested:
    source = _new_source(of.struct, "at", lenient=lenient)
    _write_fields(source, of)
    source.line("made.__class__ = Final")
    source.line("return made, at")
    return source.function(f"read_{of.struct.__name__}", "buffer, at")


def _write_fields(source: _Source, of: Shape) -> None:
    """Statements that fill `made`, and leave `at` behind the struct."""
    for each in of.absent + of.tagged:
        source.line(f"made.{each.name} = {_constant(source, each.default)}")
    if _keeps_tags(of):
        source.line("made.unknown_tags = ()")
    for each in of.plain:
        _write_value(source, of, each.wire, f"made.{each.name}", each.name)
    if of.flexible:
        _write_tags(source, of)
    source.flush()


def _keeps_tags(of: Shape) -> bool:
    return "unknown_tags" in of.struct.__dataclass_fields__


def _constant(source: _Source, value: Any) -> str:
    return (
        repr(value) if isinstance(value, int | str | None) or value == () else source.bind("default", value)
    )


def _write_value(
    source: _Source, of: Shape, wire: Wire[Any], target: str, name: str, *, tagged: bool = False
) -> None:
    match wire.kind:
        case "number":
            source.number(wire.format, target)
        case "uuid":
            source.flush()
            source.line("start = at; at += 16")
            source.line(f"{target} = uuids[buffer[start:at]]")
        case "struct":
            _write_struct(source, of, wire, target, tagged=tagged)
        case _:
            _write_sized(source, of, wire, target, name)


def _write_sized(source: _Source, of: Shape, wire: Wire[Any], target: str, name: str) -> None:
    """Strings, bytes and arrays: a length, which may mean null, and that many bytes or items."""
    length = source.fresh("n")
    if of.flexible:
        source.number("B", length)
        source.flush()
        source.line(f"if {length} > 127: {length}, at = uvarint(buffer, at - 1)")
        source.line(f"if 0 < {length} <= 0x80000000:")
        source.line(f"    {length} -= 1")
    else:
        source.number("h" if wire.kind == "string" else "i", length)
        source.flush()
        source.line(f"if {length} >= 0:")
    source.indent += 1
    _SIZED[wire.kind](source, of, wire, length, target, name)
    source.indent -= 1
    if wire.nullable:
        source.line(f"else: {target} = None")
    else:
        source.line(f"else: raise Malformed('{name} is null')")


def _write_text(source: _Source, of: Shape, wire: Wire[Any], length: str, target: str, name: str) -> None:
    decode = f'decode("utf-8", "{primitives.JAVA_TEXT}")' if source.lenient else "decode()"
    source.line(f"if {length}:")
    if of.flexible:
        source.line(f"    if {length} > 32767:")
        source.line(f"        raise Malformed(f'{name} has {{{length}}} bytes, more than a string may')")
    source.line(f"    start = at; at += {length}")
    source.line(f"    if at > end: raise Truncated('ends inside {name}')")
    source.line(f"    {target} = buffer[start:at].{decode}")
    source.line(f"else: {target} = ''")


def _write_bytes(source: _Source, of: Shape, wire: Wire[Any], length: str, target: str, name: str) -> None:
    source.line(f"start = at; at += {length}")
    source.line(f"if at > end: raise Truncated('ends inside {name}')")
    source.line(f"{target} = buffer[start:at]")


def _write_array(source: _Source, of: Shape, wire: Wire[Any], length: str, target: str, name: str) -> None:
    """An array that says it is longer than what remains is refused before anything is made."""
    item = wire.item
    assert item is not None
    size = struct.calcsize(">" + item.format) if item.kind == "number" else 1
    source.line(f"if {length} * {size} > end - at:")
    source.line(f"    raise Truncated(f'{name} has {{{length}}} items in {{end - at}} bytes')")
    if item.kind == "number":
        source.line(f"{target} = unpack_from(f'>{{{length}}}{item.format}', buffer, at)")
        source.line(f"at += {length} * {size}")
    elif item.kind == "string":
        source.line(f"{target}, at = {'compact_texts' if of.flexible else 'texts'}(buffer, at, {length})")
    else:
        assert item.struct is not None
        read = source.bind("read", _nested_reader(of.inner(item.struct), lenient=source.lenient))
        items = source.fresh("items")
        source.line(f"{items} = []")
        source.line(f"for _ in range({length}):")
        source.line(f"    item, at = {read}(buffer, at)")
        source.line(f"    {items}.append(item)")
        source.line(f"{target} = tuple({items})")


_SIZED = {"string": _write_text, "bytes": _write_bytes, "array": _write_array}


def _write_struct(source: _Source, of: Shape, wire: Wire[Any], target: str, *, tagged: bool) -> None:
    """A nested struct. A nullable one has a marker first, which is a varint inside a tag section."""
    assert wire.struct is not None
    read = source.bind("read", _nested_reader(of.inner(wire.struct), lenient=source.lenient))
    source.flush()
    if not wire.nullable:
        source.line(f"{target}, at = {read}(buffer, at)")
        return
    marker = source.fresh("marker")
    if tagged:
        source.line(f"{marker}, at = uvarint(buffer, at)")
        source.line(f"if 0 < {marker} <= 0x7FFFFFFF: {target}, at = {read}(buffer, at)")
    else:
        source.line(f"{marker} = buffer[at]; at += 1")
        source.line(f"if {marker} < 128: {target}, at = {read}(buffer, at)")
    source.line(f"else: {target} = None")


def _write_tags(source: _Source, of: Shape) -> None:
    """The tag section, with a way of its own for what brokers write: the first known tag alone."""
    source.number("B", "count")
    source.flush()
    source.line("if count:")
    source.indent += 1
    if of.tagged and of.tagged[0].tag == 0:
        source.line("if count == 1 and not buffer[at] and buffer[at + 1] < 128:")
        source.indent += 1
        source.line("at += 2")
        _write_value(
            source, of, of.tagged[0].wire, f"made.{of.tagged[0].name}", of.tagged[0].name, tagged=True
        )
        source.flush()
        source.indent -= 1
        source.line("else:")
    else:
        source.line("if True:")
    source.indent += 1
    _write_any_tags(source, of)
    source.indent -= 2


def _write_any_tags(source: _Source, of: Shape) -> None:
    """Of a known tag Kafka ignores the declared size; of one that repeats the last counts."""
    source.line("if count > 127: count, at = uvarint(buffer, at - 1)")
    source.line("unknown = []")
    source.line("for _ in range(count if count <= 0x7FFFFFFF else 0):")
    source.indent += 1
    source.line("tag, at = uvarint(buffer, at)")
    source.line("size, at = uvarint(buffer, at)")
    for each in of.tagged:
        source.line(f"if tag == {each.tag}:")
        source.indent += 1
        _write_value(source, of, each.wire, f"made.{each.name}", each.name, tagged=True)
        source.flush()
        source.line("continue")
        source.indent -= 1
    source.line("start = at; at += size")
    source.line("if at > end: raise Truncated(f'ends inside unknown tag {tag}')")
    source.line("unknown.append(Tag(tag, buffer[start:at]))")
    source.indent -= 1
    if _keeps_tags(of):
        source.line("if unknown: made.unknown_tags = tuple(unknown)")

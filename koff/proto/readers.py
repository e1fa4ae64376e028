"""Readers: one Python function for each shape of a struct, with a source generated from the schema table.

The source is kept in memory only. It does what a programmer would write by hand for speed: neighbouring
numbers are read by one `struct.unpack_from`, the first byte of a length is read with the numbers before it,
and values are stored straight into the slots of the object being built (see `frozen`).

For bytes that do not match the schema, a reader raises one of `READ_ERRORS` and nothing else. For invalid
UTF-8, a strict reader raises UnicodeDecodeError.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from koff.proto import primitives
from koff.proto.frozen import builder_class
from koff.proto.schema import Shape, Tag, Wire, find_shape

READ_ERRORS = (primitives.Malformed, struct.error, IndexError)
"""IndexError and struct.error mean that the buffer ends early. A check before each read would cost time for
every number."""

NestedReader = Callable[[bytes, int], tuple[Any, int]]
"""Takes a buffer and a position, returns the struct and the next position."""


def describe_error(error: Exception) -> str:
    """Why a reader raised one of `READ_ERRORS`, in words."""
    return str(error) if isinstance(error, primitives.Malformed) else "ends early"


@dataclass(slots=True)
class _Source:
    """The lines of a function that is being generated, and the numbers whose read is delayed."""

    names: dict[str, Any]
    """The globals of the function."""
    lenient: bool
    lines: list[str] = field(default_factory=list)
    indent: int = 1
    at: str | int = "at"
    """The position in the buffer: a literal as long as it is known, then the variable `at`."""
    formats: str = ""
    """The struct formats of the delayed numbers."""
    targets: list[str] = field(default_factory=list)
    """The expressions to assign the delayed numbers to."""
    names_made: int = 0

    def add_line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def make_name(self, stem: str) -> str:
        self.names_made += 1
        return f"{stem}{self.names_made}"

    def bind_global(self, stem: str, value: Any) -> str:
        """Makes the value a global of the function, and returns its name."""
        name = self.make_name(stem)
        self.names[name] = value
        return name

    def add_number(self, format: str, target: str) -> None:
        """Delays the read of a number until `flush_numbers`, so that neighbours are read together."""
        self.formats += format
        self.targets.append(target)

    def flush_numbers(self) -> None:
        """Reads the delayed numbers. From here on the variable `at` is the position after them."""
        # A compiled Struct, as a global: `struct.unpack_from` would look up its format at each call.
        if self.formats:
            layout = struct.Struct(">" + self.formats)
            unpack = f"unpack_{self.formats}"
            self.names[unpack] = layout.unpack_from
            if self.formats == "B":
                self.add_line(f"{self.targets[0]} = buffer[{self.at}]")
            # A local variable, and not `made.field`, so it is a length. This is faster without a call.
            elif self.formats == "h" and self.targets[0].isalnum():
                self.add_line(f"{self.targets[0]} = buffer[{self.at}] << 8 | buffer[{self.at} + 1]")
                self.add_line(f"if {self.targets[0]} > 32767: {self.targets[0]} = -1")
            else:
                self.add_line(
                    f"{', '.join(self.targets)}{',' * (len(self.targets) == 1)} = {unpack}(buffer, {self.at})"
                )
            self._advance(layout.size)
            self.formats, self.targets = "", []
        elif self.at != "at":
            self._advance(0)

    def _advance(self, size: int) -> None:
        self.add_line(f"at = {self.at + size}" if isinstance(self.at, int) else f"at += {size}")
        self.at = "at"

    def compile_function(self, name: str, parameters: str) -> Callable[..., Any]:
        source = f"def {name}({parameters}):\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, f"<koff {name}>", "exec"), self.names)  # noqa: S102 - generated from our tables alone
        function: Callable[..., Any] = self.names[name]
        return function


class _Uuids(dict[bytes, str]):
    """Cache of uuids in Kafka's notation, by their bytes: usually as many as there are topics.

    A mapping with `__missing__`, since an index is faster than a call in the generated code. The cache is
    cleared at 65,536 entries, so that hostile input cannot fill the memory.
    """

    def __missing__(self, data: bytes) -> str:
        if len(data) != 16:
            raise primitives.Truncated("ends inside a uuid")
        if len(self) >= 65536:
            self.clear()
        text = self[data] = primitives.format_uuid(data)
        return text


_UUIDS = _Uuids()
_AFTER_VERSION = 2  # bytes: the int16 version of a value, or the int16 type of a key


def _start_source(cls: type[Any], start: str | int, *, lenient: bool) -> _Source:
    names: dict[str, Any] = {
        "Building": builder_class(cls),
        "Final": cls,
        "Malformed": primitives.Malformed,
        "Truncated": primitives.Truncated,
        "Tag": Tag,
        "uvarint": primitives.read_uvarint,
        "uuids": _UUIDS,
        "texts": primitives.read_strings,
        "compact_texts": primitives.read_compact_strings,
        "unpack_from": struct.unpack_from,
    }
    source = _Source(names, lenient, at=start)
    source.add_line("end = len(buffer)")
    source.add_line("made = Building()")
    return source


@primitives.cached
def compile_value_reader(
    cls: type[Any], version: int, layout: str = "", *, lenient: bool = False
) -> Callable[[bytes], Any] | None:
    """Returns the reader of one version of a versioned struct; None if the table has no such version.

    The reader takes the struct's bytes, beginning with the int16 version, which it skips. The struct must
    have the fields `version`, `layout` and `trailing` in addition to the encoded fields. A strict reader may
    raise UnicodeDecodeError as well. The caller should then use the lenient reader, which replaces invalid
    UTF-8 and takes 30 ns longer for each string.
    """
    shape = find_shape(cls, version, layout)
    if shape is None:
        return None
    source = _start_source(cls, _AFTER_VERSION, lenient=lenient)
    source.add_line(f"made.version = {version}")
    source.add_line(f"made.layout = {layout!r}")
    _emit_fields(source, shape)
    source.add_line('made.trailing = buffer[at:] if at != end else b""')
    source.add_line("made.__class__ = Final")
    source.add_line("return made")
    return source.compile_function(f"read_{cls.__name__}_v{version}", "buffer")


@primitives.cached
def compile_key_reader(
    cls: type[Any], *, lenient: bool = False
) -> Callable[[bytes, int, Any], tuple[Any, Any]]:
    """Returns the function that makes a record of `(key, type, value)`, where `value` is read already.

    The function returns the record and the first field of its key, which is the group under any of its names.
    It skips the int16 type at the start of the key. For `lenient`, see `compile_value_reader`.
    """
    shape = find_shape(cls, 0)
    assert shape is not None
    source = _start_source(cls, _AFTER_VERSION, lenient=lenient)
    source.add_line("made.type = type_")
    source.add_line("made.value = value")
    _emit_fields(source, shape)
    source.add_line('made.key_trailing = buffer[at:] if at != end else b""')
    source.add_line("made.__class__ = Final")
    source.add_line(f"return made, made.{shape.fields[0].name}")
    return source.compile_function(f"read_{cls.__name__}", "buffer, type_, value")


def compile_struct_reader(
    cls: type[Any], version: int, *, lenient: bool = False
) -> Callable[[bytes, int], tuple[Any, int]]:
    """Returns the reader of one version of a struct that does not begin with its version.

    The reader takes a buffer and a position, and returns the struct and the position behind it. It raises
    `Malformed`, IndexError or struct.error if the bytes do not match. For
    `lenient`, see `compile_value_reader`. Raises ValueError if the table has no such version.
    """
    shape = find_shape(cls, version)
    if shape is None:
        raise ValueError(f"{cls.__name__} has no version {version}")
    return _compile_nested_reader(shape, lenient=lenient)


@primitives.cached
def _compile_nested_reader(shape: Shape, *, lenient: bool) -> NestedReader:
    source = _start_source(shape.struct, "at", lenient=lenient)
    _emit_fields(source, shape)
    source.add_line("made.__class__ = Final")
    source.add_line("return made, at")
    return source.compile_function(f"read_{shape.struct.__name__}", "buffer, at")


def _emit_fields(source: _Source, shape: Shape) -> None:
    """Emits statements that fill `made`, and leave `at` after the struct."""
    # A slot without a value raises AttributeError later, so each field that may be absent gets its default.
    for schema_field in shape.absent + shape.tagged_fields:
        source.add_line(f"made.{schema_field.name} = {_default_expression(source, schema_field.default)}")
    if _keeps_unknown_tags(shape):
        source.add_line("made.unknown_tags = ()")
    for schema_field in shape.plain_fields:
        _emit_value(source, shape, schema_field.wire, f"made.{schema_field.name}", schema_field.name)
    if shape.flexible:
        _emit_tags(source, shape)
    source.flush_numbers()


def _keeps_unknown_tags(shape: Shape) -> bool:
    return "unknown_tags" in shape.struct.__dataclass_fields__


def _default_expression(source: _Source, value: Any) -> str:
    is_literal = isinstance(value, int | str | None) or value == ()
    return repr(value) if is_literal else source.bind_global("default", value)


def _emit_value(
    source: _Source, shape: Shape, wire: Wire[Any], target: str, name: str, *, tagged: bool = False
) -> None:
    match wire.kind:
        case "number":
            source.add_number(wire.format, target)
        case "uuid":
            # A slice that is cut short is not in the cache, and `_Uuids` then raises Truncated.
            source.flush_numbers()
            source.add_line("start = at; at += 16")
            source.add_line(f"{target} = uuids[buffer[start:at]]")
        case "struct":
            _emit_struct(source, shape, wire, target, tagged=tagged)
        case _:
            _emit_sized(source, shape, wire, target, name)


def _emit_sized(source: _Source, shape: Shape, wire: Wire[Any], target: str, name: str) -> None:
    """Emits the read of a string, bytes or an array: a length that may mean null, then the bytes or items."""
    length = source.make_name("n")
    if shape.flexible:
        # Nearly all compact lengths have one byte: only a longer one costs a call. 0 is null. So is a length
        # above 2**31, which is negative in Java.
        source.add_number("B", length)
        source.flush_numbers()
        source.add_line(f"if {length} > 127: {length}, at = uvarint(buffer, at - 1)")
        source.add_line(f"if 0 < {length} <= 0x80000000:")
        source.add_line(f"    {length} -= 1")
    else:
        source.add_number("h" if wire.kind == "string" else "i", length)
        source.flush_numbers()
        source.add_line(f"if {length} >= 0:")
    source.indent += 1
    _SIZED_EMITTERS[wire.kind](source, shape, wire, length, target, name)
    source.indent -= 1
    if wire.nullable:
        source.add_line(f"else: {target} = None")
    else:
        source.add_line(f"else: raise Malformed('{name} is null')")


def _emit_string(source: _Source, shape: Shape, wire: Wire[Any], length: str, target: str, name: str) -> None:
    decode = f'decode("utf-8", "{primitives.JAVA_REPLACEMENT}")' if source.lenient else "decode()"
    # A strict reader decodes without an error handler: a call with one takes 30 ns longer.
    source.add_line(f"if {length}:")
    if shape.flexible:  # an int16 length cannot exceed the limit
        source.add_line(f"    if {length} > 32767:")
        source.add_line(f"        raise Malformed(f'{name} has {{{length}}} bytes, more than a string may')")
    source.add_line(f"    start = at; at += {length}")
    source.add_line(f"    if at > end: raise Truncated('ends inside {name}')")
    source.add_line(f"    {target} = buffer[start:at].{decode}")
    source.add_line(f"else: {target} = ''")


def _emit_bytes(source: _Source, shape: Shape, wire: Wire[Any], length: str, target: str, name: str) -> None:
    source.add_line(f"start = at; at += {length}")
    source.add_line(f"if at > end: raise Truncated('ends inside {name}')")
    source.add_line(f"{target} = buffer[start:at]")


def _emit_array(source: _Source, shape: Shape, wire: Wire[Any], length: str, target: str, name: str) -> None:
    """Emits the read of an array. One that cannot fit in the rest is refused before anything is allocated."""
    item = wire.item
    assert item is not None
    size = struct.calcsize(">" + item.format) if item.kind == "number" else 1  # a byte at least
    source.add_line(f"if {length} * {size} > end - at:")
    source.add_line(f"    raise Truncated(f'{name} has {{{length}}} items in {{end - at}} bytes')")
    if item.kind == "number":
        source.add_line(f"{target} = unpack_from(f'>{{{length}}}{item.format}', buffer, at)")
        source.add_line(f"at += {length} * {size}")
    elif item.kind == "string":
        read = "compact_texts" if shape.flexible else "texts"
        source.add_line(f"{target}, at = {read}(buffer, at, {length})")
    else:
        assert item.struct is not None
        nested = _compile_nested_reader(shape.nested_shape(item.struct), lenient=source.lenient)
        read = source.bind_global("read", nested)
        items = source.make_name("items")
        source.add_line(f"{items} = []")
        source.add_line(f"for _ in range({length}):")
        source.add_line(f"    item, at = {read}(buffer, at)")
        source.add_line(f"    {items}.append(item)")
        source.add_line(f"{target} = tuple({items})")


_SIZED_EMITTERS = {"string": _emit_string, "bytes": _emit_bytes, "array": _emit_array}


def _emit_struct(source: _Source, shape: Shape, wire: Wire[Any], target: str, *, tagged: bool) -> None:
    """Emits the read of a nested struct. A nullable one has a marker first: negative means null.

    Inside a tag section the marker is an unsigned varint, and 0 means null too.
    """
    assert wire.struct is not None
    nested = _compile_nested_reader(shape.nested_shape(wire.struct), lenient=source.lenient)
    read = source.bind_global("read", nested)
    # The nested reader needs the position in a variable, so delayed numbers are read now.
    source.flush_numbers()
    if not wire.nullable:
        source.add_line(f"{target}, at = {read}(buffer, at)")
        return
    marker = source.make_name("marker")
    if tagged:
        source.add_line(f"{marker}, at = uvarint(buffer, at)")
        source.add_line(f"if 0 < {marker} <= 0x7FFFFFFF: {target}, at = {read}(buffer, at)")
    else:
        source.add_line(f"{marker} = buffer[at]; at += 1")
        source.add_line(f"if {marker} < 128: {target}, at = {read}(buffer, at)")
    source.add_line(f"else: {target} = None")


def _emit_tags(source: _Source, shape: Shape) -> None:
    """Emits the read of the tag section, with a fast path for what brokers usually write: tag 0 alone."""
    source.add_number("B", "count")
    source.flush_numbers()
    source.add_line("if count:")
    source.indent += 1
    first = shape.tagged_fields[0] if shape.tagged_fields else None
    if first is not None and first.tag == 0:
        source.add_line("if count == 1 and not buffer[at] and buffer[at + 1] < 128:")
        source.indent += 1
        source.add_line("at += 2")
        _emit_value(source, shape, first.wire, f"made.{first.name}", first.name, tagged=True)
        source.flush_numbers()
        source.indent -= 1
        source.add_line("else:")
    else:
        source.add_line("if True:")  # keeps the indent of the branch above
    source.indent += 1
    _emit_any_tags(source, shape)
    source.indent -= 2


def _emit_any_tags(source: _Source, shape: Shape) -> None:
    """Emits the read of any tags in any order. As in Kafka, the last counts if a tag is repeated."""
    source.add_line("if count > 127: count, at = uvarint(buffer, at - 1)")
    # Unknown tags are kept, so that `encode` gives the same bytes back.
    source.add_line("unknown = []")
    # A count above 2**31 - 1 is negative in Java, which means no tags.
    source.add_line("for _ in range(count if count <= 0x7FFFFFFF else 0):")
    source.indent += 1
    source.add_line("tag, at = uvarint(buffer, at)")
    source.add_line("size, at = uvarint(buffer, at)")
    # Kafka ignores the declared size of a tag that it knows, and so does koff.
    for schema_field in shape.tagged_fields:
        source.add_line(f"if tag == {schema_field.tag}:")
        source.indent += 1
        _emit_value(
            source, shape, schema_field.wire, f"made.{schema_field.name}", schema_field.name, tagged=True
        )
        source.flush_numbers()
        source.add_line("continue")
        source.indent -= 1
    source.add_line("start = at; at += size")
    source.add_line("if at > end: raise Truncated(f'ends inside unknown tag {tag}')")
    source.add_line("unknown.append(Tag(tag, buffer[start:at]))")
    source.indent -= 1
    if _keeps_unknown_tags(shape):
        source.add_line("if unknown: made.unknown_tags = tuple(unknown)")

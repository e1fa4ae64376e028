"""Shapes of JSON objects: one table makes both the object and its JSON Schema."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number", "minimum": 0}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
BOOLEAN: Schema = {"type": "boolean"}


def told(schema: Schema, text: str) -> Schema:
    """The schema, and what it means."""
    return {**schema, "description": text}


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    return (
        {"anyOf": [schema, {"type": "null"}]}
        if "enum" in schema
        else {**schema, "type": [schema["type"], "null"]}
    )


def one_of(names: Sequence[str]) -> Schema:
    """One of these texts."""
    return {"type": "string", "enum": list(names)}


def list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def map_of(values: Schema) -> Schema:
    """An object with any names."""
    return {"type": "object", "additionalProperties": values}


@dataclass(frozen=True, slots=True)
class JsonField(Generic[T]):
    """A member of an object: its name, its schema, what it means, and its value of a T.

    The value is that of the attribute of this name, of the attribute at `path` ("member?.id" is None if
    `member` is), or what a function returns.
    """

    name: str
    schema: Schema
    text: str
    path: str | Callable[[T], Any] | None = None

    @property
    def get(self) -> Callable[[T], Any]:
        """Returns the value of a T: a list or a dict, if the schema is an array or an object."""
        find = _find_getter(self.path or self.name)
        convert = {"array": list, "object": dict}.get(str(self.schema.get("type")))
        return find if convert is None else lambda value: convert(find(value))


class JsonObject(Generic[T]):
    """An object that describes a T."""

    def __init__(self, *fields: JsonField[T]) -> None:
        self.fields = fields
        self._getters = [(field.name, field.get) for field in fields]

    def build(self, value: T, **given: Any) -> dict[str, Any]:
        """The object. `given` are values, by name, that a T does not have."""
        return {name: given[name] if name in given else get(value) for name, get in self._getters}

    @property
    def schema(self) -> Schema:
        """The schema of the object: all members are always there, and no others."""
        return object_of({field.name: told(field.schema, field.text) for field in self.fields})


def _find_getter(path: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    if not isinstance(path, str):
        return path
    first, _, rest = path.partition("?.")
    find = attrgetter(first)
    if not rest:
        return find
    get = attrgetter(rest)
    return lambda value: None if (found := find(value)) is None else get(found)


def object_of(properties: Schema) -> Schema:
    """An object with exactly these members."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }

"""Shapes of JSON objects: one table makes both the object and its JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")
Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number", "minimum": 0}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
BOOLEAN: Schema = {"type": "boolean"}


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
    """An array."""
    return {"type": "array", "items": items}


def map_of(values: Schema) -> Schema:
    """An object with any names."""
    return {"type": "object", "additionalProperties": values}


@dataclass(frozen=True, slots=True)
class JsonField(Generic[T]):
    """A member of an object: its name, its schema, what it means, and its value of a T."""

    name: str
    schema: Schema
    text: str
    get: Callable[[T], Any]


class JsonObject(Generic[T]):
    """An object that describes a T."""

    def __init__(self, *fields: JsonField[T]) -> None:
        self.fields = fields

    def build(self, value: T) -> dict[str, Any]:
        """The object."""
        return {field.name: field.get(value) for field in self.fields}

    @property
    def schema(self) -> Schema:
        """The schema of the object: all members are always there, and no others."""
        return object_of({field.name: {**field.schema, "description": field.text} for field in self.fields})

    def lift(self, get: Callable[[S], T]) -> list[JsonField[S]]:
        """The fields, for an object that describes an S."""

        def lift_one(field: JsonField[T]) -> JsonField[S]:
            return JsonField(field.name, field.schema, field.text, lambda value: field.get(get(value)))

        return [lift_one(field) for field in self.fields]


def object_of(properties: Schema) -> Schema:
    """An object with exactly these members."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }

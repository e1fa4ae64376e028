"""Structs as plain data for JSON, in the shape of Kafka's generated JSON converters.

Fields are in the order of the schema. Left out are the fields that the version does not have, and tagged
fields that have their default. Bytes are in base64, uuids in Kafka's own notation.
"""

import base64
from typing import Any

from koff.proto.schema import Shape, Wire, find_shape


def kafka_data(value: Any, version: int, layout: str = "") -> dict[str, Any]:
    """The fields of a struct by their names in Kafka's schema. The struct must have the version."""
    shape = find_shape(type(value), version, layout)
    assert shape is not None
    return _struct_data(value, shape)


def _struct_data(value: Any, shape: Shape) -> dict[str, Any]:
    data = {}
    for field in shape.fields:
        field_value = getattr(value, field.name)
        # Kafka's converters leave out a tagged field that has its default, but write null for a plain field.
        if field.tag is None or field_value != field.default:
            data[field.kafka_name] = _plain_value(field_value, field.wire, shape)
    return data


def _plain_value(value: Any, wire: Wire[Any], shape: Shape) -> Any:
    if value is None:
        return None
    match wire.kind:
        case "bytes":
            return base64.b64encode(value).decode("ascii")
        case "struct":
            assert wire.struct is not None
            return _struct_data(value, shape.nested_shape(wire.struct))
        case "array":
            assert wire.item is not None
            return [_plain_value(item, wire.item, shape) for item in value]
        case _:
            return value

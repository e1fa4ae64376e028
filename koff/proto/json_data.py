"""Structs as plain data for JSON, in Kafka's own shape.

As Kafka's generated JSON converters have it: fields in the order of the schema, those the version
does not have and tagged ones at their default left out, bytes in base64, uuids as they print.
"""

import base64
from typing import Any

from koff.proto.schema import Shape, Wire, shape


def kafka_data(value: Any, version: int, layout: str = "") -> dict[str, Any]:
    """The fields of a struct by Kafka's names."""
    found = shape(type(value), version, layout)
    assert found is not None
    return _data(value, found)


def _data(value: Any, of: Shape) -> dict[str, Any]:
    data = {}
    for each in of.fields:
        given = getattr(value, each.name)
        if each.tag is None or given != each.default:
            data[each.kafka_name] = _plain(given, each.wire, of)
    return data


def _plain(value: Any, wire: Wire[Any], of: Shape) -> Any:
    if value is None:
        return None
    match wire.kind:
        case "bytes":
            return base64.b64encode(value).decode("ascii")
        case "struct":
            assert wire.struct is not None
            return _data(value, of.inner(wire.struct))
        case "array":
            assert wire.item is not None
            return [_plain(item, wire.item, of) for item in value]
        case _:
            return value

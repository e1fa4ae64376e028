"""Every row of the tables, in every version and layout: what is encoded is decoded to the same."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koff.proto.json_data import kafka_data
from koff.proto.readers import compile_value_reader
from koff.proto.schema import Field, Shape, Wire, find_shape
from koff.records import encode
from koff.records.record_types import OFFSETS_ROWS, SHARE_STATE_ROWS
from tests.unit.records.decoding import decoded

VERSIONS = [
    pytest.param(
        row, version, layout, rows is SHARE_STATE_ROWS, id=f"{row.kafka_name}-v{version}-{layout or 'now'}"
    )
    for rows in (OFFSETS_ROWS, SHARE_STATE_ROWS)
    for row in rows
    for version in range(5)
    for layout in ("", *row.early)
    if find_shape(row.value, version) is not None
]
RANGES = {"b": 7, "h": 15, "H": 16, "i": 31, "q": 63}
TEXTS = st.text(max_size=4)


def wire_values(wire: Wire[Any], of: Shape) -> st.SearchStrategy[Any]:
    match wire.kind:
        case "number":
            bits = RANGES[wire.format]
            found: st.SearchStrategy[Any] = st.integers(0 if wire.format == "H" else -(2**bits), 2**bits - 1)
        case "uuid":
            found = st.sampled_from(["A" * 22, "Lt0Eht-HRa2GCmvQvFtJdg"])
        case "string":
            found = TEXTS
        case "bytes":
            found = st.binary(max_size=4)
        case "array":
            assert wire.item is not None
            found = st.lists(wire_values(wire.item, of), max_size=2).map(tuple)
        case _:
            assert wire.struct is not None
            found = structs(of.nested_shape(wire.struct))
    return st.none() | found if wire.nullable else found


def structs(of: Shape, **given_fields: Any) -> st.SearchStrategy[Any]:
    def values(field: Field) -> st.SearchStrategy[Any]:
        found = wire_values(field.wire, of)
        return found if field.tag is None else found | st.just(field.default)

    return st.builds(of.struct, **{field.name: values(field) for field in of.fields}, **given_fields)


@pytest.mark.parametrize(("row", "version", "layout", "share_state"), VERSIONS)
@given(st.data())
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_what_is_encoded_is_decoded_to_the_same(row, version, layout, share_state, data):
    of, key = find_shape(row.value, version, layout), find_shape(row.record, 0)
    assert of is not None
    assert key is not None
    value = data.draw(structs(of, version=st.just(version), layout=st.just(layout)))
    record = data.draw(structs(key, type=st.just(row.type), value=st.just(value)))
    key_bytes, value_bytes = encode(record)
    read = compile_value_reader(row.value, version, layout)
    assert read is not None
    assert value_bytes is not None
    assert read(value_bytes) == value
    assert list(kafka_data(value, version, layout)) == [
        field.kafka_name
        for field in of.fields
        if field.tag is None or getattr(value, field.name) != field.default
    ]
    found = decoded(key_bytes, value_bytes, share_state=share_state).record
    if layout == "" or found.value.layout == layout:
        assert found == record
    else:
        assert found.value.trailing == b""  # the present layout fits as well, and goes first

"""A table of a struct is enough to read it, to write it and to print it, in every version."""

import dataclasses
from typing import Any

import pytest

from koff.proto.json_data import kafka_data
from koff.proto.primitives import ZERO_UUID, Malformed, Truncated
from koff.proto.readers import READ_ERRORS, compile_value_reader
from koff.proto.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Tag,
    array,
    field,
    nested,
    nullable,
    struct,
    struct_base,
)
from koff.proto.writers import encode_value


@struct_base
class Outer:
    __slots__ = ()

    version: int
    trailing: bytes = b""
    layout: str = ""
    unknown_tags: tuple[Tag, ...] = ()


@struct()
class Inner:
    name: str = field(STRING)
    unknown_tags: tuple[Tag, ...] = ()


@struct(versions=(0, 2), flexible_since=2)
class Everything(Outer):
    small: int = field(INT8)
    port: int = field(UINT16, instead={"early": INT32})
    long: int = field(INT64, since=1, default=-1)
    old: int = field(INT16, until=0, default=-2)
    name: str = field(STRING)
    nickname: str | None = field(nullable(STRING))
    data: bytes | None = field(nullable(BYTES))
    names: tuple[str, ...] = field(array(STRING))
    numbers: tuple[int, ...] | None = field(nullable(array(INT16)))
    inner: Inner | None = field(nullable(nested(Inner)))
    inners: tuple[Inner, ...] = field(array(nested(Inner)))
    image: int = field(INT32, only_in="early", default=0, schema_name="imageVersion")
    topic_id: str = field(UUID, tag=0, since=2, default=ZERO_UUID)
    extra: Inner | None = field(
        nullable(nested(Inner)), tag=1, since=2, not_in="early", default=Inner(name="")
    )


def everything(version: int, **fields: Any) -> Everything:
    given: dict[str, Any] = {
        "small": -1,
        "port": 65535,
        "name": "näme",
        "nickname": None,
        "data": b"\0\xff",
        "names": ("a", ""),
        "numbers": (1, -1),
        "inner": Inner(name="x"),
        "inners": (Inner(name="y"), Inner(name="z" * 200)),
    }
    return Everything(version=version, **(given | fields))


def read(data: bytes, version: int, layout: str = "") -> Everything:
    reader = compile_value_reader(Everything, version, layout, lenient=True)
    assert reader is not None
    found = reader(data)
    assert isinstance(found, Everything)
    return found


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("nothing", [False, True])
def test_what_is_written_is_read_again(version: int, nothing: bool):
    fields = {"nickname": "n", "data": None, "numbers": None, "inner": None, "names": (), "inners": ()}
    value = everything(version, **(fields if nothing else {}))
    data = encode_value(value)
    assert read(data, version) == value
    assert read(data + b"rest", version) == dataclasses.replace(value, trailing=b"rest")
    for cut in range(2, len(data)):
        with pytest.raises(READ_ERRORS):
            read(data[:cut], version)


def test_a_version_without_a_field_has_its_default():
    assert read(encode_value(everything(0, long=5, old=6)), 0).long == -1
    assert read(encode_value(everything(1, long=5, old=6)), 1).old == -2


def test_a_version_beyond_the_table_has_no_reader():
    assert compile_value_reader(Everything, 3) is None
    assert compile_value_reader(Everything, -1) is None
    with pytest.raises(Malformed):
        encode_value(everything(3))


def test_an_early_layout_has_fields_of_its_own_and_lacks_others():
    value = everything(2, layout="early", port=70000, image=9)
    assert read(encode_value(value), 2, "early") == value
    printed = kafka_data(value, 2, "early")
    assert printed["imageVersion"] == 9
    assert "extra" not in printed


def test_kafkas_names_are_camel_case_and_default_tags_are_not_printed():
    assert list(kafka_data(everything(2), 2)) == [
        "small",
        "port",
        "long",
        "name",
        "nickname",
        "data",
        "names",
        "numbers",
        "inner",
        "inners",
    ]
    assert kafka_data(everything(2, extra=None), 2)["extra"] is None


@pytest.mark.parametrize("extra", [None, Inner(name="given")])
def test_a_nullable_struct_in_a_tag_has_a_marker_of_its_own(extra: Inner | None):
    value = everything(2, extra=extra)
    assert read(encode_value(value), 2) == value


def tagged(section: str) -> Everything:
    return read(encode_value(everything(2))[:-1] + bytes.fromhex(section), 2)


def test_the_declared_size_of_a_known_tag_does_not_matter():
    assert tagged("010005" + "11" * 16).topic_id == tagged("010010" + "11" * 16).topic_id != ZERO_UUID
    assert tagged("0100" + "ffffffff0f" + "11" * 16).topic_id == tagged("010010" + "11" * 16).topic_id


def test_of_tags_that_repeat_the_last_counts_and_order_does_not_matter():
    found = tagged("03" + "0501aa" + "0010" + "11" * 16 + "0010" + "22" * 16)
    assert found.topic_id == tagged("010010" + "22" * 16).topic_id
    assert found.unknown_tags == (Tag(5, b"\xaa"),)


def test_unknown_tags_are_kept_in_nested_structs_too():
    value = everything(2, inner=Inner(name="x", unknown_tags=(Tag(0, b""), Tag(9, b"nine"))))
    assert read(encode_value(value), 2) == value


@pytest.mark.parametrize("section", ["0105ffffffff0f", "010502aa", "0105", "01", "0100", "808080808000"])
def test_a_tag_section_that_does_not_fit_is_an_error(section: str):
    with pytest.raises(READ_ERRORS):
        tagged(section)


def test_a_count_of_tags_that_is_negative_to_java_means_none():
    assert tagged("ffffffff0f" + "0501aa").trailing == bytes.fromhex("0501aa")


def name_of_length(length: str) -> Everything:
    start = bytes.fromhex("0002" + "00" + "0000" + "00" * 8)
    return read(start + bytes.fromhex(length) + bytes(40), 2)


@pytest.mark.parametrize("length", ["00", "ffffffff0f", "8180808008"])
def test_a_compact_length_of_0_or_beyond_2_31_is_null(length: str):
    with pytest.raises(Malformed, match="name is null"):
        name_of_length(length)


def test_a_compact_length_of_2_31_wraps_to_the_greatest():
    with pytest.raises(Malformed, match="more than a string may"):
        name_of_length("8080808008")


def test_a_string_of_32768_bytes_is_too_long():
    with pytest.raises(Malformed, match="32768 bytes"):
        name_of_length("818002")
    with pytest.raises(Truncated):
        name_of_length("808002")


def test_a_field_that_can_be_absent_needs_a_default():
    with pytest.raises(TypeError):
        field(INT8, since=1)


def test_structs_are_frozen_slotted_and_keyword_only():
    value = everything(2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.small = 1  # type: ignore[misc]  # on purpose
    assert not hasattr(value, "__dict__")
    with pytest.raises(TypeError):
        Inner("positional")  # type: ignore[call-arg]  # on purpose


@pytest.mark.parametrize(
    "wrong",
    [{"small": 128}, {"port": -1}, {"inners": None}, {"topic_id": "no"}, {"topic_id": 5}, {"names": 5}],
)
def test_what_the_table_does_not_allow_cannot_be_written(wrong: dict[str, object]):
    with pytest.raises(Malformed):
        encode_value(everything(2, **wrong))

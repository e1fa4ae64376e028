"""Kafka's primitive types, where they are not what one would think."""

import pytest

from koff.proto.primitives import (
    JAVA_REPLACEMENT,
    ZERO_UUID,
    Malformed,
    format_uuid,
    parse_uuid,
    read_uvarint,
    write_tags,
    write_uvarint,
)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**31 - 1, 2**31, 2**32 - 1])
def test_varints_come_back(value: int):
    out = bytearray()
    write_uvarint(out, value)
    assert read_uvarint(bytes(out), 0) == (value, len(out))


@pytest.mark.parametrize(
    ("data", "value"),
    [("8000", 0), ("8080808000", 0), ("ffffffff7f", 2**32 - 1), ("8080808010", 0), ("8180808070", 1)],
)
def test_varints_may_be_longer_than_needed_and_drop_bits_beyond_32(data: str, value: int):
    assert read_uvarint(bytes.fromhex(data), 0) == (value, len(data) // 2)


def test_a_varint_of_six_bytes_is_an_error():
    with pytest.raises(Malformed):
        read_uvarint(bytes.fromhex("808080808001"), 0)


@pytest.mark.parametrize("data", ["", "80", "80808080"])
def test_a_varint_that_does_not_end_is_one_past_the_buffer(data: str):
    with pytest.raises(IndexError):
        read_uvarint(bytes.fromhex(data), 0)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("eda080", "\ufffd"),
        ("edbfbf41", "\ufffdA"),
        ("eda041", "\ufffdA"),
        ("eda0", "\ufffd"),
        ("ed", "\ufffd"),
        ("eda0eda0", "\ufffd\ufffd"),
        ("ed9fbf", "\ud7ff"),
        ("c080", "\ufffd\ufffd"),
        ("e28241", "\ufffdA"),
        ("f0908041", "\ufffdA"),
        ("f5808080", "\ufffd\ufffd\ufffd\ufffd"),
        ("f09d849e", "\U0001d11e"),
        ("00", "\0"),
    ],
)
def test_invalid_utf_8_is_replaced_where_java_does(data: str, text: str):
    assert bytes.fromhex(data).decode("utf-8", JAVA_REPLACEMENT) == text


def test_the_replacement_is_for_decoding_only():
    with pytest.raises(UnicodeEncodeError):
        "\ud800".encode("utf-8", JAVA_REPLACEMENT)


def test_uuids_print_as_kafka_prints_them_and_come_back():
    data = bytes.fromhex("2edd0486df8745ad860a6bd0bc5b4976")
    assert format_uuid(data) == "Lt0Eht-HRa2GCmvQvFtJdg"
    assert parse_uuid("Lt0Eht-HRa2GCmvQvFtJdg") == data
    assert parse_uuid(ZERO_UUID) == bytes(16)


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "Lt0Eht-HRa2GCmvQvFtJ!g", "ü" * 22])
def test_what_is_no_uuid_is_refused(text: str):
    with pytest.raises(Malformed):
        parse_uuid(text)


def test_tags_are_written_in_ascending_order():
    out = bytearray()
    write_tags(out, [(300, b"c"), (1, b"b"), (0, b"")])
    assert out.hex() == "03" + "0000" + "010162" + "ac020163"

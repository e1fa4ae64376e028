"""`koff decode` on pairs from standard input."""

import base64
import json

import pytest
from click.testing import CliRunner, Result

from koff.cli import main
from tests.unit.records.decoding import golden


def decode(lines: list[str], *args: str) -> Result:
    return CliRunner().invoke(main, ["decode", *args], input="".join(f"{line}\n" for line in lines))


def word(data: str | None) -> str:
    return "-" if data is None else data or "e"


def golden_rows(share_state: bool) -> list[dict]:
    topic = "__share_group_state" if share_state else "__consumer_offsets"
    return [row for row in golden("golden") + golden("synthetic") if row.get("topic") == topic]


@pytest.mark.parametrize("share_state", [False, True])
def test_every_golden_record_is_printed_as_kafka_prints_it(share_state):
    rows = golden_rows(share_state)
    pairs = [f"{word(row['key_hex'])} {word(row['value_hex'])}" for row in rows]
    result = decode(pairs, "--format", "kafka", *(["--share-state"] if share_state else []))
    assert result.exit_code == 0
    printed = result.stdout.splitlines()
    assert len(printed) == len(rows) > 40
    for row, line in zip(rows, printed, strict=True):
        if row.get("oracle_error") or row["oracle_key"] is None:
            old_key = row["variant"].startswith("legacy-key-value-")  # releases up to 4.0 read these
            assert old_key or "error" in json.loads(line), row
        else:
            assert json.loads(line) == {"key": row["oracle_key"], "value": row["oracle_value"]}
        if "formatter_json" in row:
            assert line == json.dumps(row["formatter_json"], separators=(",", ":"), ensure_ascii=False)


def test_a_line_that_is_no_pair_is_said_in_its_place_and_the_others_are_decoded():
    result = decode(["0002000167 -", "nonsense", "0002000168 -", "0002 -  -"], "--format", "kafka")
    assert result.exit_code == 1
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line.get("error") for line in lines] == [
        None, "line 2 is not a pair KEY VALUE in hex", None, "line 4 is not a pair KEY VALUE in hex",
    ]  # fmt: skip
    assert "lines 2, 4 are not pairs KEY VALUE" in result.stderr


def test_one_line_that_is_no_pair_is_named_and_many_are_not_all():
    assert "Error: line 2 is not a pair KEY VALUE" in decode(["- -", "x"]).stderr
    named = "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ... are not pairs"
    assert named in decode(["x"] * 12).stderr


def test_base64_is_read_likewise():
    key = base64.b64encode(bytes.fromhex("0002000167")).decode()
    result = decode([f"{key} -"], "--base64", "--format", "kafka")
    assert json.loads(result.stdout) == {"key": {"type": 2, "data": {"group": "g"}}, "value": None}


def test_nulls_and_empty_bytes_are_told_apart():
    result = decode(["0002000167 -", "0002000167 e", "- -", "e -"])
    lines = result.stdout.splitlines()
    assert lines[0].startswith("group ")
    assert "deleted" in lines[0]
    assert all(line.startswith("bad ") for line in lines[1:])

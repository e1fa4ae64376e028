"""Tables that fit a terminal: columns are left out, names shortened in the middle, the last column cut."""

from operator import itemgetter

import pytest

from koff.cli import text_table
from koff.cli.text_table import Column, format_columns, measure_text, shorten_middle, wrap_text

Row = tuple[str, str, int, str | None]
HEADER = ("GROUP", "TYPE", "LAG", "WHY")
COLUMNS: list[Column[Row]] = [
    Column("GROUP", itemgetter(0), is_name=True),
    Column("TYPE", itemgetter(1), left_out=1),
    Column("LAG", itemgetter(2)),
    Column("WHY", itemgetter(3)),
]
ROWS: list[Row] = [
    ("payments-of-the-north-europe-1", "classic", 12, "it consumes 4 offsets a second, and 9 are produced"),
    ("p", "share", 1_234_567, None),
]


def fit(width: int | None) -> list[str]:
    return format_columns(COLUMNS, ROWS, width).splitlines()


def test_without_a_width_all_is_shown():
    lines = fit(None)
    assert lines[0].split() == list(HEADER)
    assert lines[1].endswith("are produced")
    assert lines[2] == f"{'p':<30}  {'share':<7}  1234567  -"


def test_first_the_last_column_is_cut():
    lines = fit(80)
    assert lines[0].split() == list(HEADER)
    assert lines[1].endswith("…")
    assert len(lines[1]) == 80


def test_then_columns_are_left_out():
    assert fit(70)[0].split() == ["GROUP", "LAG", "WHY"]


def test_then_names_lose_their_middle():
    lines = fit(60)
    assert lines[1].startswith("payments-of…-europe-1  ") or "…" in lines[1][:30]
    assert lines[1].split()[0].startswith("payments")
    assert lines[1].split()[0].endswith("europe-1")


@pytest.mark.parametrize("width", range(30, 130))
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(measure_text, fit(width))) <= width


@pytest.mark.parametrize("width", range(1, 40))
@pytest.mark.parametrize("text", ["abcdefghij" * 3, "漢字かな交じり文", "e\u0301" * 20, "a漢" * 9])
def test_a_shortened_text_fits_and_keeps_both_ends(text, width):
    short = shorten_middle(text, width)
    assert measure_text(short) <= width
    if short != text:
        start, end = short.split("…")
        assert text.startswith(start)
        assert text.endswith(end)


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("", 0), ("\u200b", 0)])
def test_the_width_of_a_text_is_that_on_a_terminal(text, width):
    assert measure_text(text) == width


def test_a_table_without_rows_is_its_header():
    assert format_columns(COLUMNS, [], 30) == "GROUP  TYPE  LAG  WHY\n"


def test_two_columns_of_the_same_width_lose_as_much_without_being_measured_again_and_again(monkeypatch):
    measured = []

    def count_text(text: str) -> int:
        measured.append(text)
        return len(text)

    monkeypatch.setattr(text_table, "measure_text", count_text)
    names: list[Column[str]] = [Column(title, lambda row: row * 250, is_name=True) for title in "AB"]
    columns: list[Column[str]] = [*names, Column("C", lambda row: 1)]
    table = format_columns(columns, ["a"] * 50, 80).splitlines()
    assert len(table[1].split()[0]) in (36, 37, 38)
    assert max(map(len, table)) <= 80
    assert len(measured) < 50 * 3 * 10


@pytest.mark.parametrize("width", [1, 7, 20, 80])
@pytest.mark.parametrize(
    "text", ["one two three four five six seven", "\u6f22\u5b57" * 9, "a" * 50 + " b", ""]
)
def test_a_wrapped_text_fits_and_loses_nothing_but_blanks(text, width):
    lines = wrap_text(text, width)
    assert all(measure_text(line) <= max(width, 2) for line in lines)
    assert "".join(lines).replace(" ", "").replace("\u2026", "") in text.replace(" ", "")
    if width > 2:
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_of_too_many_lines_the_last_ends_with_a_sign():
    assert wrap_text("one two three four", 9, 1) == ["one two \u2026"]
    assert wrap_text("one two three four five", 9, 2) == ["one two", "three fo\u2026"]
    assert wrap_text("one two", 9, 1) == ["one two"]

"""The tables of groups and partitions, at each width."""

import math

import pytest

from koff.cli.lag_tables import describe_catch_up, draw_trend, format_groups, format_partitions
from koff.cli.text_table import measure_text
from koff.lag.verdict import Verdict
from koff.tracker.rows import Pace
from tests.unit.cli.totals import UNPACED, total

UNKNOWN = math.nan
SENTENCE = (
    "Stuck: orders-3 stands at offset 88,001: the group committed nothing for 4 min 10 s; 812 records wait"
)


@pytest.mark.parametrize(
    ("lags", "bars"),
    [
        ([], ""),
        ([0, 0], "▁▁"),
        ([0, 1, 50, 100], "▁▂▅█"),
        ([UNKNOWN, 7], " █"),
        ([UNKNOWN], " "),
        ([100, 0.1], "█▂"),  # a small lag is not none
    ],
)
def test_a_trend_is_bars_up_to_the_largest_lag(lags, bars):
    assert draw_trend(lags) == bars


@pytest.mark.parametrize(
    ("pace", "lag", "text"),
    [
        (Pace(1.0, None, 250.0, False), 5, "4 min 10 s"),
        (Pace(1.0, None, None, True), 5, "never"),
        (Pace(1.0, None, 0.0, False), 0, None),
        (UNPACED, 5, None),
    ],
)
def test_when_a_group_will_have_caught_up(pace, lag, text):
    assert describe_catch_up(total("g", pace=pace, lag=lag)) == text


HARD = [
    total("a" * 200, status=Verdict.ERR, lag=10**12),
    total("\u65e5\u672c\u8a9e\u306e\u30b0\u30eb\u30fc\u30d7" * 9, status=Verdict.WARN),
    total("\x1b[2Jevil"),
]


@pytest.mark.parametrize("width", [58, 78, 119, 120, 198])
@pytest.mark.parametrize("most_lines", [None, 1, 2])
def test_each_line_fits_the_terminal_and_a_group_begins_with_its_status(width, most_lines):
    sentences = {each.group.name: SENTENCE for each in HARD}
    table = format_groups(HARD, sentences, width, trends={"a" * 200: [1.0, 2.0]}, most_lines=most_lines)
    assert max(map(measure_text, str(table).splitlines())) <= width
    assert [lines[0].split()[0] for lines in table.groups] == ["ERR", "WARN", "OK"]
    assert table.header.split()[:2] == ["STATUS", "GROUP"]
    assert all(line.isprintable() for line in str(table).splitlines())


@pytest.mark.parametrize("width", [58, 80, 100, 150, 200])
def test_on_a_terminal_the_whole_sentence_is_there_unless_lines_are_few(width):
    late = total("payments", status=Verdict.ERR)
    (lines,) = format_groups([late], {"payments": SENTENCE}, width).groups
    assert SENTENCE in " ".join(" ".join(lines).split())
    (lines,) = format_groups([late], {"payments": SENTENCE}, 58, most_lines=1).groups
    assert len(lines) == 2
    assert lines[1].endswith("…")


def test_below_the_numbers_nothing_is_said_of_a_group_that_keeps_up():
    table = format_groups([total("g"), total("h", lag=None)], {"g": "Keeps up", "h": "withheld"}, 80)
    assert [len(lines) for lines in table.groups] == [1, 2]
    (lines,) = format_groups([total("g")], {"g": "Keeps up"}, 150).groups
    assert lines[0].endswith("  Keeps up")


def test_a_pipe_gets_one_line_a_group_with_all_columns():
    table = format_groups([total("g" * 200, status=Verdict.ERR)], {"g" * 200: SENTENCE}, None)
    titles = table.header.replace("CATCHES UP", "CATCHES_UP").split()
    assert titles == [
        *("STATUS", "GROUP", "LAG", "SECONDS", "CATCHES_UP", "STATE", "MEMBERS", "UNKNOWN", "TYPE"),
        *("PARTITIONS", "WHY"),
    ]
    ((line,),) = table.groups
    assert "g" * 200 in line
    assert line.endswith(SENTENCE)


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (150, "STATUS GROUP LAG TREND SECONDS CATCHES UP STATE MEMBERS UNKNOWN TYPE WHY"),
        (110, "STATUS GROUP LAG TREND SECONDS CATCHES UP STATE MEMBERS UNKNOWN TYPE PARTITIONS"),
        (60, "STATUS GROUP LAG TREND SECONDS CATCHES UP STATE"),
        (40, "STATUS GROUP LAG TREND SECONDS"),
        (20, "STATUS GROUP LAG"),
    ],
)
def test_columns_are_left_out_where_there_is_no_room(width, titles):
    assert format_groups([total("g")], {}, width, trends={"g": [1.0, 2.0]}).header.split() == titles.split()


ROW = {
    "status": "OK",
    "topic": "t",
    "partition": 3,
    "lag": None,
    "time_lag_s": 1.234,
    "committed": 5,
    "end": None,
    "lost": 0,
    "client_id": "app",
    "client_host": "/10.0.0.1",
    "reasons": ["end_unknown"],
}


def test_rows_of_one_group_have_its_margin_and_other_rows_have_their_group():
    header, line = format_partitions([{**ROW, "retention_margin": 7}], None).splitlines()
    assert header.split() == [
        *("STATUS", "TOPIC", "PARTITION", "LAG", "SECONDS", "COMMITTED", "END", "LOST", "MARGIN", "MEMBER"),
        "WHY",
    ]
    assert line.split() == ["OK", "t", "3", "-", "1.2", "5", "-", "0", "7", "app@/10.0.0.1", "end_unknown"]
    header, line = format_partitions([{**ROW, "group": "g", "client_id": None}], None).splitlines()
    assert header.split()[:3] == ["STATUS", "GROUP", "TOPIC"]
    assert line.split() == ["OK", "g", "t", "3", "-", "1.2", "5", "-", "0", "-", "end_unknown"]


def test_a_table_of_partitions_fits_a_terminal():
    rows = [{**ROW, "group": "g" * 100, "topic": "t" * 100}]
    assert max(map(len, format_partitions(rows, 60).splitlines())) <= 60

"""Verdicts on rows by themselves, from one look."""

from typing import Any

import numpy as np
import pytest

from koff.lag import Rates, TimeLags
from koff.lag.one_look import judge_rows
from koff.lag.verdict import Verdict

ROW: dict[str, Any] = {
    "counts": True,
    "committed": 100,
    "start": 0,
    "end": 1_100,
    "late": 130.0,
    "known": True,
    "at_least": False,
    "moved": 1_000.0,
    "consume": 5.0,
    "produce": 9.0,
    "empty": False,
}


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({"late": 120.0}, "OK"),
        ({}, "WARN"),
        ({"late": 601.0}, "ERR"),
        ({"late": 601.0, "consume": 10.0}, "WARN"),
        ({"moved": 910.0}, "ERR"),
        ({"moved": np.nan}, "WARN"),
        ({"empty": True, "moved": 935.0}, "ERR"),
        ({"start": 101}, "ERR"),
        ({"counts": False}, "UNKNOWN"),
        ({"known": False}, "UNKNOWN"),
        ({"late": 60.0, "at_least": True}, "UNKNOWN"),
    ],
)
def test_each_row_is_judged_by_itself(given, verdict):
    rows = [ROW | {"late": 0.0}, ROW | given]
    column = {name: np.array([row[name] for row in rows]) for name in ROW}
    known = np.ones(2, np.bool_)
    found = judge_rows(
        at_s=1_000.0,
        counts=column["counts"],
        committed=column["committed"],
        start=column["start"],
        end=column["end"],
        times=TimeLags(column["late"], column["known"], column["at_least"]),
        moved_at_s=column["moved"],
        consume=Rates(column["consume"], known),
        produce=Rates(column["produce"], known),
        is_empty=column["empty"],
    )
    assert [Verdict(each).name for each in found] == ["OK", verdict]

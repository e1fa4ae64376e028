"""Why a row is late, line by line of the table of causes."""

from typing import Any

import numpy as np
import pytest

from koff.lag.late_causes import HELD_S, MANY_REBALANCES, Cause, find_causes_of_rows, find_first_causes
from tests.unit.lag.samples import build_sample

LATE = {"end": 1000, "stable": 1000}
FINE: dict[str, Any] = {}
GONE: dict[str, Any] = {"is_left": True}


def find(*rows: dict[str, Any], **more: Any) -> list[str]:
    """The causes of the rows, of which those with a lag are late, and with `stands` stand."""
    size, of_groups = len(rows), ("is_left", "rose")
    masks = {
        "late": [row.get("end", 100) > 100 for row in rows],
        "standing": [row.get("stands", False) for row in rows],
        "moves": [not row.get("stands", False) for row in rows],
        "was_further": [row.get("was_further", False) for row in rows],
    }
    own = ("stands", "was_further")
    sample = build_sample(
        0.0,
        *({name: value for name, value in row.items() if name not in own} for row in rows),
        **{name: value for name, value in more.items() if name not in of_groups},
    )
    found = find_causes_of_rows(
        sample,
        **{name: np.array(mask) for name, mask in masks.items()},
        **{name: np.array([more.get(name, False)]) for name in of_groups},
    )
    assert len(found) == size
    return [Cause(cause).label for cause in found]


STANDS = {**LATE, "stands": True}
BUSY = {"produce_per_s": 100.0}


@pytest.mark.parametrize(
    ("rows", "group", "causes"),
    [
        ([FINE], {}, ["none"]),
        ([{**LATE, "start": 101}], GONE, ["fell_out_of_log"]),
        ([{**LATE, "start": 100}], {}, ["too_slow"]),
        ([{**LATE, "stable": 100, "held_s": HELD_S}], {}, ["open_transaction"]),
        ([{**LATE, "stable": 400, "held_s": HELD_S}], {}, ["open_transaction"]),  # of 10 a second
        ([{**LATE, "stable": 401, "held_s": HELD_S}], {}, ["too_slow"]),
        ([{**LATE, "stable": 100, "held_s": HELD_S - 1}], {}, ["too_slow"]),
        ([{**LATE, "held_s": HELD_S, "committed": 1000, "end": 1001, "stable": 1001}], {}, ["too_slow"]),
        ([STANDS], GONE, ["no_members"]),
        ([LATE], GONE, ["no_members"]),
        ([{**STANDS, "assigned": False}], {}, ["not_assigned"]),
        ([{**STANDS, "assigned": False, "subscribed": False}], {}, ["not_committing"]),
        ([{**STANDS, "assigned": False}], {"members": 0}, ["no_members"]),
        ([LATE], {"members": 0}, ["too_slow"]),
        ([{**STANDS, "stable": 100, "committed": 100, "held_s": 1.0}], {}, ["open_transaction"]),
        ([{**STANDS, "stable": 100, "committed": 99, "held_s": 1.0}], {}, ["not_committing"]),
        ([STANDS], {"commits_held_back": True}, ["held_back_commits"]),
        ([LATE], {"commits_held_back": True}, ["too_slow"]),
        ([LATE], {"rebalances": MANY_REBALANCES}, ["rebalancing"]),
        ([LATE], {"rebalances": MANY_REBALANCES - 1}, ["too_slow"]),
        ([STANDS, STANDS], {}, ["not_committing"] * 2),
        ([STANDS, FINE], {}, ["stuck_partition", "none"]),
        ([STANDS, {"counts": False}], {}, ["not_committing", "none"]),
        ([STANDS, STANDS, {"member": 1}], {"members": 2}, ["slow_member", "slow_member", "none"]),
        ([STANDS, FINE, {"member": 1}], {"members": 2}, ["stuck_partition", "none", "none"]),
        ([{**STANDS, "member": -1}] * 2 + [FINE], {}, ["stuck_partition"] * 2 + ["none"]),
        ([{**LATE, "was_further": True}], {"rose": True}, ["reset"]),
        ([{**STANDS, "was_further": True}, {**LATE, "was_further": True}], {}, ["reset", "reset"]),
        ([{**STANDS, "was_further": True}, FINE], {}, ["stuck_partition", "none"]),
        ([{**STANDS, "was_further": True}], {}, ["not_committing"]),
        ([{**LATE, **BUSY}, FINE, FINE], {"rose": True}, ["hot_partition", "none", "none"]),
        ([{**LATE, "produce_per_s": 29.0}, FINE, FINE], {}, ["too_slow", "none", "none"]),
        ([{**LATE, **BUSY}, LATE, FINE], {}, ["too_slow", "too_slow", "none"]),
        ([LATE, LATE, *[{"member": 1}] * 2], {"members": 4}, ["uneven_assignment"] * 2 + ["none"] * 2),
        ([LATE, LATE, *[{"member": 1}] * 2], {"members": 2}, ["too_slow"] * 2 + ["none"] * 2),
        ([LATE], {"rose": True}, ["production_rose"]),
        ([LATE], {}, ["too_slow"]),
    ],
)
def test_the_first_cause_that_holds_is_that_of_the_row(rows, group, causes):
    assert find(*rows, **group) == causes


@pytest.mark.parametrize(
    ("before", "found", "first"),
    [
        (Cause.NONE, [Cause.TOO_SLOW, Cause.RESET], Cause.RESET),
        (Cause.TOO_SLOW, [Cause.NO_MEMBERS], Cause.NO_MEMBERS),
        (Cause.NO_MEMBERS, [Cause.TOO_SLOW], Cause.NO_MEMBERS),
        (Cause.TOO_SLOW, [Cause.PRODUCTION_ROSE], Cause.TOO_SLOW),
        (Cause.TOO_SLOW, [Cause.RESET], Cause.RESET),
        (Cause.RECORDS_SKIPPED, [Cause.TOO_SLOW], Cause.TOO_SLOW),
        (Cause.NO_MEMBERS, [Cause.NONE], Cause.NO_MEMBERS),
    ],
)
def test_during_an_incident_a_cause_changes_only_to_one_above_it(before, found, first):
    rows, group = np.array(found, np.uint8), np.zeros(len(found), np.int64)
    assert find_first_causes(rows, group, np.array([before], np.uint8)).tolist() == [first]


def test_the_names_of_causes_are_those_of_the_api():
    assert [Cause.NO_MEMBERS.label, Cause.FELL_OUT_OF_LOG.label] == ["no_members", "fell_out_of_log"]

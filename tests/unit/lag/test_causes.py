"""The causes of a lag: a table of groups, each row by its numbers, and what must be said of them."""

from typing import Any

import numpy as np
import pytest

from koff.lag import Cause, CauseFacts, Status, find_causes
from koff.lag.causes import NOT_ASSIGNED

ROW = {
    "group": 0,
    "member": -1,
    "lag": 0,
    "status": Status.OK,
    "usual_lag": 0,
    "never": False,
    "is_silent": False,
    "consume_per_s": 0.0,
    "produce_per_s": 0.0,
    "committed": 1000,
    "start": 0,
    "stable": -1,
    "held_ms": -1,
    "end_before": -1,
    "went_back_from": -1,
}
GROUP = {
    "members": 1,
    "most_members": 1,
    "rebalances": 0,
    "commits_held_back": False,
    "produced_before": float("nan"),
}
TYPES = {
    "status": np.uint8,
    "never": np.bool_,
    "is_silent": np.bool_,
    "consume_per_s": np.float64,
    "produce_per_s": np.float64,
    "commits_held_back": np.bool_,
    "produced_before": np.float64,
}


def build_facts(rows, groups=({},)):
    columns: dict[str, Any] = {
        name: np.array([{**whole, **each}[name] for each in given], TYPES.get(name, np.int64))
        for whole, given in ((ROW, rows), (GROUP, groups))
        for name in whole
    }
    return CauseFacts(**columns)


def explain(*rows, **group):
    """By cause, the offsets of each row that it explains, of one group."""
    causes = find_causes(build_facts(rows, [group]))
    return {cause.label: explained.offsets.tolist() for cause, explained in causes.items()}


KEEPS_UP = {"consume_per_s": 10.0, "produce_per_s": 10.0, "usual_lag": 10, "lag": 7}
IDLE = {
    "consume_per_s": 0.1,
    "is_silent": True,
}  # the rate of a group that has read all falls, and is never 0
STALLED = {"status": Status.STALL, "lag": 500, "produce_per_s": 10.0}
STOPPED = {
    "status": Status.STOP,
    "lag": 500,
    "produce_per_s": 10.0,
    "consume_per_s": 0.2,
    "never": True,
    "is_silent": True,
}
TOO_SLOW = {
    "lag": 900,
    "never": True,
    "consume_per_s": 5.0,
    "produce_per_s": 10.0,
    "usual_lag": 10,
    "end_before": 1100,
}


def test_a_group_that_keeps_up_has_no_cause():
    assert explain(KEEPS_UP, IDLE, {}) == {}


@pytest.mark.parametrize("lag", [1, 20, 170])
def test_a_small_lag_that_happens_not_to_shrink_has_no_cause(lag):
    assert explain({**KEEPS_UP, "lag": lag, "never": True}) == {}


@pytest.mark.parametrize("end_before", [-1, 900, 1000])
def test_a_burst_that_the_group_has_yet_to_commit_has_no_cause(end_before):
    assert explain({**TOO_SLOW, "end_before": end_before}) == {}
    assert explain({**TOO_SLOW, "end_before": end_before, "status": Status.WARN}) == {"too_slow": [900]}


def test_a_small_lag_that_never_shrank_from_commit_to_commit_has_no_cause():
    assert explain({**KEEPS_UP, "lag": 20, "status": Status.WARN}) == {}


def test_a_lag_that_shrinks_has_no_cause():
    assert explain({"lag": 100_000, "consume_per_s": 50.0, "produce_per_s": 10.0}) == {}


def test_one_partition_stands_while_the_others_advance():
    assert explain(STALLED, KEEPS_UP, KEEPS_UP) == {"stuck_partition": [500, 0, 0]}
    assert explain(STOPPED, TOO_SLOW) == {"stuck_partition": [500, 0], "too_slow": [0, 900]}


def test_a_partition_that_is_read_to_its_end_advances():
    read_to_the_end = {"consume_per_s": 10.0}  # one look does not know its produce rate
    assert explain(STALLED, read_to_the_end) == {"stuck_partition": [500, 0]}


def test_nothing_advances():
    assert explain(STOPPED, STALLED) == {"not_committing": [500, 500]}


def test_partitions_without_new_records_do_not_advance():
    assert explain(STOPPED, IDLE, IDLE) == {"not_committing": [500, 0, 0]}


def test_a_group_without_members():
    assert explain(STOPPED, {"lag": 3, "status": Status.UNKNOWN}, members=0) == {"no_members": [500, 3]}


def test_a_group_without_members_is_named_before_its_status_is_bad():
    just_left = {"lag": 200, "produce_per_s": 10.0, "consume_per_s": 9.0, "usual_lag": 10}
    assert explain(just_left, members=0) == {"no_members": [200]}
    assert explain({**just_left, "lag": 100}, members=0) == {}


def test_a_partition_that_no_member_is_assigned():
    left = {**STOPPED, "member": NOT_ASSIGNED}
    assert explain(left, KEEPS_UP) == {"not_assigned": [500, 0]}
    assert explain(left, KEEPS_UP, commits_held_back=True) == {"not_assigned": [500, 0]}
    assert explain({**KEEPS_UP, "member": NOT_ASSIGNED}) == {}
    assert "not_assigned" not in explain({**TOO_SLOW, "member": NOT_ASSIGNED})  # some member commits it


def test_a_simple_group_has_no_members_to_miss():
    assert explain(STOPPED, members=-1) == {"not_committing": [500]}


def test_a_group_that_lost_members():
    assert explain(TOO_SLOW, members=2, most_members=3) == {"fewer_members": [900], "too_slow": [900]}
    assert explain(KEEPS_UP, members=2, most_members=3) == {}


def test_a_group_that_rebalances_without_end():
    assert explain(STOPPED, rebalances=3) == {"rebalancing": [500], "not_committing": [500]}
    assert explain(STOPPED, rebalances=2) == {"not_committing": [500]}
    assert explain(KEEPS_UP, rebalances=9) == {}


def test_a_group_that_rebalances_is_named_before_its_lag_is_old():
    young = {**TOO_SLOW, "end_before": 1000}
    assert explain(young, rebalances=3) == {"rebalancing": [900]}
    assert explain({**young, "never": False}, rebalances=3) == {}  # it catches up
    assert explain({**young, "lag": 100}, rebalances=3) == {}


def test_a_member_whose_partitions_all_stand():
    rows = [{**STALLED, "member": 0}, {**STALLED, "member": 0}, {**KEEPS_UP, "member": 1}]
    assert explain(*rows, members=2) == {"slow_member": [500, 500, 0]}


def test_one_partition_of_a_member_stands():
    rows = [{**STALLED, "member": 0}, {**KEEPS_UP, "member": 0}, {**KEEPS_UP, "member": 1}]
    assert explain(*rows, members=2) == {"stuck_partition": [500, 0, 0]}


def test_one_member_is_slow():
    rows = [
        {**TOO_SLOW, "member": 0},
        {**TOO_SLOW, "member": 0},
        {**KEEPS_UP, "member": 1},
        {**KEEPS_UP, "member": 1},
    ]
    assert explain(*rows, members=2) == {"slow_member": [900, 900, 0, 0]}


def test_one_member_owns_too_many_partitions():
    rows = [{**TOO_SLOW, "member": 0}] * 6 + [{**KEEPS_UP, "member": 1}, {**KEEPS_UP, "member": 2}]
    assert explain(*rows, members=3) == {"uneven_assignment": [900] * 6 + [0, 0]}


def test_all_members_are_slow():
    rows = [{**TOO_SLOW, "member": 0}, {**TOO_SLOW, "member": 1}]
    assert explain(*rows, members=2) == {"too_slow": [900, 900]}


@pytest.mark.parametrize("others", [2, 3])
def test_one_partition_gets_most_of_the_records(others):
    hot = {**TOO_SLOW, "produce_per_s": 100.0, "lag": 9000, "member": 0}
    rows = [hot, *({**KEEPS_UP, "member": 1 + number} for number in range(others))]
    assert explain(*rows, members=1 + others) == {"hot_partition": [9000] + [0] * others}


def test_production_rose():
    assert explain(TOO_SLOW, produced_before=6.0) == {"production_rose": [900]}
    assert explain(TOO_SLOW, produced_before=9.0) == {"too_slow": [900]}


AT_STABLE = {**STOPPED, "committed": 1000, "stable": 1000, "held_ms": 24_000}


def test_a_transaction_holds_back_the_records():
    assert explain(AT_STABLE) == {"open_transaction": [500]}
    assert explain({**AT_STABLE, "committed": 990, "usual_lag": 10, "lag": 510}) == {
        "open_transaction": [500]
    }


def test_a_transaction_is_named_before_the_status_shows_anything():
    assert explain({**AT_STABLE, "status": Status.OK}) == {"open_transaction": [500]}
    assert explain({**AT_STABLE, "status": Status.OK, "lag": 150}) == {}  # as much may wait by chance


@pytest.mark.parametrize(
    "position",
    [{"committed": 900}, {"committed": 1100}, {"held_ms": 0}, {"held_ms": -1}, {"stable": -1}],
)
def test_a_position_elsewhere_is_not_held_back(position):
    assert "open_transaction" not in explain({**AT_STABLE, **position})


def test_a_transaction_holds_back_the_commits():
    assert explain(STOPPED, commits_held_back=True) == {"held_back_commits": [500]}
    assert explain(STOPPED, commits_held_back=True, members=0) == {"no_members": [500]}
    assert explain(KEEPS_UP, commits_held_back=True) == {}


def test_a_position_that_fell_out_of_the_log():
    fallen = {**STOPPED, "committed": 1000, "start": 1200}
    assert explain(fallen) == {"fell_out_of_log": [500], "not_committing": [500]}


def test_a_group_that_was_reset_and_reads_again():
    again = {"lag": 5000, "consume_per_s": 100.0, "committed": 1000, "went_back_from": 4000}
    assert explain(again) == {"reset": [3000]}
    assert explain({**again, "went_back_from": 1000}) == {}  # it is back
    assert explain({**again, "went_back_from": 1000, "status": Status.REWIND}) == {}
    assert explain({"lag": 5000, "status": Status.REWIND}) == {"reset": [5000]}  # before koff's start


def test_groups_do_not_mix():
    rows = [{**STOPPED, "group": 1}, {**KEEPS_UP, "group": 0}, {**STOPPED, "group": 2}]
    causes = find_causes(build_facts(rows, [{}, {}, {"members": 0}]))
    assert {cause: explained.rows.tolist() for cause, explained in causes.items()} == {
        Cause.NO_MEMBERS: [False, False, True],
        Cause.NOT_COMMITTING: [True, False, False],
    }


def test_no_rows_have_no_cause():
    assert find_causes(build_facts([], [])) == {}

"""Each partition starts in its own way."""

from koff.monitor.moment import Moment
from koff.monitor.plan import Bounds, Plan, Replay, Resume, Seed, Way, plan_start
from koff.monitor.saved import Saved
from koff.tracker import State

NOW = Moment(1000.0, 1_000_000, "boot")
HOUR_MS = 3_600_000


def saved(position: int, *, ago_s: float = 60.0) -> Saved:
    stamp = Moment(NOW.at_s - ago_s, NOW.wall_ms - round(ago_s * 1000), "boot")
    return Saved(0, position, 7, stamp, State({}, {}))


def plan(
    way: Way, found: Saved | str | None, bounds: Bounds, *, may_seed: bool = True, tail: int = 0
) -> Plan:
    states = {} if found is None else {0: found}
    plans = plan_start(
        way, states, {0: bounds}, NOW, delete_retention_ms=HOUR_MS, may_seed=may_seed, tail=tail
    )
    return plans[0]


def test_a_saved_state_is_resumed_at_its_position():
    state = saved(5)
    assert plan("resume", state, Bounds(3, 9)) == Resume(5, 7, state)


def test_a_saved_state_that_cannot_be_resumed_gives_way_to_the_coordinators_and_says_why():
    for useless in (saved(2), saved(10), saved(5, ago_s=4000), "it is damaged", None):
        found = plan("resume", useless, Bounds(3, 9))
        assert isinstance(found, Seed)
        assert found.why


def test_the_last_records_are_read_in_any_case_and_a_short_log_needs_no_coordinators():
    assert plan("snapshot", None, Bounds(3, 100), tail=20) == Seed(80, "--start snapshot")
    assert plan("snapshot", None, Bounds(3, 23), tail=20) == Replay(3, "--start snapshot")
    assert plan("snapshot", None, Bounds(3, 100)) == Seed(100, "--start snapshot")

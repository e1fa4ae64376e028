"""The verdict on a group does not change because koff, or a broker, had a pause."""

from collections.abc import Callable, Sequence

import pytest

from koff.lag.verdict import Verdict
from tests.simulation.steady_groups import HEALTHY, IN_TROUBLE, Habit, SteadyGroups

BAD = {Verdict.WARN, Verdict.ERR}
INCIDENTS = (["incident_opened"], ["incident_opened", "incident_raised"])
# The interval of end offsets, that of commits, when the fault begins, and the groups that are known to be in
# trouble then.
OFTEN = (5.0, 1.0, 230.0, IN_TROUBLE)
DEMO = (1.0, 1.0, 230.0, IN_TROUBLE)
SELDOM = (5.0, 12.0, 230.0, IN_TROUBLE)
QUICK = (1.0, 3.0, 230.0, IN_TROUBLE)

SEED = 1

Pace = tuple[float, float, float, Sequence[Habit]]
Fault = Callable[[SteadyGroups], None]


@pytest.fixture
def start():
    """Starts a cluster with groups, and koff, and lets them run up to the fault."""
    running: list[SteadyGroups] = []

    def start_groups(seed: int, pace: Pace) -> SteadyGroups:
        groups = SteadyGroups(seed, end_interval_s=pace[0], commit_s=pace[1])
        running.append(groups)
        groups.run(pace[2])
        groups.watch()
        return groups

    yield start_groups
    for each in running:
        each.close()


def list_verdicts(groups: SteadyGroups, habit: Habit) -> list[Verdict]:
    """The verdicts that koff showed on the group, in order. Equal ones that follow each other are one."""
    shown = [each.verdict for each in groups.shown if each.group == habit]
    return [verdict for place, verdict in enumerate(shown) if place == 0 or verdict != shown[place - 1]]


def freeze_koff(seconds: float, *, is_network_frozen: bool = True) -> Fault:
    def happen(groups: SteadyGroups) -> None:
        groups.later(seconds - 1.0, groups.write_rare_records)
        groups.freeze_koff(seconds, is_network_frozen=is_network_frozen)

    return happen


def freeze_brokers(seconds: float, *, all_of_them: bool = True) -> Fault:
    def happen(groups: SteadyGroups) -> None:
        brokers = groups.list_brokers()
        groups.freeze_brokers(brokers if all_of_them else brokers[:1])
        groups.run(seconds)
        groups.show_brokers()

    return happen


def hide_broker(seconds: float, place: int) -> Fault:
    def happen(groups: SteadyGroups) -> None:
        groups.hide_brokers([groups.list_brokers()[place]])
        groups.run(seconds)
        groups.show_brokers()

    return happen


def freeze_koff_then_brokers(seconds: float) -> Fault:
    def happen(groups: SteadyGroups) -> None:
        groups.freeze_koff(seconds, is_network_frozen=True)
        groups.run(2.0)
        freeze_brokers(seconds)(groups)

    return happen


FAULTS = {
    "koff frozen for 3 s": freeze_koff(3),
    "koff frozen for 20 s": freeze_koff(20),
    "koff frozen for 20 s, with responses in its sockets": freeze_koff(20, is_network_frozen=False),
    "koff frozen for 200 s": freeze_koff(200),
    "brokers frozen for 12 s": freeze_brokers(12),
    "brokers frozen for 45 s": freeze_brokers(45),
    "a broker frozen for 45 s": freeze_brokers(45, all_of_them=False),
    "a broker out of reach for 9 s": hide_broker(9, 0),
    "a broker out of reach for 20 s": hide_broker(20, 0),
    "another broker out of reach for 20 s": hide_broker(20, 1),
    "a broker out of reach for 60 s": hide_broker(60, 0),
    "koff, then brokers, frozen for 15 s": freeze_koff_then_brokers(15),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "pace",
    [
        pytest.param(OFTEN, id="often"),
        pytest.param(DEMO, id="demo", marks=pytest.mark.thorough),
        pytest.param(SELDOM, id="seldom"),
        pytest.param(QUICK, id="quick", marks=pytest.mark.thorough),
    ],
)
def test_a_pause_makes_no_group_seem_to_recover_and_no_healthy_group_seem_to_fail(start, pace, fault):
    groups = start(SEED, pace)
    assert {list_verdicts(groups, habit)[-1] in BAD for habit in pace[3]} == {True}
    FAULTS[fault](groups)
    groups.run(25.0)
    for habit in pace[3]:
        assert set(list_verdicts(groups, habit)) <= BAD, habit
        assert [kind for group, kind in groups.incidents if group == habit] in INCIDENTS
    for habit in HEALTHY:
        allowed = {Verdict.WARN} if habit == "catches-up" else {Verdict.OK, Verdict.UNKNOWN}
        assert set(list_verdicts(groups, habit)) <= allowed, habit
    of_habits = {group for group, _ in groups.incidents} & {*HEALTHY, *IN_TROUBLE}
    assert of_habits == {*pace[3], "catches-up"}

"""The kinds of lives: what happens in them, by physics. A seed gives each its times and sizes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.verdicts.world import DAY_S, ROWS, STEP_S, Script

Kind = Callable[[Script], None]
HEALTHY: dict[str, Kind] = {}
ILL: dict[str, Kind] = {}
KEPT_APART = frozenset(
    {"batches_20min", "bursts_by_the_hour", "stuck_and_freed", "too_slow_10pc", "crash_at_a_burst"}
)
"""Kinds to judge with, which the rule was not tried on."""
OBJECTIVES_S = (60.0, 120.0, 300.0)


def build_script(name: str, seed: int, days: float) -> Script:
    """The script of a kind. The seed decides when it happens, and how much."""
    steps = round(days * DAY_S / STEP_S)
    rng = np.random.default_rng([seed, *name.encode()])
    script = Script(name, steps, rng, produce_per_s=float(rng.uniform(2, 40)))
    script.shares = tuple(rng.uniform(0.8, 1.2, ROWS))
    if name in ILL:
        script.objective_s = float(rng.choice(OBJECTIVES_S))
    {**HEALTHY, **ILL}[name](script)
    return script


def healthy(function: Kind) -> Kind:
    """A kind of a group that keeps up, in its manner."""
    HEALTHY[function.__name__] = function
    return function


def ill(function: Kind) -> Kind:
    """A kind of a group that falls behind."""
    ILL[function.__name__] = function
    return function


# --- What several kinds need ------------------------------------------------------------------------------


def times(script: Script) -> NDArray[np.floating[Any]]:
    """The seconds since the begin, of each step."""
    return np.arange(script.steps) * STEP_S


def between(script: Script, begin_s: float, end_s: float = np.inf) -> NDArray[np.bool_]:
    """The steps from one time to another."""
    return (times(script) >= begin_s) & (times(script) < end_s)


def begin(script: Script) -> float:
    """When an incident begins: on the last day, with time for it to become what it is."""
    whole_s = script.steps * STEP_S
    return whole_s - float(script.rng.uniform(0.6, 0.8)) * min(whole_s, DAY_S)


def repeat(script: Script, every_s: float, for_s: float, jitter_s: float = 0.0) -> NDArray[np.bool_]:
    """Spans of `for_s` that begin every `every_s`, each up to `jitter_s` later."""
    mask, at_s = np.zeros(script.steps, np.bool_), float(script.rng.uniform(0, every_s))
    while at_s < script.steps * STEP_S:
        first_s = at_s + float(script.rng.uniform(0, jitter_s)) if jitter_s else at_s
        mask |= between(script, first_s, first_s + for_s)
        at_s += every_s
    return mask


# --- Groups that keep up ----------------------------------------------------------------------------------


@healthy
def steady(script: Script) -> None:
    """Reads at once."""


def _batches(script: Script, every_s: float, for_s: float) -> None:
    script.capacity = np.where(repeat(script, every_s, for_s, jitter_s=for_s / 2), 3 * every_s / for_s, 0.0)


@healthy
def batches_10min(script: Script) -> None:
    _batches(script, 600, 60)


@healthy
def batches_20min(script: Script) -> None:
    _batches(script, 1200, 60)


@healthy
def batches_by_the_hour(script: Script) -> None:
    _batches(script, 3600, 300)


@healthy
def batches_by_night(script: Script) -> None:
    _batches(script, DAY_S, 3600)
    script.needs_objective = True


@healthy
def bursts(script: Script) -> None:
    burst = repeat(script, 3600, 20, jitter_s=1800)
    script.produce_per_s = script.produce_per_s * np.where(burst, 20.0, 1.0)
    script.capacity = 8.0


@healthy
def bursts_by_the_hour(script: Script) -> None:
    burst = repeat(script, 3600, 60)
    script.produce_per_s = script.produce_per_s * np.where(burst, 10.0, 1.0)
    script.capacity = 8.0


@healthy
def idle_topic(script: Script) -> None:
    script.produce_per_s = np.where(between(script, 0, script.rng.uniform(3600, 7200)), 5.0, 0.0)


@healthy
def deployments(script: Script) -> None:
    script.members = np.where(repeat(script, 4 * 3600, script.rng.uniform(10, 90), jitter_s=3600), 0, 2)


@healthy
def restarts_in_40_s(script: Script) -> None:
    script.members = np.where(repeat(script, 3 * 3600, 40, jitter_s=3600), 0, 1)


@healthy
def rebalances(script: Script) -> None:
    script.capacity = np.where(repeat(script, 1800, 15, jitter_s=900), 0.0, 3.0)
    script.rebalances = np.where(repeat(script, 1800, 300, jitter_s=900), 1, 0)


@healthy
def producer_pauses(script: Script) -> None:
    script.produce_per_s = np.where(repeat(script, 7200, 1800, jitter_s=3600), 0.0, 10.0)


@healthy
def commits_every_minute(script: Script) -> None:
    script.commit_s = 60.0


@healthy
def commits_every_10_min(script: Script) -> None:
    script.commit_s = 600.0


@healthy
def keyed_skew(script: Script) -> None:
    script.shares = (8.0, 1.0, 0.1)
    script.capacity = 12.0


@healthy
def topic_left(script: Script) -> None:
    script.subscribed = ~between(script, begin(script))
    script.capacity = np.where(script.subscribed, 3.0, 0.0)


@healthy
def diurnal(script: Script) -> None:
    wave = 1 + 0.8 * np.sin(2 * np.pi * times(script) / DAY_S)
    script.produce_per_s = script.produce_per_s * wave


@healthy
def a_record_an_hour(script: Script) -> None:
    script.produce_per_s = np.where(repeat(script, 3600, STEP_S), 0.2, 0.0)
    script.capacity = 1000.0


@healthy
def stops_for_a_weekend(script: Script) -> None:
    script.produce_per_s = np.where(between(script, DAY_S), 0.0, 10.0)


@healthy
def withheld_samples(script: Script) -> None:
    script.withheld = repeat(script, 3600, 240, jitter_s=1800)


@healthy
def slow_commits_and_deployments(script: Script) -> None:
    script.commit_s = 30.0
    deployments(script)


# --- Groups that fall behind ------------------------------------------------------------------------------


@ill
def crash_for_good(script: Script) -> None:
    at_s = begin(script)
    script.members, script.broken = np.where(between(script, at_s), 0, 2), between(script, at_s)
    script.causes = frozenset({"no_members"})


@ill
def crash_at_a_burst(script: Script) -> None:
    crash_for_good(script)
    script.produce_per_s = script.produce_per_s * np.where(script.series("broken"), 10.0, 1.0)


@ill
def all_gone_then_back(script: Script) -> None:
    at_s = begin(script)
    away = between(script, at_s, at_s + script.rng.uniform(900, 3600))
    script.members, script.broken = np.where(away, 0, 2), away
    script.causes = frozenset({"no_members"})


@ill
def hangs_with_heartbeats(script: Script) -> None:
    away = between(script, begin(script))
    script.capacity, script.broken = np.where(away, 0.0, 3.0), away
    script.causes = frozenset({"not_committing"})


@ill
def poison_record(script: Script) -> None:
    stuck = between(script, begin(script))
    script.row_stands, script.broken = stuck, stuck
    script.causes = frozenset({"stuck_partition"})


@ill
def stuck_and_freed(script: Script) -> None:
    at_s = begin(script)
    stuck = between(script, at_s, at_s + script.rng.uniform(1200, 3600))
    script.row_stands, script.broken = stuck, stuck
    script.causes = frozenset({"stuck_partition"})


def _too_slow(script: Script, capacity: float) -> None:
    slow = between(script, begin(script))
    script.capacity, script.broken = np.where(slow, capacity, 3.0), slow
    script.creeps, script.causes = capacity > 0.5, frozenset({"too_slow"})


@ill
def too_slow_5pc(script: Script) -> None:
    _too_slow(script, 0.95)


@ill
def too_slow_10pc(script: Script) -> None:
    _too_slow(script, 0.9)


@ill
def too_slow_20pc(script: Script) -> None:
    _too_slow(script, 0.8)


@ill
def too_slow_by_3(script: Script) -> None:
    _too_slow(script, 0.33)
    script.creeps = True


@ill
def slow_downstream_for_10_min(script: Script) -> None:
    at_s = begin(script)
    script.capacity = np.where(between(script, at_s, at_s + 600), 0.3, 3.0)
    script.causes = frozenset({"too_slow"})


@ill
def crash_loop(script: Script) -> None:
    loop = between(script, begin(script))
    script.capacity = np.where(loop, 0.3, 3.0)
    script.rebalances, script.broken = np.where(loop, 6, 0), loop
    script.creeps, script.causes = True, frozenset({"rebalancing"})


@ill
def reset_to_earliest(script: Script) -> None:
    at_s = begin(script)
    script.retention_s = 4 * 3600.0
    script.capacity = float(script.rng.uniform(6, 20))
    script.moves = ((round(at_s / STEP_S), 0.0),)
    script.causes = frozenset({"reset"})


@ill
def open_transaction(script: Script) -> None:
    at_s = begin(script)
    held = between(script, at_s, at_s + script.rng.uniform(1200, 3600))
    script.held, script.broken = held, held
    script.causes = frozenset({"open_transaction"})


@ill
def commits_refused(script: Script) -> None:
    refused = between(script, begin(script))
    script.commits, script.broken = ~refused, refused
    script.causes = frozenset({"not_committing"})


@ill
def retention_overtakes_without_members(script: Script) -> None:
    script.retention_s = 3600.0
    crash_for_good(script)
    script.causes = frozenset({"no_members", "fell_out_of_log"})


@ill
def retention_overtakes_a_slow_group(script: Script) -> None:
    script.retention_s = 3600.0
    _too_slow(script, 0.5)
    script.creeps = True
    script.causes = frozenset({"too_slow", "fell_out_of_log"})


def _burst(script: Script, for_s: float) -> None:
    """Takes about `for_s` to be read."""
    at_s, factor = begin(script), 6.0
    lasts_s = for_s * 0.6 / factor * 1.7
    burst = between(script, at_s, at_s + lasts_s)
    script.produce_per_s = script.produce_per_s * np.where(burst, factor * 2, 1.0)
    script.capacity, script.causes = 3.0, frozenset({"production_rose"})


@ill
def burst_of_3_min(script: Script) -> None:
    _burst(script, 180)


@ill
def burst_of_30_min(script: Script) -> None:
    _burst(script, 1800)


@ill
def burst_of_120_min(script: Script) -> None:
    _burst(script, 7200)


@ill
def withheld_while_ill(script: Script) -> None:
    hangs_with_heartbeats(script)
    script.withheld = repeat(script, 900, 60, jitter_s=300) & script.series("broken")


@ill
def hourly_batch_that_dies(script: Script) -> None:
    _batches(script, 3600, 300)
    dead = between(script, begin(script))
    script.capacity, script.broken = np.where(dead, 0.0, script.capacity), dead
    script.objective_s = 9000.0
    script.causes = frozenset({"not_committing"})


@ill
def slow_committer_that_dies(script: Script) -> None:
    script.commit_s = 60.0
    hangs_with_heartbeats(script)


def _watched_late(script: Script, after_s: float) -> None:
    """The monitor starts, or is started again, after the incident began."""
    hangs_with_heartbeats(script)
    first = int(np.flatnonzero(script.series("broken"))[0])
    script.starts = first + round(after_s / STEP_S)


@ill
def monitor_restarted(script: Script) -> None:
    _watched_late(script, 60)


@ill
def monitor_started_late(script: Script) -> None:
    _watched_late(script, 1800)


@ill
def all_gone_and_monitor_late(script: Script) -> None:
    crash_for_good(script)
    script.starts = int(np.flatnonzero(script.series("broken"))[0]) + 360

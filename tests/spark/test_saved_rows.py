"""A state that is brought up to date by changed rows is the state of all rows."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Row

from koff.spark.job.saved_rows import StateChange
from koff.tracker import Tracker
from tests.unit.builders import ASSIGNED_T_0_1, classic_group

START_MS = 1_800_000_000_000


def make_row(chance: random.Random, slot: tuple[str, str, int], *, deleted: bool = False) -> Row:
    """A row of `current`, with up to ten recent commits."""
    count = chance.randint(0, 10)
    recent = [
        Row(at_ms=START_MS + 5_000 * (count - n), committed=100 - n, lag=chance.choice([None, n]))
        for n in range(count)
    ]
    at = datetime.fromtimestamp(START_MS / 1000 + count, UTC)
    return Row(
        group=slot[0],
        topic=slot[1],
        partition=slot[2],
        committed=None if deleted else chance.choice([5, 10**13]),
        commit_timestamp=at,
        topic_id="nxZ4NwH0RxqKOgw25xA3Ow",
        timestamp=at,
        deleted=deleted,
        recent=recent,
    )


def save_group(name: str) -> Row:
    """A row of `group_states`."""
    tracker = Tracker()
    key, value = classic_group(name, {"app": ASSIGNED_T_0_1})
    tracker.apply(0, [key], [value])
    state = tracker.save_partition(0)
    assert state is not None
    return Row(group=name, saved=json.dumps(state.facts["groups"]))


def describe(change: StateChange) -> Any:
    """What a tracker shows of the state, in an order that does not depend on the rows'."""
    tracker = Tracker()
    tracker.restore_partition(0, change.apply(None))
    state = tracker.save_partition(0)
    assert state is not None
    rows = []
    for number in range(len(state.columns["group"])):
        only = Tracker()
        only.restore_partition(0, state)
        group = state.facts["group_names"][state.columns["group"][number]]
        topic = state.facts["topic_names"][state.columns["topic"][number]]
        plain = [int(state.columns[name][number]) for name in ("partition", "committed", "committed_at")]
        rows.append((group, topic, *plain))
    snapshot = tracker.take_snapshot(START_MS).shards[0]
    shown = sorted(
        (snapshot.groups[group].name, *map(float, columns))
        for group, *columns in zip(
            snapshot.group,
            snapshot.committed,
            *snapshot.features,
            strict=True,  # the windows
        )
    )
    return sorted(rows), shown, sorted(state.facts["groups"]["groups"])


@pytest.mark.parametrize("seed", range(30))
def test_changes_one_after_the_other_give_the_state_of_all_rows(seed: int) -> None:
    chance = random.Random(seed)
    slots = [(f"g{n % 4}", f"t{n % 3}", n) for n in range(12)]
    rows = {slot: make_row(chance, slot) for slot in chance.sample(slots, 6)}
    groups = {name: save_group(name) for name in ("g0", "g9")}
    state = StateChange.from_rows([*rows.values()], [*groups.values()]).apply(None)
    for _ in range(3):
        changed = [make_row(chance, slot, deleted=chance.random() < 0.3) for slot in chance.sample(slots, 4)]
        rows |= {(row["group"], row.topic, row.partition): row for row in changed}
        name = chance.choice(["g0", "g1", "g9"])
        groups[name] = chance.choice([save_group(name), Row(group=name, saved=None)])
        change = StateChange.from_rows(changed, [groups[name]], is_whole=False)
        state = change.apply(state)
    whole = StateChange.from_rows([row for row in rows.values() if not row.deleted], [*groups.values()])
    assert describe(StateChange(state, (), (), True)) == describe(whole)

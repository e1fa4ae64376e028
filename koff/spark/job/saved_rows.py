"""Rows of `current` and of `group_states` as states of the tracker, and states brought up to date by rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from koff.lag import UNKNOWN
from koff.tracker import State
from koff.tracker.groups import GroupTable
from koff.tracker.recent_commits import WindowTable, join_saved_windows, select_saved_windows
from koff.tracker.topic_ids import fold_topic_id

_PLAIN = ("group", "topic", "partition", "committed", "committed_at", "topic_id", "seen_at")
Slot = tuple[str, str, int]
"""A group, a topic and a partition."""


class StateChange(NamedTuple):
    """What has changed in one partition of the offsets topic. `is_whole`: it is the whole state.

    `slots` are all slots that have changed, and those of them without a row in `changed` were deleted.
    `gone_groups` are the groups that were deleted.
    """

    changed: State
    slots: Collection[Slot]
    gone_groups: Collection[str]
    is_whole: bool

    @classmethod
    def from_rows(
        cls, commits: Sequence[Any], groups: Sequence[Any], *, is_whole: bool = True
    ) -> StateChange:
        """The change by rows of `current` and of `group_states`."""
        saved = {row["group"]: json.loads(row.saved)["groups"] if row.saved else {} for row in groups}
        there = {name: state for of_group in saved.values() for name, state in of_group.items()}
        changed = build_state([row for row in commits if not row.deleted], there)
        slots = [(row["group"], row.topic, row.partition) for row in commits]
        return cls(changed, slots, saved.keys() - there.keys(), is_whole)

    def apply(self, before: State | None) -> State:
        """The state of the partition after the change; `before` is its state now (None: it has none)."""
        if before is None or self.is_whole:
            return self.changed
        return update_state(before, self.changed, self.slots, self.gone_groups)


def build_state(rows: Sequence[Any], groups: Mapping[str, Any]) -> State:
    """The state of one partition of the offsets topic, as the tracker restores it.

    `rows` are rows of `current`; `groups` maps a group to its saved state.
    """
    # Groups and topics are numbers in a state: their place in the lists of names.
    group_names, topic_names = sorted({row["group"] for row in rows}), sorted({row.topic for row in rows})
    group_numbers = {name: number for number, name in enumerate(group_names)}
    topic_numbers = {name: number for number, name in enumerate(topic_names)}

    # The last commits of each slot. `recent` has the newest first, the window takes the oldest first.
    windows = WindowTable()
    windows.reserve(len(rows))
    recent = [(number, *commit) for number, row in enumerate(rows) for commit in reversed(row.recent or ())]
    if recent:
        numbers, at_ms, committed, lag = zip(*recent, strict=True)
        lags = [UNKNOWN if value is None else value for value in lag]
        windows.add(*(np.array(column, np.int64) for column in (numbers, committed, at_ms, lags)))

    # One entry for each slot. The types are those of the tracker's columns.
    committed_at = [_to_ms(row.commit_timestamp) for row in rows]
    columns: dict[str, Any] = {
        "group": np.array([group_numbers[row["group"]] for row in rows], np.int32),
        "topic": np.array([topic_numbers[row.topic] for row in rows], np.int32),
        "partition": np.array([row.partition for row in rows], np.int32),
        "committed": np.array([row.committed for row in rows], np.int64),
        "committed_at": np.array(committed_at, np.int64),
        "topic_id": np.array([fold_topic_id(row.topic_id or "") for row in rows], np.int64),
        "seen_at": np.array([_to_ms(row.timestamp) for row in rows], np.int64),
    }
    group_state = {**GroupTable().to_state(), "groups": dict(groups)}
    facts = {"groups": group_state, "group_names": group_names, "topic_names": topic_names}
    return State(facts, columns | windows.save(np.arange(len(rows))))


def update_state(old: State, changed: State, slots: Collection[Slot], gone_groups: Collection[str]) -> State:
    """The `old` state, in which the rows and the groups of `changed` replace its own.

    `slots` are all slots that have changed; those without a row in `changed` were deleted. `gone_groups` are
    the groups that were deleted.
    """
    kept = ~_find_slots(old, slots)
    before = select_saved_windows(old.columns, kept)
    columns = join_saved_windows(before, changed.columns)

    # Numbers of names are those of `old`; names that it does not have come after its own.
    facts: dict[str, Any] = {}
    codes = {}
    for name in ("group", "topic"):
        names = {each: number for number, each in enumerate(old.facts[f"{name}_names"])}
        new = [names.setdefault(each, len(names)) for each in changed.facts[f"{name}_names"]]
        facts[f"{name}_names"] = list(names)
        codes[name] = np.array(new, np.int32)[changed.columns[name]]
    for name in _PLAIN:
        added = codes.get(name, changed.columns[name])
        columns[name] = np.concatenate([old.columns[name][kept], added])

    groups = {**old.facts["groups"]["groups"], **changed.facts["groups"]["groups"]}
    groups = {name: group for name, group in groups.items() if name not in gone_groups}
    return State(facts | {"groups": {**old.facts["groups"], "groups": groups}}, columns)


def _find_slots(state: State, slots: Collection[Slot]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A mask of the state's rows that are of one of the slots."""
    groups = {name: number for number, name in enumerate(state.facts["group_names"])}
    topics = {name: number for number, name in enumerate(state.facts["topic_names"])}
    wanted = {(groups[g], topics[t], p) for g, t, p in slots if g in groups and t in topics}
    group, topic, partition = (state.columns[name] for name in ("group", "topic", "partition"))

    # Without a Python loop over all rows: first the rows of a group and a topic that occur.
    both = group.astype(np.int64) * len(topics) + topic
    found = np.isin(both, [g * len(topics) + t for g, t, _ in wanted])
    for row in np.flatnonzero(found).tolist():
        found[row] = (int(group[row]), int(topic[row]), int(partition[row])) in wanted
    return found


def _to_ms(at: Any) -> int:
    return UNKNOWN if at is None else round(at.timestamp() * 1000)

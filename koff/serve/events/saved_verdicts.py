"""Saves and restores what the verdicts depend on, so that a restart of koff opens and closes no incident."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag.judge import GROUP_STATE, Judge
from koff.lag.usual_lateness import CLASSES
from koff.serve.events.known import KnownShard, Places
from koff.tracker import Group, State
from koff.view.incidents import Incident, IncidentLog

_USUAL = ("returns", "since_s")
_AHEAD_S = 60.0


def save_verdicts(shards: Mapping[int, KnownShard], incidents: IncidentLog) -> State:
    """The incidents, and the state of the judges of these shards."""
    facts: list[dict[str, Any]] = []
    columns: dict[str, NDArray[Any]] = {}
    for number, known in shards.items():
        judge, (topics, partitions) = known.judge, known.places
        used, place = np.unique(known.partition, return_inverse=True)
        facts.append(
            {
                "shard": number,
                "groups": [group.name for group in known.groups],
                "places": [[topics[each], partitions[each]] for each in used.tolist()],
                "times": [judge.base_s, judge.at_s, judge.usual.decayed_s],
            }
        )
        of_shard = {name: judge.groups[name] for name in GROUP_STATE.names or ()}
        of_shard |= {name: getattr(judge.usual, name) for name in _USUAL}
        of_shard["counts"] = judge.usual.counts.ravel()
        of_shard |= {"group": known.group, "place": place.astype(np.int32), "highest": judge.rows["highest"]}
        columns |= {f"{number}:{name}": np.array(column) for name, column in of_shard.items()}
    return State({"shards": facts, "incidents": [each.save() for each in incidents.list_all()]}, columns)


def restore_verdicts(state: State, incidents: IncidentLog, now_ms: int) -> dict[int, KnownShard]:
    """Restores the incidents. Returns the shards, with nothing but what verdicts depend on.

    Raises `LookupError`, `TypeError` or `ValueError` for a state that is damaged, or newer than the present.
    """
    shards = {}
    for facts in state.facts["shards"]:
        number, names = int(facts["shard"]), facts["groups"]
        of_shard = {
            name.partition(":")[2]: column
            for name, column in state.columns.items()
            if name.startswith(f"{number}:")
        }
        judge = Judge(len(names), len(of_shard["group"]))
        for name in GROUP_STATE.names or ():
            judge.groups[name] = of_shard[name]
        judge.groups["late_most_s"] = np.nan  # what happened meanwhile is not known, and teaches nothing
        judge.rows["highest"] = of_shard["highest"]
        for name in _USUAL:
            getattr(judge.usual, name)[...] = of_shard[name]
        judge.usual.add_counts(of_shard["counts"].reshape(len(names), CLASSES))
        judge.base_s, judge.at_s, judge.usual.decayed_s = map(float, facts["times"])
        if judge.base_s + judge.at_s > now_ms / 1000 + _AHEAD_S:
            raise ValueError("the clock was set back")
        places = Places([topic for topic, _ in facts["places"]], [at for _, at in facts["places"]])
        groups = [Group(name) for name in names]
        shards[number] = KnownShard.restore(groups, of_shard["group"], of_shard["place"], places, judge)
    incidents.restore(Incident.restore(each) for each in state.facts["incidents"])
    return shards

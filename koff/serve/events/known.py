"""What was last known of the groups of one shard. Where a later view knows nothing, this stays.

What verdicts depend on is saved, and restored: then a restart of koff opens and closes no incident.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from koff.lag.judge import GROUP_STATE, Judge
from koff.lag.usual_lateness import CLASSES
from koff.lag.verdict import Verdict
from koff.lag.verdict_sample import Floats
from koff.tracker import Group, ShardSnapshot, State
from koff.view.activity import ShardVerdicts
from koff.view.incidents import Incident, IncidentLog
from koff.view.verdicts import match_rows

Ints = NDArray[np.int64]
UNKNOWN = -1


class Places(NamedTuple):
    """The topic and the partition of each partition number."""

    topics: list[str]
    partitions: list[int]

    def match(self, others: "Places") -> Ints | None:
        """The number that each of these has among the others, -1 for none. None: all have the same number."""
        size = len(self.topics)
        if self.topics == others.topics[:size] and self.partitions == others.partitions[:size]:
            return None
        numbers = {place: number for number, place in enumerate(zip(*others, strict=True))}
        return np.array([numbers.get(place, -1) for place in zip(*self, strict=True)], np.int64)


@dataclass(slots=True)
class KnownShard:
    """What was last known of a shard, with the groups and rows of one `layout`.

    `groups` are those of the view. The columns are of each row:
    `committed` is below 0, and `lost` (whether records left the log before they were committed), `ahead`
    (whether the commit was ever beyond the end of the log) and `left` (whether no member subscribes to the
    topic) are -1, if it was never known. `places` has the partition
    numbers. `judge` has what the verdicts depend on. `consumed` is how many records each group has committed
    since the look before.
    """

    layout: object
    places: Places
    groups: list[Group]
    group: NDArray[np.int32]
    partition: NDArray[np.int32]
    judge: Judge
    objective_s: Floats | None = None
    """The objectives of the rows, once they were looked up."""
    verdicts: ShardVerdicts | None = None
    committed: Ints = field(init=False)
    lost: NDArray[np.int8] = field(init=False)
    ahead: NDArray[np.int8] = field(init=False)
    left: NDArray[np.int8] = field(init=False)
    consumed: Floats = field(init=False)

    def __post_init__(self) -> None:
        rows = len(self.group)
        self.committed = np.full(rows, UNKNOWN, np.int64)
        self.lost, self.ahead, self.left = (np.full(rows, UNKNOWN, np.int8) for _ in range(3))
        self.consumed = np.zeros(len(self.groups))

    @classmethod
    def create(cls, shard: ShardSnapshot, places: Places) -> Self:
        """Nothing is known yet, but which groups and rows there are."""
        judge = Judge(len(shard.groups), len(shard.group))
        return cls(shard.layout, places, list(shard.groups), shard.group, shard.partition, judge)

    def carry_over(self, before: Self, moved: Ints | None) -> "Difference":
        """Takes over what was known before, by group, topic and partition. Returns what is different.

        `moved` is what `before.places.match` returns for the places of this shard.
        """
        # A group that is not current has no more than its name: the one before stays.
        old_groups, old_rows = self._find_before(before, moved)
        new, old = np.flatnonzero(old_groups >= 0), old_groups[old_groups >= 0]
        for number, place in zip(new.tolist(), old.tolist(), strict=True):
            self.groups[number] = before.groups[place]
        rows, old_places = np.flatnonzero(old_rows >= 0), old_rows[old_rows >= 0]
        for column in ("committed", "lost", "ahead", "left"):
            getattr(self, column)[rows] = getattr(before, column)[old_places]
        self.judge = before.judge.select(old_groups, old_rows)
        gone = np.ones(len(before.groups), np.bool_)
        gone[old] = False
        names = {before.groups[n].name: before.find_verdict(n) for n in np.flatnonzero(gone).tolist()}
        left_rows = ~gone[before.group]
        left_rows[old_places] = False
        left = set(before.list_topics(np.flatnonzero(left_rows).tolist()))
        return Difference(np.flatnonzero(old_groups < 0).tolist(), names, left)

    def carry_judge(self, before: Self, moved: Ints | None) -> None:
        """Takes over what the verdicts depend on, and nothing else: the monitor was started again."""
        self.judge = before.judge.select(*self._find_before(before, moved))

    def find_verdict(self, group: int) -> Verdict:
        return Verdict(self.judge.groups["verdict"][group])

    def _find_before(self, before: Self, moved: Ints | None) -> tuple[Ints, Ints]:
        """The number that each group and each row had before, -1 for none."""
        partition = before.partition if moved is None else moved[before.partition]
        return match_rows(before, self, partition)

    def list_topics(self, rows: Iterable[int]) -> Iterable[tuple[str, str]]:
        """Group and topic of each of these rows."""
        for row in rows:
            yield self.groups[self.group[row]].name, self.places.topics[self.partition[row]]


class Difference(NamedTuple):
    """What is different in the new layout of a shard."""

    added: list[int]
    """The numbers of new groups."""
    removed: dict[str, Verdict]
    """Groups that are gone, with the last verdicts on them."""
    left_topics: set[tuple[str, str]]
    """Topics to which a group that is still there has no commits any more."""


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
        group, partition = of_shard["group"], of_shard["place"]
        shards[number] = KnownShard(object(), places, groups, group, partition, judge)
    incidents.restore(Incident.restore(each) for each in state.facts["incidents"])
    return shards

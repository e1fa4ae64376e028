"""The groups of some clusters as columns, to filter and sort them. Objects are built for one page only."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.late_causes import Cause
from koff.lag.verdict import Verdict
from koff.serve.api.group_objects import TREND_POINTS, build_group
from koff.serve.api.name_pattern import search_names
from koff.serve.api.parameters import Query
from koff.tracker import Group, GroupTotal, ShardSnapshot, Snapshot
from koff.tracker.selection import select_groups
from koff.view.cause_texts import Finding, describe_causes
from koff.view.causes import find_shard_causes
from koff.view.cluster_view import ClusterView
from koff.view.group_sums import Column, find_longest_time_lags, sum_lags
from koff.view.lag_history import Course, find_last_known, shorten
from koff.view.verdicts import CALM, WORST_FIRST

Mask = NDArray[np.bool_]
MOST_LABELS = 1000


class GroupPlace(NamedTuple):
    """Where a group is: its view, its shard, and its number in the shard's groups."""

    view: ClusterView
    shard: int
    number: int

    @property
    def name(self) -> str:
        return self.view.snapshot.shards[self.shard].groups[self.number].name


Counts = dict[str, int | None]
"""How many groups have each status, and how many are withheld. None: koff does not know the groups."""


class GroupPage(NamedTuple):
    """The groups of a page, and how many match. `unknown` of the others have no known lag.

    `counts` are those of each cluster, of the groups that match whatever their cluster and status is.
    `labels` are those of all groups.
    """

    groups: list[dict[str, Any]]
    total: int
    unknown: int
    counts: dict[str, Counts]
    labels: list[str]


class GroupColumns:
    """The groups of these views. Those of a cluster without a name are left out."""

    def __init__(self, views: Iterable[ClusterView]) -> None:
        self._views = [view for view in views if view.cluster is not None]
        self._shards = [
            (view, number, shard) for view in self._views for number, shard in view.snapshot.shards.items()
        ]
        self._groups: list[Group] = [group for _, _, shard in self._shards for group in shard.groups]
        sizes = [len(shard.groups) for _, _, shard in self._shards]
        self._firsts = np.cumsum([0, *sizes])

    def find_page(self, query: Query) -> GroupPage:
        mask, chosen, unknown = self._filter(query), self._choose(query), 0
        if (lowest := query["min_lag"]) is not None:
            unknown = int(np.count_nonzero(mask & chosen & np.isnan(self._lags)))
            mask &= self._lags >= lowest
        order = self._sort(np.flatnonzero(mask & chosen), query)
        first = query["offset"]
        places = [self._locate(number) for number in order[first : first + query["limit"]].tolist()]
        return GroupPage(build_groups(places), len(order), unknown, self._count(mask), self._list_labels())

    def _list_labels(self) -> list[str]:
        pairs = {f"{name}={value}" for labels in self._labels if labels for name, value in labels.items()}
        return sorted(pairs)[:MOST_LABELS]

    def _count(self, mask: Mask) -> dict[str, Counts]:
        """By cluster, how many of these groups have each status, and how many are withheld."""
        counts: dict[str, Counts] = {}
        for view in self._views:
            own = mask & self._are_of(view.cluster)
            found = np.bincount(self._statuses[own].astype(np.int64), minlength=len(Verdict)).tolist()
            numbers = [*found, int(np.count_nonzero(own & self._withheld))]
            names = (*(verdict.name for verdict in Verdict), "withheld")
            known = numbers if view.knows_groups else [None] * len(names)
            counts[view.cluster or ""] = dict(zip(names, known, strict=True))
        return counts

    def _choose(self, query: Query) -> Mask:
        """A mask of the groups of the cluster and with the statuses that the query asks for."""
        mask = np.ones(len(self._groups), np.bool_)
        if query["cluster"] is not None:
            mask &= self._are_of(query["cluster"])
        if query["status"]:
            mask &= np.isin(self._statuses, [int(Verdict[name]) for name in query["status"]])
        if query["withheld"]:
            mask &= self._withheld
        return mask

    def _are_of(self, cluster: str | None) -> Mask:
        of_shards = [np.full(len(shard.groups), view.cluster == cluster) for view, _, shard in self._shards]
        return self._join(of_shards) > 0

    def _filter(self, query: Query) -> Mask:
        """A mask of the groups that match, whatever their cluster, their status and their lag is."""
        groups, mask = self._groups, np.ones(len(self._groups), np.bool_)
        for tests in (
            [query["name"] in group.name for group in groups] if query["name"] else None,
            search_names(query["match"], (group.name for group in groups)) if query["match"] else None,
            [group.type in query["type"] for group in groups] if query["type"] else None,
            [group.state in query["state"] for group in groups] if query["state"] else None,
            [labels.items() >= set(query["label"]) for labels in self._labels] if query["label"] else None,
        ):
            if tests is not None:
                mask &= np.array(tests, np.bool_)
        if query["state"]:  # the state of a group that is not current is not known
            mask &= self._join([shard.current_groups() for _, _, shard in self._shards]).astype(np.bool_)
        if query["cause"]:
            mask &= self._join([self._has_cause(query["cause"], *each) for each in self._shards]) > 0
        return mask

    @staticmethod
    def _has_cause(names: Iterable[str], view: ClusterView, number: int, shard: ShardSnapshot) -> Mask:
        """A mask of the groups of the shard with one of these causes."""
        mask, sums = np.zeros(len(shard.groups), np.bool_), find_shard_causes(view, number).sums
        for cause in sums.keys() & {Cause[name.upper()] for name in names}:
            mask |= sums[cause] > 0
        return mask

    def _sort(self, numbers: NDArray[np.int64], query: Query) -> NDArray[np.int64]:
        """These groups in order: equal ones by name, and unknown numbers last."""
        is_descending = query["order"] == "desc" or (query["order"] is None and query["sort"] != "name")
        by_name = np.array(sorted(numbers.tolist(), key=lambda n: self._groups[n].name), np.int64)
        if query["sort"] == "name":
            return by_name[::-1] if is_descending else by_name
        keys = [column[by_name] for column in self._list_keys(query["sort"])]
        return by_name[np.lexsort([-column if is_descending else column for column in keys])]

    def _list_keys(self, sort: str) -> list[Column]:
        """The columns to sort by, the most important last."""
        match sort:
            case "lag":
                return [self._lags]
            case "time_lag_s":
                return [self._time_lags]
            case "status":
                return [self._statuses]
        # A group that is well stays where it is from one page to the next, however late it is.
        lateness = self._time_lags / self._allowances
        severity = -np.array([WORST_FIRST.index(each) for each in Verdict])[self._statuses.astype(np.int64)]
        return [np.where(lateness <= CALM, 0.0, lateness), severity]

    def _locate(self, number: int) -> GroupPlace:
        at = int(np.searchsorted(self._firsts, number, side="right")) - 1
        view, shard, _ = self._shards[at]
        return GroupPlace(view, shard, number - int(self._firsts[at]))

    @cached_property
    def _lags(self) -> Column:
        return self._join([sum_lags(view.snapshot, shard) for view, _, shard in self._shards])

    @cached_property
    def _time_lags(self) -> Column:
        return self._join([find_longest_time_lags(view.snapshot, shard) for view, _, shard in self._shards])

    @cached_property
    def _labels(self) -> list[dict[str, str]]:
        return [
            view.find_labels(group.name) if view.group_labels or view.owners.listed else {}
            for view, _, shard in self._shards
            for group in shard.groups
        ]

    @cached_property
    def _allowances(self) -> Column:
        return self._join([view.snapshot.find_verdicts(s).allowance_s for view, _, s in self._shards])

    @cached_property
    def _statuses(self) -> Column:
        return self._join([view.snapshot.find_verdicts(shard).verdict for view, _, shard in self._shards])

    @cached_property
    def _withheld(self) -> Mask:
        return self._join([view.snapshot.withheld_groups(shard) for view, _, shard in self._shards]) > 0

    @staticmethod
    def _join(columns: Sequence[NDArray[np.generic]]) -> Column:
        return np.concatenate([np.zeros(0), *columns]).astype(np.float64)


def select_places(places: Sequence[GroupPlace], partitions: Mask | None = None) -> Snapshot:
    """A snapshot of these groups, which are of one view. `partitions` is as in `select_groups`."""
    chosen: dict[int, list[int]] = defaultdict(list)
    for place in places:
        chosen[place.shard].append(place.number)
    return select_groups(places[0].view.snapshot, chosen, partitions)


def build_groups(places: Sequence[GroupPlace]) -> list[dict[str, Any]]:
    """The objects of these groups, in this order, each with its cluster."""
    by_view: dict[int, list[GroupPlace]] = defaultdict(list)
    for place in places:
        by_view[id(place.view)].append(place)
    totals = {
        (view, total.group.name): total
        for view, chosen in by_view.items()
        for total in select_places(chosen).totals()
    }
    return [
        {
            "cluster": place.view.cluster or "",
            **build_place(place, totals[id(place.view), place.name]),
            "trend": [] if course is None else list_known(shorten(course.lag, TREND_POINTS)),
            "last_known": build_last_known(course, totals[id(place.view), place.name]),
        }
        for place in places
        for course in [place.view.activity.history.find(place.name)]
    ]


def build_place(place: GroupPlace, total: GroupTotal) -> dict[str, Any]:
    """The object of a group that is there."""
    return build_group(total, find_group_causes(place), place.view.owners.find(place.name))


def build_last_known(course: Course | None, total: GroupTotal) -> dict[str, Any] | None:
    """The newest lag of the last hour, if the lag is not known now."""
    found = find_last_known(course) if total.lag is None else None
    return found._asdict() if found else None


def list_known(values: Column) -> list[float | None]:
    """The values; None for NaN."""
    return [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN


def find_group_causes(place: GroupPlace) -> list[Finding] | None:
    """The causes of the lag of a group; None if its lag is withheld."""
    return describe_causes(find_shard_causes(place.view, place.shard), place.number)

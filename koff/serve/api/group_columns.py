"""The groups of some clusters as columns, to filter and sort them. Objects are built for one page only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.late_causes import Cause
from koff.lag.verdict import Verdict
from koff.serve.api.group_objects import TREND_POINTS, ClusterTotal, ExplainedTotal
from koff.serve.api.name_pattern import search_names
from koff.serve.api.parameters import Query
from koff.tracker import Group, ShardSnapshot, Snapshot
from koff.tracker.selection import select_groups
from koff.view.cause_texts import Finding, describe_causes
from koff.view.causes import find_shard_causes
from koff.view.cluster_view import ClusterView
from koff.view.group_sums import Column, find_longest_time_lags, sum_lags
from koff.view.lag_history import shorten

Mask = NDArray[np.bool_]


class GroupPlace(NamedTuple):
    """Where a group is: its view, its shard, and its number in the shard's groups."""

    view: ClusterView
    shard: int
    number: int

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.view.snapshot.shards[self.shard].groups[self.number].name


class GroupPage(NamedTuple):
    """The groups of a page, and how many match. `unknown` of the others have no known lag."""

    groups: list[ClusterTotal]
    total: int
    unknown: int


class GroupColumns:
    """The groups of these views. Those of a cluster without a name are left out."""

    def __init__(self, views: Iterable[ClusterView]) -> None:
        self._shards = [
            (view, number, shard)
            for view in views
            if view.cluster is not None
            for number, shard in view.snapshot.shards.items()
        ]
        self._groups: list[Group] = [group for _, _, shard in self._shards for group in shard.groups]
        sizes = [len(shard.groups) for _, _, shard in self._shards]
        self._firsts = np.cumsum([0, *sizes])

    def find_page(self, query: Query) -> GroupPage:
        """The groups that the query asks for."""
        mask, unknown = self._filter(query), 0
        if (lowest := query["min_lag"]) is not None:
            unknown = int(np.count_nonzero(mask & np.isnan(self._lags)))
            mask &= self._lags >= lowest
        order = self._sort(np.flatnonzero(mask), query)
        first = query["offset"]
        places = [self._locate(number) for number in order[first : first + query["limit"]].tolist()]
        return GroupPage(build_totals(places), len(order), unknown)

    def _filter(self, query: Query) -> Mask:
        """A mask of the groups that match, whatever their lag is."""
        groups, mask = self._groups, np.ones(len(self._groups), np.bool_)
        for tests in (
            [query["name"] in group.name for group in groups] if query["name"] else None,
            search_names(query["match"], (group.name for group in groups)) if query["match"] else None,
            [group.type in query["type"] for group in groups] if query["type"] else None,
            [group.state in query["state"] for group in groups] if query["state"] else None,
        ):
            if tests is not None:
                mask &= np.array(tests, np.bool_)
        if query["state"]:  # the state of a group that is not current is not known
            mask &= self._join([shard.current_groups() for _, _, shard in self._shards]).astype(np.bool_)
        if query["status"]:
            wanted = [int(Verdict[name]) for name in query["status"]]
            mask &= np.isin(self._statuses, wanted)
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
        sort = query["sort"]
        column = self._lags if sort == "lag" else self._statuses if sort == "status" else self._time_lags
        column = column[by_name]
        return by_name[np.argsort(-column if is_descending else column, kind="stable")]

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
    def _statuses(self) -> Column:
        return self._join([view.snapshot.find_verdicts(shard).verdict for view, _, shard in self._shards])

    @staticmethod
    def _join(columns: Sequence[NDArray[np.generic]]) -> Column:
        return np.concatenate([np.zeros(0), *columns]).astype(np.float64)


def select_places(places: Sequence[GroupPlace], partitions: Mask | None = None) -> Snapshot:
    """A snapshot of these groups, which are of one view. `partitions` is as in `select_groups`."""
    chosen: dict[int, list[int]] = defaultdict(list)
    for place in places:
        chosen[place.shard].append(place.number)
    return select_groups(places[0].view.snapshot, chosen, partitions)


def build_totals(places: Sequence[GroupPlace]) -> list[ClusterTotal]:
    """The totals of these groups, in this order."""
    by_view: dict[int, list[GroupPlace]] = defaultdict(list)
    for place in places:
        by_view[id(place.view)].append(place)
    totals = {
        (view, total.group.name): total
        for view, chosen in by_view.items()
        for total in select_places(chosen).totals()
    }
    return [
        ClusterTotal(
            place.view.cluster or "",
            ExplainedTotal(totals[id(place.view), place.name], find_group_causes(place)),
            _find_trend(place),
        )
        for place in places
    ]


def _find_trend(place: GroupPlace) -> list[float | None]:
    course = place.view.activity.history.find(place.name)
    return [] if course is None else list_known(shorten(course.lag, TREND_POINTS))


def list_known(values: Column) -> list[float | None]:
    """The values; None for NaN."""
    return [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN


def find_group_causes(place: GroupPlace) -> list[Finding] | None:
    """The causes of the lag of a group; None if its lag is withheld."""
    return describe_causes(find_shard_causes(place.view, place.shard), place.number)

"""All groups and their committed offsets, as the coordinators return them."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from koff.errors import ConnectError
from koff.monitor.means import Means
from koff.monitor.requests import Request, Result
from koff.records.placement import group_partition
from koff.tracker import Commits, Described
from koff.tracker.commit_columns import CommitColumns

if TYPE_CHECKING:
    from koff.client.groups.responses import FetchedGroups

FETCH_S = 15.0
"""How long coordinators are waited for: less than the core waits for the result."""
PATIENCE_S = 5.0
"""How long a coordinator may take: the groups of the others wait for it, if they are requested together."""


@dataclass(frozen=True, slots=True)
class GroupsFetched(Result):
    """What some coordinators have returned. Nothing is known of the groups in `failed` (name to reason).

    A known group that is neither in `groups` nor in `failed` may exist all the same: see `FetchGroups`.
    `partitions` of the offsets topic are those that it is about; None: all of the request. `incomplete` has,
    by partition, the reason why groups of it may be missing.
    `topic_ids` maps names to ids. `elsewhere` are groups that a coordinator has, or may have, although it
    does not lead the partition that their names belong to, or although that partition is empty. The brokers
    may use an earlier partition count.
    """

    commits: Commits
    groups: Mapping[str, Described]
    failed: Mapping[str, str] = field(default_factory=dict)
    incomplete: Mapping[int, str] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    partitions: frozenset[int] | None = None
    elsewhere: frozenset[str] = frozenset()

    @property
    def failure(self) -> str:
        """The first error, if all partitions have one."""
        is_failed = self.partitions is not None and len(self.incomplete) >= len(self.partitions) > 0
        return next(iter(self.incomplete.values())) if is_failed else ""


@dataclass(frozen=True, slots=True)
class FetchGroups(Request):
    """All groups and their committed offsets. Each coordinator has its own `GroupsFetched`.

    Only groups of `partitions` of the offsets topic, which has `partition_count`. `together`: all are
    asked, and there is one result. A coordinator may have groups of partitions that it does not lead.
    `empty` are partitions without records. `known` are groups that koff knows: coordinators say by name why
    they do not list one of these. A coordinator that does not respond for `patience_s` is left out.
    """

    metric = "groups"
    partitions: frozenset[int]
    partition_count: int
    together: bool = False
    empty: frozenset[int] = frozenset()
    known: frozenset[str] = frozenset()
    patience_s: float = PATIENCE_S

    def carry_out(self, means: Means) -> None:
        parts = [self.partitions]
        if not self.together:
            parts = means.leaders.split_by_coordinator(self.partitions, self.partition_count)
        means.fetch_parts([[part] for part in parts], partial(self._fetch, means), self._fail)

    def _fetch(self, means: Means, partitions: frozenset[int]) -> GroupsFetched:
        from koff.client.groups.coordinators import fetch_from_coordinators
        from koff.client.groups.fetch_options import FetchOptions
        from koff.monitor.described import build_group

        count = self.partition_count
        options = FetchOptions(
            group_filter=partial(_is_wanted, count, partitions),
            deadline_s=FETCH_S,
            patience_s=self.patience_s,
            partitions=partitions if count > 1 and not self.together else None,
            empty=self.empty,
            known=self.known,
            share_offsets="not",  # a request of its own asks for them, where they are needed
        )
        fetched = fetch_from_coordinators(means.lister, options)
        ids = _find_topic_ids(means, fetched)
        described = [group for group in fetched.groups if group.name not in fetched.failed]
        return GroupsFetched(
            self.id,
            fetched.offsets,
            {group.name: build_group(group, ids) for group in described},
            {**fetched.unlisted, **fetched.failed},
            fetched.find_incomplete(partitions, count),
            ids,
            partitions,
            fetched.elsewhere,
        )

    def _fail(self, partitions: frozenset[int], why: str) -> GroupsFetched:
        incomplete, nothing = dict.fromkeys(partitions, why), CommitColumns.from_offsets({})
        return GroupsFetched(self.id, nothing, {}, incomplete=incomplete, partitions=partitions)


def _is_wanted(partition_count: int, partitions: Collection[int], group: str) -> bool:
    return not partition_count or group_partition(group, partition_count) in partitions


def _find_topic_ids(means: Means, fetched: "FetchedGroups") -> dict[str, str]:
    """The ids of all topics that are assigned to members by id. Some coordinators return only names."""
    ids = {name: id_ for group in fetched.groups for name, id_ in group.topic_ids.items()}
    unknown = {
        topic
        for group in fetched.groups
        if group.type in {"consumer", "share"}
        for member in group.members
        for topic in (*member.assigned, *(member.target or ()))
        if topic not in ids
    }
    if unknown:
        with suppress(ConnectError):  # only names of assigned topics are missing then
            present = means.cluster.fetch_metadata().topic_ids
            ids |= {name: present[name] for name in unknown & present.keys()}
    return ids

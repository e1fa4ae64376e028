"""Groups and topics that nobody uses any more, or that cost more than they should.

Nothing is said of a group that is withheld, or whose last commit has no known time. Nothing is said of topics
while groups may be missing: one of these may read the topic.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from koff.lag import Reason
from koff.tracker import ShardSnapshot, Snapshot
from koff.view.cluster_view import ClusterView
from koff.view.wording import count, show, show_duration

Kind = Literal[
    "empty_group",
    "deleted_topics",
    "frequent_commits",
    "many_topics",
    "unused_topic",
    "unread_topic",
    "unwritten_topic",
]
KINDS: tuple[str, ...] = get_args(Kind)
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """A group or a topic is idle after `idle_s`. A group should not be above the others."""

    idle_s: float
    commits_per_s: float
    topics: int


class TopicLog(NamedTuple):
    """How many offsets the log of a topic has, whether a record is newer than the limit, and its policy.

    A compacted topic is often a table, which is read without a group. None: the policy is not known.
    """

    offsets: int
    is_written: bool
    is_compacted: bool | None


@dataclass(frozen=True, slots=True)
class Unused:
    """A group or a topic with the evidence, and what deleting it would lose.

    `deletes` says whether deleting the group, or the topic, is the cure. `group_type` is that of the group.
    """

    kind: Kind
    name: str
    text: str
    loses: str
    deletes: bool
    group_type: str = ""


def measure_commits(before: ClusterView, now: ClusterView) -> dict[str, float]:
    """How many offsets each group committed a second between two views. Groups that are new are left out."""
    counts = _list_counts(before)
    span_s = max(1, (now.snapshot.now_ms or 0) - (before.snapshot.now_ms or 0)) / 1000
    return {name: (n - counts[name]) / span_s for name, n in _list_counts(now).items() if name in counts}


def _list_counts(view: ClusterView) -> dict[str, int]:
    return {
        group.name: counted
        for shard in view.snapshot.shards.values()
        for group, counted in zip(shard.groups, shard.commit_counts.tolist(), strict=True)
    }


def list_unused_groups(view: ClusterView, limits: Limits, commits_per_s: Mapping[str, float]) -> list[Unused]:
    """What is to be said of groups: by kind, and the worst first. `commits_per_s` are by group."""
    found = [
        each
        for shard in view.snapshot.shards.values()
        for each in _ShardGroups(view.snapshot, shard).list_unused(limits, commits_per_s)
    ]
    found.sort(key=lambda each: (KINDS.index(each[1].kind), -each[0], each[1].name))
    return [unused for _, unused in found]


def list_topics_to_check(view: ClusterView) -> list[str] | None:
    """The topics of which koff needs the logs. Without those of Kafka itself. None: groups may be missing."""
    is_whole = view.readiness.ready and not view.stats.not_current and not view.stats.missing
    if not is_whole or not all(shard.summable_groups().all() for shard in view.snapshot.shards.values()):
        return None
    return sorted(name for name in view.facts.topics if not name.startswith("__"))


def list_unused_topics(
    view: ClusterView, limits: Limits, logs: Mapping[str, TopicLog], idle_groups: Iterable[str]
) -> list[Unused]:
    """What is to be said of the topics of which the logs are known, by kind, the largest first.

    `idle_groups` are no readers.
    """
    readers, found = _list_readers(view.snapshot), []
    idle, span = frozenset(idle_groups), show_duration(limits.idle_s)
    for name, log in logs.items():
        groups = readers.get(name, set())
        if (kind := _choose_kind(log, is_read=bool(groups - idle))) is not None:
            text = "; ".join(_describe_topic(kind, log, sorted(groups), span))
            deletes = kind == "unused_topic" and log.is_compacted is False
            found.append(Unused(kind, name, text, count(log.offsets, "record"), deletes))
    return sorted(found, key=lambda each: (KINDS.index(each.kind), -logs[each.name].offsets, each.name))


def _choose_kind(log: TopicLog, *, is_read: bool) -> Kind | None:
    if is_read:
        return None if log.is_written else "unwritten_topic"
    return "unread_topic" if log.is_written else "unused_topic"


def _describe_topic(kind: Kind, log: TopicLog, groups: Sequence[str], span: str) -> Iterator[str]:
    if kind != "unwritten_topic":
        yield f"only idle groups read it: {_name_some(groups)}" if groups else "no group reads it"
    if not log.is_written:
        yield f"its newest record is older than {span}" if log.offsets else "it is empty"
    if log.is_compacted and kind != "unwritten_topic":
        yield "it is compacted: perhaps a table, which is read without a group"


def _list_readers(snapshot: Snapshot) -> dict[str, set[str]]:
    """By topic, the groups that have committed to it, or are assigned it."""
    readers: dict[str, set[str]] = {}
    for shard in snapshot.shards.values():
        pairs = set(zip(shard.group.tolist(), shard.partition.tolist(), strict=True))
        for group, partition in pairs:
            readers.setdefault(snapshot.partitions.topic[partition], set()).add(shard.groups[group].name)
        for each in shard.groups:
            for topic, _, _ in snapshot.assignments(each):
                readers.setdefault(topic or "", set()).add(each.name)
    return readers


class _ShardGroups:
    """The groups of a shard, in columns."""

    def __init__(self, snapshot: Snapshot, shard: ShardSnapshot) -> None:
        self._snapshot, self._shard = snapshot, shard
        self._known = ~snapshot.withheld_groups(shard)
        self._is_gone = (snapshot.reasons(shard) & Reason.TOPIC_GONE) != 0
        self._gone = self._count(self._is_gone)
        self._rows = np.bincount(shard.group, minlength=len(shard.groups))

    def list_unused(
        self, limits: Limits, commits_per_s: Mapping[str, float]
    ) -> Iterator[tuple[float, Unused]]:
        """The findings, each with a number that is larger the worse it is."""
        yield from self._list_empty(limits.idle_s)
        yield from self._list_deleted()
        yield from self._list_frequent(limits.commits_per_s, commits_per_s)
        yield from self._list_wide(limits.topics)

    def _list_empty(self, idle_s: float) -> Iterator[tuple[float, Unused]]:
        silent_s = self._find_silent_s()
        for place in np.flatnonzero(self._known & (silent_s >= idle_s)).tolist():
            group = self._shard.groups[place]
            if not group.member_count and group.type != "zookeeper":
                span = show_duration(silent_s[place])
                text = f"has no members, and has committed nothing for {span}"
                yield silent_s[place], self._build("empty_group", place, text, deletes=True)

    def _list_deleted(self) -> Iterator[tuple[float, Unused]]:
        for place in np.flatnonzero(self._known & (self._gone > 0)).tolist():
            rows = self._shard.partition[self._is_gone & (self._shard.group == place)].tolist()
            names = _name_some(sorted({self._snapshot.partitions.topic[row] for row in rows}))
            group, is_all = self._shard.groups[place], self._gone[place] == self._rows[place]
            text = f"{count(int(self._gone[place]), 'partition')} of topics that do not exist: {names}"
            deletes = bool(is_all) and not group.member_count
            yield float(self._gone[place]), self._build("deleted_topics", place, text, deletes=deletes)

    def _list_frequent(
        self, limit: float, commits_per_s: Mapping[str, float]
    ) -> Iterator[tuple[float, Unused]]:
        for place, group in enumerate(self._shard.groups):
            rate = commits_per_s.get(group.name, 0.0)
            if rate > limit:
                text = f"commits {rate:,.1f} offsets a second: raise auto.commit.interval.ms"
                yield rate, self._build("frequent_commits", place, text, deletes=False)

    def _list_wide(self, limit: int) -> Iterator[tuple[float, Unused]]:
        if not (self._rows > limit).any():
            return
        topics = np.unique(self._snapshot.partitions.topic, return_inverse=True)[1]
        pairs = np.unique(np.stack([self._shard.group, topics[self._shard.partition]]), axis=1)
        counts = np.bincount(pairs[0], minlength=len(self._shard.groups))
        for place in np.flatnonzero(self._known & (counts > limit)).tolist():
            text = (
                f"reads {count(int(counts[place]), 'topic')}: each rebalance stops the reading of all of them"
            )
            yield float(counts[place]), self._build("many_topics", place, text, deletes=False)

    def _find_silent_s(self) -> NDArray[np.float64]:
        """How long ago each group committed or changed; below 0 if that is not known."""
        shard, last_ms = (
            self._shard,
            np.array([each.state_timestamp_ms for each in self._shard.groups], np.int64),
        )
        np.maximum.at(last_ms, shard.group, shard.committed_at)
        known = (last_ms > 0) & (self._count(shard.lacks_commit_time()) == 0)
        if self._snapshot.now_ms is None:
            return np.full(len(known), -1.0)
        return np.where(known, (self._snapshot.now_ms - shard.skew_ms - last_ms) / 1000, -1.0)

    def _count(self, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(self._shard.group[rows], minlength=len(self._shard.groups))

    def _build(self, kind: Kind, place: int, text: str, *, deletes: bool) -> Unused:
        group = self._shard.groups[place]
        return Unused(kind, group.name, text, self._describe_loss(place), deletes, group.type)

    def _describe_loss(self, place: int) -> str:
        lags, is_of = self._snapshot.lags(self._shard), self._shard.group == place
        offsets = f"its offsets in {count(int(self._rows[place]), 'partition')}"
        waiting = sum(lags.published[is_of & lags.known].tolist())
        return f"{offsets}; {count(waiting, 'record')} wait there" if waiting else offsets


def _name_some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(map(show, names[:_NAMED])) + (f" and {more} more" if more > 0 else "")

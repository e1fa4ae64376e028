"""Resets the offsets of a group without members: a plan first, which is then carried out as it is.

A plan chooses what `kafka-consumer-groups.sh --reset-offsets` chooses (Kafka's class OffsetsUtils).
Needs READ on the group and on its topics; a plan alone needs DESCRIBE.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.cluster import Cluster
from koff.client.cluster_conf import OffsetSpec, TopicPartition
from koff.client.groups.coordinators import fetch_from_coordinators
from koff.client.groups.fetch_options import FetchOptions
from koff.client.offset_plan import Commit, OffsetPlan, PlannedOffset
from koff.errors import ConfigError, ConnectError, Denied, KoffError
from koff.lag.resets import LogRange

Commits = Mapping[TopicPartition, Commit | None]
"""The commit of each partition; None: there is none."""


class NothingFound(KoffError):
    """There is no such group, or no such topic or partition, or the group has no commit to begin with."""


class MembersAlive(KoffError):
    """The group has members. Only these may commit."""


class Moved(KoffError):
    """Something has changed since the plan was made. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to reset to. `text` is how the user named it.

    `number` is milliseconds since 1970 (time), how far from the committed offset (by), or the offset
    (offset). `each` has the commit of each partition (each); None: its commit is deleted.
    """

    text: str
    kind: Literal["earliest", "latest", "time", "by", "offset", "each"]
    number: int = 0
    each: Commits = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupNow:
    """A group as its coordinator has it now. `members` are client ids and hosts."""

    name: str
    state: str
    commits: Mapping[TopicPartition, Commit]
    members: tuple[str, ...] = ()

    def check_empty(self) -> None:
        """Raises `MembersAlive`."""
        if self.state not in ("Empty", "Dead"):
            named = ", ".join(self.members[:5]) + (" and more" if len(self.members) > 5 else "")
            raise MembersAlive(
                f"group {self.name} has members ({self.state}): stop them first"
                + (f": {named}" if named else "")
            )


def fetch_group(cluster: Cluster, name: str) -> GroupNow:
    """The group with all its commits. Raises `NothingFound`, `ConnectError`, and `ConfigError` for a group
    of a type that commits no offsets, or whose offsets belong to a Streams application's state."""
    options = FetchOptions(name.__eq__, known=frozenset({name}))
    fetched = fetch_from_coordinators(cluster.lister, options)
    if why := fetched.failed.get(name):
        raise ConnectError(f"the coordinator of group {name} does not return it: {why}")
    for group in fetched.groups:
        if group.type in ("share", "streams"):
            tool = f"kafka-{group.type}-groups.sh --reset-offsets"
            raise ConfigError(f"group {name} is a {group.type} group: use {tool}")
        members = tuple(f"{member.client_id}@{member.client_host}" for member in group.members)
        commits = {
            TopicPartition(row.topic, row.partition): Commit(row.offset, row.metadata)
            for row in fetched.offsets.rows()
            if row.offset >= 0
        }
        return GroupNow(name, group.state, commits, members)
    if fetched.incomplete:
        raise ConnectError(f"group {name} is not found: {'; '.join(fetched.incomplete)}")
    why = fetched.unlisted.get(name, "")
    if why.endswith("AUTHORIZATION_FAILED"):
        raise Denied(f"this user may not describe group {name}: grant DESCRIBE on it")
    raise NothingFound(f"there is no group {name}: koff lag lists all groups")


# --- A plan is made -------------------------------------------------------------------------------------


def make_plan(
    cluster: Cluster, group: GroupNow, target: Target, topics: Mapping[str, Collection[int]], *, made: str
) -> OffsetPlan:
    """The plan for these partitions by topic; a topic without partitions stands for all of its partitions.

    Without topics, the plan has the partitions that `target` names, else those that the group has committed
    and that still exist. Writes nothing. Raises `NothingFound`, and `ConnectError` if an offset is not known.
    """
    named, metadata = topics or _group_by_topic(target.each), cluster.fetch_metadata()
    counts = {name: len(partitions) for name, partitions in metadata.topics.items()}
    partitions = _list_partitions(named, counts) if named else _keep_existing(group.commits, counts)
    if target.kind == "each":  # --topic chooses among these
        partitions = [at for at in partitions if at in target.each]
    if not partitions:
        raise NothingFound(f"group {group.name} has no such partition: nothing is to be changed")
    logs = fetch_logs(cluster, partitions)
    wanted = _choose_offsets(cluster, group, target, logs)
    offsets = (
        _plan_offset(at, metadata.topic_ids.get(at.topic, ""), group.commits.get(at), wanted[at], logs[at])
        for at in sorted(partitions)
    )
    return OffsetPlan(cluster.id, group.name, target.text, made, tuple(offsets))


def make_undo(cluster: Cluster, group: GroupNow, plan: OffsetPlan, *, made: str) -> OffsetPlan:
    """The plan that goes back to what was committed when `plan` was made. Raises as `make_plan` does.

    Raises `Moved` if a topic was created again: the offsets of the plan belong to its former log.
    """
    check_cluster(cluster, plan)
    commits = {each.at: each.before for each in plan.changes}
    undo = make_plan(cluster, group, Target(f"undo of {plan.to}", "each", each=commits), {}, made=made)
    _check_topics(plan, undo.topic_ids)
    return undo


def _group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def _list_partitions(named: Mapping[str, Collection[int]], counts: Mapping[str, int]) -> list[TopicPartition]:
    """The named partitions. Raises `NothingFound` for one that does not exist."""
    if missing := sorted(named.keys() - counts.keys()):
        raise NothingFound(f"there is no topic {', '.join(missing)}, or this user may not DESCRIBE it")
    for topic, chosen in named.items():
        if absent := [each for each in chosen if each >= counts[topic]]:
            raise NothingFound(f"topic {topic} has no partition {absent[0]}: it has {counts[topic]}")
    return [TopicPartition(topic, each) for topic in named for each in named[topic] or range(counts[topic])]


def _keep_existing(commits: Iterable[TopicPartition], counts: Mapping[str, int]) -> list[TopicPartition]:
    return [at for at in commits if at.partition < counts.get(at.topic, 0)]


def fetch_logs(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
    """The log of each partition. Raises `ConnectError` if one is not known."""
    starts = _fetch_offsets(cluster, partitions, OffsetSpec.EARLIEST)
    ends = _fetch_offsets(cluster, partitions, OffsetSpec.LATEST)
    return {at: LogRange(starts[at], ends[at]) for at in partitions}


def _fetch_offsets(
    cluster: Cluster, partitions: Collection[TopicPartition], spec: OffsetSpec | int
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for at, offset in cluster.fetch_offsets(partitions, spec).items():
        if isinstance(offset, str):
            raise ConnectError(
                f"the offsets of {at.topic}/{at.partition} are not known: {offset}; --topic leaves topics out"
            )
        found[at] = offset
    return found


def _choose_offsets(
    cluster: Cluster, group: GroupNow, target: Target, logs: Mapping[TopicPartition, LogRange]
) -> Commits:
    """What the target names of each partition, also beyond the log."""
    match target.kind:
        case "each":
            return target.each
        case "earliest":
            chosen = {at: log.start for at, log in logs.items()}
        case "latest":
            chosen = {at: log.end for at, log in logs.items()}
        case "offset":
            chosen = dict.fromkeys(logs, target.number)
        case "time":
            found = _fetch_offsets(cluster, list(logs), target.number)
            chosen = {at: found[at] if found[at] >= 0 else log.end for at, log in logs.items()}
        case "by":
            chosen = {at: _find_committed(group, at) + target.number for at in logs}
    return {at: Commit(offset) for at, offset in chosen.items()}


def _find_committed(group: GroupNow, at: TopicPartition) -> int:
    if (commit := group.commits.get(at)) is None:
        raise NothingFound(
            f"group {group.name} has committed nothing in {at.topic}/{at.partition}, so its offset cannot be "
            "shifted: leave it out, or choose another --to"
        )
    return commit.offset


def _plan_offset(
    at: TopicPartition, topic_id: str, before: Commit | None, wanted: Commit | None, log: LogRange
) -> PlannedOffset:
    if wanted is None:
        return PlannedOffset(at, topic_id, before, None, log, "the commit is deleted")
    offset, note = log.clamp(wanted.offset), ""
    if offset != wanted.offset:
        which = "starts" if offset > wanted.offset else "ends"
        note = f"{wanted.offset} is not in the log, which {which} there"
    if before is not None and before.offset == offset and not wanted.metadata:
        wanted = before  # nothing changes: its metadata stays, too
    return PlannedOffset(at, topic_id, before, wanted._replace(offset=offset), log, note)


# --- A plan is carried out ------------------------------------------------------------------------------


def apply_plan(cluster: Cluster, plan: OffsetPlan) -> None:
    """Writes the offsets of the plan, and reads them back.

    Raises `Moved`, `MembersAlive`, `NothingFound`, or `ConfigError` for another cluster, before anything is
    written. Any other error says how many of the offsets were written.
    """
    check_unmoved(cluster, fetch_group(cluster, plan.group), plan)
    failure = ""
    try:
        _write(cluster, plan)
    except KoffError as error:
        failure = f"{error}; "
    commits = _read_back(cluster, plan)
    other = [each.at for each in plan.changes if commits.get(each.at) != each.after]
    if failure or other:
        done = f"{len(plan.changes) - len(other)} of {len(plan.changes)} offsets are as planned"
        which = f", not that of {other[0].topic}/{other[0].partition}" if other else ""
        raise KoffError(f"{failure}{done}{which}: koff group {plan.group} shows the group")


def _read_back(cluster: Cluster, plan: OffsetPlan) -> Commits:
    try:
        return fetch_group(cluster, plan.group).commits
    except NothingFound:  # it had no other commits than those that were deleted
        return {}


def check_unmoved(cluster: Cluster, group: GroupNow, plan: OffsetPlan) -> None:
    """Raises as `apply_plan` does before it writes."""
    check_cluster(cluster, plan)
    group.check_empty()
    _check_topics(plan, cluster.fetch_topic_ids(plan.topic_ids))
    commits = {at: group.commits.get(at) for at in plan.commits_before}
    moved = [at for at, commit in plan.commits_before.items() if commits[at] != commit]
    if moved and commits == plan.commits_after:
        raise Moved("the plan was carried out before: the offsets are as planned")
    if moved:
        raise Moved(f"{_describe_moved(moved, commits)}: make a new plan")
    _check_logs(plan, fetch_logs(cluster, list(plan.commits_before)))


def check_cluster(cluster: Cluster, plan: OffsetPlan) -> None:
    """Raises `ConfigError` if the plan is for another cluster."""
    if cluster.id != plan.cluster:
        raise ConfigError(f"the plan is for cluster {plan.cluster}, and this is cluster {cluster.id}")


def _check_topics(plan: OffsetPlan, ids: Mapping[str, str]) -> None:
    changed = [topic for topic, topic_id in plan.topic_ids.items() if ids.get(topic, topic_id) != topic_id]
    gone = plan.topic_ids.keys() - ids.keys()
    if changed or gone:
        (topic, *_) = sorted({*changed, *gone})
        what = "deleted" if topic in gone else "deleted and created again"
        raise Moved(f"topic {topic} was {what} since the plan was made: make a new plan")


def _describe_moved(moved: list[TopicPartition], commits: Commits) -> str:
    """What the first of these partitions has now."""
    now = commits[moved[0]]
    says = "no commit" if now is None else f"offset {now.offset}"
    more = f" ({len(moved) - 1} more have moved)" if len(moved) > 1 else ""
    return f"{moved[0].topic}/{moved[0].partition} has {says} now, not that of the plan{more}"


def _check_logs(plan: OffsetPlan, logs: Mapping[TopicPartition, LogRange]) -> None:
    """A member would begin at its auto.offset.reset if its offset were not in the log."""
    for each in plan.changes:
        log = logs[each.at]
        if each.after is not None and log.clamp(each.after.offset) != each.after.offset:
            raise Moved(
                f"offset {each.after.offset} of {each.at.topic}/{each.at.partition} is not in the log now, "
                f"which has {log.start} to {log.end}: make a new plan"
            )


def _write(cluster: Cluster, plan: OffsetPlan) -> None:
    by_metadata: dict[str, dict[TopicPartition, int]] = {}
    for each in plan.changes:
        if each.after is not None:
            by_metadata.setdefault(each.after.metadata, {})[each.at] = each.after.offset
    with GroupCoordinator(cluster.conf, OffsetCoordinatorConf(plan.group)) as coordinator:
        for metadata, offsets in by_metadata.items():
            coordinator.commit_offsets(offsets, metadata)
        coordinator.delete_offsets([each.at for each in plan.changes if each.after is None])

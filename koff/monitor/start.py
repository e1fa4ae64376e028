"""Three ways to begin: ask the coordinators, read the log, or go on from what was saved.

A way that cannot be gone gives way to the next by itself, and says so: what is not sure is read from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from koff.client import Cluster, Isolation, OffsetSpec, TopicInfo, TopicPartition
from koff.client.groups.coordinators import fetch_groups
from koff.client.groups.responses import FetchedGroups
from koff.errors import ConfigError, ConnectError, KoffError
from koff.monitor.clock import read_moment
from koff.monitor.conf import Way
from koff.monitor.described import build_group
from koff.monitor.requests import Moment, Origin, Saved
from koff.monitor.resume_rules import NOTHING_SAVED, reason_not_to_resume
from koff.monitor.state import StateDir
from koff.records.placement import group_partition
from koff.records.topics import OFFSETS_TOPIC
from koff.tail.reader import StartPositions, TailReaderConf
from koff.tracker import Tracker

log = structlog.get_logger(component="monitor.start")
ASK_S = 30.0
"""How long the coordinators may take to answer."""
ASSUMED_RETENTION_MS = 3_600_000
"""What `delete.retention.ms` is taken for when we may not ask: Kafka's own default is a day."""


@dataclass(frozen=True, slots=True)
class Started:
    """How it began. `begin` says where reading goes on (nowhere: from the log's start); of the partitions
    in `told`, by the offset that reading begins at, only what coordinators say is known as yet: it is newer
    than the log until that was read up to `told_until`."""

    way: Way
    begin: StartPositions | None = None
    told: Mapping[int, int] = field(default_factory=dict)
    told_until: Mapping[int, int] = field(default_factory=dict)


def start(
    way: Way,
    cluster: Cluster,
    tracker: Tracker,
    conf: TailReaderConf,
    *,
    state_dir: StateDir | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Started:
    """Lets the tracker know what it can at once. Raises `ConnectError` when the cluster does not answer."""
    topic = cluster.fetch_topic(conf.topic)
    if topic is None or not topic.partitions or way == "replay":
        return Started("replay")
    if way == "resume" and state_dir is not None:
        progress(f"reading {state_dir.path}")
        began = _resume(
            state_dir,
            Origin(cluster.id, topic.name, topic.topic_id, topic.partitions),
            cluster,
            tracker,
            conf,
        )
        if began is not None:
            return Started("resume", began)
    progress("asking the coordinators for all groups")
    return _snapshot(cluster, tracker, conf, topic)


def _snapshot(cluster: Cluster, tracker: Tracker, conf: TailReaderConf, topic: TopicInfo) -> Started:
    wanted = {p for p in range(topic.partitions) if conf.partitions is None or p in conf.partitions}
    if topic.name != OFFSETS_TOPIC:
        return _replayed(f"{topic.name} is no topic of the coordinators'")
    stable, starts = _bounds(cluster, topic.name, wanted)
    if all(stable[p] <= starts[p] for p in stable):
        return Started("replay")  # nothing was ever written
    try:
        answers = fetch_groups(
            cluster.conf,
            group_filter=lambda group: group_partition(group, topic.partitions) in wanted,
            deadline_s=ASK_S,
        )
    except (ConnectError, ConfigError) as failure:
        return _replayed(str(failure))
    if answers.incomplete:
        return _replayed("; ".join(answers.incomplete))
    if not answers.groups:
        return _replayed("the coordinators tell of no group: there is none, or koff may not DESCRIBE any")
    return _seed(cluster, tracker, topic, stable, answers)


def _seed(
    cluster: Cluster, tracker: Tracker, topic: TopicInfo, stable: Mapping[int, int], answers: FetchedGroups
) -> Started:
    """Fills the tracker; partitions with a group that did not answer are read from their start."""
    unsure = {group_partition(group, topic.partitions) for group in answers.failed}
    ends = cluster.fetch_offsets(TopicPartition(topic.name, p) for p in stable if p not in unsure)
    until = {p.partition: end for p, end in ends.items() if isinstance(end, int)}
    told = {p: stable[p] for p in until}
    ids = _topic_ids(cluster, answers)
    groups = {
        group.name: build_group(group, ids) for group in answers.groups if group.name not in answers.failed
    }
    tracker.identify_topics(ids)
    tracker.seed_partitions(answers.offsets, groups, topic.partitions, told)
    if answers.failed:
        log.warning("some groups did not answer: read from the log", failed=dict(answers.failed))
    log.info(
        "asked the coordinators",
        groups=len(groups),
        offsets=len(answers.offsets),
        by=answers.source,
        **({"why": answers.reason} if answers.reason else {}),
        seconds=round(answers.seconds, 3),
    )
    return Started("snapshot", StartPositions(topic.topic_id, told), told, until)


def _replayed(why: str) -> Started:
    log.warning("no snapshot of all groups: reading the whole log", why=why)
    return Started("replay")


def _topic_ids(cluster: Cluster, answers: FetchedGroups) -> dict[str, str]:
    """Of all topics that members of new groups are assigned; those that were not told are asked for."""
    ids = {name: id_ for group in answers.groups for name, id_ in group.topic_ids.items()}
    untold = {
        topic
        for group in answers.groups
        if group.type in {"consumer", "share"}
        for member in group.members
        for topic in (*member.assigned, *(member.target or ()))
        if topic not in ids
    }
    if untold:
        present = cluster.describe_topics(untold & cluster.fetch_partition_counts().keys())
        ids |= {topic.name: topic.topic_id for topic in present.values() if topic.topic_id}
    return ids


def _bounds(cluster: Cluster, topic: str, partitions: Iterable[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Last stable offset and log start, of those partitions that answer."""
    at = [TopicPartition(topic, p) for p in partitions]
    stable = cluster.fetch_offsets(at, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
    starts = cluster.fetch_offsets(at, OffsetSpec.EARLIEST)
    found = {p.partition: (stable[p], starts[p]) for p in at}
    known = {
        p: (end, first)
        for p, (end, first) in found.items()
        if isinstance(end, int) and isinstance(first, int)
    }
    return {p: end for p, (end, _) in known.items()}, {p: first for p, (_, first) in known.items()}


def _resume(
    state_dir: StateDir, origin: Origin, cluster: Cluster, tracker: Tracker, conf: TailReaderConf
) -> StartPositions | None:
    """Restores each partition that can be resumed. The others are to be read from their start.

    Returns None, and restores nothing, if at most half of the partitions with records can be resumed.
    """
    wanted = [p for p in range(origin.partitions) if conf.partitions is None or p in conf.partitions]
    stable, starts = _bounds(cluster, origin.topic, wanted)
    retention_ms = delete_retention_ms(cluster, origin.topic)
    now = read_moment()
    positions, epochs, anew = dict[int, int](), dict[int, int](), dict[str, list[int]]()
    ends = state_dir.load_ends(origin, now=now)
    if not isinstance(ends, str) and not tracker.partition_count:  # it is not the second try
        tracker.restore_ends(ends)  # before anything else gives partitions their numbers
    for partition, saved in state_dir.load(origin):
        if partition not in stable:
            continue
        bounds = starts[partition], stable[partition]
        why = saved if isinstance(saved, str) else _why_not(saved, now, retention_ms, *bounds)
        if why is None and isinstance(saved, Saved):
            tracker.restore_partition(partition, saved.state)
            positions[partition], epochs[partition] = saved.position, saved.leader_epoch
        elif stable[partition] > starts[partition] and why:
            if isinstance(saved, Saved):
                _forget(state_dir, partition)  # a log that was cut may grow until it looks whole
            anew.setdefault(why, []).append(partition)
    _log_not_resumed(state_dir, positions, anew)
    if sum(stable[p] > starts[p] for p in positions) <= sum(map(len, anew.values())):
        for partition in positions:
            tracker.reset_partition(partition)
        return None
    log.info("resumed", partitions=len(positions), anew=sum(map(len, anew.values())))
    return StartPositions(origin.topic_id, positions, {p: epoch for p, epoch in epochs.items() if epoch >= 0})


def _why_not(saved: Saved, now: Moment, retention_ms: int, log_start: int, last_stable: int) -> str | None:
    return reason_not_to_resume(
        saved, now=now, delete_retention_ms=retention_ms, log_start=log_start, last_stable=last_stable
    )


def _log_not_resumed(
    state_dir: StateDir, positions: Mapping[int, int], anew: Mapping[str, list[int]]
) -> None:
    """Logs one line for each reason. An empty folder is nothing to warn about: it is the first start."""
    if not positions and anew.keys() <= {NOTHING_SAVED}:
        log.info("nothing to resume", path=str(state_dir.path), why=NOTHING_SAVED)
        return
    for why, partitions in anew.items():
        log.warning("partitions are not resumed", partitions=partitions, why=why)


def _forget(state_dir: StateDir, partition: int) -> None:
    try:
        state_dir.forget(partition)
    except KoffError as failure:
        log.warning("state is not removed", partition=partition, why=str(failure))


def delete_retention_ms(cluster: Cluster, topic: str) -> int:
    """How long a deletion can be seen in that topic, at the least."""
    try:
        return int(cluster.fetch_topic_configs(topic)["delete.retention.ms"])
    except (ConnectError, KeyError) as failure:
        log.warning("delete.retention.ms is not told: taken for an hour", topic=topic, why=str(failure))
        return ASSUMED_RETENTION_MS

"""Fact by fact: what the pipeline's tables say, and what the daemon's tracker makes of the same records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from pyspark.sql import functions as f

from koff.lag import UNKNOWN, Reason, reasons
from koff.lag.one_look import judge_rows
from koff.lag.verdict import Verdict
from koff.records import OffsetCommit, decode
from koff.spark.job.end_offsets import Sample
from koff.spark.tables.schemas import Tables
from koff.tracker import PartitionLag, Snapshot, Tracker
from koff.tracker.commit_rows import NOT_SHARED
from koff.tracker.groups import Group, GroupTable, Member
from koff.tracker.topic_ids import fold_topic_id

Record = tuple[int, int, int, bytes | None, bytes | None]
"""Partition of the offsets topic, offset in it, timestamp, key and value."""
Place = tuple[Any, ...]
Facts = Mapping[Place, Any]
"""What is said, by what it is said of."""
_SAMPLED = ("end_offset", "start_offset", "stable_offset")
_TOLD = ("type", "state", "epoch", "assignment_epoch", "protocol_type", "protocol")
_KNOWN = tuple(each.name for each in fields(Group))


def tracked(
    records: Iterable[Record],
    samples: Iterable[Sample],
    shares: Iterable[Record] = (),
    offsets_partitions: int = 0,
) -> Tracker:
    """The tracker after a replay in the order of time, so that of each commit it knows the ends of then.

    `shares` are the records of `__share_group_state`.
    """
    tracker, left = Tracker(), sorted(records, key=lambda record: (record[2], record[0], record[1]))
    tracker.set_offsets_partitions(offsets_partitions)
    for partition, _, seen_ms, key, value in shares:
        tracker.shares.apply(partition, [key], [value], seen_at_ms=seen_ms)
    for at_ms, taken in groupby(samples, sampled_ms):
        upto = next((place for place, record in enumerate(left) if record[2] >= at_ms), len(left))
        _apply(tracker, left[:upto])
        del left[:upto]
        _sample(tracker, list(taken), at_ms)
    _apply(tracker, left)
    return tracker


def sampled_ms(sample: Sample) -> int:
    return round(sample.at.timestamp() * 1000)


def _apply(tracker: Tracker, records: list[Record]) -> None:
    for partition, _, seen_ms, key, value in records:
        tracker.apply(partition, [key], [value], seen_at_ms=seen_ms)


def _sample(tracker: Tracker, taken: list[Sample], at_ms: int) -> None:
    """Tells it what the daemon's sampler would."""
    tracker.watched_partitions()
    tracker.identify_topics({each.topic: each.topic_id for each in taken if each.topic_id})
    tracker.partitions.forget_offsets((each.topic, each.partition) for each in taken if each.gone)
    silent = [each for each in taken if each.end_offset is None and not each.gone]
    tracker.partitions.forget_offsets([(each.topic, each.partition) for each in silent], gone=False)
    ends, starts, stables = (
        {(each.topic, each.partition): known for each in taken if (known := getattr(each, name)) is not None}
        for name in _SAMPLED
    )
    tracker.add_samples(ends=ends, starts=starts, stables=stables, at_ms=at_ms)


def differences(daemons: Facts, pipelines: Facts) -> list[str]:
    """A line for each fact that the two do not tell alike."""
    return [
        f"{at}: daemon {daemons.get(at, 'says nothing')}, pipeline {pipelines.get(at, 'says nothing')}"
        for at in sorted(daemons.keys() | pipelines.keys(), key=str)
        if at not in daemons or at not in pipelines or daemons[at] != pipelines[at]
    ]


def logged_commits(records: Iterable[Record]) -> Facts:
    """Every commit that is in the log, and every deletion of one."""
    read = ((record, decode(record[3], record[4]).record) for record in records)
    return {
        record[:2]: (commit.group, commit.topic, commit.partition, commit.value and commit.value.offset)
        for record, commit in read
        if isinstance(commit, OffsetCommit)
    }


def written_commits(tables: Tables) -> Facts:
    rows = tables.frame("commits").collect()
    return _once(
        ((row.offsets_partition, row.log_offset), (row["group"], row.topic, row.partition, row.committed))
        for row in rows
    )


def tracked_slots(snapshot: Snapshot) -> Facts:
    """By slot: the committed offset, the time of the commit, and the id of the topic.

    Share groups do not commit.
    """
    return {
        (shard.groups[group].name, snapshot.partitions.topic[at], snapshot.partitions.partition[at]): told
        for shard in snapshot.shards.values()
        for row, (group, at, *told) in enumerate(
            zip(
                *(column.tolist() for column in (shard.group, shard.partition)),
                *(column.tolist() for column in (shard.committed, shard.committed_at, shard.topic_id)),
                strict=True,
            )
        )
        if shard.share_partition is None or shard.share_partition[row] == NOT_SHARED
    }


def written_slots(tables: Tables) -> Facts:
    rows = tables.frame("current").withColumn("at_ms", f.unix_millis("commit_timestamp")).collect()
    slots = _once((_slot(row), row) for row in rows)
    return {
        at: [row.committed, row.at_ms, fold_topic_id(row.topic_id or "")]
        for at, row in slots.items()
        if not row.deleted
    }


def tracked_groups(snapshot: Snapshot) -> Facts:
    """Every group there is, those that have only committed as well."""
    return {at: value for group in snapshot.groups() for at, value in _told(group)}


def written_groups(tables: Tables) -> Facts:
    """By the newest row of each group; one without, or that is gone, has only committed."""
    committing = {row["group"] for row in tables.frame("current").where("not deleted").collect()}
    facts = {at: value for name in committing for at, value in _told(Group(name))}
    newest = {row["group"]: row for row in tables.frame("groups").orderBy("log_offset").collect()}
    for name, row in newest.items():
        if not row.gone:
            facts |= {(name, each): row[each] for each in (*_TOLD, "members")}
    return facts


def _told(group: Group) -> Iterator[tuple[Place, Any]]:
    for each in _TOLD:
        yield (group.name, each), getattr(group, each)
    yield (group.name, "members"), sum(member.present for member in group.members)


def tracked_states(snapshot: Snapshot) -> Facts:
    """All that is known of each group that has records of its own."""
    groups = (group for group in snapshot.groups() if group != Group(group.name))
    return {(group.name, each): getattr(group, each) for group in groups for each in _KNOWN}


def written_states(tables: Tables) -> Facts:
    facts: dict[Place, Any] = {}
    for row in tables.frame("group_states").where("type is not null").collect():
        group = GroupTable.from_state(json.loads(row.saved)).get(row["group"])
        assert group is not None
        assert (group.type, group.state) == (row.type, row.state)
        if group != Group(group.name):
            facts |= {(group.name, each): getattr(group, each) for each in _KNOWN}
    return facts


def tracked_assignments(snapshot: Snapshot) -> Facts:
    """Who has what; topics by name where it is known."""
    return _once(
        ((group, member.id, topic, partition), (member.client_id, member.client_host, member.instance_id))
        for group, member, topic, partition in _assigned(snapshot)
    )


def written_assignments(tables: Tables) -> Facts:
    """By the newest change of each group."""
    rows = tables.frame("assignments").orderBy("log_offset").collect()
    newest = {row["group"]: row.log_offset for row in rows}
    return _once(
        (
            (row["group"], row.member_id, row.topic, row.partition),
            (row.client_id, row.client_host, row.instance_id),
        )
        for row in rows
        if row.log_offset == newest[row["group"]] and row.member_id is not None
    )


def tracked_clients(snapshot: Snapshot) -> Facts:
    """The clients that have each partition."""
    clients: dict[Place, list[tuple[str, str]]] = {}
    for group, member, topic, partition in _assigned(snapshot):
        clients.setdefault((group, topic, partition), []).append((member.client_id, member.client_host))
    return clients


def written_clients(tables: Tables) -> Facts:
    """As the lag is joined with them."""
    clients: dict[Place, list[tuple[str, str]]] = {}
    for row in tables.frame("group_states").collect():
        for each in row.assigned:
            at = row["group"], each.topic, each.partition
            clients.setdefault(at, []).append((each.client_id, each.client_host))
    return clients


def _assigned(snapshot: Snapshot) -> Iterator[tuple[str, Member, str, int]]:
    for group in snapshot.groups():
        names = snapshot.topic_names if group.assigned_by_id else {}
        for member in group.members:
            for topic, partitions in member.assigned.items():
                for partition in partitions:
                    yield group.name, member, names.get(topic, topic), partition


def tracked_lags(snapshot: Snapshot) -> Facts:
    """Every row of lag. A time lag that is only a lower bound, the pipeline does not give.

    The pipeline does not see share groups move: what follows from that is left out.
    """
    types = {group.name: group.type for group in snapshot.groups()}
    bounds, beside, statuses = set(_bounds(snapshot)), _of_partitions(snapshot), _judge(snapshot)
    facts: dict[Place, Any] = {}
    for row in snapshot.rows():
        at = row.group, row.topic, row.partition
        said = {name: of(row) for name, of in _LAG.items()} | {"type": types[row.group]}
        said["status"] = statuses.get(at, Verdict.UNKNOWN).name
        if row.reasons == Reason.NO_COMMIT:
            said |= beside.get(at[1:], {})
        if at in bounds:
            said["time_lag_s"] = None
        facts |= {(*at, name): value for name, value in said.items() if _is_compared(said["type"], name)}
    return facts


def _judge(snapshot: Snapshot) -> dict[Place, Verdict]:
    """The verdict on each row with a commit, by itself: the pipeline follows no group over time."""
    found: dict[Place, Verdict] = {}
    assert snapshot.now_ms is not None
    for shard in snapshot.shards.values():
        places, times = shard.partition, snapshot.time_lags(shard)
        assert times is not None
        empty = [group.state == "Empty" and group.type != "simple" for group in shard.groups]
        verdicts = judge_rows(
            at_s=snapshot.now_ms / 1000,
            counts=snapshot.lags(shard).known,
            committed=np.maximum(shard.committed, 0),
            start=snapshot.partitions.start[places],
            end=snapshot.partitions.end[places],
            times=times,
            moved_at_s=np.where(shard.moved_at < 0, np.nan, shard.moved_at / 1000),
            consume=snapshot.consume_rates(shard),
            produce=snapshot.produce_rates(shard),
            is_empty=np.array(empty, np.bool_)[shard.group],
        )
        for row, verdict in enumerate(verdicts.tolist()):
            at = snapshot.partitions.topic[places[row]], snapshot.partitions.partition[places[row]]
            found[(shard.groups[shard.group[row]].name, *at)] = Verdict(verdict)
    return found


def _is_compared(type_: str, name: str) -> bool:
    return type_ != "share" or name not in ("status", "consume_per_s")


def _bounds(snapshot: Snapshot) -> Iterator[Place]:
    at = snapshot.partitions
    for shard in snapshot.shards.values():
        assert shard.time_lag is not None
        for row in np.flatnonzero(shard.time_lag.at_least).tolist():
            place = shard.partition[row]
            yield shard.groups[shard.group[row]].name, at.topic[place], at.partition[place]


def _of_partitions(snapshot: Snapshot) -> dict[Place, dict[str, Any]]:
    """What the tracker knows, and its rows do not tell, where a partition is assigned and not committed."""
    at = snapshot.partitions
    assert at.produce is not None
    why = reasons(end=at.end, committed=np.full(len(at.end), UNKNOWN), topic_gone=at.gone)
    known = zip(at.produce.per_s.tolist(), at.produce.known.tolist(), strict=True)
    rates = (per_s if sure else None for per_s, sure in known)
    places = zip(at.topic, at.partition, strict=True)
    return {
        place: {"reasons": _names(bits), "produce_per_s": _rate(per_s)}
        for place, bits, per_s in zip(places, why.tolist(), rates, strict=True)
    }


def written_lags(tables: Tables, at_ms: int) -> Facts:
    """The rows of the sample of that time."""
    rows = tables.frame("lag").where(f.unix_millis("at") == at_ms).collect()
    slots = _once((_slot(row), row) for row in rows)
    facts = {
        (*at, name): row[name]
        for at, row in slots.items()
        for name in (*_LAG, "status", "type")
        if _is_compared(row.type, name)
    }
    return {at: tuple(value) if at[-1] == "reasons" else value for at, value in facts.items()}


def _seconds(number: float | None) -> Any:
    """Each of the two counts tenths of a second from another moment."""
    return None if number is None else pytest.approx(number, rel=0.001, abs=0.2)


def _rate(number: float | None) -> Any:
    return None if number is None else pytest.approx(number, rel=0.02, abs=0.001)


def _names(why: int) -> tuple[str, ...]:
    return Reason(why).names


_LAG: Mapping[str, Callable[[PartitionLag], Any]] = {
    "state": lambda row: row.state,
    "committed": lambda row: row.committed,
    "end_offset": lambda row: row.end,
    "lag": lambda row: row.lag,
    "readable": lambda row: row.readable,
    "lost": lambda row: row.lost,
    "lag_to_stable": lambda row: row.lag_to_stable,
    "time_lag_s": lambda row: _seconds(row.time_lag_s),
    "reasons": lambda row: _names(row.reasons),
    "consume_per_s": lambda row: _rate(row.pace.consume_per_s),
    "produce_per_s": lambda row: _rate(row.pace.produce_per_s),
    "client_id": lambda row: row.member and row.member.client_id,
    "client_host": lambda row: row.member and row.member.client_host,
}


def _slot(row: Any) -> Place:
    return row["group"], row.topic, row.partition


def _once(pairs: Iterable[tuple[Place, Any]]) -> dict[Place, Any]:
    """A dict of what is said of no place twice."""
    facts: dict[Place, Any] = {}
    for at, value in pairs:
        assert at not in facts, f"{at} is there twice"
        facts[at] = value
    return facts


OF_STATE: Mapping[str, tuple[Callable[[Snapshot], Facts], Callable[[Tables], Facts]]] = {
    "commits": (tracked_slots, written_slots),
    "groups": (tracked_groups, written_groups),
    "states": (tracked_states, written_states),
    "assignments": (tracked_assignments, written_assignments),
    "clients": (tracked_clients, written_clients),
}
"""What the daemon says, and what the tables say, of all that does not depend on samples."""

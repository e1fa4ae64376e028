"""What is known of a cluster: the daemon's tracker and verdicts, fed with rows of `records` and samples.

All that is derived (rows of `groups` and `lag`, verdicts) is a function of these rows and samples in the
order of their batches. So a process that begins later derives the same: from the saved state of a batch, and
from the batches since then.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from koff.lag import Reason
from koff.monitor.past_ends import OLDEST_MS
from koff.monitor.state_file import decode_state, encode_state
from koff.serve.events.changes import ClusterChanges, look_at
from koff.spark.job.samples import Sample, Slot
from koff.spark.rows.commit_bytes import encode_commits
from koff.spark.rows.newest import LOG_ORDER
from koff.tracker import Group, Objective, ShareLag, ShownNames, Snapshot, State, Tracker
from koff.tracker.commit_rows import DESCRIBED
from koff.tracker.saved_ends import restore_ends, save_ends
from koff.view.activity import RecentActivity
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness

STALE_INTERVALS = 5
"""Lag counts for so many sampling intervals (of at least 5 s)."""
_GROUP_KEYS = ("offsets_partition", "group", "timestamp")
GroupRow = dict[str, Any]
"""A row of `groups`, without cluster and number."""


class ClusterState:
    """The state of one cluster. `interval_s` is the time between two samples. Only one thread may use it."""

    def __init__(
        self,
        cluster: str,
        interval_s: float,
        shown: ShownNames | None = None,
        objectives: Sequence[Objective] = (),
    ) -> None:
        self.cluster = cluster
        self.tracker = Tracker()
        self.tracker.partitions.expect_samples(interval_s)
        gap_ms = round(STALE_INTERVALS * max(interval_s, 5.0) * 1000)
        self.tracker.partitions.expect_past_ends(OLDEST_MS / 1000, gap_ms=gap_ms)
        self._shown, self._objectives = shown or ShownNames(), tuple(objectives)
        self.tracker.show(self._shown)
        self._activity, self._changes = RecentActivity(), ClusterChanges()
        self.topic_ids: dict[str, str] = {}
        """By name, the ids of topics as of the last sample."""
        self._described: dict[tuple[int, str], GroupRow] = {}
        """By partition of the offsets topic and group, the last row of `groups`."""

    # --- Records -----------------------------------------------------------------------------------------

    def apply_commits(self, rows: pa.Table, seen_at_ms: int) -> None:
        """Applies commits (columns of `records`), which were made up to `seen_at_ms`."""
        rows = rows.sort_by(LOG_ORDER)
        numbers = rows.column("offsets_partition").to_numpy()
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        keys, values = encode_commits(rows)
        for first, end in zip(firsts, [*firsts[1:], len(rows)], strict=True):
            own = slice(first, end)
            self.tracker.apply(
                int(numbers[first]), keys[own], values[own], seen_at_ms=seen_at_ms, is_live=False
            )

    def apply_group_records(self, rows: Iterable[Mapping[str, Any]], seen_at_ms: int) -> Iterator[GroupRow]:
        """Applies records about groups, by partition in log order. Yields the rows of `groups`.

        Brokers write all records of a change at once, with one timestamp. The states between these records
        never existed, so a change is complete when the group or the timestamp differs.
        """
        for (partition, name, _), records in groupby(
            rows, key=lambda row: tuple(row[k] for k in _GROUP_KEYS)
        ):
            of_change = list(records)
            if name is None:
                continue
            before = self._described.get((partition, name)) or self._describe(partition, name)
            keys, values = ([row[column] for row in of_change] for column in ("key", "value"))
            self.tracker.apply(partition, keys, values, seen_at_ms=seen_at_ms, is_live=False)
            now = self._described[partition, name] = self._describe(partition, name)
            if now["gone"]:
                del self._described[partition, name]
            if now != before:
                last = of_change[-1]
                at = {column: last[column] for column in ("offsets_partition", "log_offset", "timestamp")}
                yield at | {"group": name} | now

    def _describe(self, partition: int, name: str) -> GroupRow:
        shard = self.tracker.shards.get(partition)
        return describe_group(shard.groups.get(name) if shard else None, self._topic_names)

    @property
    def _topic_names(self) -> dict[str, str]:
        return {topic_id: name for name, topic_id in self.topic_ids.items()}

    # --- Samples -----------------------------------------------------------------------------------------

    def note_topics(self, topic_ids: Mapping[str, str] | None) -> None:
        """Sets the present ids of topics, by name; None: as they are. Call it before records are applied."""
        if topic_ids is not None:
            self.topic_ids = dict(topic_ids)
            self.tracker.identify_topics(self.topic_ids)

    def apply_sample(self, sample: Sample) -> ClusterView:
        """Applies the sample, after the records up to it. Returns the view of that moment, with verdicts."""
        tracker, at_ms = self.tracker, sample.at_ms
        tracker.set_offsets_partitions(sample.offsets_partitions)
        if sample.shares or tracker.shares.described_ms:
            lags = {group: [ShareLag(*row[:4]) for row in rows] for group, rows in sample.shares.items()}
            tracker.shares.describe(lags, requested_ms=at_ms)
        used = set(tracker.watched_partitions())
        rows = {at: offsets for at, *offsets in _list_rows(sample.rows) if at in used}
        known = {
            name: {at: offsets[column] for at, offsets in rows.items() if offsets[column] is not None}
            for column, name in enumerate(("start", "end", "stable"))
        }
        absent = used - known["end"].keys()
        gone = {at for at in absent if (at in rows and rows[at][-1]) or self._is_unlisted(at[0])}
        tracker.partitions.forget_offsets(sorted(gone), gone=True)
        tracker.partitions.forget_offsets(sorted(absent - gone), gone=False)
        tracker.add_samples(ends=known["end"], starts=known["start"], stables=known["stable"], at_ms=at_ms)
        for past_ms, offsets in sample.past.items():
            tracker.partitions.add_past_ends(offsets, past_ms)
        if sample.retention_s is not None:
            tracker.partitions.retention_s = sample.retention_s
        snapshot = _withhold(tracker.take_snapshot(at_ms), sample)
        view = ClusterView(
            self.cluster,
            snapshot,
            Readiness(True, "ready"),
            MonitorStats(held_back_partitions=frozenset(sample.held)),
            activity=self._activity,
            objectives=self._objectives,
            shown=self._shown,
        )
        return look_at(view, self._changes, at_ms)[0]

    def _is_unlisted(self, topic: str) -> bool:
        """Whether the cluster has no such topic. Brokers before Kafka 2.8 list no ids."""
        return bool(self.topic_ids) and topic not in self.topic_ids

    # --- Saved -------------------------------------------------------------------------------------------

    def save(self) -> dict[str, bytes]:
        """What `restore` needs, by key."""
        states = {f"offsets/{number}": self.tracker.save_partition(number) for number in self.tracker.shards}
        states["ends"] = save_ends(self.tracker.partitions)
        states["verdicts"] = self._changes.save()
        states["topics"] = State(
            {"ids": self.topic_ids, "retention_s": self.tracker.partitions.retention_s}, {}
        )
        return {key: _encode(state) for key, state in states.items() if state is not None}

    def restore(self, saved: Mapping[str, bytes]) -> None:
        """Takes over what `save` returned. Call it before all else."""
        states = {key: decode_state(data)[1] for key, data in saved.items()}
        topics = states["topics"].facts
        self.note_topics(topics["ids"])
        self.tracker.partitions.retention_s = topics["retention_s"]
        for key, state in states.items():
            if key.startswith("offsets/"):
                self.tracker.restore_partition(int(key.removeprefix("offsets/")), state)
        restore_ends(self.tracker.partitions, states["ends"])
        self._activity.saved_verdicts = states["verdicts"]


def _list_rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Topic and partition, then the other columns of `OFFSETS`, of each row."""
    topics, partitions, *others = (column.to_pylist() for column in rows.columns)
    return zip(zip(topics, partitions, strict=True), *others, strict=True)


def _encode(state: State) -> bytes:
    return b"".join(encode_state({"facts": state.facts}, state.columns))


def _withhold(snapshot: Snapshot, sample: Sample) -> Snapshot:
    """The snapshot without the lags that are not known."""
    bits = {}
    for number, shard in snapshot.shards.items():
        hidden = np.zeros(len(shard.committed), np.uint8)
        if number in sample.held:
            hidden[:] = Reason.COMMITS_NOT_CURRENT
        if sample.unknown_shares and shard.share_partition is not None:
            for row in np.flatnonzero(shard.share_partition == DESCRIBED).tolist():
                at = int(shard.partition[row])
                slot: Slot = (
                    shard.groups[shard.group[row]].name,
                    snapshot.partitions.topic[at],
                    int(snapshot.partitions.partition[at]),
                )
                if slot in sample.unknown_shares:
                    hidden[row] = Reason.COMMITS_NOT_CURRENT
        if hidden.any():
            bits[number] = hidden
    return snapshot.withhold(bits, {}) if bits else snapshot


_NO_GROUP: GroupRow = {
    **dict.fromkeys(("type", "state", "epoch", "assignment_epoch", "protocol_type", "protocol", "members")),
    "gone": True,
}


def describe_group(group: Group | None, topic_names: Mapping[str, str]) -> GroupRow:
    """What a row of `groups` says of a group; None: it was deleted."""
    if group is None:
        return _NO_GROUP
    return {
        "type": group.type,
        "state": group.state,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "members": [
            {
                "id": member.id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "instance_id": member.instance_id,
                "assigned": [
                    {
                        "topic": topic_names.get(topic, topic) if group.assigned_by_id else topic,
                        "partition": partition,
                    }
                    for topic, partitions in sorted(member.assigned.items())
                    for partition in partitions
                ],
            }
            for member in group.members
            if member.present
        ],
        "gone": False,
    }

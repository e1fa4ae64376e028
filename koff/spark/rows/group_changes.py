"""Records about groups -> what the groups were after each change, by the tracker's own rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from koff.records import decode
from koff.tracker.groups import Group, GroupTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EMPTY = GroupTable().to_state()
OUT = (
    "offsets_partition INT, log_offset BIGINT, timestamp TIMESTAMP, `group` STRING, kind STRING, body STRING"
)
GROUP = (
    "type STRING, state STRING, epoch INT, assignment_epoch INT, protocol_type STRING, protocol STRING, "
    "members INT, gone BOOLEAN"
)
ASSIGNMENT = (
    "ARRAY<STRUCT<member_id: STRING, client_id: STRING, client_host: STRING, instance_id: STRING, "
    "topic: STRING, partition: INT>>"
)
SAVED = (
    "type STRING, state STRING, saved STRING, assigned ARRAY<STRUCT<topic: STRING, partition: INT, "
    "client_id: STRING, client_host: STRING>>"
)


class GroupRecord(NamedTuple):
    """A record about a group."""

    log_offset: int
    timestamp: Any
    group: str | None
    key: bytes | None
    value: bytes | None


class Change(NamedTuple):
    """What is to be written of a group: `kind` group, assignment or saved, `body` its JSON."""

    log_offset: int
    timestamp: Any
    group: str
    kind: str
    body: str


def changes(
    rows: Iterable[GroupRecord], saved: Mapping[str, tuple[int, str | None]], topic_names: Mapping[str, str]
) -> Iterator[Change]:
    """What the records of one partition of the offsets topic, in log order, change.

    `saved` is what was known before, by group: up to which log offset, and the state (None: gone). A group
    whose first record here is older than that begins from nothing: these records are history. Brokers write
    the records of a change at once, with one timestamp: what is between them was never so.
    """
    runs = _Runs(saved, topic_names)
    before: GroupRecord | None = None
    for row in rows:
        if before is not None and (row.group, row.timestamp) != (before.group, before.timestamp):
            yield from runs.end(before)
        runs.apply(row)
        before = row
    if before is not None:
        yield from runs.end(before)
    yield from runs.saved()


class _Runs:
    def __init__(self, saved: Mapping[str, tuple[int, str | None]], topic_names: Mapping[str, str]) -> None:
        self._saved, self._names = saved, topic_names
        self._tables: dict[str, GroupTable] = {}
        self._seen: dict[str, tuple[str, list[Any]]] = {}
        self._last: dict[str, GroupRecord] = {}

    def apply(self, row: GroupRecord) -> None:
        if row.group is None:
            return
        if row.group not in self._tables:
            table = self._tables[row.group] = self._begin(row)
            group = table.get(row.group)
            self._seen[row.group] = (_told(group), self._assigned(group))
        self._tables[row.group].apply(decode(row.key, row.value))
        self._last[row.group] = row

    def end(self, row: GroupRecord) -> Iterator[Change]:
        """After the last record of a change."""
        if row.group is None:
            return
        group = self._tables[row.group].get(row.group)
        told, assigned = _told(group), self._assigned(group)
        told_before, assigned_before = self._seen[row.group]
        self._seen[row.group] = (told, assigned)
        at = (row.log_offset, row.timestamp, row.group)
        if told != told_before:
            yield Change(*at, "group", told)
        if assigned != assigned_before:
            nobody = [dict.fromkeys(("member_id", "topic", "partition"))]
            yield Change(*at, "assignment", json.dumps(assigned or nobody))

    def saved(self) -> Iterator[Change]:
        """What every group that was spoken of is in the end."""
        for name, row in self._last.items():
            table = self._tables[name]
            group = table.get(name)
            body = {
                "type": group.type if group else None,
                "state": group.state if group else None,
                "saved": json.dumps(table.to_state()) if group else None,
                "assigned": [
                    {key: each[key] for key in ("topic", "partition", "client_id", "client_host")}
                    for each in self._assigned(group)
                ],
            }
            yield Change(row.log_offset, row.timestamp, name, "saved", json.dumps(body))

    def _begin(self, row: GroupRecord) -> GroupTable:
        assert row.group is not None
        until, state = self._saved.get(row.group, (-1, None))
        known = state is not None and until < row.log_offset
        return GroupTable.from_state(json.loads(state) if known and state else _EMPTY)

    def _assigned(self, group: Group | None) -> list[Any]:
        if group is None:
            return []
        return [
            {
                "member_id": member.id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "instance_id": member.instance_id,
                "topic": self._names.get(topic, topic) if group.assigned_by_id else topic,
                "partition": partition,
            }
            for member in group.members
            for topic, partitions in sorted(member.assigned.items())
            for partition in partitions
        ]


def _told(group: Group | None) -> str:
    if group is None:
        return json.dumps({"gone": True})
    return json.dumps(
        {
            "type": group.type,
            "state": group.state,
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "protocol_type": group.protocol_type,
            "protocol": group.protocol,
            "members": sum(member.present for member in group.members),
            "gone": False,
        }
    )


def group_changes(records: DataFrame, states: DataFrame, topic_names: Mapping[str, str]) -> DataFrame:
    """`changes` of all partitions of the offsets topic in a batch of one cluster; columns as `OUT`.

    `records` as the source gives them, `states` the cluster's rows of `group_states`.
    """
    import pandas as pd

    names = dict(topic_names)

    def of_partition(records_: pd.DataFrame, states_: pd.DataFrame) -> pd.DataFrame:
        ordered = records_.sort_values("log_offset")
        columns = (ordered[name] for name in ("log_offset", "timestamp", "group", "key", "value"))
        rows = (GroupRecord(*each) for each in zip(*columns, strict=True))
        known = zip(states_["group"], states_["log_offset"], states_["saved"], strict=True)
        saved = {group: (int(offset), state or None) for group, offset, state in known}
        found = list(changes(rows, saved, names))
        table = pd.DataFrame(found, columns=list(Change._fields))
        number = records_["offsets_partition"].iloc[0] if len(records_) else -1
        table.insert(0, "offsets_partition", number)
        table["timestamp"] = table["timestamp"].astype("datetime64[us]")
        return table

    wanted = ("offsets_partition", "log_offset", "timestamp", "group", "key", "value")
    left = records.select(*wanted).groupBy("offsets_partition")
    right = states.select("offsets_partition", "log_offset", "group", "saved").groupBy("offsets_partition")
    return left.cogroup(right).applyInPandas(of_partition, OUT)

"""Derives what the groups were after each change from the records about groups, by the tracker's rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from koff.records import decode
from koff.tracker.groups import Group, GroupTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EMPTY = GroupTable().to_state()
CHANGE_DDL = (
    "offsets_partition INT, log_offset BIGINT, timestamp TIMESTAMP, `group` STRING, kind STRING, body STRING"
)
"""A row for each `Change`."""
GROUP_DDL = (
    "type STRING, state STRING, epoch INT, assignment_epoch INT, protocol_type STRING, protocol STRING, "
    "members INT, gone BOOLEAN"
)
"""The body of a change of kind `group`."""
ASSIGNMENT_DDL = (
    "ARRAY<STRUCT<member_id: STRING, client_id: STRING, client_host: STRING, instance_id: STRING, "
    "topic: STRING, partition: INT>>"
)
"""The body of a change of kind `assignment`."""
SAVED_DDL = (
    "type STRING, state STRING, saved STRING, assigned ARRAY<STRUCT<topic: STRING, partition: INT, "
    "client_id: STRING, client_host: STRING>>"
)
"""The body of a change of kind `saved`."""


class GroupRecord(NamedTuple):
    """A record about a group."""

    log_offset: int
    timestamp: Any
    group: str | None
    key: bytes | None
    value: bytes | None


class Change(NamedTuple):
    """A row to write about a group: `kind` is group, assignment or saved, `body` is JSON."""

    log_offset: int
    timestamp: Any
    group: str
    kind: str
    body: str


def derive_changes(
    rows: Iterable[GroupRecord], saved: Mapping[str, tuple[int, str | None]], topic_names: Mapping[str, str]
) -> Iterator[Change]:
    """The changes that the records of one partition of the offsets topic make, in log order.

    `saved` maps a group to the log offset of its last record that was applied, and its state after that
    record (None: the group was deleted). If the first record of a group here is not newer than that, the
    records are history that is read again, and the group starts from an empty state.
    """
    replay = _GroupReplay(saved, topic_names)
    previous: GroupRecord | None = None
    for row in rows:
        # Brokers write all records of a change at once, with one timestamp. The states between these records
        # never existed, so a change is complete when the group or the timestamp differs.
        if previous is not None and (row.group, row.timestamp) != (previous.group, previous.timestamp):
            yield from replay.end_change(previous)
        replay.apply_record(row)
        previous = row
    if previous is not None:
        yield from replay.end_change(previous)
    yield from replay.save_states()


class _GroupReplay:
    """Applies the records of one partition of the offsets topic, with a `GroupTable` for each group."""

    def __init__(self, saved: Mapping[str, tuple[int, str | None]], topic_names: Mapping[str, str]) -> None:
        self._saved, self._topic_names = saved, topic_names
        self._tables: dict[str, GroupTable] = {}
        self._before: dict[str, tuple[str, list[Any]]] = {}
        """Each group's description and assignment after its last change."""
        self._last: dict[str, GroupRecord] = {}

    def apply_record(self, row: GroupRecord) -> None:
        """Applies the next record in log order."""
        if row.group is None:
            return
        if row.group not in self._tables:
            table = self._tables[row.group] = self._restore_table(row)
            group = table.get(row.group)
            self._before[row.group] = (_describe_group(group), self._list_assigned(group))
        self._tables[row.group].apply(decode(row.key, row.value))
        self._last[row.group] = row

    def end_change(self, row: GroupRecord) -> Iterator[Change]:
        """How the group differs from before the change of which `row` is the last record."""
        if row.group is None:
            return
        group = self._tables[row.group].get(row.group)
        description, assigned = _describe_group(group), self._list_assigned(group)
        description_before, assigned_before = self._before[row.group]
        self._before[row.group] = (description, assigned)
        at = (row.log_offset, row.timestamp, row.group)
        if description != description_before:
            yield Change(*at, "group", description)
        if assigned != assigned_before:
            # `explode` makes no row of an empty array. A row of nulls says that no member has a partition.
            unassigned = [dict.fromkeys(("member_id", "topic", "partition"))]
            yield Change(*at, "assignment", json.dumps(assigned or unassigned))

    def save_states(self) -> Iterator[Change]:
        """The final state of each group that had a record."""
        for name, row in self._last.items():
            table = self._tables[name]
            group = table.get(name)
            body = {
                "type": group.type if group else None,
                "state": group.state if group else None,
                "saved": json.dumps(table.to_state()) if group else None,
                "assigned": [
                    {key: slot[key] for key in ("topic", "partition", "client_id", "client_host")}
                    for slot in self._list_assigned(group)
                ],
            }
            yield Change(row.log_offset, row.timestamp, name, "saved", json.dumps(body))

    def _restore_table(self, row: GroupRecord) -> GroupTable:
        """The state of the group before its first record here."""
        assert row.group is not None
        last_offset, state = self._saved.get(row.group, (-1, None))
        is_newer = last_offset < row.log_offset
        return GroupTable.from_state(json.loads(state) if state and is_newer else _EMPTY)

    def _list_assigned(self, group: Group | None) -> list[Any]:
        """A row for each partition of each member."""
        if group is None:
            return []
        return [
            {
                "member_id": member.id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "instance_id": member.instance_id,
                "topic": self._topic_names.get(topic, topic) if group.assigned_by_id else topic,
                "partition": partition,
            }
            for member in group.members
            for topic, partitions in sorted(member.assigned.items())
            for partition in partitions
        ]


def _describe_group(group: Group | None) -> str:
    """The body of a change of kind `group`."""
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


def describe_saved(name: str, saved: str | None) -> str:
    """The body of the last change of kind `group` that led to a saved state (None: the group is deleted)."""
    return _describe_group(GroupTable.from_state(json.loads(saved)).get(name) if saved else None)


def _list_texts(column: Iterable[Any]) -> list[str | None]:
    """The texts of a column of pandas, None for null: since pandas 3, a null is NaN there, which is true."""
    return [text if isinstance(text, str) else None for text in column]


def derive_group_changes(records: DataFrame, states: DataFrame, topic_names: Mapping[str, str]) -> DataFrame:
    """`derive_changes` for all partitions of the offsets topic in a batch of one cluster: `CHANGE_DDL` rows.

    `records` are rows of the source, `states` are the cluster's rows of the table `group_states`.
    `topic_names` maps topic ids to names.
    """
    import pandas as pd

    names = dict(topic_names)  # workers get a copy by pickle, whatever mapping the caller has

    def derive_in_partition(records_: pd.DataFrame, states_: pd.DataFrame) -> pd.DataFrame:
        # Spark passes a partition's rows in no particular order.
        ordered = records_.sort_values("log_offset")
        groups = _list_texts(ordered["group"])
        columns = (ordered["log_offset"], ordered["timestamp"], groups, ordered["key"], ordered["value"])
        rows = (GroupRecord(*fields) for fields in zip(*columns, strict=True))
        texts = (_list_texts(states_[name]) for name in ("group", "saved"))
        states_by_group = zip(*texts, states_["log_offset"], strict=True)
        saved = {group: (int(offset), state) for group, state, offset in states_by_group if group}
        table = pd.DataFrame(list(derive_changes(rows, saved, names)), columns=list(Change._fields))
        # Spark also calls this for a partition that has states but no records in this batch: it gets no rows.
        number = records_["offsets_partition"].iloc[0] if len(records_) else -1
        table.insert(0, "offsets_partition", number)
        # An empty table has no type of its own for times, and Arrow needs one.
        table["timestamp"] = table["timestamp"].astype("datetime64[us]")
        return table

    columns = ("offsets_partition", "log_offset", "timestamp", "group", "key", "value")
    left = records.select(*columns).groupBy("offsets_partition")
    right = states.select("offsets_partition", "log_offset", "group", "saved").groupBy("offsets_partition")
    return left.cogroup(right).applyInPandas(derive_in_partition, CHANGE_DDL)

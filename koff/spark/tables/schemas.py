"""The six tables: their columns, with what Delta stores as comments, and how they are stored.

Offsets are Kafka's, times UTC, `..._s` are seconds, `..._per_s` offsets a second. Null means unknown. `day`
is the day (UTC) of the row's time. All tables are partitioned by cluster, and by day if they have that
column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

VERSION = 4
"""The version of the schemas below."""
PROPERTY = "koff.schema"
DISTINCT = ("log_offset", "committed", "timestamp", "commit_timestamp")
"""Nearly every row has another value in these columns: Parquet need not look for equal ones."""


class Column(NamedTuple):
    """A column: its name, its type, and what it means. `required`: never null."""

    name: str
    type: pa.DataType
    text: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `key` tells its rows apart.

    `time` is the column whose day partitions the table ("": no day does). Delta has the least and the largest
    value in each file of the columns `filtered`. Maintenance sorts the rows of days that have ended by
    `sorted_by` ("": not at all).
    """

    text: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    time: str = ""
    filtered: tuple[str, ...] = ()
    sorted_by: str = ""

    @property
    def partitioning(self) -> tuple[str, ...]:
        """The columns that partition the table."""
        return ("cluster", "day") if self.time else ("cluster",)

    @property
    def schema(self) -> pa.Schema:
        """All columns. A column that is required is not nullable."""
        return pa.schema([pa.field(each.name, each.type, not each.required) for each in self.columns])

    def list_columns(self) -> Any:
        """The columns as a `StructType`, with comments."""
        from pyspark.sql.pandas.types import from_arrow_schema

        fields = from_arrow_schema(self.schema)
        for field, column in zip(fields, self.columns, strict=True):
            field.metadata = {"comment": column.text}
        return fields

    def make_properties(self) -> dict[str, str]:
        """The properties of Delta, with the version of the schema."""
        return {
            PROPERTY: str(VERSION),
            # Readers of all kinds must be able to read the tables.
            "delta.enableDeletionVectors": "false",
            # A version can be read until its files are deleted, so its log is of no use for longer.
            "delta.logRetentionDuration": "interval 7 days" if self.time else "interval 1 days",
            "delta.deletedFileRetentionDuration": "interval 7 days" if self.time else "interval 1 days",
            "delta.checkpointInterval": "50",
            "delta.dataSkippingStatsColumns": ",".join(f"`{name}`" for name in self.filtered),
        }


_TEXT, _BYTES, _BOOL = pa.string(), pa.binary(), pa.bool_()
_INT, _LONG, _DOUBLE = pa.int32(), pa.int64(), pa.float64()
_TIME, _DATE = pa.timestamp("us", "UTC"), pa.date32()
_ASSIGNED = pa.struct({"topic": _TEXT, "partition": _INT})
_MEMBERS = pa.list_(
    pa.struct(
        {
            **dict.fromkeys(("id", "client_id", "client_host", "instance_id"), _TEXT),
            "assigned": pa.list_(_ASSIGNED),
        }
    )
)
_PARTS = pa.list_(
    pa.struct(
        {
            "partition": _INT,
            **dict.fromkeys(("first", "next", "start", "end"), _LONG),
            **dict.fromkeys(("start_epoch", "end_epoch"), _INT),
        }
    )
)
_CLUSTER = Column("cluster", _TEXT, "The cluster's name, or its id.", True)
_NUMBER = Column("number", _LONG, "The number of the batch that wrote the row (table `progress`).", True)
_GROUP = Column("group", _TEXT, "The name of the consumer group.", True)
_TOPIC = Column("topic", _TEXT, "The topic's name.", True)
_PARTITION = Column("partition", _INT, "The number of the topic's partition.", True)
_TYPE = Column("type", _TEXT, "The type of the group: simple, classic, consumer, share or streams.")
_STATE = Column("state", _TEXT, "The state of the group, as Kafka names it.")
_DAY = Column(
    "day",
    _DATE,
    "The day of the row's time in UTC. The table is partitioned by it: a condition on `day` makes a query "
    "read less.",
)
_RECORD = (
    Column("offsets_partition", _INT, "The partition of the offsets topic that has the record.", True),
    Column("log_offset", _LONG, "The offset of the record in that partition.", True),
    Column("timestamp", _TIME, "The record's own time, as its log has it."),
)
_AT = Column("at", _TIME, "The time of the sample: that of its request for end offsets.", True)

TABLES: Mapping[str, Table] = {
    "records": Table(
        "A row is a record of the offsets topic, decoded.",
        (
            _CLUSTER,
            _NUMBER,
            *_RECORD,
            Column("kind", _TEXT, "Kafka's name of the record type; `Undecodable`, or `Unknown`.", True),
            Column("tombstone", _BOOL, "Whether the record deletes what it names."),
            Column("group", _TEXT, "The name of the consumer group."),
            Column("topic", _TEXT, "Commits: the topic's name."),
            Column("partition", _INT, "Commits: the number of the topic's partition."),
            Column("committed", _LONG, "Commits: the offset of the next record to consume."),
            Column("leader_epoch", _INT, "Commits: the leader epoch of the last consumed record, if named."),
            Column("metadata", _TEXT, "Commits: the text that the consumer added."),
            Column("commit_timestamp", _TIME, "Commits: the time by the coordinator's clock."),
            Column("topic_id", _TEXT, "Commits: the topic's id, if the commit has it."),
            Column("key", _BYTES, "All other records: the key, unchanged."),
            Column("value", _BYTES, "All other records: the value, unchanged."),
            Column("reason", _TEXT, "Why koff could not decode the record."),
            _DAY,
        ),
        ("cluster", "offsets_partition", "log_offset"),
        "timestamp",
        ("number", "offsets_partition", "log_offset", "timestamp", "group"),
        "group",
    ),
    "groups": Table(
        "A row is a group after a change of its type, state, epochs, protocol or members.",
        (
            _CLUSTER,
            _NUMBER,
            *_RECORD,
            _GROUP,
            _TYPE,
            _STATE,
            Column(
                "epoch", _INT, "The group's epoch; for classic groups the generation. Higher: a rebalance."
            ),
            Column("assignment_epoch", _INT, "The epoch of the assignment that members have."),
            Column("protocol_type", _TEXT, "Classic groups: the type of the protocol, such as consumer."),
            Column("protocol", _TEXT, "The name of the assignor."),
            Column(
                "members",
                _MEMBERS,
                "The members, each with the partitions that are assigned to it. A topic whose name was not "
                "known has its id.",
            ),
            Column("gone", _BOOL, "Whether the group was deleted.", True),
            _DAY,
        ),
        ("cluster", "offsets_partition", "log_offset", "group"),
        "timestamp",
        ("number", "offsets_partition", "log_offset", "timestamp", "group"),
        "group",
    ),
    "lag": Table(
        "A row is a slot (group, topic, partition) at a sample. The end offset and the commit are of one "
        "moment.",
        (
            _CLUSTER,
            _NUMBER,
            _AT,
            _GROUP,
            _TYPE,
            _STATE,
            _TOPIC,
            _PARTITION,
            Column("committed", _LONG, "The committed offset; null without a commit."),
            Column("committed_at", _TIME, "The time of the newest commit, by the coordinator's clock."),
            Column("end_offset", _LONG, "The high watermark at the sample."),
            Column("start_offset", _LONG, "The first offset that the log had at the sample."),
            Column("stable_offset", _LONG, "The last stable offset at the sample."),
            Column(
                "lag",
                _LONG,
                "`end_offset - committed`. Negative: the commit lies beyond the sampled end. Of a share "
                "group: as its coordinator returned it (KIP-1226).",
            ),
            Column("readable", _LONG, "How many of these offsets the log still had."),
            Column("lost", _LONG, "How many of these offsets retention had deleted."),
            Column("time_lag_s", _DOUBLE, "The time since the oldest uncommitted record arrived."),
            Column("verdict", _TEXT, "The verdict on the slot: OK, WARN, ERR or UNKNOWN."),
            Column("cause", _TEXT, "Why the slot is late; null if it is not."),
            Column("group_verdict", _TEXT, "The verdict on the whole group (docs/verdicts.md)."),
            Column("group_cause", _TEXT, "The first cause of the group's lag; null without one."),
            Column("allowance_s", _DOUBLE, "How late the group may be: its objective, or what is usual."),
            Column("reasons", pa.list_(_TEXT), "Why the lag is unknown or strange; empty if it is neither."),
            Column("consume_per_s", _DOUBLE, "How fast the group's commits advance."),
            Column("produce_per_s", _DOUBLE, "How fast the partition's end advances."),
            Column("client_id", _TEXT, "The `client.id` of the member that has the partition."),
            Column("client_host", _TEXT, "The address of that member, as the broker saw it."),
            Column("members", _INT, "How many members the group has."),
            _DAY._replace(required=True),
        ),
        ("cluster", "at", "group", "topic", "partition"),
        "at",
        ("number", "at", "group"),
        "group",
    ),
    "lag_hourly": Table(
        "A row is a group (`topic` is null), or one of its topics, in an hour that has ended. Lags are sums "
        "over partitions in one sample, in which a negative lag counts as 0 and an unknown lag is left out. "
        "Do not add rows of topics to rows of groups.",
        (
            _CLUSTER,
            _NUMBER,
            Column("hour", _TIME, "The begin of the hour.", True),
            _GROUP,
            _TOPIC._replace(required=False, text="The topic's name. Null: all topics of the group."),
            Column("max_lag", _LONG, "The largest lag of the samples."),
            Column("avg_lag", _DOUBLE, "The mean lag of the samples with a known lag."),
            Column("last_lag", _LONG, "The lag in the last sample."),
            Column("max_time_lag_s", _DOUBLE, "The longest known time lag of a partition."),
            Column("last_time_lag_s", _DOUBLE, "The longest known time lag in the last sample."),
            Column("untimed", _BOOL, "Whether a partition with lag had no known time lag."),
            Column(
                "time_lags",
                pa.list_(_LONG),
                "Rows of samples by time lag: below 30 s, then by octaves (60 s, 120 s, ...), 12 classes in "
                "all.",
            ),
            Column("warn_s", _DOUBLE, "Seconds in which the verdict on the group was WARN."),
            Column("err_s", _DOUBLE, "Seconds in which the verdict on the group was ERR."),
            Column("over_s", _DOUBLE, "Seconds in which a partition was later than the group's allowance."),
            Column("seconds", _DOUBLE, "Seconds for which the samples stand, at most 300 for each."),
            Column("partitions", _INT, "The most partitions in a sample."),
            Column("members", _INT, "The most members in a sample."),
            Column("last_unknown", _INT, "The partitions whose lag was unknown in the last sample."),
            Column("max_unknown", _INT, "The most partitions with an unknown lag in a sample."),
            Column("samples", _INT, "How many samples the row comes from."),
            Column("known_samples", _INT, "How many of them had a known lag."),
            Column("consumed", _LONG, "How far commits advanced since the last sample of the hour before."),
            Column("produced", _LONG, "How far end offsets advanced since then."),
            Column("lost", _LONG, "Records that left the log before they were committed."),
            Column("lost_partitions", _INT, "In how many partitions records were lost."),
            _DAY._replace(required=True),
        ),
        ("cluster", "hour", "group", "topic"),
        "hour",
        ("hour", "group", "topic"),
        "group",
    ),
    "state": Table(
        "A row is the newest state of a key, with which the next batch begins, as koff's own bytes.",
        (
            _CLUSTER,
            _NUMBER,
            Column(
                "key",
                _TEXT,
                "`offsets/N`: groups and commits of a partition. `ends`, `verdicts`, ...",
                True,
            ),
            Column("saved", _BYTES, "The state.", True),
        ),
        ("cluster", "key"),
        filtered=("number", "key"),
    ),
    "progress": Table(
        "A row is a batch: what it reads, and the sample that it has. The row is written before all others "
        "of the batch; the row with the largest number says where the cluster stands.",
        (
            _CLUSTER,
            _NUMBER._replace(text="The number of the batch: one more than that of the batch before."),
            Column("at", _TIME, "When the batch was planned.", True),
            Column("owner", _TEXT, "The process that planned the batch: its host, number and start.", True),
            Column("nonce", _TEXT, "Tells apart the jobs of a process.", True),
            Column("ended", _BOOL, "Whether the process has ended in order.", True),
            Column("source", _TEXT, "Where the records come from: log, or segments.", True),
            Column("topic_id", _TEXT, "The id of the offsets topic; null if it is not known."),
            Column(
                "partitions",
                _PARTS,
                "By partition of the offsets topic: the tables have the offsets from `first` to before "
                "`next` after the batch, which reads those from `start` to before `end`. The epochs are "
                "those of the leaders that named these two.",
                True,
            ),
            Column(
                "interval_s", _DOUBLE, "After how many seconds the next batch follows, if nothing delays it."
            ),
            Column("sampled_at", _TIME, "The time of the batch's sample; null without one."),
            Column("sampled_before", _TIME, "The time of the sample before it."),
            Column("sample", _BYTES, "The sample, as koff's own bytes."),
            _DAY._replace(required=True),
        ),
        ("cluster", "number"),
        "at",
        ("number", "at"),
    ),
}

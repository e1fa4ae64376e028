"""The texts about tables and columns. Delta has them as comments, and docs/tables.md has them, too."""

from __future__ import annotations

from collections.abc import Mapping

TABLE_TEXTS: Mapping[str, str] = {
    "commits": "A row is an offset commit, or its deletion.",
    "groups": "A row is a group after a change.",
    "assignments": "A row is a partition that is assigned to a member, after a change of the group.",
    "quarantine": "A row is a record that koff could not decode or does not know.",
    "end_offsets": "A row is a partition in a sample.",
    "lag": "A row is a slot (group, topic, partition) from a sample on, until its next row: "
    "docs/pipeline.md says how long it holds.",
    "samples": "A row is a sample of a cluster of which all rows are in `end_offsets` and `lag`.",
    "lag_hourly": "A row is a group (`topic` is null), or one of its topics, in an hour that has ended. "
    "Lags are sums over partitions in one sample, in which a negative lag counts as 0 and an unknown lag is "
    "left out. Do not add rows of topics to rows of groups.",
    "end_curves": "A row is the end offset of a partition over time, which time lags come from. It follows "
    "from `end_offsets`.",
    "current": "A row is the newest commit of a slot, or its deletion.",
    "group_states": "A row is the newest state of a group.",
    "coverage": "A row is offsets of the offsets topic that were begun, or that all tables have.",
    "leases": "A row is a heartbeat of the process that may write the cluster's rows.",
}
"""By table."""

_TEXTS: Mapping[str, str] = {
    "cluster": "The cluster's name, or its id.",
    "offsets_partition": "The partition of the offsets topic that has the record.",
    "log_offset": "The offset of the record in that partition.",
    "timestamp": "The record's own time, as its log has it.",
    "day": "The day of the row's time in UTC. The table is partitioned by it: a condition on `day` makes a "
    "query read less.",
    "group": "The name of the consumer group.",
    "topic": "The topic's name.",
    "partition": "The number of the topic's partition.",
    "topic_id": "The topic's id; null if it is not known.",
    "type": "The type of the group: simple, classic, consumer, share or streams.",
    "state": "The state of the group, as Kafka names it.",
    "client_id": "The `client.id` of the member.",
    "client_host": "The address of the member, as the broker saw it.",
    "batch": "The number of the job's batch that took the sample.",
    "commit_timestamp": "The time of the commit by the coordinator's clock.",
}
"""By column: the text in each table for which `_OWN_TEXTS` has none."""

_OWN_TEXTS: Mapping[str, Mapping[str, str]] = {
    "commits": {
        "committed": "The offset of the next record to consume. Null: the commit was deleted.",
        "leader_epoch": "The leader epoch of the last consumed record, if the consumer named it.",
        "metadata": "The text that the consumer added to the commit.",
        "topic_id": "The topic's id, if the commit has it.",
    },
    "groups": {
        "epoch": "The group's epoch; for classic groups the generation. A higher one is a rebalance.",
        "assignment_epoch": "The epoch of the assignment that members have.",
        "protocol_type": "Classic groups: the type of the protocol, such as consumer.",
        "protocol": "Classic groups: the name of the assignor.",
        "members": "How many members the group has.",
        "gone": "Whether the group was deleted.",
    },
    "assignments": {
        "member_id": "The member's id. Null: no member has a partition.",
        "instance_id": "The `group.instance.id` of a static member.",
        "topic": "The topic's name, or its id if koff did not know the name. Null: no partition.",
    },
    "quarantine": {
        "key": "The record's key, unchanged.",
        "value": "The record's value, unchanged.",
        "reason": "Why koff could not decode the record; null if koff does not know its type.",
    },
    "end_offsets": {
        "at": "The time of the sample.",
        "start_offset": "The first offset that the log still has.",
        "end_offset": "The high watermark: the offset of the next record.",
        "stable_offset": "The last stable offset, where consumers of committed transactions stop.",
        "gone": "Whether the partition does not exist, or koff may not describe its topic.",
    },
    "lag": {
        "at": "The time of the sample.",
        "committed": "The committed offset; null without a commit. Of a share group: the end offset less the "
        "lag, which is the start offset plus the deliveries that are complete above it. It is null if "
        "records were written to the partition while koff requested the lag.",
        "end_offset": "The high watermark at the sample.",
        "start_offset": "The first offset that the log had at the sample.",
        "lag": "`end_offset - committed`. Negative: the commit lies beyond the sampled end. Of a share "
        "group: as its coordinator returned it at the sample (KIP-1226).",
        "readable": "How many of these offsets the log still had.",
        "lost": "How many of these offsets retention had deleted.",
        "lag_to_stable": "The lag up to the last stable offset, for consumers of committed transactions.",
        "time_lag_s": "The time since the oldest uncommitted record arrived.",
        "status": "The verdict on the slot by itself: OK, WARN (more than two minutes late), ERR (and it "
        "stands still, loses records, or is ten minutes late and does not gain), UNKNOWN.",
        "reasons": "Why the lag is unknown or strange; empty if it is neither.",
        "consume_per_s": "How fast the group's commits advance. Null for share groups.",
        "produce_per_s": "How fast the partition's end advances.",
        "full_at": "The time of the last full sample, which wrote all slots.",
        "ended": "Whether the slot is no longer committed to or assigned. All values are then null.",
    },
    "samples": {
        "at": "The time of the sample.",
        "full_at": "The time of the last full sample, which wrote all slots; its own time if it is full.",
        "partitions": "How many partitions were sampled.",
    },
    "lag_hourly": {
        "hour": "The begin of the hour.",
        "topic": "The topic's name. Null: all topics of the group.",
        "max_lag": "The largest lag of the samples.",
        "min_lag": "The smallest lag of the samples.",
        "avg_lag": "The mean lag of the samples with a known lag.",
        "last_lag": "The lag in the last sample.",
        "max_time_lag_s": "The longest known time lag of a partition.",
        "last_time_lag_s": "The longest known time lag in the last sample.",
        "untimed": "Whether a partition with lag had no known time lag: the longest one may be longer.",
        "worst_status": "The worst verdict on a partition in a sample.",
        "partitions": "The most partitions in a sample.",
        "last_unknown": "The partitions whose lag was unknown in the last sample.",
        "max_unknown": "The most partitions with an unknown lag in a sample.",
        "samples": "How many samples the row comes from. With an interval of 30 s, a full hour has 120.",
        "known_samples": "How many of them had a known lag.",
        "consumed": "How far commits advanced since the last sample of the hour before.",
        "produced": "How far end offsets advanced since then.",
        "lost": "Records that left the log before they were committed.",
        "lost_partitions": "In how many partitions records were lost.",
    },
    "end_curves": {
        "points": "Times (milliseconds since 1970) and end offsets, oldest first, at most 120.",
        "until": "All samples up to this time are in the points, or were left out because they matter least.",
    },
    "current": {
        "committed": "The newest committed offset.",
        "commit_timestamp": "The time of the newest commit by the coordinator's clock.",
        "deleted": "Whether the newest record deleted the commit.",
        "recent": "The slot's last ten commits, newest first, at most one a second.",
    },
    "group_states": {
        "offsets_partition": "The partition of the offsets topic that has the group.",
        "log_offset": "The offset of the group's newest record.",
        "saved": "What the next batch needs to continue, as koff's own JSON. Null: the group was deleted.",
        "assigned": "The partitions that are assigned to members, with the members' clients.",
        "timestamp": "The time of the group's newest record.",
    },
    "coverage": {
        "topic_id": "The id of the offsets topic; null for log segments without a `partition.metadata` file.",
        "offsets_partition": "The partition of the offsets topic.",
        "from_offset": "The first offset.",
        "to_offset": "The offset after the last one.",
        "complete": "Whether all tables have the records. Else they may have some.",
        "filter": "The filters `groups` and `topics` with which the offsets were read; empty: all records.",
        "at": "When the row was written.",
    },
    "leases": {
        "cluster": "The cluster; `*` for maintenance of all.",
        "sequence": "Grows with each row of a cluster. The row with the highest counts.",
        "owner": "What the process does.",
        "host": "The machine of the process.",
        "process": "The process id.",
        "nonce": "Tells apart processes with the same id.",
        "released": "Whether the process gave the lease up.",
        "at": "The time of the heartbeat. A lease holds for 60 s.",
    },
}
"""By table and column."""


def describe_column(table: str, column: str) -> str:
    """What the column holds; "" if no text names it."""
    return _OWN_TEXTS.get(table, {}).get(column) or _TEXTS.get(column, "")

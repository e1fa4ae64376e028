"""The metric families of /metrics: what HELP, TYPE and docs/metrics.md say, and which are the default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter"]
Level = Literal["partition", "topic", "group", "cluster"]
"""What a family has a series of, in the words of `granularity`. Families of a cluster are always served."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family. Each one also has the label `cluster`, unless it is about the process.

    `text` is the HELP. `absent` is when there is no series, besides "the cluster is not known yet". `query`
    is an example in PromQL. Families that are not `default` are served if they are chosen by name.
    """

    name: str
    labels: tuple[str, ...]
    unit: str
    text: str
    absent: str
    query: str
    default: bool = True
    kind: Kind = "gauge"

    @property
    def level(self) -> Level:
        """The finest of its labels that `granularity` knows."""
        levels: tuple[Level, ...] = ("partition", "topic", "group")
        return next((level for level in levels if level in self.labels), "cluster")

    def render_head(self, *, openmetrics: bool) -> str:
        """The lines HELP and TYPE. In OpenMetrics, a counter has a name without `_total`."""
        name = self.name.removesuffix("_total") if openmetrics and self.kind == "counter" else self.name
        return f"# HELP {name} {self.text}\n# TYPE {name} {self.kind}\n"


_ROW = ("group", "topic", "partition")
_MONITOR = "in `koff monitor`"
_WITHHELD = "a lag in it is withheld, or may be missing"

FAMILIES: tuple[Family, ...] = (
    # --- Groups: each partition ---
    Family(
        "koff_group_lag",
        _ROW,
        "offsets",
        "End offset minus committed offset; 0 if the commit is newer than the sampled end offset.",
        "it is unknown or withheld",
        "topk(10, koff_group_lag)",
    ),
    Family(
        "koff_group_committed_offset",
        _ROW,
        "offset",
        "Committed offset: the next that the group will read.",
        "the commit is not current",
        "koff_group_committed_offset",
        default=False,
    ),
    Family(
        "koff_group_lag_seconds",
        _ROW,
        "seconds",
        "Age of the oldest record that is not committed: exact, or estimated within 20 %.",
        "the lag or the age is unknown",
        "topk(10, koff_group_lag_seconds)",
    ),
    # --- Groups: each topic ---
    Family(
        "koff_group_topic_lag",
        ("group", "topic"),
        "offsets",
        "Sum of the known lags of the group's partitions of the topic.",
        f"no lag is known; {_WITHHELD}",
        "sum by (topic) (koff_group_topic_lag)",
    ),
    Family(
        "koff_group_topic_consumed_per_second",
        ("group", "topic"),
        "offsets per second",
        "Offsets that the group commits per second, from the last ten commits of each partition.",
        f"the time of a newest commit is unknown; {_WITHHELD}",
        "koff_group_topic_consumed_per_second",
        default=False,
    ),
    Family(
        "koff_group_topic_consumed_total",
        ("group", "topic"),
        "offsets",
        "Offsets by which the group's commits have advanced while koff ran; resets do not count.",
        "a commit in it is not current",
        "sum by (group) (rate(koff_group_topic_consumed_total[5m]))",
        kind="counter",
    ),
    # --- Groups ---
    Family(
        "koff_group_total_lag",
        ("group",),
        "offsets",
        "Sum of the known lags of the group's partitions.",
        f"no lag is known; {_WITHHELD}",
        "koff_group_total_lag > 10000",
    ),
    Family(
        "koff_group_max_lag_seconds",
        ("group",),
        "seconds",
        "Longest lag in seconds of the group's partitions.",
        f"a lag has an unknown age; {_WITHHELD}",
        "koff_group_max_lag_seconds > 300",
    ),
    Family(
        "koff_group_catch_up_seconds",
        ("group",),
        "seconds",
        "Seconds until the slowest partition is back at its usual lag, if the rates stay as they are.",
        f"the group never catches up; a rate of a partition that is behind is unknown; {_WITHHELD}",
        "koff_group_catch_up_seconds > 3600",
        default=False,
    ),
    Family(
        "koff_group_completeness_ratio",
        ("group",),
        "ratio",
        "Share of the group's partitions with ten known commits: how well founded its rates and status are.",
        "a commit is not current, or the group has none",
        "koff_group_completeness_ratio < 1",
        default=False,
    ),
    Family(
        "koff_group_status",
        ("group", "status"),
        "1",
        "1 for the verdict on the group: OK, WARN (late), ERR (it will not recover by itself) or UNKNOWN.",
        "koff may not have read all of the group",
        'koff_group_status{status="ERR"} == 1',
    ),
    Family(
        "koff_group_allowance_seconds",
        ("group", "source"),
        "seconds",
        "So late the group may be: its objective, or twice what is usual for it, two minutes at least "
        "(floor), half of a topic's retention at most.",
        "nobody has looked yet",
        "koff_group_max_lag_seconds > on(cluster, group) koff_group_allowance_seconds",
        default=False,
    ),
    Family(
        "koff_group_incident_seconds",
        ("group",),
        "seconds",
        "For how long the group has had an incident that is not closed.",
        "it has none",
        "koff_group_incident_seconds > 3600",
    ),
    Family(
        "koff_group_partitions_not_ok",
        ("group", "status"),
        "partitions",
        "Partitions of the group that do not keep up, by status (WARN, ERR).",
        f"there is none of that status; {_WITHHELD}",
        'koff_group_partitions_not_ok{status="ERR"}',
    ),
    Family(
        "koff_group_cause",
        ("group", "cause"),
        "offsets",
        "Offsets of the group's lag that a likely cause explains: the three causes that explain most.",
        f"the group keeps up, or catches up; {_WITHHELD}",
        'koff_group_cause{cause="stuck_partition"} > 0',
    ),
    Family(
        "koff_group_state",
        ("group", "state"),
        "1",
        "1 for the present state of the group, by Kafka's name for it.",
        "what koff knows of the group is not current",
        'koff_group_state{state=~"Dead|Empty"} == 1',
    ),
    Family(
        "koff_group_members",
        ("group",),
        "members",
        "Members of the group that are present; static members that left for a while are not counted.",
        "what koff knows of the group is not current",
        "koff_group_members == 0 and koff_group_total_lag > 0",
    ),
    Family(
        "koff_group_members_without_assignment",
        ("group",),
        "members",
        "Members of the group that are present and have no partition to read.",
        "what koff knows of the group is not current; no consumers of Kafka's (Connect)",
        "koff_group_members_without_assignment > 0",
        default=False,
    ),
    Family(
        "koff_group_info",
        ("group", "type", "protocol_type", "protocol", "coordinator"),
        "1",
        "1 for the type of the group, its protocol type, its assignor, and the broker that coordinates it.",
        "what koff knows of the group is not current",
        "count by (coordinator) (koff_group_info)",
        default=False,
    ),
    Family(
        "koff_group_epoch",
        ("group",),
        "epoch",
        "Generation of a classic group; group epoch of the newer types.",
        "it is unknown; what koff knows of the group is not current",
        "changes(koff_group_epoch[1h])",
        default=False,
    ),
    Family(
        "koff_group_rebalances_total",
        ("group",),
        "epochs",
        "By how much the generation or the group epoch has grown while koff ran.",
        "it is unknown; what koff knows of the group is not current",
        "increase(koff_group_rebalances_total[1h]) > 10",
        kind="counter",
    ),
    Family(
        "koff_group_partitions_without_lag",
        ("group", "reason"),
        "partitions",
        "Partitions of the group's commits whose lag is unknown or withheld, by reason.",
        "there is none of that reason",
        'koff_group_partitions_without_lag{reason="topic_recreated"}',
        default=False,
    ),
    Family(
        "koff_group_partitions_ahead_of_log",
        ("group",),
        "partitions",
        "Partitions whose committed offset is beyond the end of the log; their lag counts as 0.",
        _WITHHELD,
        "koff_group_partitions_ahead_of_log > 0",
        default=False,
    ),
    Family(
        "koff_group_lost_records",
        ("group",),
        "offsets",
        "Offsets that left the log (by retention) before the group committed them.",
        f"a log start offset is unknown; no lag is known; {_WITHHELD}",
        "koff_group_lost_records > 0",
    ),
    Family(
        "koff_group_retention_margin_records",
        ("group",),
        "offsets",
        "Offsets that the log start may advance until records are lost: the least of partitions with lag.",
        f"no partition has a lag; a log start offset is unknown; {_WITHHELD}",
        "koff_group_retention_margin_records < 1000",
        default=False,
    ),
    Family(
        "koff_group_retention_margin_ratio",
        ("group",),
        "ratio",
        "The same as a share of the log: 0 if records are lost, 1 without a lag or without any deletion.",
        f"no lag is known; a log start offset is unknown; {_WITHHELD}",
        "koff_group_retention_margin_ratio < 0.1",
    ),
    Family(
        "koff_group_commits_held_back",
        ("group",),
        "1",
        "1 if an open transaction in the group's partition of the offsets topic may hold back its commits.",
        "there is none",
        "koff_group_commits_held_back and on (cluster, group) koff_group_total_lag > 0",
    ),
    Family(
        "koff_group_commits_total",
        ("group",),
        "commits",
        "Commits of the group that koff read from the log as they were made, since koff started.",
        "koff has read none; what koff knows of the group is not current",
        "rate(koff_group_commits_total[5m])",
        kind="counter",
    ),
    Family(
        "koff_expected_group_present",
        ("group",),
        "1",
        "1 if the group, which the configuration expects, is there; 0 if it is absent.",
        "koff cannot know it at present; the configuration expects no group",
        "koff_expected_group_present == 0",
    ),
    # --- Topics and their partitions ---
    Family(
        "koff_topic_messages_total",
        ("topic",),
        "offsets",
        "Offsets by which the partitions that koff samples have grown while koff ran (see watch_topics).",
        "an end offset in it is not current",
        "sum by (topic) (rate(koff_topic_messages_total[5m]))",
        kind="counter",
    ),
    Family(
        "koff_topic_partitions",
        ("topic",),
        "partitions",
        "Partitions of the topic. Of all topics that koff may describe, also of those that no group reads.",
        "the list of topics is older than three of its intervals (a minute)",
        "sum by (cluster) (koff_topic_partitions)",
    ),
    Family(
        "koff_topic_replication_factor",
        ("topic",),
        "replicas",
        "Replicas of each partition of the topic: the least of its partitions.",
        "as koff_topic_partitions",
        "koff_topic_replication_factor < 3",
        default=False,
    ),
    Family(
        "koff_topic_leaderless_partitions",
        ("topic",),
        "partitions",
        "Partitions of the topic that have no leader.",
        "as koff_topic_partitions",
        "koff_topic_leaderless_partitions > 0",
        default=False,
    ),
    Family(
        "koff_topic_under_replicated_partitions",
        ("topic",),
        "partitions",
        "Partitions of the topic with a replica that is not in sync.",
        "as koff_topic_partitions",
        "koff_topic_under_replicated_partitions > 0",
        default=False,
    ),
    Family(
        "koff_topic_log_size_bytes",
        ("broker", "topic"),
        "bytes",
        "Size of the topic's logs on the broker, with those of replicas.",
        "log_sizes is off; the broker has not responded for three minutes; as koff_topic_partitions",
        "topk(10, sum by (topic) (koff_topic_log_size_bytes))",
    ),
    Family(
        "koff_partition_end_offset",
        ("topic", "partition"),
        "offset",
        "High watermark: the offset of the next record.",
        "it is older than five intervals",
        "koff_partition_end_offset",
        default=False,
    ),
    Family(
        "koff_partition_start_offset",
        ("topic", "partition"),
        "offset",
        "Log start offset: the first that can be read (sampled every 30 s).",
        "it is unknown, or the end offset is absent",
        "koff_partition_end_offset - koff_partition_start_offset",
        default=False,
    ),
    Family(
        "koff_partition_produced_per_second",
        ("topic", "partition"),
        "offsets per second",
        "Growth of the end offset per second, over 5 minutes.",
        "it is unknown, or the end offset is absent",
        "sum by (topic) (koff_partition_produced_per_second)",
        default=False,
    ),
    # --- The cluster ---
    Family(
        "koff_rows_withheld",
        ("reason",),
        "lags",
        "Lags (group, topic, partition) that are not served because an offset in them is not current.",
        "",
        "sum by (cluster) (koff_rows_withheld) > 0",
    ),
    Family(
        "koff_brokers",
        (),
        "brokers",
        "Brokers that the cluster lists.",
        "as koff_topic_partitions",
        "koff_brokers < 3",
    ),
    Family(
        "koff_broker_log_size_bytes",
        ("broker",),
        "bytes",
        "Size of all logs on the broker, also of topics that are not shown.",
        "as koff_topic_log_size_bytes",
        "koff_broker_log_size_bytes",
    ),
    # --- koff itself ---
    Family(
        "koff_up",
        (),
        "1",
        "1 if koff is ready (/readyz): the log was read, and not every lag is withheld; else 0.",
        "",
        "koff_up == 0",
    ),
    Family(
        "koff_source_info",
        ("source",),
        "1",
        "1 for where commits come from: the log, or coordinators, which know no commit times.",
        "",
        'koff_source_info{source="coordinators"}',
    ),
    Family(
        "koff_reader_records_total",
        ("type",),
        "records",
        "Records read, by Kafka's name of the record type.",
        "none was read",
        "rate(koff_reader_records_total[5m])",
        kind="counter",
    ),
    Family(
        "koff_reader_undecodable_total",
        (),
        "records",
        "Records that could not be decoded; koff printer shows them.",
        "",
        "increase(koff_reader_undecodable_total[1h]) > 0",
        kind="counter",
    ),
    Family(
        "koff_inputs_skipped_total",
        ("kind",),
        "inputs",
        "Responses, records and parts of records that koff could not use, by kind.",
        "there was none",
        "increase(koff_inputs_skipped_total[1h]) > 0",
        kind="counter",
    ),
    Family(
        "koff_reader_behind_records",
        (),
        "offsets",
        "Offsets from the reader's position to the last stable offset, summed over the offsets topic.",
        "the log is not the source",
        "koff_reader_behind_records > 10000",
    ),
    Family(
        "koff_reader_partitions_not_current",
        (),
        "partitions",
        "Partitions of the internal topics that are not current: groups in them are withheld or missing.",
        "",
        "koff_reader_partitions_not_current > 0",
    ),
    Family(
        "koff_reader_held_back_records",
        (),
        "offsets",
        "Offsets of the offsets topic behind open transactions: not shown yet.",
        "",
        "koff_reader_held_back_records > 0",
    ),
    Family(
        "koff_reader_held_back_seconds",
        (),
        "seconds",
        "How long the oldest open transaction has held back commits in the offsets topic.",
        "",
        "koff_reader_held_back_seconds > 300",
    ),
    Family(
        "koff_reader_backfill_remaining_records",
        (),
        "offsets",
        "Offsets of history that the backfill has not read yet; until then some commit times are unknown.",
        "",
        "koff_reader_backfill_remaining_records > 0",
    ),
    Family(
        "koff_input_age_seconds",
        ("input",),
        "seconds",
        "Age of the oldest of end_offsets, commits or share_state that is in use; of topics, zookeeper.",
        "there is no such input, or it was never read",
        'koff_input_age_seconds{input="end_offsets"} > 30',
    ),
    Family(
        "koff_requests_total",
        ("kind",),
        "requests",
        "Requests of koff to the cluster, by kind. One of these is sent to each broker that it concerns.",
        "there was none",
        "sum by (kind) (rate(koff_requests_total[5m]))",
        kind="counter",
    ),
    Family(
        "koff_render_seconds",
        (),
        "seconds",
        "How long it took to render and compress this response, without koff's own. No label cluster.",
        "",
        "max_over_time(koff_render_seconds[1h])",
    ),
    Family(
        "koff_series",
        (),
        "series",
        "Series in this response, without koff's own.",
        "",
        "koff_series",
    ),
    Family(
        "koff_series_left_out",
        (),
        "series",
        "Series that are not in this response because of the limit on series.",
        "",
        "koff_series_left_out > 0",
    ),
    Family(
        "koff_webhook_requests_total",
        ("result",),
        "requests",
        "Requests to webhooks, by result: ok, failed (sent again), refused. No label cluster.",
        "",
        'increase(koff_webhook_requests_total{result!="ok"}[1h]) > 0',
        kind="counter",
    ),
    Family(
        "koff_webhook_events_dropped_total",
        (),
        "events",
        "Events that a webhook did not get: refused, failed too often, or too many waited. No label cluster.",
        "",
        "increase(koff_webhook_events_dropped_total[1h]) > 0",
        kind="counter",
    ),
    # --- koff pipeline run ---
    Family(
        "koff_pipeline_stream_up",
        (),
        "1",
        "1 if the pipeline reads the cluster, 0 if it has failed and waits for another try, or stays down.",
        _MONITOR,
        "koff_pipeline_stream_up == 0",
    ),
    Family(
        "koff_pipeline_batches_total",
        (),
        "batches",
        "Batches with records or a sample that the pipeline has written since the process started.",
        _MONITOR,
        "rate(koff_pipeline_batches_total[10m])",
        kind="counter",
    ),
    Family(
        "koff_pipeline_records_total",
        (),
        "records",
        "Records of the offsets topic that the pipeline has written into tables since the process started.",
        _MONITOR,
        "rate(koff_pipeline_records_total[5m])",
        kind="counter",
    ),
    Family(
        "koff_pipeline_failures_total",
        (),
        "failures",
        "How often the pipeline has failed to read the cluster since the process started.",
        _MONITOR,
        "increase(koff_pipeline_failures_total[1h]) > 0",
        kind="counter",
    ),
    Family(
        "koff_pipeline_last_batch_timestamp_seconds",
        (),
        "seconds",
        "When the newest batch was in the tables, in seconds since 1970.",
        f"{_MONITOR}, or before the first batch",
        "time() - koff_pipeline_last_batch_timestamp_seconds > 600",
    ),
    Family(
        "koff_pipeline_last_batch_duration_seconds",
        (),
        "seconds",
        "How long the newest batch took.",
        f"{_MONITOR}, or before the first batch",
        "koff_pipeline_last_batch_duration_seconds > 60",
    ),
    Family(
        "koff_pipeline_table_files",
        ("table",),
        "files",
        "Files of the newest version of a table, looked up every ten minutes. No label cluster.",
        f"{_MONITOR}, or it cannot be looked up",
        'koff_pipeline_table_files{table="lag"}',
    ),
    Family(
        "koff_pipeline_table_bytes",
        ("table",),
        "bytes",
        "Bytes of the newest version of a table, looked up every ten minutes. No label cluster.",
        f"{_MONITOR}, or it cannot be looked up",
        "sum(koff_pipeline_table_bytes)",
    ),
    Family(
        "koff_build_info",
        ("version", "python"),
        "1",
        "Versions of koff and of Python. It has no label cluster.",
        "",
        "count by (version) (koff_build_info)",
    ),
)

BY_NAME = {family.name: family for family in FAMILIES}

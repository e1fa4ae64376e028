"""The JSON objects of clusters and topics, and of what nobody uses (`koff unused` prints the same)."""

from typing import Any, NamedTuple

import numpy as np

from koff.lag import WITHHELD, Reason
from koff.serve.api.commands import write_delete
from koff.serve.api.group_objects import REASONS
from koff.serve.api.shapes import (
    BOOLEAN,
    COUNT,
    NUMBER,
    STRING,
    JsonField,
    JsonObject,
    list_of,
    map_of,
    nullable,
    one_of,
)
from koff.tracker import PartitionLag, Snapshot
from koff.view.cluster_view import ClusterView, TopicFacts
from koff.view.unused import KINDS, Unused

_OFFSET = nullable(COUNT)


class TopicTotal(NamedTuple):
    """A topic: what the cluster lists of it, None if it does not list it, and what koff knows of its offsets.

    `known_ends` is how many partitions have an end offset that may be served.
    """

    name: str
    facts: TopicFacts | None
    readers: int
    sum_of_known: int
    known_ends: int
    produce_per_s: float | None = None
    slowest: str | None = None
    slowest_lag: int | None = None

    @property
    def reason(self) -> str:
        """Why the sum of the end offsets is not known; "" if it is."""
        if self.facts is None:
            return "not_listed"
        if not self.known_ends and not self.readers:
            return "no_readers"
        return "" if self.known_ends == self.facts.partitions else "ends_not_known"

    @property
    def end_sum(self) -> int | None:
        """The sum of the end offsets: of all partitions, or None."""
        return None if self.reason else self.sum_of_known


class PartitionOffsets(NamedTuple):
    """The offsets of a partition of a topic. None: unknown."""

    partition: int
    start: int | None
    end: int | None
    produce_per_s: float | None


class ReaderTotal(NamedTuple):
    """A group that reads a topic, and its rows there. Without `whole`, rows may be missing."""

    group: str
    rows: list[PartitionLag]
    whole: bool

    @property
    def reasons(self) -> Reason:
        """The reasons of the rows, and of those that may be missing."""
        joined = Reason(0) if self.whole else Reason.COMMITS_NOT_CURRENT
        for row in self.rows:
            joined |= row.reasons
        return joined

    @property
    def lag(self) -> int | None:
        """The sum of the known lags; None without any, and if a lag in it is withheld or may be missing."""
        known = [row.published_lag for row in self.rows if row.published_lag is not None]
        return None if not known or self.reasons & WITHHELD else sum(known)


TOPIC: JsonObject[TopicTotal] = JsonObject(
    JsonField("topic", STRING, "The name.", "name"),
    JsonField("partitions", nullable(COUNT), "Null: the topic is not listed.", "facts?.partitions"),
    JsonField("replicas", nullable(COUNT), "The least of its partitions.", "facts?.replicas"),
    JsonField("leaderless", nullable(COUNT), "Partitions without a leader.", "facts?.leaderless"),
    JsonField(
        "under_replicated",
        nullable(COUNT),
        "Partitions with replicas that are not in sync.",
        "facts?.under_replicated",
    ),
    JsonField("readers", COUNT, "Groups that committed to it."),
    JsonField("end_sum", _OFFSET, "The sum of its end offsets."),
    JsonField(
        "reason",
        one_of(("", "no_readers", "not_listed", "ends_not_known")),
        'Why `end_sum` is null; "" if it is not. koff samples partitions that groups read.',
    ),
    JsonField("produce_per_s", nullable(NUMBER), "Offsets per second. Null unless known of all partitions."),
    JsonField(
        "slowest_reader",
        nullable(STRING),
        "The group with the largest lag in it. Null: no lag, or one is withheld.",
        "slowest",
    ),
    JsonField("slowest_reader_lag", _OFFSET, "Its lag in this topic.", "slowest_lag"),
)


PARTITION_OFFSETS: JsonObject[PartitionOffsets] = JsonObject(
    JsonField("partition", COUNT, "The partition."),
    JsonField("start", _OFFSET, "The log start offset. Null: not known."),
    JsonField("end", _OFFSET, "The end offset. Null: not current, or never returned."),
    JsonField("produce_per_s", nullable(NUMBER), "Offsets per second."),
)

READER: JsonObject[ReaderTotal] = JsonObject(
    JsonField("group", STRING, "The group."),
    JsonField(
        "partitions", COUNT, "Of this topic that it has committed or is assigned.", lambda r: len(r.rows)
    ),
    JsonField("lag", _OFFSET, "The sum of the known lags in this topic."),
    JsonField(
        "unknown", COUNT, "Partitions without a known lag.", lambda r: sum(row.lag is None for row in r.rows)
    ),
    JsonField("reasons", list_of(one_of(REASONS)), "The reasons of these partitions.", "reasons.names"),
)


CLUSTER: JsonObject[ClusterView] = JsonObject(
    JsonField("cluster", nullable(STRING), "The name. Null: koff has not reached it yet."),
    JsonField("ready", BOOLEAN, "Whether the numbers may be trusted.", "readiness.ready"),
    JsonField("readiness", STRING, '"ready", or why not.', "readiness.text"),
    JsonField("labels", map_of(STRING), "The labels of its series."),
    JsonField("source", one_of(("log", "coordinators")), "Where commits come from.", "stats.source"),
    JsonField(
        "unready_since_ms",
        nullable(COUNT),
        "Since when koff does not know the cluster, in ms since 1970. Null: it does, or koff has just begun.",
        lambda v: None if v.readiness.ready else v.activity.unready_since_ms,
    ),
    JsonField(
        "groups",
        nullable(COUNT),
        "How many groups there are. Null: not known.",
        lambda v: sum(1 for _ in v.snapshot.groups()) if v.knows_groups else None,
    ),
    JsonField(
        "rows",
        nullable(COUNT),
        "How many lags there are. Null: not known.",
        lambda v: v.stats.rows if v.knows_groups else None,
    ),
    JsonField(
        "withheld",
        nullable(COUNT),
        "How many of these are not served. Null: not known.",
        lambda v: v.stats.withheld if v.knows_groups else None,
    ),
    JsonField("missing", list_of(STRING), "What may be missing, and why.", "stats.missing"),
    JsonField("brokers", nullable(COUNT), "Null: not known at present.", "facts.brokers"),
    JsonField(
        "topics",
        nullable(COUNT),
        "How many topics are listed. Null: not known at present.",
        lambda v: None if v.facts.brokers is None else len(v.facts.topics),
    ),
    JsonField("behind_offsets", nullable(COUNT), "Offsets of the log that are not read yet.", "stats.behind"),
    JsonField("held_back_offsets", COUNT, "Offsets behind open transactions.", "stats.held_back_records"),
    JsonField("held_back_s", NUMBER, "For how long.", "stats.held_back_s"),
    JsonField(
        "backfill_remaining_offsets",
        COUNT,
        "Offsets of history that are not read yet.",
        "stats.backfill_remaining",
    ),
    JsonField("partitions", COUNT, "Of internal topics that koff follows.", "stats.internal_partitions"),
    JsonField("partitions_not_current", COUNT, "How many of these are not current.", "stats.not_current"),
    JsonField("undecodable", COUNT, "Records that could not be decoded.", "stats.undecodable"),
    JsonField("skipped", map_of(COUNT), "Inputs that could not be used, by kind.", "stats.skipped"),
    JsonField("records", map_of(COUNT), "Records read, by type.", "stats.records"),
    JsonField("requests", map_of(COUNT), "Requests sent to the cluster, by kind.", "stats.requests"),
    JsonField("input_ages_s", map_of(NUMBER), "The age of the oldest input, by kind.", "stats.input_ages_s"),
)


def list_topic_partitions(snapshot: Snapshot, topic: str) -> list[PartitionOffsets]:
    """The partitions of a topic that koff has offsets of, by number."""
    places, is_old = snapshot.partitions, snapshot.withheld_ends()
    end = np.where(is_old | places.gone, -1, places.end)
    found = []
    for number in [n for n, name in enumerate(places.topic) if name == topic and places.partition[n] >= 0]:
        known, rates = end[number] >= 0, places.produce
        has_rate = known and rates is not None and rates.known[number]
        found.append(
            PartitionOffsets(
                places.partition[number],
                int(places.start[number]) if known and places.start[number] >= 0 else None,
                int(end[number]) if known else None,
                round(float(rates.per_s[number]), 3) if has_rate and rates is not None else None,
            )
        )
    return sorted(found)


_UNUSED: JsonObject[Unused] = JsonObject(
    JsonField("kind", one_of(KINDS), "What it is."),
    JsonField("name", STRING, "The group, or the topic."),
    JsonField("text", STRING, "Why koff says so."),
    JsonField("loses", STRING, "What deleting it would lose."),
    JsonField("command", nullable(STRING), "Deletes it. Null: deleting is not the cure."),
)
UNUSED = _UNUSED.schema


def build_unused(unused: Unused, brokers: str) -> dict[str, Any]:
    """A group or a topic that nobody uses. `brokers` are their addresses for the command, quoted."""
    return _UNUSED.build(unused, command=write_delete(unused, brokers))

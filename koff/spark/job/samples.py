"""A sample: what was asked of a cluster at one moment, for the lag rows of a batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from koff.spark.job.past_ends import PastOffsets, Place
from koff.spark.rows.arrow_bytes import decode_table, encode_table

OFFSETS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("stable_offset", pa.int64()),
        ("gone", pa.bool_()),
    ]
)
"""A row for each topic partition. An offset that could not be fetched is null. `gone`: the partition does not
exist, or koff may not describe its topic."""
NO_OFFSETS = OFFSETS.empty_table()
ShareOffsets = tuple[str, str, int, int | None, int | None]
"""Topic, topic id, partition, the lag of a share group there (None: no lag), and the end offset before."""
Slot = tuple[str, str, int]
"""A group, a topic and a partition."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The offsets of topic partitions at `at_ms`, the time of the request for end offsets.

    `topic_ids` has the id of each topic, by name; None: as in the sample before. `offsets_partitions` is the
    partition count of the offsets topic, and `held` has those of its partitions whose newest commits are not
    known. `shares` has the lags of share groups, by group; `unknown_shares` are slots without a known lag.
    `past` has offsets by time (see `PastOffsets`). `retention_s` is how long topics keep records; None: as
    in the sample before.
    """

    at_ms: int
    rows: pa.Table
    topic_ids: Mapping[str, str] | None
    offsets_partitions: int
    held: tuple[int, ...] = ()
    shares: Mapping[str, list[ShareOffsets]] = field(default_factory=dict)
    unknown_shares: frozenset[Slot] = frozenset()
    past: PastOffsets = field(default_factory=dict)
    retention_s: Mapping[str, float] | None = None

    @property
    def ends(self) -> dict[Place, int]:
        """The end offset of each partition that has one."""
        topics, partitions, ends = (
            self.rows.column(name).to_pylist() for name in ("topic", "partition", "end_offset")
        )
        places = zip(topics, partitions, strict=True)
        return {at: end for at, end in zip(places, ends, strict=True) if end is not None}

    def encode(self) -> bytes:
        """The sample as bytes."""
        facts = {
            "at_ms": self.at_ms,
            "topic_ids": self.topic_ids,
            "offsets_partitions": self.offsets_partitions,
            "held": self.held,
            "shares": self.shares,
            "unknown_shares": sorted(self.unknown_shares),
            "retention_s": self.retention_s,
            "past": [
                [past_ms, [[*at, offset] for at, offset in offsets.items()]]
                for past_ms, offsets in self.past.items()
            ],
        }
        return encode_table(self.rows.replace_schema_metadata({"facts": json.dumps(facts)}))

    @classmethod
    def decode(cls, encoded: bytes) -> Sample:
        """The sample that `encode` made bytes of."""
        rows = decode_table(encoded)
        facts: dict[str, Any] = json.loads(rows.schema.metadata[b"facts"])
        shares = {group: [tuple(row) for row in own] for group, own in facts["shares"].items()}
        unknown = frozenset(tuple(slot) for slot in facts["unknown_shares"])
        return cls(
            facts["at_ms"],
            rows,
            facts["topic_ids"],
            facts["offsets_partitions"],
            tuple(facts["held"]),
            shares,
            unknown,
            {past_ms: {(topic, p): offset for topic, p, offset in rows} for past_ms, rows in facts["past"]},
            facts["retention_s"],
        )

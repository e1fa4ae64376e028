"""A scripted life of a cluster: what groups of every kind wrote, in batches, with a sample after each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from koff.spark.job.batches import Batches
from koff.spark.job.cluster_state import ClusterState
from koff.spark.job.samples import OFFSETS, Sample
from koff.spark.rows.decoding import RAW, SCHEMA, decode_batch
from koff.spark.tables.owners import Owner
from koff.spark.tables.progress import LogPart, Plan, claim_batch, read_newest_plan
from tests.unit.builders import GOLDEN, commit

if TYPE_CHECKING:
    from koff.spark.tables.delta_tables import Tables

Record = tuple[int, int, int, bytes, bytes | None]
"""Partition of the offsets topic, offset in it, timestamp, key and value."""
INTERVAL_MS = 30_000
CLUSTER = "c"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SHARES = {"rec-share": [("busy-0", "", 0, 7, 100), ("busy-0", "", 3, 0, 0), ("busy-0", "", 6, None, None)]}
"""What coordinators returned: behind, caught up, not read."""


def list_golden() -> list[Record]:
    """What real groups of every kind wrote."""
    cases = map(json.loads, GOLDEN.read_text().splitlines())
    return [
        (
            case["partition"],
            case["offset"],
            case["timestamp"],
            bytes.fromhex(case["key_hex"]),
            None if case["value_hex"] is None else bytes.fromhex(case["value_hex"]),
        )
        for case in cases
        if case["topic"] == "__consumer_offsets" and case["visible_read_committed"]
    ]


def list_busy(begin_ms: int, seconds: int, slots: int = 40) -> Iterator[Record]:
    """Groups that keep up, fall behind, stop, rewind and are deleted, a few commits a second."""
    chance = random.Random(4)
    at = dict.fromkeys(range(slots), 0)
    offset = 10_000
    for second in range(seconds):
        now_ms = begin_ms + second * 1000
        for slot in chance.sample(range(slots), 3):
            group, topic, partition = f"busy-{slot % 8}", f"busy-{slot % 3}", slot
            if slot < 6 and second > seconds / 2:
                continue  # stopped
            step = 0 if slot < 12 else chance.randrange(40) - (60 if slot < 16 and second > 60 else 0)
            at[slot] = max(0, at[slot] + step)
            gone = slot == 20 and second % 50 == 0
            offset += 1
            key, value = commit(group, topic, partition, None if gone else at[slot], at=now_ms, version=3)
            yield 49, offset, now_ms, key, value


@dataclass(frozen=True, slots=True)
class Life:
    """The records by batch, and the sample at the end of each."""

    records: list[list[Record]]
    samples: list[Sample]

    @classmethod
    def script(cls, batches: int = 6) -> Life:
        """The first batch has the golden records. An hour ends within the others."""
        hour = datetime(2026, 3, 2, 10, 58, 30, tzinfo=UTC)
        begin_ms = int(hour.timestamp() * 1000)
        busy = list(list_busy(begin_ms, (batches - 1) * INTERVAL_MS // 1000))
        records = [sorted(list_golden(), key=lambda record: record[:2])]
        for number in range(batches - 1):
            first = begin_ms + number * INTERVAL_MS
            records.append([record for record in busy if first <= record[2] < first + INTERVAL_MS])
        times = [begin_ms + number * INTERVAL_MS for number in range(batches)]
        return cls(records, [make_sample(number, at_ms) for number, at_ms in enumerate(times)])

    def plan(self, number: int, before: Plan | None, owner: Owner) -> Plan:
        """The plan of batch `number`, from 1."""
        sample = self.samples[number - 1]
        parts = {part.partition: part for part in before.parts} if before else {}
        parts = {p: part._replace(start=part.next, end=part.next) for p, part in parts.items()}
        for partition, offset, *_ in self.records[number - 1]:
            known = parts.get(partition) or LogPart(partition, 0, 0, 0, 0)
            parts[partition] = known._replace(
                next=max(known.next, offset + 1), end=max(known.end, offset + 1)
            )
        at = datetime.fromtimestamp(sample.at_ms / 1000, UTC)
        plan = Plan(
            cluster=CLUSTER,
            number=number,
            at=at,
            owner=owner,
            topic_id=TOPIC_ID,
            parts=tuple(part for _, part in sorted(parts.items())),
            interval_s=INTERVAL_MS / 1000,
        )
        sampled_before = before.sampled_at or before.sampled_before if before else None
        return replace(plan, sample=sample.encode(), sampled_at=at, sampled_before=sampled_before)

    def read(self, plan: Plan) -> pa.Table:
        """The decoded records of a batch, as `LogSource` returns them."""
        spans = {span.partition: span for span in plan.spans}
        wanted = [
            record
            for records in self.records
            for record in records
            if record[0] in spans and spans[record[0]].start <= record[1] < spans[record[0]].end
        ]
        columns = [[record[column] for record in wanted] for column in range(5)]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW, strict=True)]
        return pa.Table.from_batches(
            [decode_batch(pa.RecordBatch.from_arrays(arrays, schema=RAW), CLUSTER)], SCHEMA
        )


def make_sample(number: int, at_ms: int) -> Sample:
    """Ends that grow with each sample. One topic is deleted, and one partition has no leader for a while."""
    topics = {f"busy-{n}": 40 for n in range(3)} | {"rec-topic": 4}
    rows: list[tuple[Any, ...]] = []
    for topic, partitions in topics.items():
        for partition in range(partitions):
            end: int | None = 100 + number * 50 + partition
            if (topic, partition) == ("busy-1", 1) and number == 2:
                end = None
            rows.append((topic, partition, min(number, 3) * 20, end, end, False))
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(OFFSETS)]
    ids = {f"busy-{n}": "" for n in range(3)}
    return Sample(
        at_ms=at_ms,
        rows=pa.table(columns, schema=OFFSETS),
        topic_ids={name: "AAAAAAAAAAAAAAAAAAAAA" + name[-1] for name in [*ids]} if number == 0 else None,
        offsets_partitions=50,
        held=(49,) if number == 3 else (),
        shares=SHARES,
    )


class LifeReader:
    """Reads the records of a batch by tasks, as those of a large batch."""

    def __init__(self, rows: pa.Table, tasks: int = 3) -> None:
        self._rows, self._tasks = rows, tasks

    def partitions(self) -> list[int]:
        return list(reversed(range(self._tasks)))

    def read(self, partition: int) -> Iterator[pa.RecordBatch]:
        yield from self._rows.take(list(range(partition, len(self._rows), self._tasks))).to_batches()


def make_batches(tables: Tables, life: Life, *, large: bool = False) -> Batches:
    source = (lambda plan: LifeReader(life.read(plan))) if large else life.read
    return Batches(tables, ClusterState(CLUSTER, INTERVAL_MS / 1000), source)


def live(tables: Tables, life: Life, until: int | None = None, *, large: bool = False) -> None:
    """What a process does from its start: completes the newest batch, and writes those up to `until`."""
    owner, batches = Owner.create(), make_batches(tables, life, large=large)
    newest = read_newest_plan(tables, CLUSTER)
    if newest is not None:
        newest = batches.restore(newest)
    for number in range((newest.number if newest else 0) + 1, (until or len(life.records)) + 1):
        newest = life.plan(number, newest, owner)
        claim_batch(tables, newest)
        batches.carry_out(newest)
        if number % 2 == 0:
            batches.save_state(newest)
    if until is None and newest is not None:
        batches.save_state(newest)


def list_everything(tables: Tables) -> dict[str, list[str]]:
    """All rows of all tables but the bytes of the state, without the processes that wrote them."""
    found = {}
    for name in ("records", "groups", "lag", "lag_hourly"):
        found[name] = sorted(map(repr, tables.frame(name).collect()))
    found["progress"] = sorted(map(repr, tables.frame("progress").drop("owner", "nonce").collect()))
    found["state"] = sorted(map(repr, tables.frame("state").select("cluster", "number", "key").collect()))
    return found

"""A made-up week of koff's tables with one group of every kind, for the report: `tables()`.

Ends, starts and commits follow from plain formulas, so tests can compute the report's numbers by themselves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql.pandas.types import from_arrow_schema

from koff.spark.tables.schemas import TABLES

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
SAMPLES = 7 * 48
EVERY = timedelta(minutes=30)
END = BEGIN + SAMPLES * EVERY
CLUSTER = "shop"
DAY = 48
Row = dict[str, Any]

TOPICS = {"orders": 6, "clicks": 8, "payments": 3, "audit": 4, "idle": 2}
"""Partitions."""
PER_SAMPLE = {"orders": 9_000, "clicks": 30_000, "payments": 2_000, "audit": 4_000, "idle": 0}
"""Records into a partition in half an hour, on average."""
KEPT = {"orders": 10**9, "clicks": 10**9, "payments": 10**9, "audit": 250_000, "idle": 10**9}
"""How many records of a partition retention leaves."""


def wave(sample: float) -> float:
    """How busy the shop is: about 1, low by night."""
    return 1 + 0.6 * math.sin(2 * math.pi * (sample / DAY - 0.3))


_FLOW = [0.0]
for _sample in range(SAMPLES):
    _FLOW.append(_FLOW[-1] + wave(_sample))


def weight(topic: str, partition: int) -> float:
    """How much of the topic's mean a partition gets: clicks-0 is hot."""
    if topic != "clicks":
        return 1.0
    return 4.5 if partition == 0 else 0.5


def end(topic: str, partition: int, sample: int) -> int:
    return 300_000 + int(PER_SAMPLE[topic] * weight(topic, partition) * _FLOW[max(sample, 0)])


def start(topic: str, partition: int, sample: int) -> int:
    step = 20_000  # a segment at a time
    return max(0, (end(topic, partition, sample) - KEPT[topic]) // step * step)


def _behind(samples: float) -> Callable[[str, int, int], int | None]:
    """Keeps up, that long behind."""

    def committed(topic: str, partition: int, sample: int) -> int:
        now, before = end(topic, partition, sample), end(topic, partition, sample - 1)
        return now - int((now - before) * samples)

    return committed


def _search(topic: str, partition: int, sample: int) -> int:
    return end(topic, partition, min(sample, 4 * DAY))


def _etl(topic: str, partition: int, sample: int) -> int:
    return end(topic, partition, min(sample, LAST_COMMIT["old-etl"]) - 1)


def _replay(topic: str, partition: int, sample: int) -> int:
    """Rewound by 100,000 at noon of the third day, catching up in 20 hours; skips 2,000 on the sixth."""
    now = end(topic, partition, sample) - (2_000 if sample < 5 * DAY + 20 else 0)
    since = sample - (2 * DAY + 24)
    return now - max(0, 100_000 - 2_500 * since) if since >= 0 else now


def _archive(topic: str, partition: int, sample: int) -> int:
    """Reads two fifths of what comes, so retention overtakes it."""
    return 300_000 + int(0.4 * (end(topic, partition, sample) - 300_000))


def _ledger(topic: str, partition: int, sample: int) -> int:
    """Reads nine tenths, so retention will overtake it."""
    return 300_000 + int(0.9 * (end(topic, partition, sample) - 300_000))


def _enrich(topic: str, partition: int, sample: int) -> int:
    """Falls behind by day and catches up by night."""
    return end(topic, partition, sample) - int(60_000 * max(0.0, wave(sample - 6) - 1.1))


def _fraud(topic: str, partition: int, sample: int) -> int:
    """Cannot keep up with the hot partition."""
    now = end(topic, partition, sample)
    return now - (int(0.1 * (now - 300_000)) if partition == 0 else 40)


def _never(topic: str, partition: int, sample: int) -> int | None:
    return None


@dataclass(frozen=True)
class Life:
    group: str
    topic: str
    committed: Callable[[str, int, int], int | None]
    type: str = "consumer"
    until: int = SAMPLES
    """The sample from which the group is gone."""


LIVES = [
    Life("billing", "orders", _behind(0.02)),
    Life("search-index", "orders", _search),
    Life("replay-tool", "payments", _replay, "classic"),
    Life("archive", "audit", _archive, "classic"),
    Life("ledger", "audit", _ledger),
    Life("geo-enrich", "clicks", _enrich, "streams"),
    Life("fraud", "clicks", _fraud),
    Life("flapping", "payments", _behind(0.5)),
    Life("old-etl", "orders", _etl, "classic", until=5 * DAY),
    Life("newcomer", "payments", _never),
    Life("orders-share", "orders", _behind(0.01), "share"),
    Life("tailer", "payments", _behind(0.1), "simple"),
    *(Life(f"svc-{number:02}", "payments", _behind(0.2 + number / 50)) for number in range(8)),
]

LAST_COMMIT = {"search-index": 4 * DAY, "old-etl": 5 * DAY - 11}
"""The last sample with a commit, of those that stop."""


def at(sample: float) -> datetime:
    return BEGIN + sample * EVERY


def lag_rows() -> Iterator[Row]:
    for life in LIVES:
        for sample in range(life.until):
            for partition in range(TOPICS[life.topic]):
                yield _lag_row(life, partition, sample)


def _lag_row(life: Life, partition: int, sample: int) -> Row:
    topic = life.topic
    last, first = end(topic, partition, sample), start(topic, partition, sample)
    committed = life.committed(topic, partition, sample)
    stopped = sample > LAST_COMMIT.get(life.group, SAMPLES)
    row: Row = {
        "at": at(sample),
        "group": life.group,
        "type": life.type,
        "state": "Empty" if stopped else "Stable",
        "topic": topic,
        "partition": partition,
        "committed": committed,
        "end_offset": last,
        "start_offset": first,
        "number": sample,
        "verdict": "ERR" if stopped else "OK",
        "group_verdict": "ERR" if stopped else "OK",
        "allowance_s": 120.0,
        "members": 0 if stopped else 2,
        "reasons": [],
        "client_id": None if stopped else f"{life.group}-{partition % 2}",
        "client_host": None if stopped else "/10.0.0.7",
        "committed_at": None if committed is None else at(min(sample, LAST_COMMIT.get(life.group, SAMPLES))),
    }
    if committed is None:
        return row | {"verdict": "UNKNOWN", "group_verdict": "UNKNOWN", "reasons": ["no_commit"]}
    flow = (last - end(topic, partition, sample - 1)) / EVERY.total_seconds()
    return row | {
        "lag": last - committed,
        "readable": last - max(committed, first),
        "lost": max(0, first - committed),
        "time_lag_s": round((last - committed) / flow, 1) if flow else 0.0,
        "consume_per_s": 0.0 if stopped else flow,
        "produce_per_s": flow,
        "reasons": ["below_log_start"] if committed < first else [],
    }


def commit_rows() -> Iterator[Row]:
    """A commit a sample and partition, the group's records before them at the same sample."""
    for number, life in enumerate(LIVES):
        if life.type == "share":
            continue
        for sample in range(life.until):
            if sample > LAST_COMMIT.get(life.group, SAMPLES):
                break
            for partition in range(TOPICS[life.topic]):
                committed = life.committed(life.topic, partition, sample)
                if committed is not None:
                    yield {
                        "number": sample,
                        "offsets_partition": number,
                        "log_offset": sample * 1000 + 100 + partition,
                        "kind": "OffsetCommit",
                        "timestamp": at(sample),
                        "group": life.group,
                        "topic": life.topic,
                        "partition": partition,
                        "committed": committed,
                        "leader_epoch": 0,
                        "metadata": "",
                        "commit_timestamp": at(sample),
                        "topic_id": None,
                    }


def group_rows() -> Iterator[Row]:
    for number, life in enumerate(LIVES):
        if life.type != "simple":
            for epoch, (sample, members) in enumerate(_memberships(life), 1):
                yield _group_row(life, number, sample, members, epoch)


def _memberships(life: Life) -> Iterator[tuple[int, int]]:
    """(sample, members) at each change; -1 members: the group is gone."""
    yield -20, 2
    if life.group == "search-index":
        yield LAST_COMMIT[life.group] + 1, 0
    if life.group == "replay-tool":
        for reset in (2 * DAY + 24, 5 * DAY + 20):  # emptied, reset, started again
            yield reset, 0
            yield reset + 1, 2
    if life.group == "flapping":
        for sample in range(DAY, 3 * DAY, 3):
            yield sample, 1 + sample % 2
    if life.group == "old-etl":
        yield LAST_COMMIT[life.group] + 1, 0
        yield life.until, -1


def _group_row(life: Life, number: int, sample: int, members: int, epoch: int) -> Row:
    return {
        "number": max(sample, 0),
        "offsets_partition": number,
        "log_offset": sample * 1000,
        "timestamp": at(sample),
        "group": life.group,
        "type": life.type,
        "state": {-1: "Dead", 0: "Empty"}.get(members, "Stable"),
        "epoch": epoch,
        "assignment_epoch": epoch,
        "protocol_type": "consumer",
        "protocol": "range",
        "members": None
        if members < 0
        else [dict.fromkeys(_MEMBER) | {"id": str(each), "assigned": []} for each in range(members)],
        "gone": members < 0,
    }


_MEMBER = ("client_id", "client_host", "instance_id")


def table(name: str, rows: Iterator[Row]) -> pa.Table:
    """The rows as a table of koff's, with `cluster` and `day`."""
    schema = TABLES[name].schema
    time = TABLES[name].time
    full = [{"cluster": CLUSTER, "day": _day(row[time])} | row for row in rows]
    return pa.Table.from_pylist(full, schema=pa.schema([field.with_nullable(True) for field in schema]))


def _day(time: datetime) -> date:
    return time.date()


def tables() -> dict[str, tuple[pa.Table, list[str]]]:
    """By name: the table and what it is partitioned by. Reports compute the hours."""
    rows = {"lag": lag_rows(), "lag_hourly": iter(()), "records": commit_rows(), "groups": group_rows()}
    return {name: (table(name, each), ["cluster", "day"]) for name, each in rows.items()}


def write_table(rows: pa.Table, partitioned: list[str], folder: Path) -> None:
    """Writes a Delta table without Spark: a file for each partition, and the first version of the log."""
    parquet.write_to_dataset(rows, folder, partition_cols=partitioned)
    added = [
        {
            "add": {
                "path": str(path.relative_to(folder)),
                "partitionValues": dict(part.split("=") for part in path.relative_to(folder).parts[:-1]),
                "size": path.stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
            }
        }
        for path in folder.rglob("*.parquet")
    ]
    described = {
        "id": str(uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": from_arrow_schema(rows.schema).json(),
        "partitionColumns": partitioned,
        "configuration": {},
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    actions = [{"protocol": protocol}, {"metaData": described}, *added]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))

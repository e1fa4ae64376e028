"""The table `progress`: the plan of each batch of a cluster, and who may write it.

A process writes a batch's plan before anything else of the batch, with a number that is one more than that of
the newest plan. Delta takes one write of each number, so of two processes one plans the batch, and the other
one stops (`TakenOver`). All other rows of the batch are written under its number, too. So a plan may be
carried out again, by any process and as often as needed: what a table has of the batch already is ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import structlog

from koff.errors import KoffError
from koff.spark.rows.spans import Span, make_spans
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.owners import Owner
from koff.spark.tables.schemas import TABLES

log = structlog.get_logger(component="spark.tables.progress")
_LOOK_S = 1.0
_SLOW_S = 120.0
"""So long, at most, a process waits for a sign of another one that has planned the newest batch."""


class TakenOver(KoffError):
    """Another process writes the cluster."""


class LogPart(NamedTuple):
    """A partition of the offsets topic. After the batch, the tables have offsets `first` to before `next`.

    The batch reads those from `start` to before `end`. The epochs are those of the leaders that named these
    two, -1 if unknown.
    """

    partition: int
    first: int
    next: int
    start: int
    end: int
    start_epoch: int = -1
    end_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A batch of a cluster: what it reads, and the sample that it writes (None: it has none)."""

    cluster: str
    number: int
    at: datetime
    owner: Owner
    ended: bool = False
    source: str = "log"
    topic_id: str = ""
    parts: tuple[LogPart, ...] = ()
    interval_s: float = 0.0
    sampled_at: datetime | None = None
    sampled_before: datetime | None = None
    sample: bytes | None = field(default=None, repr=False)

    @property
    def spans(self) -> list[Span]:
        """The offsets that the batch reads."""
        return [Span(part.partition, part.start, part.end) for part in self.parts if part.end > part.start]

    @property
    def nexts(self) -> dict[int, int]:
        """By partition, the offset after the last one that the tables have after the batch."""
        return {part.partition: part.next for part in self.parts}

    def follow(self, owner: Owner, at: datetime) -> Plan:
        """The plan after this one, which reads nothing and has no sample."""
        return Plan(
            cluster=self.cluster,
            number=self.number + 1,
            at=at,
            owner=owner,
            topic_id=self.topic_id,
            parts=tuple(
                part._replace(start=part.next, end=part.next, start_epoch=part.end_epoch)
                for part in self.parts
            ),
            interval_s=self.interval_s,
            sampled_before=self.sampled_at or self.sampled_before,
        )

    def list_unread(self) -> tuple[LogPart, ...]:
        """The partitions as they are if the batch has read nothing. One that is new is left out."""
        return tuple(
            part._replace(next=part.start, end=part.start, end_epoch=part.start_epoch)
            for part in self.parts
            if part.start > part.first or part.start == part.end
        )

    def count_behind(self, ends: Mapping[int, int]) -> int:
        """How many offsets there are from the end of the batch up to `ends`."""
        return sum(span.size for span in make_spans(self.nexts, ends))

    def to_arrow(self) -> pa.Table:
        """The row of the table, without `day`."""
        row = {name: getattr(self, name) for name in _SCHEMA.names if name not in ("nonce", "partitions")}
        row |= {"owner": self.owner.name, "nonce": self.owner.nonce, "topic_id": self.topic_id or None}
        row["partitions"] = [part._asdict() for part in self.parts]
        return pa.Table.from_pylist([row], schema=_SCHEMA)

    @classmethod
    def from_row(cls, row: Any) -> Plan:
        """The plan of a row of the table."""
        names = [name for name in _SCHEMA.names if name not in ("owner", "nonce", "partitions", "topic_id")]
        times = {name: _to_utc(row[name]) for name in ("at", "sampled_at", "sampled_before")}
        values = {name: row[name] for name in names} | times
        if values["sample"] is not None:
            values["sample"] = bytes(values["sample"])
        parts = tuple(LogPart(*part) for part in row.partitions)
        return cls(**values, owner=Owner(row.owner, row.nonce), topic_id=row.topic_id or "", parts=parts)


_SCHEMA = pa.schema([field for field in TABLES["progress"].schema if field.name != "day"])


def _to_utc(at: datetime | None) -> datetime | None:
    # Spark returns times without a time zone, by the zone of this process.
    return None if at is None else at.astimezone(UTC)


def read_plans(tables: Tables, cluster: str, since: int) -> list[Plan]:
    """The plans from the number `since` on, in order."""
    rows = tables.cluster_frame("progress", cluster).where(f"number >= {since}").orderBy("number").collect()
    return [Plan.from_row(row) for row in rows]


def read_newest_plan(tables: Tables, cluster: str) -> Plan | None:
    """The newest plan; None if there is none."""
    number = tables.find_number("progress", cluster)
    plans = read_plans(tables, cluster, number) if number else []
    return plans[-1] if plans else None


def claim_batch(tables: Tables, plan: Plan) -> None:
    """Writes the plan, as the next one of its cluster. Raises `TakenOver` if another process was first."""
    if tables.write_batch("progress", plan.to_arrow(), plan.cluster, plan.number):
        return
    (found,) = read_plans(tables, plan.cluster, plan.number)[:1]
    if found.owner.nonce != plan.owner.nonce:
        raise make_taken_error(plan.cluster, found)


def make_taken_error(cluster: str, newest: Plan) -> TakenOver:
    """The error for a process that does not write the cluster, because of the newest plan."""
    return TakenOver(
        f"cluster {cluster}: {newest.owner} writes this cluster (batch {newest.number} of "
        f"{newest.at:%Y-%m-%d %H:%M:%S} UTC): stop that process first, or leave the cluster to it"
    )


def check_free(
    tables: Tables, cluster: str, newest: Plan | None, is_stopping: Callable[[], bool] = lambda: False
) -> None:
    """Raises `TakenOver` if the process that has planned the newest batch still runs.

    It is looked for on this host. Elsewhere, a new plan within its interval is a sign. (If it is only slow,
    no rows are lost or doubled: of both processes, one stops at its next batch.)
    """
    if newest is None or newest.ended:
        return
    if newest.owner.is_here:
        if newest.owner.is_alive():
            raise make_taken_error(cluster, newest)
        return
    wait_s = min(max(2 * newest.interval_s, 10.0), _SLOW_S)
    log.info(
        "another process was writing the cluster: waiting for a sign of it", cluster=cluster, seconds=wait_s
    )
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and not is_stopping():
        if tables.find_number("progress", cluster) != newest.number:
            raise make_taken_error(cluster, read_newest_plan(tables, cluster) or newest)
        time.sleep(_LOOK_S)

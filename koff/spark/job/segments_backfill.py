"""`koff pipeline backfill --segments`: copied log segments into the tables, in batches of bounded size.

The batches continue those that the tables have: offsets that the tables have already are left out. So a
backfill that was interrupted continues, and a later `run` continues after it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import structlog

from koff.errors import KoffError
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.job.batches import Batch, Batches
from koff.spark.job.cluster_state import ClusterState
from koff.spark.job.planner import make_recreated_error
from koff.spark.rows.decoding import DataLost
from koff.spark.source.log_segments import SegmentsOptions, SegmentsReader
from koff.spark.source.segment_files import Segments, find_log_end, list_logs, plan_batches, read_topic_id
from koff.spark.spark_session import count_tasks
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.owners import Owner
from koff.spark.tables.progress import LogPart, Plan, check_free, claim_batch, read_newest_plan
from koff.spark.worker_errors import find_koff_error, summarize_error

log = structlog.get_logger(component="spark.job")
BYTES_PER_TASK = 64 << 20
"""How many bytes of segments each task reads in a batch, about. (The offsets topic has files of 100 MB.)"""


class WrittenCounts(NamedTuple):
    """How many records were written, and how many of them are commits."""

    records: int
    commits: int


class SegmentsBatch(NamedTuple):
    """A batch that is in the tables: its number, how many there are, its bytes, and what it wrote."""

    number: int
    batches: int
    size: int
    written: WrittenCounts


def check_segments(path: str) -> None:
    """Raises `ConfigError` if the path has no segments, or segments of several topics. Needs no Spark."""
    read_topic_id(_list_logs(path))


def count_segments_bytes(path: str) -> int:
    """How many bytes the segments have."""
    return sum(whole.size for whole in _list_logs(path))


def backfill_segments(
    tables: Tables,
    path: str,
    cluster: str,
    progress: Callable[[SegmentsBatch], None] = lambda _: None,
    *,
    most_bytes: int | None = None,
) -> WrittenCounts:
    """Writes log segments into the tables, without the offsets that the tables have already.

    `progress` is called after each batch. A batch has at most `most_bytes`, or one larger file. Raises
    `KoffError`.
    """
    try:
        return _SegmentsBackfill(tables, path, cluster).run(progress, most_bytes)
    except Exception as error:
        found = find_koff_error(error)
        if found is error:
            raise
        raise found or KoffError(f"segments {path}: Spark failed: {summarize_error(error)}") from error


class _SegmentsBackfill:
    """One backfill."""

    def __init__(self, tables: Tables, path: str, cluster: str) -> None:
        self._tables, self._path, self._cluster = tables, path, cluster
        self._options = replace(
            SegmentsOptions.parse({"path": path}), cluster=cluster, tasks=count_tasks(tables.spark)
        )
        self._newest = read_newest_plan(tables, cluster)
        check_free(tables, cluster, self._newest)

    def run(self, progress: Callable[[SegmentsBatch], None], most_bytes: int | None) -> WrittenCounts:
        logs, written = _list_logs(self._path), WrittenCounts(0, 0)
        topic_id = read_topic_id(logs) or ""
        known_id = self._newest.topic_id if self._newest else ""
        if topic_id and known_id and topic_id != known_id:
            raise make_recreated_error(self._cluster, OFFSETS_TOPIC, known_id, topic_id)
        ends = {whole.partition: find_log_end(whole) for whole in logs}
        batches = plan_batches(logs, most_bytes or BYTES_PER_TASK * count_tasks(self._tables.spark))
        writer = Batches(
            self._tables, ClusterState(self._cluster, 30.0), lambda _: SegmentsReader(self._options)
        )
        owner = Owner.create()
        try:
            if self._newest is not None:
                self._newest = writer.restore(self._newest)
            for number, files in enumerate(batches, 1):
                counts = self._write(writer, owner, files, ends, topic_id or known_id)
                written = WrittenCounts(*map(sum, zip(written, counts, strict=True)))
                size = sum(each.size for each in files)
                progress(SegmentsBatch(number, len(batches), size, counts))
            if self._newest is not None:
                writer.end(self._newest, replace(self._begin_plan(owner, topic_id or known_id), ended=True))
        finally:
            owner.end()
        return written

    def _write(
        self, writer: Batches, owner: Owner, files: Sequence[Segments], ends: Mapping[int, int], topic_id: str
    ) -> WrittenCounts:
        """Writes the new offsets of the files; nothing if there are none."""
        plan = self._begin_plan(owner, topic_id)
        parts = {part.partition: part for part in plan.parts}
        for each in files:
            sound_end = ends[each.partition]
            if (each.start or 0) < sound_end:
                end = sound_end if each.end is None else min(each.end, sound_end)
                parts[each.partition] = self._plan_part(parts.get(each.partition), each, end)
        plan = replace(plan, parts=tuple(part for _, part in sorted(parts.items())))
        if not plan.spans:
            return WrittenCounts(0, 0)
        offsets = {span.partition: (span.start, span.end) for span in plan.spans}
        self._options = replace(self._options, files=tuple(files), offsets=offsets)
        batch = self._claim(writer, plan)
        return WrittenCounts(batch.records, batch.commits)

    def _plan_part(self, known: LogPart | None, files: Segments, end: int) -> LogPart:
        """What to read of a partition. Raises `DataLost` if offsets are missing before the files."""
        base = files.start or 0
        if known is None:
            return LogPart(files.partition, base, end, base, end)
        if base > known.next:
            raise DataLost(
                f"cluster {self._cluster}: partition {known.partition} has offsets up to {known.next}, and "
                f"the segments begin at {base}: copy the segments between, or read these under another "
                f"--cluster-name"
            )
        if base < known.first:
            log.warning(
                "older segments are left out: the tables begin after them; read them under another "
                "--cluster-name",
                partition=known.partition,
                tables_begin=known.first,
                segments_begin=base,
            )
        end = max(end, known.next)
        return LogPart(known.partition, known.first, end, known.next, end)

    def _begin_plan(self, owner: Owner, topic_id: str) -> Plan:
        """The next plan, which reads nothing yet."""
        first = Plan(cluster=self._cluster, number=1, at=datetime.now(UTC), owner=owner)
        plan = self._newest.follow(owner, datetime.now(UTC)) if self._newest else first
        return replace(plan, source="segments", topic_id=topic_id)

    def _claim(self, writer: Batches, plan: Plan) -> Batch:
        claim_batch(self._tables, plan)
        self._newest = plan
        return writer.carry_out(plan)


def _list_logs(path: str) -> list[Segments]:
    options = SegmentsOptions.parse({"path": path})
    return list_logs(options.paths, options.topic)

"""`koff pipeline backfill --segments`: copied log segments into the tables, in batches of bounded size.

After each batch, the table `coverage` has its offsets. So a backfill that was interrupted continues: it does
not read files again whose offsets are all in the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from koff.errors import KoffError
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.job.batch_progress import ProgressCounter
from koff.spark.job.batch_writer import BatchWriter, WrittenCounts
from koff.spark.source.kafka import make_recreated_error
from koff.spark.source.log_segments import SegmentsOptions, make_batch_options
from koff.spark.source.segment_files import Segments, list_logs, plan_batches, read_topic_id
from koff.spark.spark_session import count_tasks, persist_frame
from koff.spark.tables.coverage import Coverage, intersect_spans
from koff.spark.tables.leases import Lease, hold_leases
from koff.spark.tables.schemas import TABLES, Tables
from koff.spark.tables.session_settings import write_once
from koff.spark.worker_errors import find_koff_error, summarize_error

BYTES_PER_TASK = 64 << 20
"""How many bytes of segments each task reads in a batch, about. (The offsets topic has files of 100 MB.)"""
JOB_GROUP = "koff backfill of segments"


class SegmentsBatch(NamedTuple):
    """A batch that is in the tables: its number, from 1, and how many there are; what it wrote."""

    number: int
    batches: int
    written: WrittenCounts


def check_segments(path: str) -> None:
    """Raises `ConfigError` if the path has no segments, or segments of several topics. Needs no Spark."""
    read_topic_id(_list_logs(path))


def backfill_segments(
    tables: Tables,
    path: str,
    cluster: str,
    counter: ProgressCounter | None = None,
    progress: Callable[[SegmentsBatch], None] = lambda _: None,
    *,
    most_bytes: int | None = None,
) -> WrittenCounts:
    """Writes log segments into the tables, without the records that the tables already have.

    Returns how many records were read that the tables did not have for certain. `counter` counts bytes of
    segments; `progress` is called after each batch. A batch has at most `most_bytes`, or one larger file.
    Raises `KoffError`.
    """
    counter = counter or ProgressCounter(tables.spark)
    most_bytes = most_bytes or BYTES_PER_TASK * count_tasks(tables.spark)
    logs = _list_logs(path)
    fresh = tables.new_tables.issuperset(TABLES)
    tables.new_tables.clear()
    written = WrittenCounts(0, 0)
    with hold_leases(tables, [cluster], "a backfill of segments") as leases:
        lease = leases[cluster]
        coverage = Coverage(tables, cluster, lease, topic_id=read_topic_id(logs))
        coverage.load(fresh=fresh)
        if other := coverage.find_other_topic():
            raise make_recreated_error(cluster, OFFSETS_TOPIC, other, coverage.topic_id or "")
        batches = plan_batches(logs, coverage.list_complete(), most_bytes)
        sizes = [sum(segments.size for segments in batch) for batch in batches]
        counter.todo = sum(sizes)
        writer = _SegmentsWriter(tables, path, cluster, lease, coverage, counter)
        for number, (batch, size) in enumerate(zip(batches, sizes, strict=True), 1):
            counter.begin_batch(size, JOB_GROUP)
            counts = writer.write(batch, fresh=fresh and number == 1, first=number == 1)
            counter.end_batch()
            written = WrittenCounts(written.records + counts.records, written.commits + counts.commits)
            progress(SegmentsBatch(number, len(batches), counts))
    return written


@dataclass(frozen=True, slots=True)
class _SegmentsWriter:
    """Writes batches of files."""

    tables: Tables
    path: str
    cluster: str
    lease: Lease
    coverage: Coverage
    counter: ProgressCounter

    def write(self, batch: list[Segments], *, fresh: bool, first: bool) -> WrittenCounts:
        """Writes the batch and records that the tables have it. `first`, `fresh`: as in `BatchWriter`."""
        spark = self.tables.spark
        spans = [segments.span for segments in batch]
        covered = intersect_spans(self.coverage.list_complete(), spans)
        begun = intersect_spans(self.coverage.list_begun(), spans)
        options = make_batch_options(batch, covered) | {"packed": "true", "tasks": str(count_tasks(spark))}
        rows = spark.read.format("koff.segments").options(cluster=self.cluster, **options)
        context = spark.sparkContext
        context.setJobGroup(JOB_GROUP, f"segments of {self.cluster}")  # the counter looks at this group
        try:
            frame = rows.load(self.path)
            with persist_frame(frame), write_once(spark, *self.lease.next_transaction()):
                writer = BatchWriter(
                    self.tables,
                    self.cluster,
                    overlapping=bool(begun),
                    begun=begun,
                    first=first,
                    fresh=fresh,
                    coverage=self.coverage,
                    begin_step=self.counter.begin_step,
                )
                written = writer.write(frame, {})
            self.coverage.flush()
            self.lease.check()
        except Exception as error:
            koff_error = find_koff_error(error)
            if koff_error is None:
                raise KoffError(f"segments {self.path}: Spark failed: {summarize_error(error)}") from error
            raise koff_error from error
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None removes it
        return written


def _list_logs(path: str) -> list[Segments]:
    options = SegmentsOptions.parse({"path": path})
    return list_logs(options.paths, options.topic)

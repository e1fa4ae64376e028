"""How much of the work is done, also while a batch runs. The progress bar of `backfill` shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ProgressCounter:
    """Counts work in offsets of a log, or in bytes of segments: `done` out of `todo`.

    One batch may be the whole work. So half of a batch counts as done while its records are read, and the
    other half when they are in the tables.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.todo = 0
        self._spark = spark
        self._batch: tuple[int, ReadProgress] | None = None
        self._done = 0

    def begin_batch(self, amount: int, job_group: str | None = None) -> None:
        """Begins a batch of `amount`. `job_group` is the group of its Spark jobs (None: no group)."""
        self._batch = amount, ReadProgress(self._spark, job_group)

    def end_batch(self) -> None:
        """Counts the batch as done. The caller calls this when the batch is in the tables."""
        if self._batch is not None:
            self._done += self._batch[0]
            self._batch = None

    @property
    def done(self) -> int:
        """How much of `todo` is done. May be read from any thread."""
        # Read each attribute once: another thread may end the batch in between.
        done, batch = self._done, self._batch
        return done if batch is None else done + int(batch[0] * batch[1].fraction_read() / 2)


class ReadProgress:
    """How far Spark has read from one of koff's sources, in the jobs of a group that start from now on."""

    def __init__(self, spark: SparkSession, job_group: str | None) -> None:
        self._context, self._group = spark.sparkContext, job_group
        # Job numbers only grow: jobs up to this one belong to earlier batches.
        self._last_old_job = max(self._list_jobs(), default=-1)

    def fraction_read(self) -> float:
        """The fraction that is read, 0 to 1. A task counts when it ends; tasks are about equal in size."""
        return max((self._stage_fraction(stage) for stage in self._list_stages()), default=0.0)

    def _list_jobs(self) -> list[int]:
        return [*self._context.statusTracker().getJobIdsForGroup(self._group)]

    def _list_stages(self) -> list[int]:
        tracker = self._context.statusTracker()
        infos = [tracker.getJobInfo(job) for job in self._list_jobs() if job > self._last_old_job]
        return [stage for info in infos if info is not None for stage in info.stageIds]

    def _stage_fraction(self, number: int) -> float:
        """The fraction of the stage's tasks that are done; 0 for a stage that does not read a koff source."""
        context: Any = self._context
        try:
            stage = context._jsc.sc().statusStore().lastStageAttempt(number)
        except Py4JError:
            return 0.0  # Spark does not have the stage yet, or no longer
        # Spark counts input bytes of files and of its cache, but not of Python sources: a stage with
        # records and without bytes reads a koff source.
        if not stage.inputRecords() or stage.inputBytes():
            return 0.0
        return float(stage.numCompleteTasks() / stage.numTasks())

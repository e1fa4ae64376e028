"""How much is done of what there was to do, also in the midst of a batch: what a progress bar shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Headway:
    """Offsets of a log, or bytes of segments: `todo` in all.

    A batch may be the whole, so it counts half when it is read and whole when the tables have it.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.todo = 0
        self._spark = spark
        self._batch: tuple[int, Reading] | None = None
        self._done = 0

    def begin(self, amount: int, job_group: str | None = None) -> None:
        """A batch of so much begins, in Spark jobs of that group (None: of none)."""
        self._batch = amount, Reading(self._spark, job_group)

    def end(self) -> None:
        """The batch is in the tables."""
        if self._batch is not None:
            self._done += self._batch[0]
            self._batch = None

    @property
    def done(self) -> int:
        """Of `todo`; may be asked in any thread."""
        done, batch = self._done, self._batch
        return done if batch is None else done + int(batch[0] * batch[1].share() / 2)


class Reading:
    """What the jobs of a group that begin from now on read from a source of koff's."""

    def __init__(self, spark: SparkSession, job_group: str | None) -> None:
        self._context, self._group = spark.sparkContext, job_group
        self._before = max(self._jobs(), default=-1)

    def share(self) -> float:
        """How much of it is read, 0 to 1; tasks are about equal, and count when they end."""
        return max((self._stage(stage) for stage in self._stages()), default=0.0)

    def _jobs(self) -> list[int]:
        return [*self._context.statusTracker().getJobIdsForGroup(self._group)]

    def _stages(self) -> list[int]:
        tracker = self._context.statusTracker()
        told = [tracker.getJobInfo(job) for job in self._jobs() if job > self._before]
        return [stage for job in told if job is not None for stage in job.stageIds]

    def _stage(self, number: int) -> float:
        """The share of the tasks that are done, of a stage that reads records but no files: Spark counts
        bytes of files and of its cache, not of sources in Python."""
        context: Any = self._context
        try:
            told = context._jsc.sc().statusStore().lastStageAttempt(number)
        except Py4JError:
            return 0.0  # not begun, or long over
        if not told.inputRecords() or told.inputBytes():
            return 0.0
        return float(told.numCompleteTasks() / told.numTasks())

"""How much of the work is done, also while a batch runs. The progress bar of `backfill` shows it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = {"read": 0.5, "commits": 0.2, "current": 0.2, "groups": 0.1}
"""The steps of a batch in their order, and which part of a batch each counts for. (A step that the batch does
not have counts as done when the next step begins.)"""


class ProgressCounter:
    """Counts work in offsets of a log, or in bytes of segments: `done` out of `todo`.

    One batch may be the whole work. So the steps of a batch count, and within a step the tasks of Spark.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.todo = 0
        self._spark = spark
        self._lock = threading.Lock()  # `done` is read by the thread of the bar
        self._done = 0
        """The batches that are done."""
        self._batch = 0
        """The size of the running batch."""
        self._running: tuple[float, float, JobsProgress] | None = None
        """The running step: the part of the batch before it, its own part, its jobs."""
        self._shown = 0
        """The largest value of `done`: jobs that Spark forgets must not move it back."""
        self._group: str | None = None

    def begin_batch(self, amount: int, job_group: str | None = None) -> None:
        """Begins a batch of `amount`. `job_group` is the group of its Spark jobs (None: no group)."""
        self._group = job_group
        with self._lock:
            self._batch = amount
        self.begin_step("read")

    def begin_step(self, name: str) -> None:
        """Begins a step of the batch (one of `STEPS`). Without a batch, it does nothing."""
        if not self._batch:
            return
        names = [*STEPS]
        before = sum(STEPS[each] for each in names[: names.index(name)])
        jobs = JobsProgress(self._spark, self._group)
        with self._lock:
            self._running = before, STEPS[name], jobs

    def end_batch(self) -> None:
        """Counts the batch as done. The caller calls this when the batch is in the tables."""
        with self._lock:
            self._done += self._batch
            self._batch, self._running = 0, None

    @property
    def done(self) -> int:
        """How much of `todo` is done. May be read from any thread; never becomes smaller."""
        with self._lock:
            done, amount, running = self._done, self._batch, self._running
        if running is not None:
            before, part, jobs = running
            done += int(amount * (before + part * jobs.fraction_done()))
        with self._lock:
            self._shown = max(self._shown, done)
            return self._shown


class JobsProgress:
    """How far Spark is with the jobs of a group that start from now on."""

    def __init__(self, spark: SparkSession, job_group: str | None) -> None:
        self._tracker, self._group = spark.sparkContext.statusTracker(), job_group
        # Job numbers only grow: jobs up to this one belong to earlier steps.
        self._last_old_job = max(self._list_jobs(), default=-1)

    def fraction_done(self) -> float:
        """The fraction of the step that is done, 0 to 1.

        koff does not know how many jobs follow. So the first job counts for 0.8 of the step, and each later
        job for 0.8 of the rest.
        """
        done, left = 0.0, 1.0
        for job in sorted(job for job in self._list_jobs() if job > self._last_old_job):
            part = 0.8 * left
            done, left = done + part * self._find_fraction(job), left - part
        return done

    def _list_jobs(self) -> list[int]:
        return [*self._tracker.getJobIdsForGroup(self._group)]

    def _find_fraction(self, job: int) -> float:
        """The fraction of the job's tasks that are done."""
        info = self._tracker.getJobInfo(job)
        if info is None or info.status == "SUCCEEDED":
            return 1.0  # Spark no longer has it, or its last stages were not needed
        stages = [stage for stage in map(self._tracker.getStageInfo, info.stageIds) if stage is not None]
        tasks = sum(stage.numTasks for stage in stages)
        return sum(stage.numCompletedTasks for stage in stages) / tasks if tasks else 0.0

"""The job of one cluster: plans a batch, claims it, carries it out, and waits for the next one."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import structlog

from koff.client.cluster import Cluster
from koff.config.clusters import WatchedCluster
from koff.spark.job.batches import Batch, Batches
from koff.spark.job.cluster_state import STALE_INTERVALS, ClusterState
from koff.spark.job.log_source import LogSource
from koff.spark.job.planner import Planner
from koff.spark.job.samples import NO_OFFSETS, Sample
from koff.spark.rows.decoding import DataLost
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.maintenance import KEEP_ALL, MaintainConf, maintain_cluster
from koff.spark.tables.owners import Owner
from koff.spark.tables.progress import Plan, check_free, claim_batch, read_newest_plan
from koff.spark.worker_errors import summarize_error
from koff.tracker import Rule, ShownNames, compile_expression
from koff.view.cluster_view import ClusterView

log = structlog.get_logger(component="spark.job")
FIRST_MAINTENANCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class PipelineConf:
    """How the job runs.

    `interval_s` is the time between two samples, and between two batches once the job has caught up. With
    `once`, the job ends when it has read the log up to where it ended at the start. Without `sample`, there
    are no rows of lag. A batch has at most `max_offsets_per_batch` offsets. With `fail_on_data_loss`, records
    that were deleted before they were read are an error; otherwise a warning. Each `maintain_s`, the rows of
    the cluster are maintained between two batches, the first time after `FIRST_MAINTENANCE_S`.
    """

    interval_s: float = 30.0
    once: bool = False
    sample: bool = True
    max_offsets_per_batch: int = 10_000_000
    fail_on_data_loss: bool = True
    maintain_s: float = 86_400.0
    maintain: MaintainConf = KEEP_ALL

    @property
    def limit_s(self) -> float:
        """How old an end offset or a commit may be, and how far apart both, for a lag that counts."""
        return STALE_INTERVALS * max(self.interval_s, 5.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch that is in the tables. `seconds` is the time that it took.

    `behind` is the number of offsets of the offsets topic that are not read yet. `sampled` is the number of
    rows of lag, as of `sampled_at`, and `view` what is known at that moment; None if the batch has no sample.
    """

    cluster: str
    batch: int
    records: int
    seconds: float
    behind: int
    commits: int = 0
    sampled: int | None = None
    sampled_at: datetime | None = None
    view: ClusterView | None = field(default=None, repr=False)


class ClusterJob:
    """Writes one cluster into the tables. The caller connects `cluster`, and closes it.

    `progress` is called after each batch that has records or a sample, in the thread of `run`.
    """

    def __init__(
        self,
        tables: Tables,
        watched: WatchedCluster,
        cluster: Cluster,
        conf: PipelineConf,
        progress: Callable[[Progress], None],
        stopping: threading.Event,
    ) -> None:
        self._tables, self._conf, self._progress, self._stopping = tables, conf, progress, stopping
        self._planner = Planner(
            watched,
            cluster,
            max_offsets=conf.max_offsets_per_batch,
            interval_s=conf.interval_s,
            limit_s=conf.limit_s,
        )
        self.name = self._planner.name
        self._watched = watched
        self._newest: Plan | None = None
        self._is_first = True
        self._maintain_at = time.monotonic() + min(conf.maintain_s, FIRST_MAINTENANCE_S)
        self.batches = 0
        """How many batches are in the tables since `run` was called."""
        self.done, self.todo = 0, 0
        """With `once`: how many offsets are read, and how many there are to read."""

    def run(self) -> None:
        """Runs until the job is stopped; with `once`, until the log is read.

        It may be called again after an error. Raises `TakenOver` if another process writes the cluster.
        """
        self.batches, self._is_first = 0, True
        self._newest = newest = read_newest_plan(self._tables, self.name)
        check_free(self._tables, self.name, newest, self._stopping.is_set)
        owner, batches = Owner.create(), self._make_batches()
        try:
            if newest is not None:
                self._newest = batches.restore(newest)
            while not self._stopping.is_set():
                began = time.monotonic()
                self._write_batch(batches, owner)
                if self._conf.once and self._is_done(batches):
                    break
                self._maintain()
                if not self._planner.behind:
                    self._stopping.wait(max(0.0, began + self._conf.interval_s - time.monotonic()))
            self._end(batches, owner)
        except DataLost:
            self._write_unknown(batches, owner)
            raise
        finally:
            owner.end()

    def _is_done(self, batches: Batches) -> bool:
        knows_all = not self._conf.sample or self._planner.knows_shares(batches.state.tracker)
        return not self._planner.behind and knows_all

    def _make_batches(self) -> Batches:
        watched = self._watched
        rules = (
            () if text is None else (Rule(compile_expression(text)),)
            for text in (watched.groups, watched.topics)
        )
        state = ClusterState(self.name, self._conf.interval_s, ShownNames(*rules), watched.objectives)
        source = LogSource(self._tables.spark, watched, self.name, may_lose=not self._conf.fail_on_data_loss)
        return Batches(self._tables, state, source)

    def _write_batch(self, batches: Batches, owner: Owner) -> None:
        began = time.monotonic()
        plan = self._planner.plan(owner, self._newest, batches.state, wants_sample=self._conf.sample)
        if self._is_first and self._conf.sample:  # a backfill has the bar
            self._log_begin(plan)
        left = sum(span.size for span in plan.spans)
        self.todo = self.todo or left + self._planner.behind
        claim_batch(self._tables, plan)
        batch = batches.carry_out(plan)
        self._newest, self._is_first = plan, False
        self.batches, self.done = self.batches + 1, self.done + left
        if batch.records or batch.view is not None:
            self._progress(self._describe(batch, time.monotonic() - began))

    def _describe(self, batch: Batch, seconds: float) -> Progress:
        plan, view = batch.plan, batch.view
        return Progress(
            self.name,
            plan.number,
            batch.records,
            seconds,
            self._planner.behind,
            batch.commits,
            batch.lag_rows,
            plan.sampled_at,
            view,
        )

    def _log_begin(self, plan: Plan) -> None:
        """Logs how much of the log there is to read: the first batch may take minutes."""
        log.info(
            "reading the log",
            cluster=self.name,
            offsets=sum(span.size for span in plan.spans) + self._planner.behind,
            begins="where the last run ended" if self._newest else "at the log start",
        )

    def _end(self, batches: Batches, owner: Owner) -> None:
        """Notes that the process has ended, and saves the state: the next one begins at once."""
        if self._newest is not None:
            batches.end(self._newest, replace(self._newest.follow(owner, datetime.now(UTC)), ended=True))

    def _write_unknown(self, batches: Batches, owner: Owner) -> None:
        """Writes a last sample without offsets, so that no lag of the sample before looks current.

        The newest plan may be of a batch whose records are lost. Then the next run tries them again.
        """
        newest = read_newest_plan(self._tables, self.name)
        if newest is None or not self._conf.sample:
            return
        at = datetime.now(UTC)
        plan = replace(newest.follow(owner, at), ended=True)
        if newest.spans and batches.give_up(newest):
            plan = replace(plan, parts=newest.list_unread())
        held = tuple(plan.nexts)
        sample = Sample(round(at.timestamp() * 1000), NO_OFFSETS, None, len(held), held)
        claim_batch(self._tables, replace(plan, sample=sample.encode(), sampled_at=at))
        batches.carry_out(replace(plan, sample=sample.encode(), sampled_at=at))
        batches.save_state(plan)

    def _maintain(self) -> None:
        """Maintains the rows of the cluster. A failure is a warning: the next maintenance tries again."""
        if time.monotonic() < self._maintain_at:
            return
        began = time.monotonic()
        try:
            done = maintain_cluster(self._tables, self.name, self._conf.maintain)
        except Exception as error:
            log.warning("maintenance failed", cluster=self.name, why=summarize_error(error))
        else:
            log.info(
                "maintenance",
                cluster=self.name,
                rows_deleted=sum(each.deleted for each in done),
                seconds=round(time.monotonic() - began, 1),
            )
        self._maintain_at = time.monotonic() + self._conf.maintain_s

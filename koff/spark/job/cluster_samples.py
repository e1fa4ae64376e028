"""The samples of one cluster: which partitions are watched, when they are sampled, and what follows.

The lag of a sample needs the commits of the same moment. The end of a batch is fixed before its records are
read and written, which may take longer than the sampling interval. So a sample is taken just before a batch
begins: that batch has all commits up to the sample, and only few later ones. The batch writes the sample.
A sample that no batch fits is dropped: after a restart, for example, a batch is repeated whose end is old.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import structlog

from koff.errors import ConnectError
from koff.spark.job.batch_writer import BatchWriter
from koff.spark.job.end_curves import EndCurves
from koff.spark.job.end_offsets import EndOffsetSampler, Sample
from koff.spark.job.hourly_lag import HourlyLag
from koff.spark.job.lag_changes import FullSamples
from koff.spark.job.log_progress import LogProgress
from koff.spark.job.samples import TakeSample, write_sample_and_lag
from koff.spark.job.share_lags import ShareLags, ShareState, read_share_states
from koff.spark.spark_session import tune_for_batch
from koff.spark.tables.schemas import NextTransaction, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = structlog.get_logger(component="spark.job")


class WrittenSample(NamedTuple):
    """A sample that is in the tables: its time, and the number of sampled partitions."""

    at: datetime
    partitions: int


class ClusterSamples:
    """Takes samples of one cluster's end offsets, and writes them, the lag, and what they are summarized to.

    `shares` are the share groups of the cluster, and `next_transaction` is that of its lease. `fresh`: the
    tables have no rows of the cluster. `progress` knows if a batch has all commits up to a sample; the batch
    must begin at most `limit_s` after it.
    """

    def __init__(
        self,
        tables: Tables,
        sampler: EndOffsetSampler,
        name: str,
        progress: LogProgress,
        shares: ShareLags,
        next_transaction: NextTransaction,
        *,
        reach_s: float,
        full_lag_s: float,
        limit_s: float,
        fresh: bool = False,
    ) -> None:
        self._tables, self._name, self._progress, self._reach_s = tables, name, progress, reach_s
        self._sampler, self._shares, self._limit_s = sampler, shares, limit_s
        self._curves = EndCurves(name, next_transaction, reach_s=reach_s)
        self._full = FullSamples(full_lag_s)
        self._hourly = HourlyLag(name, next_transaction)
        self._slot_count = 0 if fresh else None
        """How many slots are committed to or assigned; None until they are counted."""
        self._watched: list[tuple[str, int]] | None = None
        """The (topic, partition) that the next sample is of; None: no sample is taken."""
        self._sharing: list[ShareState] = []
        self._taken: tuple[datetime, list[Sample]] | None = None
        """The time and the rows of the sample that the next batch writes."""

    @property
    def topic_names(self) -> dict[str, str]:
        """The name of each topic of the cluster, by topic id, as of the last listing."""
        return self._sampler.topic_names

    def refresh_topics(self) -> None:
        """Lists the topics again if it is time. A failure is a warning: the last listing stays."""
        try:
            self._sampler.refresh_topics()
        except ConnectError as error:
            log.warning(
                "cannot list topics: topics keep the names and ids of the last listing",
                cluster=self._name,
                why=str(error),
            )

    def has_fewer_slots(self, limit: int, tables: Tables) -> bool:
        """Whether the cluster had fewer than `limit` slots at the last sample.

        The first call counts them in `tables`, and changes settings of their session.
        """
        if self._slot_count is None:
            with tune_for_batch(tables.spark, small=True):
                self._slot_count = tables.cluster_frame("current", self._name).count()
        return self._slot_count < limit

    def take(self) -> None:
        """Takes the sample that the next batch writes: call this just before that batch begins.

        `write` has said of which partitions. A failure is a warning: then the next batch has no sample.
        """
        watched, self._watched, self._taken = self._watched, None, None
        if watched is None:
            return
        try:
            self._shares.load(self._sharing)
            self._shares.fetch(self._sampler.fetch_ends)
            rows = self._sampler.take_sample(self._shares.partitions.union(watched))
            at = rows[0].at if rows else datetime.now(UTC)
            self._progress.note_sample()
        except ConnectError as error:
            log.warning(
                "no end offsets sampled: the next batch tries again", cluster=self._name, why=str(error)
            )
        else:
            self._taken = at, rows

    def write(
        self, writer: BatchWriter, batch: int, began: datetime, *, small: bool, again: bool
    ) -> WrittenSample | None:
        """Writes the sample that was taken before the batch, and the lag that follows. None without one.

        `began` is a time after the end of the batch was fixed. `small`: as for `write_sample_and_lag`. With
        `again`, finds out which partitions the next sample is of.
        """
        taken, self._taken = self._taken, None
        if taken is not None and (why := self._find_mismatch(taken[0], began)):
            log.warning("this sample has no lag and is dropped", cluster=self._name, why=why)
            taken = None
        if taken is None and not again:
            return None

        def choose_sample(current: DataFrame, states: DataFrame) -> list[Sample] | None:
            if again:
                self._watched = self._list_watched_partitions(current, states)
            return None if taken is None else taken[1]

        count = self._write_rows(writer, choose_sample, batch, small=small)
        return None if taken is None or count is None else WrittenSample(taken[0], count)

    def write_unknown(self, writer: BatchWriter) -> None:
        """Writes a sample without offsets, so that no lag of the sample before looks current."""
        self._write_rows(writer, self._make_unknown_sample, None)

    def _find_mismatch(self, at: datetime, began: datetime) -> str:
        """Why the commits up to the end of the batch are not of the moment of the sample; "" if they are."""
        if not self._progress.may_sample:
            return "the batch does not reach the offsets at which the log ended at the sample"
        if not 0 <= (gap_s := (began - at).total_seconds()) <= self._limit_s:
            return f"its batch began {gap_s:,.0f} s later"
        return ""

    def summarize(self) -> None:
        """Brings `end_curves` and `lag_hourly` up to date, if there was a sample."""
        if (newest := self._curves.newest) is not None:
            self._curves.fold_if_due(self._tables)
            self._hourly.write_ended(self._tables, newest)

    def _write_rows(
        self, writer: BatchWriter, take_sample: TakeSample, batch: int | None, *, small: bool = False
    ) -> int | None:
        return write_sample_and_lag(
            writer,
            take_sample,
            batch,
            self._curves,
            self._full,
            reach_s=self._reach_s,
            shares=self._shares,
            small=small,
        )

    def _make_unknown_sample(self, current: DataFrame, states: DataFrame) -> list[Sample]:
        now = datetime.now(UTC)
        watched = set(self._list_watched_partitions(current, states))
        self._shares.load(self._sharing)
        watched |= self._shares.partitions
        return [Sample(now, topic, p, None, None, None, None, False) for topic, p in watched]

    def _list_watched_partitions(self, current: DataFrame, states: DataFrame) -> list[tuple[str, int]]:
        """The (topic, partition) that groups commit to or are assigned.

        Also counts the slots, and finds the share groups.
        """
        from pyspark.sql import functions as f

        committed = current.where(~f.col("deleted")).select("topic", "partition")
        assigned = states.select(f.explode("assigned").alias("a")).select("a.topic", "a.partition")
        # A row without a topic says that there are share groups: most clusters have none.
        sharing = states.where("type = 'share'").select(f.lit(None), f.lit(None))
        slots = committed.union(assigned).union(sharing)
        counted = slots.groupBy("topic", "partition").count().toArrow()
        topics, partitions, counts = (column.to_pylist() for column in counted.columns)
        self._slot_count = sum(counts)
        self._sharing = read_share_states(states) if None in topics else []
        return [at for at in zip(topics, partitions, strict=True) if at[0] is not None]

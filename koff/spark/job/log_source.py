"""Reads the records of a batch from a cluster: itself if they are few, else with tasks of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from koff.client.cluster_conf import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.spark.rows.decoding import SCHEMA, Decoder, RecordFilter
from koff.spark.rows.spans import count_offsets
from koff.spark.source.kafka import KafkaOptions, KafkaReader, decode_runs
from koff.spark.source.span_reader import ReadOrigin, read_spans
from koff.spark.spark_session import count_tasks
from koff.spark.tables.progress import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_BATCH = 50_000
"""The driver itself reads a batch with fewer offsets than this: to start tasks takes longer."""


class LogSource:
    """Reads the offsets topic of a cluster. With `may_lose`, records that were deleted are a warning only."""

    def __init__(
        self, spark: SparkSession, watched: WatchedCluster, name: str, *, may_lose: bool = False
    ) -> None:
        # Workers may have no files with secrets: they get their content.
        conf = ClusterConf(watched.conf.brokers, watched.conf.read_properties(), client_id="koff")
        self._origin = ReadOrigin(conf, watched.offsets_topic, name, fail_on_data_loss=not may_lose)
        self._tasks = count_tasks(spark)
        self._decoder = Decoder(name)
        self._filter = RecordFilter(group=watched.groups, commits_to=watched.topics)

    def __call__(self, plan: Plan) -> pa.Table | KafkaReader:
        """The decoded records (columns `SCHEMA`) of the batch. Raises `ConnectError` and `DataLost`."""
        epochs = {part.partition: part.start_epoch for part in plan.parts}
        if count_offsets(plan.spans) >= SMALL_BATCH:
            spans = tuple((*span, epochs[span.partition]) for span in plan.spans)
            return KafkaReader(KafkaOptions(self._origin, self._filter, tasks=self._tasks, spans=spans))
        starts = {(span.partition, span.start): epochs[span.partition] for span in plan.spans}
        batches = decode_runs(read_spans(self._origin, plan.spans, starts), self._decoder)
        return pa.Table.from_batches(filter(len, map(self._filter.filter_rows, batches)), schema=SCHEMA)

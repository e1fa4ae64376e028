"""Reads the records of a batch from a cluster: itself if they are few, else with tasks of Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from koff.config.clusters import WatchedCluster
from koff.spark.rows.decoding import SCHEMA, Decoder, RecordFilter
from koff.spark.rows.spans import count_offsets
from koff.spark.source.kafka import decode_runs
from koff.spark.source.span_reader import ReadOrigin, read_spans
from koff.spark.spark_session import count_tasks
from koff.spark.tables.progress import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_BATCH = 50_000
"""The driver itself reads a batch with fewer offsets than this: to start tasks takes longer."""


class LogSource:
    """Reads the offsets topic of a cluster. With `may_lose`, records that were deleted are a warning only."""

    def __init__(
        self, spark: SparkSession, watched: WatchedCluster, name: str, *, may_lose: bool = False
    ) -> None:
        self._spark, self._watched, self._name, self._may_lose = spark, watched, name, may_lose
        self._decoder = Decoder(name)
        self._filter = RecordFilter(group=watched.groups, commits_to=watched.topics)

    def __call__(self, plan: Plan) -> pa.Table | DataFrame:
        """The decoded records (columns `SCHEMA`) of the batch. Raises `ConnectError` and `DataLost`."""
        if count_offsets(plan.spans) < SMALL_BATCH:
            return self._read(plan)
        return self._spark.read.format("koff").options(**self._make_options(plan)).load()

    def _read(self, plan: Plan) -> pa.Table:
        watched = self._watched
        origin = ReadOrigin(
            watched.conf, watched.offsets_topic, self._name, fail_on_data_loss=not self._may_lose
        )
        epochs = {(part.partition, part.start): part.start_epoch for part in plan.parts}
        batches = decode_runs(read_spans(origin, plan.spans, epochs), self._decoder)
        return pa.Table.from_batches(filter(len, map(self._filter.filter_rows, batches)), schema=SCHEMA)

    def _make_options(self, plan: Plan) -> dict[str, str]:
        watched = self._watched
        epochs = {part.partition: part.start_epoch for part in plan.parts}
        return {
            "brokers": watched.conf.brokers,
            "cluster": self._name,
            "offsetsTopic": watched.offsets_topic,
            "spans": json.dumps([[*span, epochs[span.partition]] for span in plan.spans]),
            "failOnDataLoss": str(not self._may_lose).lower(),
            "tasks": str(count_tasks(self._spark)),
            **({"group": watched.groups} if watched.groups else {}),
            **({"commitsTo": watched.topics} if watched.topics else {}),
            **{f"property.{key}": value for key, value in watched.conf.properties.items()},
        }

"""Settings of a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from koff.spark.spark_session import tune_for_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_large_batch_is_compacted_later(spark: SparkSession, tmp_path: Path) -> None:
    from delta.tables import DeltaTable

    path = str(tmp_path / "table")
    rows = spark.range(100).repartition(4)

    def list_operations() -> list[str]:
        history = DeltaTable.forPath(spark, path).history().orderBy("version")
        return [row.operation for row in history.collect()]

    with tune_for_batch(spark, small=False):
        rows.write.format("delta").save(path)
    assert list_operations() == ["WRITE"]
    with tune_for_batch(spark, small=True):
        rows.write.format("delta").mode("append").save(path)
    assert list_operations() == ["WRITE", "WRITE", "OPTIMIZE"]


def test_the_settings_of_a_batch_end_with_it(spark: SparkSession) -> None:
    before = dict(spark.conf.getAll)
    with tune_for_batch(spark, small=False), tune_for_batch(spark, small=True):
        assert dict(spark.conf.getAll) != before
    assert dict(spark.conf.getAll) == before

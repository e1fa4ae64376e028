"""Settings of a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from koff.spark.spark_session import tune_for_batch
from koff.spark.tables.compaction import compact_merged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_delta_compacts_small_files_and_the_large_ones_of_tables_whose_rows_are_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    from delta.tables import DeltaTable
    from pyspark.sql import functions as f

    def write_and_list(name: str, rows: int) -> list[str]:
        """The operations of two writes of four files each."""
        path = str(tmp_path / name)
        for _ in range(2):
            frame = spark.range(rows).repartition(4).withColumn("random", f.rand())
            frame.write.format("delta").mode("append").save(path)
        history = DeltaTable.forPath(spark, path).history().orderBy("version")
        return [row.operation for row in history.collect()]

    assert "OPTIMIZE" in write_and_list("small", 100)
    assert write_and_list("large", 200_000) == ["WRITE", "WRITE"]
    with compact_merged(spark):
        assert "OPTIMIZE" in write_and_list("merged", 200_000)


def test_the_settings_of_a_batch_end_with_it(spark: SparkSession) -> None:
    before = dict(spark.conf.getAll)
    with compact_merged(spark), tune_for_batch(spark, small=False), tune_for_batch(spark, small=True):
        assert dict(spark.conf.getAll) != before
    assert dict(spark.conf.getAll) == before

"""Settings of a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from koff.spark.spark_session import tune_for_batch
from koff.spark.tables.session_settings import change_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_delta_compacts_small_files_only(spark: SparkSession, tmp_path: Path) -> None:
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


def test_the_settings_of_a_batch_end_with_it(spark: SparkSession) -> None:
    before = dict(spark.conf.getAll)
    # The session has the first setting already, and not the second.
    settings = {"spark.sql.shuffle.partitions": "9", "spark.databricks.delta.optimize.minFileSize": "9"}
    assert [name in before for name in settings] == [True, False]
    with tune_for_batch(spark, small=False), change_settings(spark, settings):
        assert dict(spark.conf.getAll) != before
    assert dict(spark.conf.getAll) == before

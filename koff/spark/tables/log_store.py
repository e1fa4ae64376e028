"""Whether two processes may commit to the same tables: what Delta's log store promises on a file system.

Delta numbers the versions of a table, and the log store must let only one process write a number. On most
file systems it does. On S3, Delta's default `S3SingleDriverLogStore` only does so within one process: of two
processes that commit at the same moment, the later one replaces the commit of the earlier one, whose rows
are then lost without an error. The claims of batches in `progress` are such commits too: they cannot prevent
that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from koff.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINGLE_DRIVER = "io.delta.storage.S3SingleDriverLogStore"
_EXCLUSIVE = frozenset({"file", "hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "adl", "gs", "dbfs"})
"""The schemes whose default log store lets only one process write a version."""


class UnsafeLogStore(ConfigError):
    """Two processes that write the tables could lose rows, and nothing says that only one writes."""


def is_single_driver(spark: SparkSession, root: str) -> bool:
    """Whether only one process at a time may write any of the tables.

    Raises `UnsafeLogStore` if the file system needs a log store that the user has to choose.
    """
    scheme = _find_scheme(spark, root)
    key = f"spark.delta.logStore.{scheme}.impl"
    conf = spark.sparkContext.getConf()
    chosen = conf.get(key) or conf.get("spark.delta.logStore.class")
    if chosen is None and scheme not in _EXCLUSIVE:
        raise UnsafeLogStore(
            f"two processes that write to {scheme}:// at once could lose rows: set {key} to {SINGLE_DRIVER} "
            "if only one process at a time writes these tables, or to io.delta.storage.S3DynamoDBLogStore"
        )
    return chosen == SINGLE_DRIVER


def _find_scheme(spark: SparkSession, root: str) -> str:
    """The scheme of the path; without one, that of Hadoop's default file system."""
    scheme, separator, _ = root.partition("://")
    if separator:
        return scheme.lower()
    jsc = spark.sparkContext._jsc
    default = str(jsc.hadoopConfiguration().get("fs.defaultFS") or "") if jsc is not None else ""
    return default.partition(":")[0].lower() or "file"

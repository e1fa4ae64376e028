"""Settings of a Spark session that hold for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def change_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Changes settings of the session, and resets them at the end of the body."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


@contextmanager
def write_once(spark: SparkSession, app: str, version: int) -> Iterator[None]:
    """Inside this block, each table takes Spark's write of this application and version only once.

    Delta ignores the write if the table already has that version or a later one. The settings belong to the
    session of `spark`: use a session that no other batch writes with.
    """
    prefix = "spark.databricks.delta.write.txn"
    with change_settings(spark, {f"{prefix}AppId": app, f"{prefix}Version": str(version)}):
        yield

"""Which files Delta compacts after a write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACT_BELOW = "spark.databricks.delta.autoCompact.minFileSize"
"""The setting for the size in bytes below which Delta compacts files after a write."""


@contextmanager
def compact_merged(spark: SparkSession) -> Iterator[None]:
    """In the body, Delta compacts files below its own limit (64 MiB), and not only small ones.

    For tables whose rows are replaced: large files, too, have rows that do not count any more.
    """
    with change_settings(spark, {COMPACT_BELOW: str(64 << 20)}):
        yield


@contextmanager
def change_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """In the body, the session has these settings. Afterwards it has those from before."""
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

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

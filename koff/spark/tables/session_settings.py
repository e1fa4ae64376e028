"""Sessions with the settings of another one, and settings that hold for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def clone_session(spark: SparkSession) -> SparkSession:
    """A session with the same settings and sources, whose settings may be changed. It need not be stopped."""
    from pyspark.sql import SparkSession

    # `newSession` knows no sources in Python, and cannot get them: Spark finds those of the first session.
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


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

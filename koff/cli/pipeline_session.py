"""A Spark session for a command of `koff pipeline`: what is checked before it starts, and how it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from koff.cli.options import read_clusters
from koff.config.clusters import WatchedCluster, list_watched_clusters
from koff.errors import ConfigError, KoffError
from koff.logs import get_logger

if TYPE_CHECKING:
    from koff.spark.job.job import Job
    from koff.spark.tables.delta_tables import Tables

log = get_logger("cli.pipeline")
SHORT_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""A command that only reads ends after a minute, and does not gain what Java's second compiler costs."""


def read_watched_clusters() -> list[WatchedCluster]:
    """The clusters that the options of the present command name. Raises `ConfigError`."""
    file, properties = read_clusters(click.get_current_context())
    return list_watched_clusters(file, properties)


@dataclass(frozen=True, slots=True)
class ChosenTables:
    """Where the tables are, and how Spark is to be started. The fields are those of `tables_options`."""

    tables: str
    master: str | None
    spark_conf: tuple[str, ...]
    jars: Path | None

    @classmethod
    def read(cls) -> Self:
        """What the options of the present command say."""
        params = click.get_current_context().params
        return cls(**{each.name: params[each.name] for each in fields(cls)})

    def check(self, *, create: bool, write: bool = False) -> dict[str, str]:
        """The settings for Spark. Checks all that can be checked before Spark starts. Raises `KoffError`.

        `create`, `write`: as for `check_root`.
        """
        # [::2]: key and value, without "="
        pairs = dict(setting.partition("=")[::2] for setting in self.spark_conf)
        if not all(pairs) or not all("=" in setting for setting in self.spark_conf):
            raise ConfigError("--spark-conf is KEY=VALUE, for example spark.driver.memory=4g")
        with require_spark():
            from koff.spark.requirements import check_versions, list_jars
            from koff.spark.spark_session import check_java
            from koff.spark.tables.delta_tables import check_root
        check_versions()
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has started Java already
            check_java()
        check_root(self.tables, create=create, write=write)
        if self.jars is not None:
            pairs["spark.jars"] = ",".join([*filter(None, [pairs.get("spark.jars")]), *list_jars(self.jars)])
        return {"spark.ui.showConsoleProgress": "false", **pairs}

    @contextmanager
    def open(self, settings: dict[str, str]) -> Iterator[Tables]:
        """Opens the tables in a session of Spark that prints nothing of its own, and stops it at the end."""
        with require_spark():
            from koff.spark.quiet_java import buffer_java_output, silence_spark
            from koff.spark.spark_session import session
            from koff.spark.tables.delta_tables import Tables
            from koff.spark.worker_errors import map_errors
        with map_errors():
            log.info("Spark is starting")
            with buffer_java_output() as java:
                spark = session("koff pipeline", master=self.master, settings=settings, java=java)
                silence_spark(spark)
            try:
                yield Tables(spark, self.tables)
            finally:
                spark.stop()

    @contextmanager
    def open_existing(self, *, write: bool = False) -> Iterator[Tables]:
        """Checks what can be checked, and opens tables that are there."""
        java = {} if write else {"spark.driver.extraJavaOptions": SHORT_JAVA}
        with self.open(java | self.check(create=False, write=write)) as tables:
            tables.check_tables()
            yield tables


@contextmanager
def stop_on_signals(job: Job, tables: str) -> Iterator[None]:
    """Stops the job at SIGTERM and Ctrl-C, and then prints where the next run continues.

    Errors after such a signal are not reported: the signal may have ended Java too, and a batch that was
    interrupted is repeated by the next run.
    """
    handle_signals(job)
    try:
        yield
    except (KoffError, OSError):
        if not job.stopped:
            raise
    if job.stopped:
        click.echo(
            f"stopped: {tables} holds what was read so far; the next run continues from there", err=True
        )


def handle_signals(job: Job) -> None:
    """Makes SIGTERM and Ctrl-C stop the job.

    Call it again after a session was opened: Spark installs its own handler for Ctrl-C.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: job.stop())


@contextmanager
def require_spark() -> Iterator[None]:
    """Raises `ConfigError` with the command to run if a package that the pipeline needs is missing."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"the package {error.name} is missing: pip install 'koff[spark]'") from error

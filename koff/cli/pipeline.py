"""`koff pipeline`: the same line on Spark, into tables: run, backfill, maintain, report."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from koff.cli.options import Regex, cluster_conf, logging_options, option, set_up_logs
from koff.cli.progress_bar import Taken, bar, megabytes, offsets, status_line
from koff.cli.times import When
from koff.config.clusters import Watched, read_clusters
from koff.errors import ConfigError, KoffError
from koff.records.topics import OFFSETS_TOPIC

if TYPE_CHECKING:
    from koff.spark.job.job import Job

Decorate = Callable[[Any], Any]


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """A number of seconds, or with a unit: 30s, 5m, 12h, 90d."""

    name = "DURATION"
    _units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}  # noqa: RUF012 - nobody writes into it

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds, or click's error."""
        if isinstance(value, int | float):
            return float(value)
        number, unit = (value[:-1], value[-1]) if value[-1:] in self._units else (value, "s")
        try:
            seconds = float(number) * self._units[unit]
        except ValueError:
            self.fail(f"{value!r} is no duration such as 30s, 5m, 12h or 90d", param, ctx)
        if not 0 < seconds < float("inf"):
            self.fail(f"{value!r} is not above zero", param, ctx)
        return seconds


def _tables_options(command: Any) -> Any:
    master = option(
        "--master",
        show_default=False,
        metavar="URL",
        help="Where Spark runs.  [default: local[*]; what spark-submit says]",
    )
    tables = option(
        "--tables",
        required=True,
        metavar="DIR",
        help="Folder of the tables, or what Spark writes to (s3a://...).",
    )
    conf = option(
        "--spark-conf",
        "spark_conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark's; repeatable.",
    )
    return tables(master(conf(command)))


def _clusters_options(command: Any) -> Any:
    decorators: tuple[Decorate, ...] = (
        option(
            "--brokers",
            default="",
            show_default=False,
            metavar="HOST:PORT[,...]",
            help="Brokers to begin with.",
        ),
        option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="A librdkafka property."),
        option("--property-file", metavar="FILE", help="librdkafka properties, a key=value per line."),
        option("--offsets-topic", default=OFFSETS_TOPIC, help="The topic to read, for mirrored copies."),
        option(
            "--cluster-name",
            default="",
            show_default=False,
            help="What the tables call the cluster.  [default: its id]",
        ),
        option(
            "--config",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Many clusters: koff.yaml, instead of --brokers.",
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def _watched(
    brokers: str,
    properties: tuple[str, ...],
    property_file: str | None,
    offsets_topic: str,
    cluster_name: str,
    config: Path | None,
) -> list[Watched]:
    if bool(brokers) == (config is not None):
        raise ConfigError("say either --brokers, or --config with a file that names clusters")
    if config is not None:
        return read_clusters(config, os.environ)
    return [Watched(cluster_name, cluster_conf(brokers, properties, property_file), offsets_topic)]


@contextmanager
def _spark(master: str | None, settings: tuple[str, ...]) -> Iterator[Any]:
    """A session, quiet, and stopped at the end."""
    try:
        from koff.spark.quiet_java import held, hush
        from koff.spark.spark_session import session
        from koff.spark.worker_errors import mapped_errors
    except ImportError as failure:
        raise ConfigError(f"no {failure.name}: pip install 'koff[spark]'") from failure
    pairs = dict(each.partition("=")[::2] for each in settings)
    if not all(pairs):
        raise ConfigError("--spark-conf is KEY=VALUE, for example spark.driver.memory=4g")
    settings_ = {"spark.ui.showConsoleProgress": "false", **pairs}
    with mapped_errors():
        with held() as java:
            spark = session("koff pipeline", master=master, settings=settings_, java=java)
            hush(spark)
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _stoppable(job: Job, tables: str) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the job, with a line that says so.

    What fails on the way is no news then: the same signal may have ended Java, and a batch that is cut off
    is done again.
    """
    _heed(job)
    try:
        yield
    except (KoffError, OSError):
        if not job.stopped:
            raise
    if job.stopped:
        click.echo(f"stopped: {tables} has what was read so far, started again it goes on there", err=True)


def _heed(job: Job) -> None:
    """Again after a session was made: Spark takes Ctrl-C for itself."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: job.stop())


@click.group()
def pipeline() -> None:
    """The history of every group, on Spark: into tables, and reports out of them."""


@pipeline.command()
@_clusters_options
@_tables_options
@option("--interval", default="30s", type=Duration(), help="Between samples of end offsets, and rows of lag.")
@option("--once", is_flag=True, help="End when the log was read to where it stands now.")
@option(
    "--reach",
    default="1d",
    type=Duration(),
    help="No lag in seconds for records that arrived longer ago: so much history is looked through.",
)
@option(
    "--max-offsets-per-partition",
    default=1_000_000,
    type=click.IntRange(min=1),
    help="At most so many a batch.",
)
@option(
    "--ignore-data-loss",
    is_flag=True,
    help="Go on, and say so, when records left the log before they were read.",
)
@option(
    "--listen",
    default="",
    show_default=False,
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz as `koff monitor` does (one cluster).",
)
@logging_options
def run(
    master: str | None,
    tables: str,
    spark_conf: tuple[str, ...],
    interval: float,
    once: bool,
    reach: float,
    max_offsets_per_partition: int,
    ignore_data_loss: bool,
    listen: str,
    log_format: str,
    log_level: str,
    **cluster: Any,
) -> None:
    """Write what groups do into tables, from the log's start on, and their lag at each interval.

    Stops at SIGTERM or Ctrl-C, and goes on from there when it is started again.

    \b
    Examples:
      koff pipeline run --brokers localhost:9092 --tables lag-tables
      koff pipeline run --config koff.yaml --tables s3a://ops/koff --interval 1m --listen :9850
    """
    set_up_logs(log_format, log_level)
    watched = _watched(**cluster)
    with _needed():
        from koff.spark.job.cluster_stream import PipelineConf
        from koff.spark.job.job import Job
        from koff.spark.job.table_view import served
        from koff.spark.tables.schemas import Tables
    conf = PipelineConf(
        interval_s=interval,
        once=once,
        max_offsets_per_partition=max_offsets_per_partition,
        reach_s=reach,
        fail_on_data_loss=not ignore_data_loss,
    )
    if listen and len(watched) > 1:
        raise ConfigError("--listen serves one cluster: run one job for each, or leave it out")
    with Job(watched, conf) as job, _stoppable(job, tables), _spark(master, spark_conf) as spark:
        _heed(job)
        place = Tables(spark, tables)
        if not job.stopped:
            place.create()
        with served(listen, job, place):
            job.run(place)


@pipeline.command()
@_clusters_options
@_tables_options
@option(
    "--segments",
    metavar="PATH",
    show_default=False,
    help="Log segments copied off brokers, instead of --brokers.",
)
@logging_options
def backfill(
    master: str | None,
    tables: str,
    spark_conf: tuple[str, ...],
    segments: str | None,
    log_format: str,
    log_level: str,
    **cluster: Any,
) -> None:
    """Write all that a cluster's log, or log segments, tell of the past into the tables.

    Of a cluster: what `run` would, to where the log stands, without samples of ends; `run` goes on there.

    \b
    Examples:
      koff pipeline backfill --brokers localhost:9092 --tables lag-tables
      koff pipeline backfill --segments /backup/broker-1 --cluster-name europe --tables lag-tables
    """
    set_up_logs(log_format, log_level)
    with _needed():
        from koff.spark.job.batch_progress import Headway
        from koff.spark.job.cluster_stream import PipelineConf
        from koff.spark.job.job import Job, backfill_segments
        from koff.spark.tables.schemas import Tables
    taken = Taken(tables)
    if segments:
        name = cluster["cluster_name"]
        if not name or cluster["brokers"] or cluster["config"]:
            raise ConfigError(
                "--segments needs --cluster-name (whose they are), and neither --brokers nor --config"
            )
        with _spark(master, spark_conf) as spark:
            place, headway = Tables(spark, tables), Headway(spark)
            place.create()
            with taken.told(), bar("backfill", lambda: (headway.done, headway.todo), megabytes):
                taken.add(*backfill_segments(place, segments, name, headway))
        return
    progress = taken.batch if sys.stderr.isatty() else taken.logged
    job = Job(_watched(**cluster), PipelineConf(once=True, sample=False), progress)
    with job, _stoppable(job, tables), _spark(master, spark_conf) as spark:
        _heed(job)
        place = Tables(spark, tables)
        place.create()
        with taken.told(), bar("backfill", job.headway, offsets):
            job.run(place)


@pipeline.command()
@_tables_options
@option(
    "--keep", default="90d", type=Duration(), help="Rows of longer ago are deleted; what is current stays."
)
def maintain(master: str | None, tables: str, spark_conf: tuple[str, ...], keep: float) -> None:
    """Delete old rows, put small files together, and delete files that no version of the last week needs."""
    set_up_logs()
    with _needed():
        from koff.spark.tables.maintenance import MaintainConf
        from koff.spark.tables.maintenance import maintain as maintained
        from koff.spark.tables.schemas import Tables
    with _spark(master, spark_conf) as spark:
        place = Tables(spark, tables)
        place.check()
        for done in maintained(place, MaintainConf(keep_days=max(1, round(keep / 86_400)))):
            click.echo(
                f"{done.table}: {done.deleted} rows deleted, {done.files_before} files are now {done.files}"
            )


@pipeline.command()
@_tables_options
@option("--from", "since", default="-7d", type=When(), help="Since when: -7d, a time, or milliseconds.")
@option("--until", type=When(), show_default=False, help="Until when.  [default: now]")
@option("--group", type=Regex(), show_default=False, help="Only groups whose name matches.")
@option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="What to write.")
@option(
    "--format", "form", default="html", type=click.Choice(["html", "json", "csv", "png"]), help="As what."
)
def report(
    master: str | None,
    tables: str,
    spark_conf: tuple[str, ...],
    since: int,
    until: int | None,
    group: Any,
    out: Path,
    form: str,
) -> None:
    """Write a report of the tables: one page with pictures, or its numbers, or its pictures alone.

    \b
    Examples:
      koff pipeline report --tables lag-tables --from -7d --out report.html
      koff pipeline report --tables lag-tables --from -1d --group ^payments --format png --out plots
    """
    set_up_logs()
    now = cast(int, When().convert("-0s", None, None))
    with _needed():
        from koff.spark.report import report as write
        from koff.spark.tables.schemas import Tables
    with _spark(master, spark_conf) as spark:
        Tables(spark, tables).check()
        pattern = group.pattern if group is not None else None
        done = itertools.count(1)
        with status_line() as show:
            show("report: reading")
            paths = write(
                spark,
                tables,
                since_ms=since,
                until_ms=until or now,
                out=out,
                form=form,
                groups=pattern,
                progress=lambda what: show(f"report: {next(done)} {what}"),
            )
        for path in paths:
            click.echo(path)


@contextmanager
def _needed() -> Iterator[None]:
    """Says what to install when something that Spark needs is not there."""
    try:
        yield
    except ImportError as failure:
        raise ConfigError(f"no {failure.name}: pip install 'koff[spark]'") from failure

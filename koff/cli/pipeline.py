"""`koff pipeline`: the history of groups in tables, through Spark: run, backfill, maintain, report."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from koff.cli.options import Regex, clusters_options, logging_options, option, read_clusters, set_up_logs
from koff.cli.progress_bar import BackfillCounts, format_megabytes, format_offsets, show_bar, show_status_line
from koff.cli.times import When
from koff.config.clusters import WatchedCluster, list_watched_clusters
from koff.errors import ConfigError, KoffError

if TYPE_CHECKING:
    from koff.spark.job.job import Job

Decorate = Callable[[Any], Any]
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """The type of an option that takes a duration: seconds, or a number with a unit (30s, 5m, 12h, 90d)."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds. Fails with click's error."""
        if isinstance(value, int | float):
            return float(value)
        number, unit = (value[:-1], value[-1]) if value[-1:] in _UNITS_S else (value, "s")
        try:
            seconds = float(number) * _UNITS_S[unit]
        except ValueError:
            self.fail(f"{value!r} is not a duration: write for example 30s, 5m, 12h or 90d", param, ctx)
        if not 0 < seconds < float("inf"):
            self.fail(f"{value!r} is not a duration above zero", param, ctx)
        return seconds


def _tables_options(command: Any) -> Any:
    master = option(
        "--master",
        show_default=False,
        metavar="URL",
        help="The master URL of Spark.  [default: that of spark-submit, else local[*]]",
    )
    tables = option(
        "--tables",
        required=True,
        metavar="DIR",
        help="The folder of the tables, or another URL that Spark can write to (s3a://...).",
    )
    conf = option(
        "--spark-conf",
        "spark_conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark; repeatable.",
    )
    # As stacked decorators: --tables is the first in --help.
    return tables(master(conf(command)))


def _read_watched_clusters() -> list[WatchedCluster]:
    """The clusters that the options of the present command name. Raises `ConfigError`."""
    file, properties = read_clusters(click.get_current_context())
    return list_watched_clusters(file, properties)


@contextmanager
def _open_session(master: str | None, settings: tuple[str, ...]) -> Iterator[Any]:
    """Opens a Spark session that prints nothing of its own, and stops it at the end."""
    try:
        from koff.spark.quiet_java import buffer_java_output, silence_spark
        from koff.spark.spark_session import session
        from koff.spark.worker_errors import map_errors
    except ImportError as error:
        raise _missing_package(error) from error
    pairs = dict(setting.partition("=")[::2] for setting in settings)  # [::2]: key and value, without the "="
    if not all(pairs):
        raise ConfigError("--spark-conf is KEY=VALUE, for example spark.driver.memory=4g")
    spark_settings = {"spark.ui.showConsoleProgress": "false", **pairs}
    with map_errors():
        with buffer_java_output() as java:
            spark = session("koff pipeline", master=master, settings=spark_settings, java=java)
            silence_spark(spark)
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _stop_on_signals(job: Job, tables: str) -> Iterator[None]:
    """Stops the job at SIGTERM and Ctrl-C, and then prints where the next run continues.

    Errors after such a signal are not reported: the signal may have ended Java too, and a batch that was
    interrupted is repeated by the next run.
    """
    _handle_signals(job)
    try:
        yield
    except (KoffError, OSError):
        if not job.stopped:
            raise
    if job.stopped:
        click.echo(
            f"stopped: {tables} holds what was read so far; the next run continues from there", err=True
        )


def _handle_signals(job: Job) -> None:
    """Makes SIGTERM and Ctrl-C stop the job.

    Call it again after a session was opened: Spark installs its own handler for Ctrl-C.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: job.stop())


@click.group()
def pipeline() -> None:
    """Write the history of groups into tables with Spark, and make reports from them."""


@pipeline.command()
@clusters_options
@_tables_options
@option(
    "--interval",
    default="30s",
    type=Duration(),
    help="Time between two samples of end offsets, and so of lag.",
)
@option("--once", is_flag=True, help="End when the log is read up to its present end.")
@option(
    "--reach",
    default="1d",
    type=Duration(),
    help="How far back to search for the lag in seconds: a record that arrived earlier has none.",
)
@option(
    "--max-offsets-per-partition",
    default=1_000_000,
    type=click.IntRange(min=1),
    help="The highest number of offsets of a partition in one batch.",
)
@option(
    "--ignore-data-loss",
    is_flag=True,
    help="Continue, with a warning, if records were deleted from the log before they were read.",
)
@option(
    "--maintain-every",
    default="1d",
    type=Duration(),
    help="Time between two maintenances of the tables: small files are merged.",
)
@option(
    "--keep",
    type=Duration(),
    show_default=False,
    help="With each maintenance, delete rows that are older.  [default: keep all]",
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
    maintain_every: float,
    keep: float | None,
    listen: str,
    log_format: str,
    log_level: str,
    **cluster: Any,
) -> None:
    """Write commits and changes of groups into tables, from the log start on, and the lag at each interval.

    Stops at SIGTERM or Ctrl-C. The next run continues from there.

    \b
    Examples:
      koff pipeline run --brokers localhost:9092 --tables lag-tables
      koff pipeline run --config koff.yaml --tables s3a://ops/koff --interval 1m --listen :9850
    """
    set_up_logs(log_format, log_level)
    # Options: checked before Java starts, which takes seconds
    clusters = _read_watched_clusters()
    with _require_spark():
        from koff.spark.job.cluster_stream import PipelineConf
        from koff.spark.job.job import Job
        from koff.spark.job.table_view import serve_tables
        from koff.spark.tables.maintenance import MaintainConf
        from koff.spark.tables.schemas import Tables
    conf = PipelineConf(
        interval_s=interval,
        once=once,
        max_offsets_per_partition=max_offsets_per_partition,
        reach_s=reach,
        fail_on_data_loss=not ignore_data_loss,
        maintain_s=maintain_every,
        maintain=MaintainConf(keep_days=None if keep is None else _to_days(keep)),
    )
    if listen and len(clusters) > 1:
        raise ConfigError("--listen serves one cluster: run one job for each cluster, or leave --listen out")
    # The job connects to all clusters first: an error is found before anything is written.
    with (
        Job(clusters, conf) as job,
        _stop_on_signals(job, tables),
        _open_session(master, spark_conf) as spark,
    ):
        _handle_signals(job)
        koff_tables = Tables(spark, tables)
        if not job.stopped:  # a signal may have come while Java started
            koff_tables.create_tables()
        with serve_tables(listen, job, koff_tables):
            job.run(koff_tables)


@pipeline.command()
@clusters_options
@_tables_options
@option(
    "--segments",
    metavar="PATH",
    show_default=False,
    help="Log segments that were copied from brokers, instead of --brokers.",
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
    """Write the whole log of a cluster, or log segments, into the tables.

    For a cluster it does the same as `run`, up to the present end of the log and without samples of end
    offsets. `run` continues from there.

    \b
    Examples:
      koff pipeline backfill --brokers localhost:9092 --tables lag-tables
      koff pipeline backfill --segments /backup/broker-1 --cluster-name europe --tables lag-tables
    """
    set_up_logs(log_format, log_level)
    with _require_spark():
        from koff.spark.job.batch_progress import ProgressCounter
        from koff.spark.job.cluster_stream import PipelineConf
        from koff.spark.job.job import Job, backfill_segments
        from koff.spark.source.log_segments import segments_size
        from koff.spark.tables.schemas import Tables
    counts = BackfillCounts(tables)
    # Log segments: there is no cluster, so the user must name it
    if segments:
        name = cluster["cluster_name"]
        ctx = click.get_current_context()
        # Variables of all commands may be set, too.
        sources = {ctx.get_parameter_source(option) for option in ("brokers", "config")}
        if not name or ParameterSource.COMMANDLINE in sources:
            raise ConfigError(
                "--segments needs --cluster-name (their cluster), and neither --brokers nor --config"
            )
        segments_size(segments)  # a path without segments is an error before Spark starts
        with _open_session(master, spark_conf) as spark:
            koff_tables, counter = Tables(spark, tables), ProgressCounter(spark)
            koff_tables.create_tables()
            with (
                counts.report_total(),
                show_bar("backfill", lambda: (counter.done, counter.todo), format_megabytes),
            ):
                counts.add(*backfill_segments(koff_tables, segments, name, counter))
        return
    # A cluster. On a terminal the bar shows the progress, elsewhere the log.
    progress = counts.count_batch if sys.stderr.isatty() else counts.count_and_log_batch
    job = Job(_read_watched_clusters(), PipelineConf(once=True, sample=False), progress)
    with job, _stop_on_signals(job, tables), _open_session(master, spark_conf) as spark:
        _handle_signals(job)
        koff_tables = Tables(spark, tables)
        koff_tables.create_tables()
        with counts.report_total(), show_bar("backfill", job.count_progress, format_offsets):
            job.run(koff_tables)


@pipeline.command()
@_tables_options
@option("--keep", default="90d", type=Duration(), help="Delete rows that are older; the current state stays.")
def maintain(master: str | None, tables: str, spark_conf: tuple[str, ...], keep: float) -> None:
    """Delete old rows, merge small files, and delete files that no version of the last week needs.

    Not beside a job: `koff pipeline run` does it itself, each --maintain-every.
    """
    set_up_logs()
    with _require_spark():
        from koff.spark.tables.maintenance import MaintainConf, maintain_tables
        from koff.spark.tables.schemas import Tables
    with _open_session(master, spark_conf) as spark:
        koff_tables = Tables(spark, tables)
        koff_tables.check_tables()
        for result in maintain_tables(koff_tables, MaintainConf(keep_days=_to_days(keep))):
            click.echo(
                f"{result.table}: {result.deleted} rows deleted, "
                f"{result.files_before} files before and {result.files} after"
            )


@pipeline.command()
@_tables_options
@option(
    "--from",
    "since",
    default="-7d",
    type=When(),
    help="Start of the period: -7d, a time, or milliseconds since 1970.",
)
@option("--until", type=When(), show_default=False, help="End of the period.  [default: now]")
@option("--group", type=Regex(), show_default=False, help="Only groups whose name matches.")
@option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write; for csv and png a folder.",
)
@option(
    "--format",
    "form",
    default="html",
    type=click.Choice(["html", "json", "csv", "png"]),
    help="The format of the report.",
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
    """Write a report from the tables: a page with charts (html), its numbers (json, csv) or its charts (png).

    \b
    Examples:
      koff pipeline report --tables lag-tables --from -7d --out report.html
      koff pipeline report --tables lag-tables --from -1d --group ^payments --format png --out plots
    """
    set_up_logs()
    now = cast(int, When().convert("-0s", None, None))  # an int: only a name from `words` stays a str
    with _require_spark():
        from koff.spark.report import report as write_report
        from koff.spark.tables.schemas import Tables
    with _open_session(master, spark_conf) as spark:
        Tables(spark, tables).check_tables()
        pattern = group.pattern if group is not None else None
        steps = itertools.count(1)
        with show_status_line() as show:
            show("report: reading")
            paths = write_report(
                spark,
                tables,
                since_ms=since,
                until_ms=until or now,
                out=out,
                form=form,
                groups=pattern,
                progress=lambda step: show(f"report: {next(steps)} {step}"),
            )
        for path in paths:
            click.echo(path)


def _to_days(seconds: float) -> int:
    return max(1, round(seconds / 86_400))


@contextmanager
def _require_spark() -> Iterator[None]:
    """Raises `ConfigError` with the command to run if a package that the pipeline needs is missing."""
    try:
        yield
    except ImportError as error:
        raise _missing_package(error) from error


def _missing_package(error: ImportError) -> ConfigError:
    return ConfigError(f"the package {error.name} is missing: pip install 'koff[spark]'")

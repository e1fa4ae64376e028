"""`koff pipeline`: the history of groups in tables, through Spark."""

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import option
from click.core import ParameterSource

from koff.cli.log_lines import set_up_logs
from koff.cli.options import GROUP_FILTER, clusters_options, logging_options
from koff.cli.pipeline_checks import check, status
from koff.cli.pipeline_options import SectionedCommand, tables_options
from koff.cli.pipeline_session import (
    ChosenTables,
    handle_signals,
    read_watched_clusters,
    require_spark,
    stop_on_signals,
)
from koff.cli.progress_bar import WrittenCounts, format_megabytes, format_offsets, show_bar, show_status_line
from koff.cli.times import DURATION, when
from koff.config.kinds import count
from koff.config.settings import LISTEN
from koff.errors import ConfigError
from koff.logs import get_logger

if TYPE_CHECKING:
    from koff.spark.tables.delta_tables import Tables

log = get_logger("cli.pipeline")


@click.group()
def pipeline() -> None:
    """Write the history of groups into tables with Spark, and make reports from them."""


for command in (status, check):
    pipeline.add_command(command)


@pipeline.command(cls=SectionedCommand)
@clusters_options
@tables_options
@option(
    "--interval",
    "interval_s",
    default="30s",
    type=DURATION,
    help="Time between two samples of end offsets, and so of lag.",
)
@option("--once", is_flag=True, help="End when the log is read up to its present end.")
@option(
    "--max-offsets-per-batch",
    default=10_000_000,
    type=count(1),
    help="The highest number of offsets in one batch.",
)
@option(
    "--ignore-data-loss",
    is_flag=True,
    help="Continue, with a warning, if records were deleted from the log before they were read.",
)
@option(
    "--maintain-every",
    "maintain_s",
    default="1d",
    type=DURATION,
    help="Time between two maintenances of the tables: small files are merged.",
)
@option(
    "--keep",
    metavar="DAYS",
    help="At each maintenance, delete rows that are older: 90d, or records=30d,lag=2y.  [default: keep all]",
)
@option(
    "--listen",
    type=LISTEN,
    help="Serve /metrics, /healthz and /readyz as `koff monitor` does, and metrics of the job.",
)
@logging_options
def run(
    ignore_data_loss: bool,
    keep: str | None,
    listen: str | None,
    log_format: str,
    log_level: str,
    **options: Any,
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
    clusters = read_watched_clusters()
    with require_spark():
        from koff.spark.job.cluster_job import PipelineConf, Progress
        from koff.spark.job.interval_watch import IntervalWatch
        from koff.spark.job.job import Job, log_progress
        from koff.spark.job.table_server import serve_tables
        from koff.spark.tables.maintenance import MaintainConf, parse_retention
    names = ("interval_s", "once", "max_offsets_per_batch", "maintain_s")
    conf = PipelineConf(
        fail_on_data_loss=not ignore_data_loss,
        maintain=MaintainConf(parse_retention(keep) if keep else {}),
        **{name: options[name] for name in names},
    )
    chosen = ChosenTables.read()
    settings = chosen.check(create=True)
    counts, watch = WrittenCounts(chosen.tables), IntervalWatch(conf.interval_s)

    def report_batch(done: Progress) -> None:
        log_progress(done)
        counts.count_batch(done)
        if done.sampled is not None:
            watch.note_sample(done.cluster, time.monotonic())

    # The job connects to all clusters first: an error is found before anything is written.
    with (
        Job(clusters, conf, report_batch) as job,
        stop_on_signals(job, chosen.tables),
        chosen.open(settings) as tables,
    ):
        handle_signals(job)
        if not job.stopped:  # a signal may have come while Java started
            _prepare_tables(tables)
        with serve_tables(listen or "", job, tables), counts.report_total() if conf.once else nullcontext():
            job.run(tables)


@pipeline.command(cls=SectionedCommand)
@clusters_options
@tables_options
@option(
    "--segments",
    metavar="PATH",
    help="Log segments that were copied from brokers, instead of --brokers.",
)
@logging_options
def backfill(segments: str | None, log_format: str, log_level: str, **options: Any) -> None:
    """Write the whole log of a cluster, or log segments, into the tables.

    For a cluster it does the same as `run`, up to the present end of the log and without samples of end
    offsets. `run` continues from there.

    \b
    Examples:
      koff pipeline backfill --brokers localhost:9092 --tables lag-tables
      koff pipeline backfill --segments /backup/broker-1 --cluster-name europe --tables lag-tables
    """
    set_up_logs(log_format, log_level)
    with require_spark():
        from koff.spark.job.cluster_job import PipelineConf
        from koff.spark.job.job import Job
        from koff.spark.job.segments_backfill import (
            SegmentsBatch,
            backfill_segments,
            check_segments,
            count_segments_bytes,
        )
    chosen = ChosenTables.read()
    counts = WrittenCounts(chosen.tables)

    read_bytes = [0, 0]

    def note_segments_batch(done: SegmentsBatch) -> None:
        read_bytes[0] += done.size
        if not sys.stderr.isatty():  # a terminal has the bar
            log.info("batch", batch=done.number, of=done.batches, records=done.written.records)

    # Log segments: there is no cluster, so the user must name it
    if segments:
        name = options["name"]
        ctx = click.get_current_context()
        # Variables of all commands may be set, too.
        sources = {ctx.get_parameter_source(option) for option in ("brokers", "config")}
        if not name or ParameterSource.COMMANDLINE in sources:
            raise ConfigError(
                "--segments needs --cluster-name (their cluster), and neither --brokers nor --config"
            )
        check_segments(segments)  # a path without segments is an error before Spark starts
        with chosen.open(chosen.check(create=True)) as tables:
            _prepare_tables(tables)
            read_bytes[1] = count_segments_bytes(segments)
            with (
                counts.report_total(),
                show_bar("backfill", lambda: (read_bytes[0], read_bytes[1]), format_megabytes),
            ):
                counts.add(*backfill_segments(tables, segments, name, note_segments_batch))
        click.echo(_suggest_queries(), err=True)
        return
    click.echo(_describe_backfill(chosen.tables), err=True)
    # A cluster. On a terminal the bar shows the progress, elsewhere the log.
    progress = counts.count_batch if sys.stderr.isatty() else counts.count_and_log_batch
    clusters = read_watched_clusters()
    settings = chosen.check(create=True)
    job = Job(clusters, PipelineConf(once=True, sample=False), progress)
    with job, stop_on_signals(job, chosen.tables), chosen.open(settings) as tables:
        handle_signals(job)
        _prepare_tables(tables)
        with counts.report_total(), show_bar("backfill", job.count_progress, format_offsets):
            job.run(tables)
    if not job.stopped:
        click.echo(_suggest_queries(), err=True)


@pipeline.command(cls=SectionedCommand)
@tables_options
@option(
    "--keep",
    default="lag_hourly=2y,90d",
    metavar="DAYS",
    help="Delete rows that are older: 90d, or by table records=30d,lag=2y; the state stays.",
)
def maintain(keep: str, **_: Any) -> None:
    """Delete old rows, merge small files, and delete files that no version of the last week needs.

    It may run beside a job. `koff pipeline run` does it itself, each --maintain-every.
    """
    set_up_logs()
    with require_spark():
        from koff.spark.tables.maintenance import MaintainConf, maintain_tables, parse_retention
        from koff.spark.tables.schemas import TABLES
    conf = MaintainConf(parse_retention(keep))
    texts = [f"maintain: table {number} of {len(TABLES)}, {name}" for number, name in enumerate(TABLES, 1)]
    with show_status_line() as show:
        show("maintain: Spark is starting")
        with ChosenTables.read().open_existing(write=True) as tables:
            began = time.monotonic()
            show(texts[0])
            results = maintain_tables(tables, conf)
            for result, text in zip(results, [*texts[1:], "maintain: done"], strict=True):
                show("")
                files = f"{result.files_before:,} files before and {result.files:,} after"
                click.echo(f"{result.table}: {result.deleted:,} rows deleted, {files}")
                show(text)
            show("")
            click.echo(f"{len(TABLES)} tables in {time.monotonic() - began:,.1f} s")


@pipeline.command(cls=SectionedCommand)
@tables_options
@option(
    "--from",
    "since",
    default="-7d",
    type=when(),
    help="Start of the period: -7d, a time, or milliseconds since 1970.",
)
@option("--until", type=when(), help="End of the period.  [default: now]")
@GROUP_FILTER
@option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write; for csv a folder.",
)
@option(
    "--format",
    "form",
    default="html",
    type=click.Choice(["html", "json", "csv"]),
    help="The format of the report.",
)
@option(
    "--deployed",
    type=when(),
    help="The time of a deployment: groups are compared before and after it.",
)
def report(
    since: int, until: int | None, group: Any, out: Path, form: str, deployed: int | None, **_: Any
) -> None:
    """Write a report from the tables: a page with charts (html), or its numbers (json, csv).

    \b
    Examples:
      koff pipeline report --tables lag-tables --from -7d --out report.html
      koff pipeline report --tables lag-tables --from -1d --deployed -3h --group ^payments --out today.html
    """
    set_up_logs()
    now_ms = time.time_ns() // 1_000_000
    with require_spark():
        from koff.spark.report import report as write_report
        from koff.spark.report.period import Period
        from koff.spark.requirements import check_writable
    Period(since, until or now_ms)  # a period that is none is an error before Spark starts
    check_writable(out, folder=form == "csv")
    began = time.monotonic()
    with show_status_line() as show:
        show("report: Spark is starting")
        with ChosenTables.read().open_existing() as tables:
            paths = write_report(
                tables.spark,
                tables.root,
                since_ms=since,
                until_ms=until or now_ms,
                out=out,
                form=form,
                deployed_ms=deployed,
                groups=group.pattern if group is not None else None,
                progress=lambda step: show(f"report: {step}"),
            )
    for path in paths:
        click.echo(path)
    click.echo(f"files: {len(paths)}, in {time.monotonic() - began:,.0f} s", err=True)


def _describe_backfill(tables: str) -> str:
    return (
        "reads the whole log of the offsets topic, and writes its commits and the changes of groups into "
        f"{tables}: `koff pipeline run` continues from there, and adds lag"
    )


def _suggest_queries() -> str:
    from koff.spark.tables.views import FIRST_QUERIES

    opened = "in DuckDB or Spark SQL (docs/tables.md says how to open the tables there)"
    return "\n".join([f"try {opened}:", *(f"  {query};" for query in FIRST_QUERIES)])


def _prepare_tables(tables: "Tables") -> None:
    tables.create_tables()
    log.info("the tables are ready", folder=tables.root, created=len(tables.new_tables))

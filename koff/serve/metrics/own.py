"""The families about koff itself: the monitor or the stream of each cluster, and the process.

They are always served. They come last in a response, because some are about the response.
"""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from koff.serve.events.webhook import WebhookCounts
from koff.serve.metrics.family import Few, Subject
from koff.version import VERSION
from koff.view.cluster_view import LastReload, MonitorStats, PipelineStats, StoredTable


class SeriesCount(NamedTuple):
    """How many series were rendered, and how many were left out because of the limit."""

    series: int
    left_out: int


class MonitorNumbers(NamedTuple):
    """The numbers about the monitor of one cluster."""

    stats: MonitorStats
    response: SeriesCount


@dataclass(frozen=True, slots=True)
class ProcessNumbers:
    """How long it took to render, what webhooks did, the tables of the pipeline, and the last reload."""

    seconds: float = 0.0
    webhooks: WebhookCounts = field(default_factory=WebhookCounts)
    tables: Mapping[str, StoredTable] = field(default_factory=dict)
    reload: LastReload | None = None


MONITOR: Subject[MonitorNumbers] = Subject("monitor", cut=False)
PROCESS: Subject[ProcessNumbers] = Subject("process", cut=False)

# --- The monitor of a cluster ---------------------------------------------------------------------------


@MONITOR.family((), "1", "koff_up == 0")
def koff_up(numbers: MonitorNumbers) -> Few:
    """1 if koff is ready (/readyz): the log was read, and not every lag is withheld; else 0."""
    return int(numbers.stats.up)


@MONITOR.family(("source",), "1", 'koff_source_info{source="coordinators"}')
def koff_source_info(numbers: MonitorNumbers) -> Few:
    """1 for where commits come from: the log, or coordinators, which know no commit times."""
    return {numbers.stats.source: 1}


@MONITOR.family(("type",), "records", "rate(koff_reader_records_total[5m])", "none was read")
def koff_reader_records_total(numbers: MonitorNumbers) -> Few:
    """Records read, by Kafka's name of the record type."""
    return numbers.stats.records


@MONITOR.family((), "records", "increase(koff_reader_undecodable_total[1h]) > 0")
def koff_reader_undecodable_total(numbers: MonitorNumbers) -> Few:
    """Records that could not be decoded; koff printer shows them."""
    return numbers.stats.undecodable


@MONITOR.family(("kind",), "inputs", "increase(koff_inputs_skipped_total[1h]) > 0", "there was none")
def koff_inputs_skipped_total(numbers: MonitorNumbers) -> Few:
    """Responses, records and parts of records that koff could not use, by kind."""
    return numbers.stats.skipped


@MONITOR.family((), "offsets", "koff_reader_behind_records > 10000", "the log is not the source")
def koff_reader_behind_records(numbers: MonitorNumbers) -> Few:
    """Offsets from the reader's position to the last stable offset, summed over the offsets topic."""
    return numbers.stats.behind


@MONITOR.family((), "partitions", "koff_reader_partitions_not_current > 0")
def koff_reader_partitions_not_current(numbers: MonitorNumbers) -> Few:
    """Partitions of the internal topics that are not current: groups in them are withheld or missing."""
    return numbers.stats.not_current


@MONITOR.family((), "offsets", "koff_reader_held_back_records > 0")
def koff_reader_held_back_records(numbers: MonitorNumbers) -> Few:
    """Offsets of the offsets topic behind open transactions: not shown yet."""
    return numbers.stats.held_back_records


@MONITOR.family((), "seconds", "koff_reader_held_back_seconds > 300")
def koff_reader_held_back_seconds(numbers: MonitorNumbers) -> Few:
    """How long the oldest open transaction has held back commits in the offsets topic."""
    return numbers.stats.held_back_s


@MONITOR.family((), "offsets", "koff_reader_backfill_remaining_records > 0")
def koff_reader_backfill_remaining_records(numbers: MonitorNumbers) -> Few:
    """Offsets of history that the backfill has not read yet; until then some commit times are unknown."""
    return numbers.stats.backfill_remaining


@MONITOR.family(
    ("input",),
    "seconds",
    'koff_input_age_seconds{input="end_offsets"} > 30',
    "there is no such input, or it was never read",
)
def koff_input_age_seconds(numbers: MonitorNumbers) -> Few:
    """Age of the oldest of end_offsets, commits or share_state that is in use; of topics, zookeeper."""
    return numbers.stats.input_ages_s


@MONITOR.family(("kind",), "requests", "sum by (kind) (rate(koff_requests_total[5m]))", "there was none")
def koff_requests_total(numbers: MonitorNumbers) -> Few:
    """Requests of koff to the cluster, by kind. One of these is sent to each broker that it concerns."""
    return numbers.stats.requests


# --- This response, and webhooks ------------------------------------------------------------------------


@PROCESS.family((), "seconds", "max_over_time(koff_render_seconds[1h])")
def koff_render_seconds(process: ProcessNumbers) -> Few:
    """How long it took to render and compress this response, without koff's own. No label cluster."""
    return process.seconds


@MONITOR.family((), "series")
def koff_series(numbers: MonitorNumbers) -> Few:
    """Series in this response, without koff's own."""
    return numbers.response.series


@MONITOR.family((), "series", "koff_series_left_out > 0")
def koff_series_left_out(numbers: MonitorNumbers) -> Few:
    """Series that are not in this response because of the limit on series."""
    return numbers.response.left_out


@PROCESS.family(("result",), "requests", 'increase(koff_webhook_requests_total{result!="ok"}[1h]) > 0')
def koff_webhook_requests_total(process: ProcessNumbers) -> Few:
    """Requests to webhooks, by result: ok, failed (sent again), refused. No label cluster."""
    return process.webhooks.requests


@PROCESS.family((), "events", "increase(koff_webhook_events_dropped_total[1h]) > 0")
def koff_webhook_events_dropped_total(process: ProcessNumbers) -> Few:
    """Events that a webhook did not get: refused, failed too often, or too many waited. No label cluster."""
    return process.webhooks.dropped


@PROCESS.family((), "1", "koff_config_last_reload_successful == 0", "in `koff pipeline run`")
def koff_config_last_reload_successful(process: ProcessNumbers) -> Few:
    """1 if koff.yaml as it was read last is in force, 0 if it is wrong. No label cluster."""
    return None if process.reload is None else int(process.reload.successful)


@PROCESS.family((), "seconds", absent="in `koff pipeline run`")
def koff_config_last_reload_success_timestamp_seconds(process: ProcessNumbers) -> Few:
    """When a configuration was applied last, in seconds since 1970. No label cluster."""
    return None if process.reload is None else process.reload.success_s


# --- koff pipeline run ----------------------------------------------------------------------------------

_MONITOR = "in `koff monitor`"
_NO_BATCH = f"{_MONITOR}, or before the first batch"
_NO_TABLE = f"{_MONITOR}, or it cannot be looked up"


def _of_stream(numbers: MonitorNumbers, number: Callable[[PipelineStats], float | None]) -> Few:
    stream = numbers.stats.pipeline
    return None if stream is None else number(stream)


@MONITOR.family((), "1", "koff_pipeline_stream_up == 0", _MONITOR)
def koff_pipeline_stream_up(numbers: MonitorNumbers) -> Few:
    """1 if the pipeline reads the cluster, 0 if it has failed and waits for another try, or stays down."""
    return _of_stream(numbers, lambda stream: int(stream.running))


@MONITOR.family((), "batches", "rate(koff_pipeline_batches_total[10m])", _MONITOR)
def koff_pipeline_batches_total(numbers: MonitorNumbers) -> Few:
    """Batches with records or a sample that the pipeline has written since the process started."""
    return _of_stream(numbers, attrgetter("batches"))


@MONITOR.family((), "records", "rate(koff_pipeline_records_total[5m])", _MONITOR)
def koff_pipeline_records_total(numbers: MonitorNumbers) -> Few:
    """Records of the offsets topic that the pipeline has written into tables since the process started."""
    return _of_stream(numbers, attrgetter("records"))


@MONITOR.family((), "failures", "increase(koff_pipeline_failures_total[1h]) > 0", _MONITOR)
def koff_pipeline_failures_total(numbers: MonitorNumbers) -> Few:
    """How often the pipeline has failed to read the cluster since the process started."""
    return _of_stream(numbers, attrgetter("failures"))


@MONITOR.family((), "seconds", "time() - koff_pipeline_last_batch_timestamp_seconds > 600", _NO_BATCH)
def koff_pipeline_last_batch_timestamp_seconds(numbers: MonitorNumbers) -> Few:
    """When the newest batch was in the tables, in seconds since 1970."""
    return _of_stream(numbers, attrgetter("last_batch_s"))


@MONITOR.family((), "seconds", "koff_pipeline_last_batch_duration_seconds > 60", _NO_BATCH)
def koff_pipeline_last_batch_duration_seconds(numbers: MonitorNumbers) -> Few:
    """How long the newest batch took."""
    return _of_stream(numbers, attrgetter("last_batch_took_s"))


@PROCESS.family(("table",), "files", 'koff_pipeline_table_files{table="lag"}', _NO_TABLE)
def koff_pipeline_table_files(process: ProcessNumbers) -> Few:
    """Files of the newest version of a table, looked up every ten minutes. No label cluster."""
    return {name: table.files for name, table in process.tables.items()}


@PROCESS.family(("table",), "bytes", "sum(koff_pipeline_table_bytes)", _NO_TABLE)
def koff_pipeline_table_bytes(process: ProcessNumbers) -> Few:
    """Bytes of the newest version of a table, looked up every ten minutes. No label cluster."""
    return {name: table.size_bytes for name, table in process.tables.items()}


@PROCESS.family(("version", "python"), "1", "count by (version) (koff_build_info)")
def koff_build_info(process: ProcessNumbers) -> Few:
    """Versions of koff and of Python. It has no label cluster."""
    return {(VERSION, platform.python_version()): 1}

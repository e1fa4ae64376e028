"""A year of the pipeline's tables at a small scale: sizes, files, maintenance, queries, and a report.

Tables are made up with delta-rs, as a job and its compaction leave them: a file an hour. `lag` has the last
days, `lag_hourly` all. Prints JSON; seconds of CPU are those of Python and Java together. No Kafka.

    python -m bench.year [--groups 2000] [--partitions 5] [--days 365] [--lag-days 2] [--interval 60]
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench.lag_rows import read_usage
from koff.cli.pipeline_session import SHORT_JAVA
from koff.spark import session
from koff.spark.report import report
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.maintenance import maintain_tables
from koff.spark.tables.schemas import TABLES
from koff.spark.tables.views import QUESTIONS, register_views

HOUR, END = timedelta(hours=1), datetime(2026, 3, 2, tzinfo=UTC)
LATE_EVERY = 50
"""So many groups have one that falls behind for six hours a day."""


class Generator:
    """The rows of groups with a topic of `partitions` each."""

    def __init__(self, groups: int, partitions: int, interval_s: int) -> None:
        self._groups, self._partitions, self._interval_s = groups, partitions, interval_s
        self._rng = np.random.default_rng(1)

    def make_lag(self, begin: datetime) -> pa.Table:
        """The rows of an hour of samples."""
        samples, rows = 3600 // self._interval_s, self._groups * self._partitions
        at = np.repeat(np.arange(samples) * self._interval_s, rows) * 1_000_000 + _micros(begin)
        group = np.tile(np.repeat(np.arange(self._groups), self._partitions), samples)
        end = (at // 1_000_000 - 1_700_000_000) * 10 + group
        late_s = self._find_lateness(group, begin)
        lag = np.maximum(0, late_s * 10).astype(np.int64)
        verdict = np.where(late_s > 120, "ERR", "OK")
        cause = np.where(late_s > 120, "too_slow", "")
        return self._build("lag", len(at), at=at, group=group, committed=end - lag, end_offset=end, lag=lag,
            start_offset=end - 864_000, stable_offset=end, readable=lag, lost=np.zeros_like(lag),
            topic=group, partition=np.arange(len(at), dtype=np.int32) % self._partitions,
            time_lag_s=late_s, verdict=verdict, group_verdict=verdict, allowance_s=np.full(len(at), 120.0),
            cause=cause, group_cause=cause,
            committed_at=at - (late_s * 1e6).astype(np.int64), members=np.full(len(at), 3, np.int32),
            consume_per_s=np.full(len(at), 10.0), produce_per_s=np.full(len(at), 10.0),
            number=at // 1_000_000 // self._interval_s)  # fmt: skip

    def make_hours(self, begin: datetime) -> pa.Table:
        """The rows of `lag_hourly` of an hour: a group, and its topic."""
        group = np.repeat(np.arange(self._groups), 2)
        size, late_s = len(group), self._find_lateness(group, begin)
        moved = np.full(size, 36_000 * self._partitions)
        return self._build("lag_hourly", size, hour=np.full(size, _micros(begin)), group=group,
            topic=np.where(np.arange(size) % 2, group, -1), max_lag=(late_s * 10).astype(np.int64),
            avg_lag=late_s * 10, last_lag=(late_s * 10).astype(np.int64), max_time_lag_s=late_s,
            last_time_lag_s=late_s, untimed=np.zeros(size, bool), warn_s=np.zeros(size),
            err_s=np.where(late_s > 120, 3600.0, 0.0), over_s=np.where(late_s > 120, 3600.0, 0.0),
            seconds=np.full(size, 3600.0), consumed=moved, produced=moved, lost=np.zeros(size, np.int64),
            samples=np.full(size, 60, np.int32), known_samples=np.full(size, 60, np.int32),
            partitions=np.full(size, self._partitions, np.int32), members=np.full(size, 3, np.int32),
            number=np.full(size, _micros(begin + HOUR) // 1_000_000 // self._interval_s))  # fmt: skip

    def make_groups(self, begin: datetime) -> pa.Table:
        """A change of each group on a day."""
        group = np.arange(self._groups)
        return self._build("groups", len(group), timestamp=np.full(len(group), _micros(begin)), group=group,
            offsets_partition=(group % 50).astype(np.int32), log_offset=group + _micros(begin) // 1_000_000,
            epoch=np.full(len(group), _micros(begin) // 86_400_000_000 % 30_000, np.int32),
            gone=np.zeros(len(group), bool), number=np.full(len(group), _micros(begin)))  # fmt: skip

    def _find_lateness(self, group: Any, begin: datetime) -> Any:
        is_late = (group % LATE_EVERY == 0) & (begin.hour < 6)
        return np.where(is_late, 600.0 * (begin.hour + 1), 1.0) * self._rng.uniform(0.5, 1.0, len(group))

    def _build(self, name: str, size: int, **columns: Any) -> pa.Table:
        schema, arrays = TABLES[name].schema, []
        day = (columns[TABLES[name].time][0] // 86_400_000_000).astype("datetime64[D]").item()
        for field in schema:
            values = columns.get(field.name)
            if field.name in ("group", "topic") and values is not None:
                text = {"group": "payments-service-{:05}", "topic": "orders-{:05}"}[field.name]
                names = pa.array([*map(text.format, range(self._groups)), None])
                array = names.take(pa.array(values % (self._groups + 1))).cast(field.type)
            elif field.name in ("cluster", "day", "type", "state"):
                value = {"cluster": "europe", "day": day, "type": "consumer", "state": "Stable"}[field.name]
                array = pa.repeat(pa.scalar(value, field.type), size)
            else:
                array = pa.nulls(size, field.type) if values is None else pa.array(values).cast(field.type)
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=schema)


def _micros(at: datetime) -> int:
    return round(at.timestamp()) * 1_000_000


def fill(tables: Tables, generator: Generator, *, days: int, lag_days: int) -> None:
    """Writes the tables."""
    for back in range(days, 0, -1):
        begin = END - timedelta(days=back)
        hours = [begin + number * HOUR for number in range(24)]
        made: list[tuple[str, Iterator[pa.Table]]] = [
            ("lag_hourly", iter([pa.concat_tables(map(generator.make_hours, hours))])),
            ("groups", iter([generator.make_groups(begin)])),
            ("lag", map(generator.make_lag, hours if back <= lag_days else [])),
        ]
        for name, parts in made:
            for part in parts:
                write_deltalake(tables.path(name), part, mode="append", partition_by=["cluster", "day"])


@click.command()
@click.option("--groups", default=2000)
@click.option("--partitions", default=5)
@click.option("--days", default=365)
@click.option("--lag-days", default=2)
@click.option("--interval", default=60, help="Seconds between two samples.")
@click.option("--report-days", default=7)
@click.option("--folder", type=click.Path(path_type=Path), help="Tables that stay, to be used again.")
def main(
    groups: int,
    partitions: int,
    days: int,
    lag_days: int,
    interval: int,
    report_days: int,
    folder: Path | None,
) -> None:
    """Prints the figures."""
    settings = {"spark.ui.showConsoleProgress": "false", "spark.driver.extraJavaOptions": SHORT_JAVA}
    spark = session("bench", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    java = int(spark.sparkContext._jvm.ProcessHandle.current().pid())
    figures: dict[str, Any] = {}

    def measure(name: str, work: Callable[[], Any]) -> None:
        began, used = time.monotonic(), read_usage([os.getpid(), java])[0]
        work()
        cpu_s = read_usage([os.getpid(), java])[0] - used
        figures[name] = {"seconds": round(time.monotonic() - began, 1), "cpu_s": round(cpu_s, 1)}

    with tempfile.TemporaryDirectory(prefix="koff-bench-") as made:
        tables = Tables(spark, str(folder or made))
        if folder is None or not folder.exists():
            tables.create_tables()
            fill(tables, Generator(groups, partitions, interval), days=days, lag_days=lag_days)
        figures["tables"] = {name: measure_table(tables, name) for name in ("lag", "lag_hourly", "groups")}
        since_ms, until_ms = (_micros(END - timedelta(days=n)) // 1000 for n in (report_days, 0))
        measure("report", lambda: report(spark, tables.root, since_ms=since_ms, until_ms=until_ms,
                                         out=Path(made) / "report.html"))  # fmt: skip
        measure("maintain", lambda: list(maintain_tables(tables)))
        figures["maintained"] = {
            name: measure_table(tables, name) for name in ("lag", "lag_hourly", "groups")
        }
        register_views(tables)
        one = (
            "SELECT max(max_lag), sum(err_s), sum(consumed) FROM lag_hourly "
            "WHERE `group` = 'payments-service-00050'"
        )
        measure("one group over the year, Spark", lambda: spark.sql(f"{one} AND topic IS NULL").collect())
        budget = QUESTIONS["budget"].render().replace("current_date", "DATE'2026-03-02'")
        measure("error budgets of 30 days, Spark", lambda: spark.sql(budget).collect())
        measure("one group over the year, DuckDB", lambda: query_duckdb(tables, one.replace("`", '"')))
    spark.stop()
    print(json.dumps(figures, indent=1))


def measure_table(tables: Tables, name: str) -> dict[str, Any]:
    """Rows, files and bytes of the newest version."""
    added = pa.table(DeltaTable(tables.path(name)).get_add_actions(flatten=True))
    rows, size = (sum(added.column(column).to_pylist()) for column in ("num_records", "size_bytes"))
    return {
        "rows": rows,
        "files": len(added),
        "mb": round(size / 1e6, 1),
        "bytes_a_row": round(size / rows, 1),
    }


def query_duckdb(tables: Tables, query: str) -> None:
    """Opens the table, and runs the query."""
    import duckdb

    db = duckdb.connect()
    db.register("lag_hourly", DeltaTable(tables.path("lag_hourly")).to_pyarrow_dataset())
    assert db.sql(query).fetchall()[0][0]


if __name__ == "__main__":
    main()

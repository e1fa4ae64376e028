"""What one sample of the pipeline costs after a day of samples: its time lags by curves, and by all samples.

Prints JSON: seconds to fold the day into curves, two hours at a time; seconds of one sample's rows of lag by
curves, with the samples of the last 15 minutes; and, with --full, by all samples of the day, as before. The
tables are made up: each partition has a group an hour behind, which consumes. No Kafka.

    python -m bench.lag_rows [--partitions 10000] [--hours 24] [--interval 30] [--full] [--master 'local[2]']
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING

import click

from koff.spark import session
from koff.spark.job.end_curves import EndCurves
from koff.spark.job.lag_rows import join_lag_inputs, lag_rows
from koff.spark.tables.schemas import TABLES, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLUSTER, PER_TOPIC = "bench", 100
REACH_S = 86_400.0


def fill(tables: Tables, partitions: int, begin: datetime, samples: int, interval_s: int) -> None:
    """Writes the samples, an hour in one file, and commits of an hour ago. Partitions differ in speed."""
    spark = tables.spark
    begin_s, each = int(begin.timestamp()), 3600 // interval_s
    for first in range(0, samples, each):
        numbers = spark.range(first, min(first + each, samples), 1, 1).withColumnRenamed("id", "sample")
        rows = numbers.crossJoin(spark.range(0, partitions, 1, 1).withColumnRenamed("id", "p"))
        rows = rows.selectExpr(
            f"'{CLUSTER}' AS cluster",
            f"timestamp_seconds({begin_s} + sample * {interval_s}) AS at",
            f"concat('t', p DIV {PER_TOPIC}) AS topic",
            f"cast(p % {PER_TOPIC} AS INT) AS partition",
            "cast(NULL AS STRING) AS topic_id",
            "0L AS start_offset",
            "sample * (1 + p % 50) + (sample * p) % (1 + p % 50) AS end_offset",
            "cast(NULL AS BIGINT) AS stable_offset",
            "sample AS batch",
            "false AS gone",
        ).selectExpr("*", "to_date(at) AS day")
        tables.append_rows("end_offsets", rows)
    behind = max(samples - each, 0)
    current = tables.frame("current")
    known = {
        "cluster": f"'{CLUSTER}'",
        "group": f"concat('g', p DIV {PER_TOPIC})",
        "topic": f"concat('t', p DIV {PER_TOPIC})",
        "partition": f"cast(p % {PER_TOPIC} AS INT)",
        "committed": f"{behind}L * (1 + p % 50)",
        "offsets_partition": "0",
        "log_offset": "p",
        "deleted": "false",
    }
    columns = [
        f"{known.get(field.name, 'NULL')} AS `{field.name}`"
        if field.name in known
        else f"cast(NULL AS {field.dataType.simpleString()}) AS `{field.name}`"
        for field in current.schema
    ]
    tables.append_rows("current", spark.range(partitions).withColumnRenamed("id", "p").selectExpr(*columns))


def compute(tables: Tables, now: datetime, ends: DataFrame, curves: DataFrame | None) -> int:
    """Computes the rows of lag of the sample at `now`, and returns how many have a time lag."""
    sample = ends.where(ends.at == now)
    current, states = (tables.cluster_frame(name, CLUSTER) for name in ("current", "group_states"))
    rows = join_lag_inputs(sample, current, states, ends, curves, reach_s=REACH_S)
    made = rows.mapInArrow(lag_rows, TABLES["lag"].ddl)
    return int(made.selectExpr("count(time_lag_s)").collect()[0][0])


def measure(work: Callable[[], object]) -> tuple[float, object]:
    began = time.perf_counter()
    found = work()
    return round(time.perf_counter() - began, 2), found


@click.command(help=__doc__)
@click.option("--partitions", default=10_000, show_default=True)
@click.option("--hours", default=24, show_default=True)
@click.option("--interval", default=30, show_default=True)
@click.option("--full", is_flag=True)
@click.option("--master", default="local[2]", show_default=True)
def main(partitions: int, hours: int, interval: int, full: bool, master: str) -> None:
    samples = hours * 3600 // interval
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=hours)
    now = begin + timedelta(seconds=(samples - 1) * interval)
    figures: dict[str, object] = {"partitions": partitions, "samples": samples, "rows": partitions * samples}
    with session("koff bench", master=master) as spark, tempfile.TemporaryDirectory() as folder:
        spark.sparkContext.setLogLevel("ERROR")
        tables = Tables(spark, f"{folder}/t")
        tables.create_tables()
        figures["fill_s"], _ = measure(lambda: fill(tables, partitions, begin, samples, interval))
        versions = count(1)
        curves = EndCurves(CLUSTER, lambda: ("koff bench", next(versions)), reach_s=REACH_S, fold_s=0)
        curves.note_sample(now)
        figures["fold_s"], _ = measure(lambda: curves.fold_if_due(tables))
        ways = {"by_curves_s": lambda: compute(tables, now, *curves.read(tables, now))}
        if full:
            all_ends = tables.cluster_frame("end_offsets", CLUSTER)
            ways["by_all_samples_s"] = lambda: compute(tables, now, all_ends, None)
        for name, way in ways.items():
            runs = [measure(way) for _ in range(3)]
            assert {timed for _, timed in runs} == {partitions}, runs
            figures[name] = [seconds for seconds, _ in runs]
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

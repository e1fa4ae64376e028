"""The cost of a warm sample of the pipeline, from the claim of its batch to the last commit of Delta.

Prints JSON: for each number of rows of lag, seconds and seconds of CPU (Python and Java together) of each
sample after the first ones, and the memory of both processes. The commits are made up: between two samples, a
hundredth of the rows has one. No Kafka.

    python -m bench.lag_rows [--rows 22 --rows 20000] [--samples 5] [--master 'local[2]']
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import click
import pyarrow as pa

from koff.spark import session
from koff.spark.job.batches import Batches
from koff.spark.job.cluster_state import ClusterState
from koff.spark.job.samples import OFFSETS, Sample
from koff.spark.rows.decoding import SCHEMA
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.owners import Owner
from koff.spark.tables.progress import LogPart, Plan, claim_batch

WARM_UP, PER_TOPIC, INTERVAL = 20, 100, timedelta(seconds=30)


def make_commits(rows: int, plan: Plan) -> pa.Table:
    """The commits of all rows in the first batch; then of a hundredth."""
    step = 1 if plan.number == 1 else 100
    numbers = range(plan.number % step, rows, step)
    columns = {
        "cluster": ["bench"] * len(numbers),
        "offsets_partition": [number // PER_TOPIC % 50 for number in numbers],
        "log_offset": [plan.number * rows + number for number in numbers],
        "timestamp": [plan.at] * len(numbers),
        "kind": ["OffsetCommit"] * len(numbers),
        "tombstone": [False] * len(numbers),
        "group": [f"g{number // PER_TOPIC}" for number in numbers],
        "topic": [f"t{number // PER_TOPIC}" for number in numbers],
        "partition": [number % PER_TOPIC for number in numbers],
        "committed": [plan.number * 10 for _ in numbers],
        "commit_timestamp": [plan.at] * len(numbers),
    }
    given = {field.name: columns.get(field.name, [None] * len(numbers)) for field in SCHEMA}
    return pa.Table.from_pydict(given, schema=SCHEMA)


def make_plan(rows: int, number: int, owner: Owner) -> Plan:
    """A batch whose sample has an end offset for each row."""
    at = datetime(2026, 3, 2, tzinfo=UTC) + number * INTERVAL
    places = [
        (f"t{row // PER_TOPIC}", row % PER_TOPIC, 0, number * 10 + 5, number * 10 + 5, False)
        for row in range(rows)
    ]
    columns = [pa.array([place[i] for place in places], field.type) for i, field in enumerate(OFFSETS)]
    topics = {f"t{topic}": "" for topic in range(rows // PER_TOPIC + 1)} if number == 1 else None
    sample = Sample(round(at.timestamp() * 1000), pa.table(columns, schema=OFFSETS), topics, 50)
    part = LogPart(0, 0, number, number - 1, number)
    plan = Plan(cluster="bench", number=number, at=at, owner=owner, parts=(part,))
    return replace(plan, sample=sample.encode(), sampled_at=at)


def read_usage(processes: list[int]) -> tuple[float, int]:
    """Seconds of CPU, and MiB of memory, of processes."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in processes]
    return (
        sum(int(each[11]) + int(each[12]) for each in fields) / tick,
        sum(int(each[21]) for each in fields) * page >> 20,
    )


@click.command()
@click.option("--rows", "sizes", multiple=True, type=int, default=(22, 20_000))
@click.option("--samples", default=5)
@click.option("--master", default="local[2]")
def main(sizes: tuple[int, ...], samples: int, master: str) -> None:
    """Prints the figures."""
    spark = session("bench", master=master, settings={"spark.ui.showConsoleProgress": "false"})
    spark.sparkContext.setLogLevel("OFF")
    java = int(spark.sparkContext._jvm.ProcessHandle.current().pid())
    figures = {}
    for rows in sizes:
        with tempfile.TemporaryDirectory(prefix="koff-bench-") as folder:
            tables = Tables(spark, folder)
            tables.create_tables()
            owner, seconds, cpu = Owner.create(), [], []
            state = ClusterState("bench", INTERVAL.total_seconds())
            batches = Batches(tables, state, partial(make_commits, rows))
            for number in range(1, WARM_UP + samples + 1):
                plan = make_plan(rows, number, owner)
                began, used = time.monotonic(), read_usage([os.getpid(), java])[0]
                claim_batch(tables, plan)
                batches.carry_out(plan)
                if number > WARM_UP:
                    seconds.append(round(time.monotonic() - began, 2))
                    cpu.append(round(read_usage([os.getpid(), java])[0] - used, 2))
            memory = read_usage([os.getpid(), java])[1]
            figures[rows] = {"seconds": seconds, "cpu_s": cpu, "memory_mib": memory}
    spark.stop()
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

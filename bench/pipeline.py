"""How fast the pipeline reads and decodes, and what else it could read with.

Prints JSON. All ways read the same `__consumer_offsets` in turns, in one run, into Spark's `noop` sink: our
source without decoding (the bare read) and with, Spark's own Kafka connector without and with our decoder,
and the log segments. CPU seconds are those of Spark's JVM and its Python workers: on a machine that has other
work to do they say more than the clock. `--tables` adds `koff pipeline backfill`, end to end into
tables, as a process of its own.

    python -m bench.pipeline --records 5000000 --groups 2000
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from confluent_kafka import KafkaException, TopicPartition

from bench.catchup import OFFSETS, as_installed, write
from koff.kafkatest import Cluster, LocalKafka, wait_until

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
DELTA = "io.delta:delta-spark_2.13:4.0.1"


def begun(kafka: LocalKafka) -> None:
    """Has the brokers make the offsets topic, as the first commit does."""
    topic = kafka.create_topic()
    consumer = kafka.consumer("first")

    def committed() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        except KafkaException:
            return False  # the topic is being made
        return True

    wait_until(committed, timeout_s=60, what="the first commit")
    consumer.close()


def connector(spark: Any, brokers: str) -> Any:
    """The topic by Spark's connector, with the settings that it needs for an internal topic."""
    partitions = len(Cluster(brokers).admin.list_topics(OFFSETS).topics[OFFSETS].partitions)
    spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("assign", json.dumps({OFFSETS: list(range(partitions))}))
        .option("kafka.isolation.level", "read_committed")
        .option("startingOffsets", "earliest")
        .load()
    )


def ways(
    spark: Any, brokers: str, folder: str | None, *, with_connector: bool
) -> dict[str, Callable[[], Any]]:
    """What is measured: each gives a frame with all records."""
    from koff.spark import decode

    def ours(**options: str) -> Any:
        return spark.read.format("koff").options(brokers=brokers, cluster="bench", **options).load()

    found: dict[str, Callable[[], Any]] = {
        "bare read, our source": lambda: ours(raw="true"),
        "decoded, our source": ours,
    }
    if with_connector:
        found["bare read, Spark's connector"] = lambda: connector(spark, brokers).select(
            "partition", "offset", "timestamp", "key", "value"
        )
        found["decoded, Spark's connector"] = lambda: decode(connector(spark, brokers), "bench")
    if folder:
        found["decoded, log segments"] = lambda: spark.read.format("koff.segments").load(folder)
    return found


def used_s(process: int) -> float:
    """CPU seconds of a process and all below it, those that ended included."""
    told = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, told.splitlines())}
    family = {process}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    ticks = 0
    for pid in family:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except FileNotFoundError:  # it ended: its parent counts it
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(
    found: dict[str, Callable[[], Any]], total: int, repeat: int, process: int
) -> dict[str, dict[str, Any]]:
    """Records a second of each way: the median of turns, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in found}
    cpu: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(repeat + 1):
        for name, frame in found.items():
            started, used = time.monotonic(), used_s(process)
            frame().write.format("noop").mode("overwrite").save()
            if turn:
                seconds[name].append(time.monotonic() - started)
                cpu[name].append(used_s(process) - used)
            print(f"{name}: {time.monotonic() - started:.2f} s", file=sys.stderr)
    return {
        name: {
            "seconds": [round(each, 2) for each in taken],
            "records_per_s": round(total / statistics.median(taken)),
            "cpu_s": round(statistics.median(cpu[name]), 2),
            "records_per_cpu_s": round(total / statistics.median(cpu[name])),
        }
        for name, taken in seconds.items()
    }


def into_tables(brokers: str, total: int, master: str, python: str) -> dict[str, Any]:
    """`koff pipeline backfill` from its start to its end."""
    folder = tempfile.mkdtemp(prefix="koff-bench-tables-")
    command = [python, "-m", "koff", "pipeline", "backfill", "--brokers", brokers]
    started = time.monotonic()
    try:
        subprocess.run(
            [*command, "--tables", folder, "--master", master],
            env=as_installed(python),
            check=True,
            timeout=3600,
        )
        seconds = time.monotonic() - started
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"seconds": round(seconds, 1), "records_per_s": round(total / seconds), "bytes": size}


@click.command()
@click.option("--records", default=5_000_000, show_default=True)
@click.option("--groups", default=2_000, show_default=True)
@click.option(
    "--batch", default=None, type=int, help="Records in a batch of the log; ten is what brokers write."
)
@click.option("--repeat", default=3, show_default=True)
@click.option("--master", default="local[2]", show_default=True)
@click.option("--brokers", help="A cluster that holds the commits already.")
@click.option("--segments", help="Where its log segments are.")
@click.option("--connector/--no-connector", "with_connector", default=True, help="Whether to compare.")
@click.option("--tables/--no-tables", default=False, help="End to end, too.")
def main(
    records: int,
    groups: int,
    batch: int | None,
    repeat: int,
    master: str,
    brokers: str | None,
    segments: str | None,
    with_connector: bool,
    tables: bool,
) -> None:
    """Measures and prints JSON."""
    os.environ.update(as_installed(sys.executable))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    import pyspark

    from koff.spark import session

    jars = f"{DELTA},{CONNECTOR}:{pyspark.__version__}" if with_connector else DELTA
    with ExitStack() as stack:
        if brokers is None:
            kafka = stack.enter_context(LocalKafka())
            begun(kafka)
            print(f"written in {write(kafka.bootstrap, records, groups, batch):.0f} s", file=sys.stderr)
            brokers, segments = kafka.bootstrap, str(kafka.folder)
        settings = {"spark.jars.packages": jars, "spark.ui.showConsoleProgress": "false"}
        spark = session("bench", master=master, settings=settings)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        total = spark.read.format("koff").options(brokers=brokers, raw="true").load().count()
        found = ways(spark, brokers, segments, with_connector=with_connector)
        results = measured(found, total, repeat, spark.sparkContext._gateway.proc.pid)
        if tables:
            results["into tables, end to end"] = into_tables(brokers, total, master, sys.executable)
        bare = results["bare read, our source"]
        for figures in results.values():
            for name in {"records_per_s", "records_per_cpu_s"} & figures.keys():
                figures[f"bare_read_has_times_the_{name}"] = round(bare[name] / figures[name], 2)
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            json.dumps({"records": total, "master": master, "peak_mib": peak_mib, "ways": results}, indent=1)
        )


if __name__ == "__main__":
    main()

"""How fast the pipeline reads and decodes, and what else it could read with.

Prints JSON. All ways read the same `__consumer_offsets` in turns, in one run, into Spark's `noop` sink: our
source without decoding (the bare read) and with, Spark's own Kafka connector without and with our decoder,
the log segments, and both end to end into the Delta tables. CPU seconds are those of Spark's JVM and its
Python workers: on a machine that has other work to do they say more than the clock. With several `--records`
the log grows from one to the next; with several `--master`, each is measured. With `--s3`, tables on an S3
server on this machine (versitygw) are measured, too.

`tasks_s` is how long the tasks ran, summed up. With executors that are processes of their own
(`local-cluster`), `driver_share` is the part of the CPU seconds that the driver used: its JVM and its Python.

    python -m bench.pipeline --records 1000000 --records 5000000 --records 20000000 --groups 2000
    python -m bench.pipeline --master local-cluster[1,1,2048] --master local-cluster[2,1,2048] --repeat 2
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import click
import pyspark
from confluent_kafka import KafkaException, TopicPartition

from bench.catchup import OFFSETS, as_installed, write
from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.kafkatest import KafkaCluster, LocalKafka, wait_until
from tests.object_store import HADOOP_AWS, ObjectStore, run_object_store

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
DELTA = "io.delta:delta-spark_2.13:4.0.1"
BARE = "bare read, our source"
INTO = "into tables"
ON_S3 = "on S3"
_numbers = count()


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
    partitions = len(KafkaCluster(brokers).admin.list_topics(OFFSETS).topics[OFFSETS].partitions)
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
    spark: Any, brokers: str, folder: str | None, *, with_connector: bool, with_s3: bool
) -> dict[str, Callable[[Any], None]]:
    """What is measured: each takes all records; `INTO` tables that are given."""
    from koff.spark import decode

    def ours(**options: str) -> Any:
        return spark.read.format("koff").options(brokers=brokers, cluster="bench", **options).load()

    def sunk(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    columns = ("partition", "offset", "timestamp", "key", "value")
    watched = WatchedCluster("bench", ClusterConf(brokers))
    found: dict[str, Callable[[Any], None]] = {
        BARE: lambda _: sunk(ours(raw="true")),
        "decoded, our source": lambda _: sunk(ours()),
        INTO: lambda tables: into_tables(tables, watched),
    }
    if with_connector:
        found["bare read, Spark's connector"] = lambda _: sunk(connector(spark, brokers).select(*columns))
        found["decoded, Spark's connector"] = lambda _: sunk(decode(connector(spark, brokers), "bench"))
    if folder:
        found["decoded, log segments"] = lambda _: sunk(spark.read.format("koff.segments").load(folder))
        found[f"log segments {INTO}"] = lambda tables: segments_into_tables(tables, folder)
    if with_s3:
        found |= {f"{name} {ON_S3}": work for name, work in found.items() if INTO in name}
    return found


def used_s(process: int, *, alone: bool = False) -> float:
    """CPU seconds of a process and all below it, those that ended included; `alone`: only of itself."""
    if alone:
        return sum(_ticks(process)[:2]) / os.sysconf("SC_CLK_TCK")
    told = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, told.splitlines())}
    family = {process}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(sum(_ticks(pid)) for pid in family) / os.sysconf("SC_CLK_TCK")


def _ticks(process: int) -> list[int]:
    """The user and system time of a process, and of its children that ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except FileNotFoundError:  # it ended: its parent counts it
        return []
    return [int(field) for field in fields[11:15]]


def tasks_s(spark: Any) -> float:
    """How long the tasks of all stages so far ran, by Spark's REST API."""
    context = spark.sparkContext
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
    with urlopen(url) as response:
        return float(sum(stage["executorRunTime"] for stage in json.load(response))) / 1000


def measured(
    spark: Any,
    found: dict[str, Callable[[Any], None]],
    total: int,
    repeat: int,
    store: ObjectStore | None,
) -> dict[str, dict[str, Any]]:
    """Records a second of each way: the median of turns, after one that does not count."""
    process = spark.sparkContext._gateway.proc.pid

    def used() -> tuple[float, ...]:
        driver = used_s(process, alone=True) + used_s(os.getpid(), alone=True)
        return used_s(process) + used_s(os.getpid(), alone=True), tasks_s(spark), driver

    seconds: dict[str, list[float]] = {name: [] for name in found}
    used_by: dict[str, list[tuple[float, ...]]] = {name: [] for name in found}
    for turn in range(repeat + 1):
        for name, work in found.items():
            on = store if ON_S3 in name else None
            with new_tables(spark, on) if INTO in name else nullcontext() as tables:
                before, started = used(), time.monotonic()
                work(tables)
                taken = time.monotonic() - started
                if turn:
                    seconds[name].append(taken)
                    used_by[name].append(tuple(now - then for now, then in zip(used(), before, strict=True)))
            print(f"{name}: {taken:.2f} s", file=sys.stderr)
    has_executors = not spark.sparkContext.master.startswith("local[")
    figures: dict[str, dict[str, Any]] = {}
    for name, clock in seconds.items():
        cpu, tasks, driver = (statistics.median(each) for each in zip(*used_by[name], strict=True))
        figures[name] = {
            "seconds": [round(each, 2) for each in clock],
            "records_per_s": round(total / statistics.median(clock)),
            "cpu_s": round(cpu, 2),
            "records_per_cpu_s": round(total / cpu),
            "tasks_s": round(tasks, 2),
        }
        if has_executors:
            figures[name]["driver_share"] = round(driver / cpu, 3)
    return figures


@contextmanager
def new_tables(spark: Any, store: ObjectStore | None = None) -> Iterator[Any]:
    """New, empty tables: in the S3 server, or in a temporary folder."""
    from koff.spark.tables.delta_tables import Tables

    with tempfile.TemporaryDirectory(prefix="koff-bench-") as folder:
        tables = Tables(spark, store.url(f"tables-{next(_numbers)}") if store else folder)
        tables.create_tables()
        yield tables


def into_tables(tables: Any, watched: Any) -> None:
    """What `koff pipeline backfill` does: all of the log into new tables."""
    from koff.spark.job.cluster_job import PipelineConf
    from koff.spark.job.job import Job

    with Job([watched], PipelineConf(once=True, sample=False), lambda _: None) as job:
        job.run(tables)


def segments_into_tables(tables: Any, folder: str) -> None:
    """What `koff pipeline backfill --segments` does."""
    from koff.spark.job.segments_backfill import backfill_segments

    backfill_segments(tables, folder, "bench")


def driver_mib(spark: Any) -> int:
    """What the driver (and in local mode the executor) still holds: its heap after a collection."""
    jvm = spark.sparkContext._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory()) >> 20


def of_master(
    master: str,
    brokers: str,
    segments: str | None,
    repeat: int,
    *,
    connector: bool,
    store: ObjectStore | None,
) -> Any:
    """All ways on so many cores, in a session of their own."""
    from koff.spark import session

    jars = [DELTA]
    jars += [f"{CONNECTOR}:{pyspark.__version__}"] if connector else []
    jars += [HADOOP_AWS] if store else []
    settings = {
        "spark.jars.packages": ",".join(jars),
        "spark.ui.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = session("bench", master=master, settings=settings | dict(store.settings if store else {}))
    try:
        spark.sparkContext.setLogLevel("OFF")
        total = spark.read.format("koff").options(brokers=brokers, raw="true").load().count()
        found = ways(spark, brokers, segments, with_connector=connector, with_s3=store is not None)
        results = measured(spark, found, total, repeat, store)
        held_mib = driver_mib(spark)
    finally:
        spark.stop()
    bare = results[BARE]
    for figures in results.values():
        for name in ("records_per_s", "records_per_cpu_s"):
            figures[f"bare_read_has_times_the_{name}"] = round(bare[name] / figures[name], 2)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {
        "records": total,
        "master": master,
        "driver_heap_mib": held_mib,
        "driver_python_peak_mib": peak_mib,
        "ways": results,
    }


@click.command()
@click.option("--records", multiple=True, type=int, default=(5_000_000,), show_default=True)
@click.option("--groups", default=2_000, show_default=True)
@click.option(
    "--batch", default=None, type=int, help="Records in a batch of the log; ten is what brokers write."
)
@click.option("--repeat", default=3, show_default=True)
@click.option("--master", "masters", multiple=True, default=("local[2]",), show_default=True)
@click.option("--brokers", help="A cluster that holds the commits already.")
@click.option("--segments", help="Where its log segments are.")
@click.option("--connector/--no-connector", default=True, help="Whether to compare with Spark's.")
@click.option("--s3", is_flag=True, help="Also into tables on an S3 server (needs versitygw).")
def main(
    records: tuple[int, ...],
    groups: int,
    batch: int | None,
    repeat: int,
    masters: tuple[str, ...],
    brokers: str | None,
    segments: str | None,
    connector: bool,
    s3: bool,
) -> None:
    """Measures and prints JSON."""
    os.environ.update(as_installed(sys.executable))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Without it, the worker of a local-cluster does not find Spark's programs.
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    found = []
    with ExitStack() as stack:
        kafka = None
        if brokers is None:
            kafka = stack.enter_context(LocalKafka())
            begun(kafka)
            brokers, segments = kafka.bootstrap, str(kafka.folder)
        store = None
        if s3:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="koff-bench-"))
            store = stack.enter_context(run_object_store(Path(folder)))
        written = 0
        for total in records if kafka else (0,):
            if kafka:
                print(f"written in {write(brokers, total - written, groups, batch):.0f} s", file=sys.stderr)
                written = total
            for master in masters:
                figures = of_master(master, brokers, segments, repeat, connector=connector, store=store)
                found.append(figures)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""How fast `koff monitor` is right: commits go straight into `__consumer_offsets`, and are read.

Prints JSON. Each shape is compared, in the same run, with a bare confluent-kafka consumer that reads the
same topic and looks at nothing, and with kminion, if its program is given.

    python -m bench.catchup --records 5000000 --groups 2000 --kminion ./kminion
"""

import gzip
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from koff.kafkatest import LocalKafka, free_ports

PARTITIONS_A_GROUP = 10
OFFSETS = "__consumer_offsets"


def main_partition(group: str, partitions: int = 50) -> int:
    """The partition of the offsets topic that holds an ASCII-named group: Java's String.hashCode."""
    h = 0
    for c in group:
        h = (31 * h + ord(c)) & 0xFFFFFFFF
    return abs(h - (1 << 32) if h & 0x80000000 else h) % partitions


def key(group: str, topic: str, partition: int) -> bytes:
    g, t = group.encode(), topic.encode()
    return struct.pack(f">hh{len(g)}sh{len(t)}si", 1, len(g), g, len(t), t, partition)


def value(offset: int, topic_id: bytes) -> bytes:
    """What a 4.3.1 broker writes: version 4, no metadata, the topic's id in tag 0."""
    return struct.pack(">hqiBqBBB16s", 4, offset, 0, 1, time.time_ns() // 1_000_000, 1, 0, 16, topic_id)


def write(bootstrap: str, records: int, groups: int, batch: int | None) -> float:
    """Writes commits, ten a group at a time, and returns the seconds that it took."""
    properties: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "__admin_client",
        "acks": "1",
        "linger.ms": 50,
        "queue.buffering.max.messages": 2_000_000,
        "batch.size": 1_000_000,
    }
    if batch:
        properties["batch.num.messages"] = batch
    producer = Producer(properties)
    names = [f"bench-{i:05d}" for i in range(groups)]
    homes = [main_partition(name) for name in names]
    keys = [
        [key(name, f"bench-topic-{i % 20:02d}", p) for p in range(PARTITIONS_A_GROUP)]
        for i, name in enumerate(names)
    ]
    topic_id = b"\0" * 16  # another than the topic's would be a topic that was created again: no lag
    started, written, round_ = time.monotonic(), 0, 0
    while written < records:
        round_ += 1
        for home, group in zip(homes, keys, strict=True):
            bytes_ = value(round_, topic_id)
            for k in group:
                while True:
                    try:
                        producer.produce(OFFSETS, bytes_, k, home)
                        break
                    except BufferError:
                        producer.poll(0.1)
            written += PARTITIONS_A_GROUP
            if written >= records:
                break
        producer.poll(0)
    producer.flush()
    return time.monotonic() - started


def bare_read(bootstrap: str, total: int) -> dict[str, float]:
    """Reads the whole offsets topic with confluent-kafka alone."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bare",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": False,
            "max.partition.fetch.bytes": 4 << 20,
            "queued.max.messages.kbytes": 4096,
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
        }
    )
    count = len(consumer.list_topics(OFFSETS).topics[OFFSETS].partitions)
    started, cpu, seen, ends = time.monotonic(), time.process_time(), 0, 0
    consumer.assign([TopicPartition(OFFSETS, p, 0) for p in range(count)])
    while ends < count:
        for message in consumer.consume(2_000, 0.1):
            if message.error():
                ends += 1
            else:
                seen += 1
    seconds, used = time.monotonic() - started, time.process_time() - cpu
    consumer.close()
    assert seen >= total, (seen, total)
    return {"seconds": round(seconds, 3), "records_per_s": round(seen / seconds), "cpu_s": round(used, 2)}


def as_installed(python: str) -> dict[str, str]:
    """The environment in which koff starts as an installed one does: from compiled modules."""
    cache = Path(tempfile.gettempdir()) / "koff-bench-compiled"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = kept | {"PYTHONPYCACHEPREFIX": str(cache)}
    subprocess.run([python, "-m", "koff", "--help"], env=environment, check=True, stdout=subprocess.DEVNULL)
    return environment


def monitor(bootstrap: str, total: int, python: str) -> dict[str, float]:
    """Starts `koff monitor`, waits until it is ready, scrapes it."""
    (port,) = free_ports(1)
    environment = as_installed(python)
    url = f"http://127.0.0.1:{port}"
    started = time.monotonic()
    process = subprocess.Popen(
        [
            *(python, "-m", "koff", "monitor", "--start", "replay"),
            *("--brokers", bootstrap, "--listen", f"127.0.0.1:{port}"),
        ],
        env=environment,
        stderr=subprocess.PIPE,
    )
    lines: list[dict[str, Any]] = []
    log = process.stderr
    assert log is not None
    drain = threading.Thread(target=lambda: lines.extend(map(json.loads, log)), daemon=True)
    drain.start()
    try:
        while status(f"{url}/readyz") != 200:
            if process.poll() is not None:
                raise SystemExit(f"koff monitor ended: {lines}")
            time.sleep(0.02)
        seconds = time.monotonic() - started
        cpu = cpu_of(process)
        scraped = scrape(url, process, "koff_group_lag")
    finally:
        process.terminate()
        process.wait(10)
        drain.join(5)
    drained_s = next(line["seconds"] for line in lines if line["event"] == "the log is read")
    return {
        "seconds_to_ready": round(seconds, 3),
        "records_per_s": round(total / seconds),
        "log_drained_s": drained_s,
        "drain_records_per_s": round(total / drained_s),
        "cpu_s": cpu,
        "cpu_us_per_record": round(cpu / total * 1e6, 3),
        **scraped,
    }


def scrape(url: str, process: subprocess.Popen[bytes], lag: str) -> dict[str, float]:
    """The median of seven scrapes in ms, their series of the family `lag`, and the most memory so far."""
    seconds, body = [], b""
    for _ in range(7):
        at = time.monotonic()
        body = fetch(f"{url}/metrics")
        seconds.append(time.monotonic() - at)
    memory = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    assert memory is not None
    return {
        "peak_mib": round(int(memory[1]) / 1024, 1),
        "lag_series": body.count(f"\n{lag}{{".encode()),
        "scrape_ms": round(statistics.median(seconds) * 1000, 1),
        "scrape_bytes": len(body),
    }


KMINION_LAG = "kminion_kafka_consumer_group_topic_partition_lag"
KMINION = """\
kafka: {{brokers: ["{bootstrap}"]}}
minion: {{consumerGroups: {{scrapeMode: offsetsTopic}}, logDirs: {{enabled: false}}}}
exporter: {{host: 127.0.0.1, port: {port}}}
logger: {{level: error}}
"""


def kminion(program: str, bootstrap: str, total: int, rows: int) -> dict[str, float]:
    """Starts kminion and waits until it has read as many records. It is ready up to some seconds later."""
    (port,) = free_ports(1)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(KMINION.format(bootstrap=bootstrap, port=port))
        config.flush()
        started = time.monotonic()
        process = subprocess.Popen([program], env={**os.environ, "CONFIG_FILEPATH": config.name})
        try:
            read = 0.0
            while read < total:
                if process.poll() is not None:
                    raise SystemExit(f"kminion ended with code {process.returncode}")
                time.sleep(0.2)
                if status(f"http://127.0.0.1:{port}/metrics") == 200:
                    body = fetch(f"http://127.0.0.1:{port}/metrics").decode()
                    counted = re.search(r"records_consumed_total(?:{.*})? ([0-9.e+]+)$", body, re.MULTILINE)
                    read = float(counted[1]) if counted else 0.0
            seconds, cpu = time.monotonic() - started, cpu_of(process)
            url = f"http://127.0.0.1:{port}"
            while (scraped := scrape(url, process, KMINION_LAG))["lag_series"] < rows:
                if time.monotonic() > started + 120:
                    raise SystemExit(f"kminion did not serve {rows} lags within 120 s: {scraped}")
                time.sleep(1)
        finally:
            process.terminate()
            process.wait(10)
    return {"seconds": round(seconds, 3), "records_per_s": round(total / seconds), "cpu_s": cpu, **scraped}


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    """The seconds of CPU that a process has used so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as failure:
        return failure.code
    except OSError:
        return 0


def fetch(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        body: bytes = answer.read()
        return gzip.decompress(body) if answer.headers["Content-Encoding"] == "gzip" else body


def commit(consumer: Consumer, topic: str, offset: int) -> None:
    """Returns when the coordinator has it; one that has just been elected refuses at first."""
    until = time.monotonic() + 30
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def shape(
    records: int, groups: int, batch: int | None, python: str, kminion_program: str | None
) -> dict[str, Any]:
    """One shape on a broker of its own."""
    with LocalKafka(jvm_options=("-XX:TieredStopAtLevel=4",)) as kafka:
        for i in range(20):
            kafka.create_topic(f"bench-topic-{i:02d}", partitions=PARTITIONS_A_GROUP)
        first = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "makes-the-topic"})
        commit(first, "bench-topic-00", 0)
        first.close()
        written = write(kafka.bootstrap, records, groups, batch)
        bare, rows = bare_read(kafka.bootstrap, records), min(records, groups * PARTITIONS_A_GROUP)
        koff = monitor(kafka.bootstrap, records, python)
        beside = kminion(kminion_program, kafka.bootstrap, records, rows) if kminion_program else None
    ratio = (
        {"koff_speed_over_kminion": round(beside["seconds"] / koff["seconds_to_ready"], 2)} if beside else {}
    )
    return {
        "records": records,
        "series": groups * PARTITIONS_A_GROUP,
        "records_a_batch": batch or "large",
        "written_in_s": round(written, 1),
        "koff": koff,
        "bare_confluent_kafka": bare,
        "koff_seconds_over_bare": round(koff["seconds_to_ready"] / bare["seconds"], 2),
        "kminion": beside,
        **ratio,
    }


@click.command()
@click.option("--records", default=5_000_000, show_default=True, help="Commits to write.")
@click.option(
    "--groups", default=2000, show_default=True, help=f"Groups, each over {PARTITIONS_A_GROUP} partitions."
)
@click.option(
    "--shape", "shapes", type=click.Choice(["large", "ten"]), multiple=True, default=["large", "ten"]
)
@click.option(
    "--python",
    default=sys.executable,
    help="Of an environment with koff in it and nothing else: a developer's makes the start slower.",
)
@click.option("--kminion", "kminion_program", help="kminion's program, to be run on the same topic.")
def main(
    records: int, groups: int, shapes: tuple[str, ...], python: str, kminion_program: str | None
) -> None:
    """Seconds, CPU and memory until `koff monitor` is ready."""
    results = {
        name: shape(records, groups, 10 if name == "ten" else None, python, kminion_program)
        for name in shapes
    }
    click.echo(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()

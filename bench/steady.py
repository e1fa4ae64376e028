"""What `koff monitor` takes while groups commit: CPU, memory and requests, by rows and commits a second.

Prints JSON. Commits go straight into `__consumer_offsets` at a steady rate, and each program is scraped every
15 s, as Prometheus does. kminion reads the same commits at the same time, if its program is given.

    python -m bench.steady [--groups 2000] [--rate 100 --rate 1000 --rate 10000] [--kminion ./kminion]
"""

import contextlib
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, Producer

from bench.catchup import (
    KMINION,
    KMINION_LAG,
    OFFSETS,
    PARTITIONS_A_GROUP,
    commit,
    cpu_of,
    fetch,
    key,
    main_partition,
    status,
    value,
    write,
)
from bench.start import Started
from koff.kafkatest import LocalKafka, free_ports

SCRAPE_INTERVAL_S = 15.0
TICK_S = 0.1
_REQUESTS = re.compile(r'^koff_requests_total\{.*kind="(\w+)".*\} (\S+)$', re.MULTILINE)


class Commits:
    """Commits of all groups in turn at a rate, written by a thread until the end of the body."""

    def __init__(self, bootstrap: str, groups: int) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "client.id": "__admin_client", "acks": "1", "linger.ms": 5}
        )
        self._groups, self.written = groups, 0

    @contextlib.contextmanager
    def flow(self, per_s: int) -> Iterator[None]:
        """In the body, `per_s` commits are written each second."""
        stop = threading.Event()
        thread = threading.Thread(target=self._write, args=(per_s, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _write(self, per_s: int, stop: threading.Event) -> None:
        began, first = time.monotonic(), self.written
        while not stop.wait(TICK_S):
            for number in range(self.written, first + int((time.monotonic() - began) * per_s)):
                round_, row = divmod(number, self._groups * PARTITIONS_A_GROUP)
                group, partition = divmod(row, PARTITIONS_A_GROUP)
                name, topic = f"bench-{group:05d}", f"bench-topic-{group % 20:02d}"
                self._producer.produce(
                    OFFSETS,
                    value(1000 + round_, b"\0" * 16),
                    key(name, topic, partition),
                    main_partition(name),
                )
                self.written += 1
            self._producer.poll(0)
        self._producer.flush()


class Watched:
    """A program under measurement: its process and its address."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process, self._url = process, url

    def scrape(self) -> str:
        return fetch(f"{self._url}/metrics").decode()

    def cpu_s(self) -> float:
        return cpu_of(self._process)

    def rss_mib(self) -> float:
        said = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", said)
        assert found is not None
        return round(int(found[1]) / 1024, 1)


@contextlib.contextmanager
def start_kminion(program: str, bootstrap: str, rows: int) -> Iterator[Watched]:
    """Runs kminion until the end of the body, which begins when it serves all rows."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(KMINION.format(bootstrap=bootstrap, port=port))
        config.flush()
        process = subprocess.Popen([program], env={**os.environ, "CONFIG_FILEPATH": config.name})
        try:
            until = time.monotonic() + 300
            while (
                status(f"{url}/metrics") != 200 or fetch(f"{url}/metrics").count(KMINION_LAG.encode()) < rows
            ):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"kminion did not serve {rows} lags")
                time.sleep(1)
            yield Watched(process, url)
        finally:
            process.terminate()
            process.wait(30)


def read_requests(body: str) -> dict[str, float]:
    return {kind: float(count) for kind, count in _REQUESTS.findall(body)}


def measure(watched: dict[str, Watched], seconds: float, commits: Commits) -> dict[str, Any]:
    """Both programs over `seconds`, with a scrape each 15 s."""
    began, first = time.monotonic(), commits.written
    cpu = {name: each.cpu_s() for name, each in watched.items()}
    requests = read_requests(watched["koff"].scrape())
    while (left := began + seconds - time.monotonic()) > 0:
        time.sleep(min(left, SCRAPE_INTERVAL_S))
        bodies = {name: each.scrape() for name, each in watched.items()}
    took = time.monotonic() - began
    after = read_requests(bodies["koff"])
    result: dict[str, Any] = {
        "commits_per_s": round((commits.written - first) / took),
        "requests_per_s": {
            kind: round((count - requests.get(kind, 0)) / took, 2) for kind, count in after.items()
        },
    }
    for name, each in watched.items():
        used = (each.cpu_s() - cpu[name]) / took
        result[name] = {"cpu_percent": round(used * 100, 1), "rss_mib": each.rss_mib()}
    return result


@click.command()
@click.option("--groups", "sizes", default=[2000, 20_000], multiple=True, show_default=True, help="Groups.")
@click.option(
    "--rate",
    "rates",
    default=[0, 100, 1000, 10_000],
    multiple=True,
    show_default=True,
    help="Commits a second.",
)
@click.option("--seconds", default=60.0, show_default=True, help="How long each rate is measured.")
@click.option("--kminion", "program", help="kminion's program, to be run beside koff.")
def main(sizes: tuple[int, ...], rates: tuple[int, ...], seconds: float, program: str | None) -> None:
    """CPU (per cent of one core), memory and requests of koff while groups commit."""
    results = []
    for groups in sizes:
        rows = groups * PARTITIONS_A_GROUP
        with LocalKafka(jvm_options=("-XX:TieredStopAtLevel=4",)) as kafka, contextlib.ExitStack() as stack:
            for i in range(20):
                kafka.create_topic(f"bench-topic-{i:02d}", partitions=PARTITIONS_A_GROUP)
            first = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "makes-the-topic"})
            commit(first, "bench-topic-00", 0)
            first.close()
            write(kafka.bootstrap, rows, groups, None)
            koff = Started(kafka.bootstrap, "--start", "replay")
            stack.callback(koff.stop)
            watched = {"koff": Watched(koff.process, koff.url)}
            if program:
                watched["kminion"] = stack.enter_context(start_kminion(program, kafka.bootstrap, rows))
            commits = Commits(kafka.bootstrap, groups)
            for rate in rates:
                with commits.flow(rate):
                    results.append({"rows": rows, **measure(watched, seconds, commits)})
    click.echo(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()

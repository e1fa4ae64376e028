"""How soon `koff monitor` is ready: by asking the coordinators, by reading the log, from what it saved.

Prints JSON. The commits are written straight into `__consumer_offsets` of a fresh broker, which is then
started again, so that its coordinator knows the groups. Beside the starts stands, in the same run, what that
costs step by step: Python, koff's imports, asking the coordinators, bare confluent-kafka reading the log.

    python -m bench.start [--quick]
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer

from bench.catchup import PARTITIONS_A_GROUP, bare_read, commit, fetch, status, write
from koff.kafkatest import LocalKafka, free_ports

WAYS = ("replay", "snapshot", "resume")
IMPORTS = "import koff.cli, koff.cli.monitor, koff.monitor.run"
ASKING = """
import sys
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf
from koff.client.groups.coordinators import fetch_from_coordinators
with Cluster(ClusterConf(sys.argv[1])) as cluster:
    print(fetch_from_coordinators(cluster.lister).seconds)
    print(fetch_from_coordinators(cluster.lister).seconds)
"""


class Started:
    """A `koff monitor` from the start of its process until it is ready; to be stopped."""

    def __init__(self, bootstrap: str, *args: str) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.began = time.monotonic()
        command = (sys.executable, "-m", "koff", "monitor", "--brokers", bootstrap)
        self.process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{port}", *args], stderr=subprocess.PIPE
        )
        self.log: list[dict[str, Any]] = []
        self._drain = threading.Thread(target=self._read, daemon=True)
        self._drain.start()
        while status(f"{self.url}/readyz") != 200:
            if self.process.poll() is not None:
                raise SystemExit(f"koff monitor ended: {self.log}")
            time.sleep(0.005)
        self.seconds = time.monotonic() - self.began
        self.rss_mib = self._memory("VmRSS")
        self.rows = fetch(f"{self.url}/metrics").count(b"\nkoff_group_lag{")
        self.rss_mib_after_scrape = self._memory("VmRSS")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line))

    def _memory(self, name: str) -> float:
        said = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+)", said)
        assert found is not None
        return round(int(found[1]) / 1024, 1)

    def wait_for(self, event: str) -> dict[str, Any]:
        until = time.monotonic() + 120
        while not (found := [line for line in self.log if line["event"] == event]):
            if time.monotonic() > until:
                raise SystemExit(f"koff monitor did not log {event!r}: {self.log}")
            time.sleep(0.05)
        return found[0]

    def stop(self) -> float:
        """Ends it; the seconds that saving took."""
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(60)
        self._drain.join(5)
        return time.monotonic() - began


def started(bootstrap: str, way: str, folder: str, rows: int, times: int) -> dict[str, Any]:
    """Of several starts the median; the way that was asked for must have been gone."""
    args = ["--start", way, *(["--state-dir", folder] if way == "resume" else [])]
    seconds, last = [], None
    for _ in range(times):
        if last is not None:
            last.stop()
        last = Started(bootstrap, *args)
        assert last.rows >= rows, (last.rows, rows)
        seconds.append(last.seconds)
    assert last is not None
    about: dict[str, Any] = {}
    if way == "snapshot":
        about["requested_s"] = last.wait_for("asked the coordinators")["seconds"]
        last.wait_for("backfilled")
        about["backfilled_s"] = round(time.monotonic() - last.began, 3)
        about["rss_mib_after_backfill"] = last._memory("VmRSS")
    if way == "resume":
        last.wait_for("partitions start: resume")
    about["peak_mib"] = last._memory("VmHWM")
    last.stop()
    return {
        "seconds_to_ready": round(statistics.median(seconds), 3),
        "all": [round(each, 3) for each in seconds],
        "rss_mib_at_ready": last.rss_mib,
        "rss_mib_after_first_scrape": last.rss_mib_after_scrape,
        **about,
    }


def alone(code: str, *args: str) -> list[float]:
    """The seconds of a Python process of its own, and what it printed."""
    began = time.monotonic()
    said = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return [round(time.monotonic() - began, 3), *(round(float(each), 3) for each in said.stdout.split())]


def shape(rows: int, records: int, times: int) -> dict[str, Any]:
    """One shape on a broker of its own."""
    with (
        LocalKafka(jvm_options=("-XX:TieredStopAtLevel=4",)) as kafka,
        tempfile.TemporaryDirectory() as folder,
    ):
        for i in range(20):
            kafka.create_topic(f"bench-topic-{i:02d}", partitions=PARTITIONS_A_GROUP)
        first = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "makes-the-topic"})
        commit(first, "bench-topic-00", 0)
        first.close()
        write(kafka.bootstrap, records, rows // PARTITIONS_A_GROUP, None)
        kafka.restart()
        asking = alone(ASKING, kafka.bootstrap)
        saves = Started(kafka.bootstrap, "--start", "replay", "--state-dir", folder)
        saving_s = saves.stop()
        found = {way: started(kafka.bootstrap, way, folder, rows, times) for way in WAYS}
        bare = bare_read(kafka.bootstrap, records)
    imports = [alone(IMPORTS)[0] for _ in range(3)]
    return {
        "rows": rows,
        "records": records,
        **found,
        "by_themselves": {
            "python_s": alone("pass")[0],
            "imports_s": min(imports),
            "asking_cold_s": asking[1],
            "asking_warm_s": asking[2],
            "bare_read_s": bare["seconds"],
            "saving_and_stopping_s": round(saving_s, 3),
        },
    }


@click.command()
@click.option("--quick", is_flag=True, help="Only 20,000 rows over a million records.")
@click.option("--times", default=3, show_default=True, help="Starts of each kind.")
def main(quick: bool, times: int) -> None:
    """Seconds and memory until `koff monitor` is ready, by way of start."""
    shapes = [(20_000, 1_000_000)]
    if not quick:
        shapes += [(20_000, 5_000_000), (200_000, 1_000_000), (200_000, 5_000_000)]
    results = []
    for rows, records in shapes:
        click.echo(f"{rows} rows over {records} records", err=True)
        results.append(shape(rows, records, times))
    click.echo(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()

"""koff as its users run it: a process with a command line, an exit code and two streams."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koff.kafkatest import wait_until
from tests.clusters import log_in

KOFF = (sys.executable, "-m", "koff")
_WITH_LIMIT = (
    "import runpy, sys; from koff.monitor.core_conf import CoreConf; intervals = int(sys.argv.pop(1));"
    " CoreConf.limit_s = property(lambda conf: intervals * conf.end_interval_s);"
    " runpy.run_module('koff', run_name='__main__', alter_sys=True)"
)
"""koff with another number of end-offset intervals, after which it withholds what was not sampled again."""


def set_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of these properties."""
    return {f"KOFF_PROPERTY_{name.upper().replace('.', '_')}": value for name, value in properties.items()}


def patch_koff(folder: Path, code: str) -> dict[str, str]:
    """The environment in which Python runs this code at its start. The folder gets a file with it."""
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def as_user(user: str, password: str = "") -> dict[str, str]:
    """The environment variables with which koff logs in by SASL, as `log_in` has it."""
    return set_properties(log_in(user, password))


def run_koff(
    *args: str, env: Mapping[str, str] | None = None, timeout_s: float = 90.0
) -> subprocess.CompletedProcess[str]:
    """`koff ARGS`, run to its end."""
    return subprocess.run(
        [*KOFF, *args],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


class Monitor:
    """A running `koff monitor`; `log` grows as it logs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self.text = ""
        self._reading = threading.Thread(target=self._read, name="monitor-log")
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.text += line
            if line.startswith("{"):
                self.log.append(json.loads(line))

    @property
    def url(self) -> str:
        wait_until(
            lambda: self.events("listening") or self.process.poll() is not None,
            timeout_s=60,
            what="the server",
        )
        assert self.events("listening"), self.text
        return str(self.events("listening")[0]["url"])

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in list(self.log) if line["event"] == name]

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and body."""
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self.url + path, headers=headers), timeout=30
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as failure:
            with failure:
                return failure.code, failure.read().decode()

    def wait_until_ready(self, timeout_s: float = 60) -> None:
        wait_until(lambda: self.get("/readyz")[0] == 200, timeout_s=timeout_s, what="/readyz")

    def metrics(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Every sample, by metric name and then by its labels' values (in the exposition's order)."""
        status, text = self.get("/metrics")
        assert status == 200
        samples: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
        return samples

    def rows(self, family: str = "koff_group_lag") -> dict[tuple[str, str, int], float]:
        """The values of a family by group, topic and partition."""
        samples = self.metrics().get(family, {})
        return {(group, topic, int(number)): value for (*_, group, topic, number), value in samples.items()}

    def lag(self, group: str) -> float | None:
        """The total lag of a group. None: it is not served."""
        totals = self.metrics().get("koff_group_total_lag", {})
        return next((lag for labels, lag in totals.items() if labels[1] == group), None)

    def wait_for_lag(self, group: str, lag: float) -> None:
        """Waits until this is the total lag of the group. A failure shows the log."""
        try:
            wait_until(
                lambda: self.lag(group) == lag, timeout_s=180
            )  # a refused log-in is tried once a minute
        except TimeoutError:
            readiness = self.get("/readyz")
            pytest.fail(f"lag {self.lag(group)}, not {lag}; {readiness}\n{self.text[-4000:]}")

    def stop(self) -> int:
        """Ends it as Kubernetes does; returns the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(60)
        finally:
            self._reading.join(60)


@contextmanager
def monitoring(
    brokers: str | None, *args: str, env: Mapping[str, str] | None = None, limit_intervals: int = 20
) -> Iterator[Monitor]:
    """A `koff monitor` on a free port. If it still runs at the end, it must stop with code 0 when told to.

    With `brokers` None, the arguments name the clusters. `limit_intervals` is how many end-offset intervals
    old a lag may be. Users have 5 of 5 s each. Here, 5 of 0.5 s would hide rows while the machine is busy.
    """
    named = () if brokers is None else ("--brokers", brokers)
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", _WITH_LIMIT, str(limit_intervals)),
            "monitor",
            *named,
            "--listen",
            "127.0.0.1:0",
            "--end-offset-interval",
            "0.5",
            "--families",
            "all",
            *args,
        ],
        env={**os.environ, **(env or {})},
        stderr=subprocess.PIPE,
        text=True,
    )
    monitor = Monitor(process)
    try:
        yield monitor
        if process.poll() is None:
            assert monitor.stop() == 0, monitor.text
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        monitor._reading.join(60)
        process.stderr.close()


def run_lag(
    brokers: str, *args: str, group: str = "", env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What `koff lag --format json` prints: `groups` and `partitions`, of one group if it is named."""
    chosen = ("--group", f"^{group}$") if group else ()
    ended = run_koff("lag", "--brokers", brokers, "--format", "json", *chosen, *args, env=env)
    assert ended.returncode == 0, ended.stderr
    printed: dict[str, Any] = json.loads(ended.stdout)
    return printed


def describe_groups(printed: str) -> dict[tuple[str, str, int], dict[str, str]]:
    """The rows that Kafka's ConsumerGroupCommand printed with --describe, by (group, topic, partition)."""
    rows, header = {}, []
    for line in printed.splitlines():
        cells = re.split(r"\s+", line.strip())
        if cells[0] == "GROUP":
            header = cells
        elif header and len(cells) == len(header):
            row = dict(zip(header, cells, strict=True))
            if row["TOPIC"] != "-":
                rows[row["GROUP"], row["TOPIC"], int(row["PARTITION"])] = row
    return rows

"""Scrapes a monitor before a `FaultCluster`, and compares all that it serves with the truth."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from koff.kafkatest import wait_until
from tests.fault_cluster import OFFSETS_TOPIC, FaultCluster, Row
from tests.koff_process import Monitor, monitoring, run_koff

LIMIT_S = 5.0
"""Five intervals of 1 s."""
SLACK_S = 1.0
"""How much older a number may look here: a view may be 0.1 s old, and the test's own clock is read late."""
HIDDEN_S, FOLLOWED_S, RECOVERED_S = 60.0, 60.0, 90.0
"""How long a fault may take to show, a new number to be served, and koff to recover, on a busy machine."""
AWAY_S = 15.0
"""A row that a fault does not concern may be away for so long: a busy machine samples late."""
ENDED_S = 40.0
"""`koff lag` ends after its timeout of some seconds. It may take this long on a busy machine."""
_SERIES = re.compile(
    r'^(\w+)\{cluster="[^"]*"(?:,group="([^"]*)")?(?:,topic="([^"]*)",partition="(\d+)")?'
    r'(?:,reason="\w+")?\} (\S+)$'
)


@dataclass(frozen=True)
class Page:
    """One response of /metrics, and when it was requested and received."""

    text: str
    requested_s: float
    received_s: float
    lags: dict[Row, int]
    totals: dict[str, int]
    withheld: float | None
    up: float | None

    @classmethod
    def fetch(cls, monitor: Monitor) -> Page:
        requested_s = time.monotonic()
        status, text = monitor.get("/metrics")
        received_s = time.monotonic()
        assert status == 200
        found: dict[str, dict[tuple, float]] = {}
        for line in text.splitlines():
            if match := _SERIES.match(line):
                name, group, topic, partition, value = match.groups()
                series = found.setdefault(name, {})  # summed: koff_rows_withheld has one of each reason
                series[group, topic, partition] = series.get((group, topic, partition), 0) + float(value)
        lags = {(g, t, int(p)): int(lag) for (g, t, p), lag in found.get("koff_group_lag", {}).items()}
        totals = {g: int(lag) for (g, _, _), lag in found.get("koff_group_total_lag", {}).items()}
        (withheld,) = found.get("koff_rows_withheld", {0: None}).values()
        (up,) = found.get("koff_up", {0: None}).values()
        of_test = {row: lag for row, lag in lags.items() if row[0].startswith("at-")}
        totals = {group: lag for group, lag in totals.items() if group.startswith("at-")}
        return cls(text, requested_s, received_s, of_test, totals, withheld, up)


class Scrapes:
    """Scrapes a monitor all the time from a thread, and notes all that breaks the contract."""

    def __init__(self, monitor: Monitor, cluster: FaultCluster) -> None:
        self.false: list[str] = []
        self.slowest_s = 0.0
        self.unhealthy: list[str] = []
        self.readiness: list[int] = []
        self.unready: list[str] = []
        """What /readyz said while rows were served before and after. On a busy machine, all may be away."""
        self.gaps: dict[Row, float] = {}
        """How long each row was not served, at the longest."""
        self._seen: dict[Row, float] = {}
        self._monitor, self._cluster = monitor, cluster
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrapes")

    def __enter__(self) -> Scrapes:
        now = time.monotonic()
        self._seen = dict.fromkeys(self._cluster.committed, now)
        self.gaps = dict.fromkeys(self._cluster.committed, 0.0)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def check(self, *, stay: Collection[Row], ready: bool = True) -> None:
        """Fails unless all served numbers were true, koff was healthy, and the rows of `stay` stayed.

        With `ready`, it must have been ready all the time.
        """
        assert self.readiness, "nothing was scraped"
        assert not self.false, f"{len(self.false)} numbers were false, such as {self.false[:5]}"
        assert not self.unhealthy, self.unhealthy[:5]
        gone = {row: round(gap, 1) for row, gap in self.gaps.items() if row in stay and gap > AWAY_S}
        assert not gone, f"rows that do not depend on the broker were away, in s: {gone}"
        if ready:
            assert not self.unready, f"/readyz was not 200 {len(self.unready)} times: {self.unready[:5]}"

    def _run(self) -> None:
        before, readiness = None, (200, "")
        while not self._done.wait(0.1):
            try:
                page = Page.fetch(self._monitor)
                if readiness[0] != 200 and before and before.lags and page.lags:
                    self.unready.append(readiness[1])
                before = page
                health = self._monitor.get("/healthz")
                readiness = self._monitor.get("/readyz")
                self.readiness.append(readiness[0])
            except (OSError, AssertionError) as error:
                self.unhealthy.append(f"{type(error).__name__}: {error}")
                continue
            if health[0] != 200:
                self.unhealthy.append(f"/healthz: {health}")
            self._note(page)

    def _note(self, page: Page) -> None:
        self.slowest_s = max(self.slowest_s, page.received_s - page.requested_s)
        since_s = page.requested_s - LIMIT_S - SLACK_S
        for row, lag in page.lags.items():
            if not self._cluster.may_be(row, lag, since_s=since_s, until_s=page.received_s):
                self.false.append(f"{row}: {lag}")
            self._seen[row] = page.received_s
        for row, seen_s in self._seen.items():
            self.gaps[row] = max(self.gaps.get(row, 0.0), page.received_s - seen_s)


@contextmanager
def watching(cluster: FaultCluster, *args: str) -> Iterator[Monitor]:
    """`koff monitor`, which reaches the brokers through their proxies only."""
    bootstrap = cluster.kafka.proxied_bootstrap
    with monitoring(bootstrap, "--end-offset-interval", "1", *args, limit_intervals=5) as monitor:
        yield monitor


def wait_for(
    monitor: Monitor,
    cluster: FaultCluster,
    timeout_s: float,
    *,
    without: int | None = None,
    may_serve_more: bool = False,
) -> float:
    """Waits until the lags, totals and the count of withheld rows are right. Returns the seconds that took.

    Rows that depend on broker `without` must be absent, but for `may_serve_more`.
    """
    lags, totals = cluster.lags(without=without), cluster.totals(without=without)
    began_s, last = time.monotonic(), list[Page]()

    def is_right() -> bool:
        page = Page.fetch(monitor)
        last[:] = [page]
        if may_serve_more:
            return lags.items() <= page.lags.items() and totals.items() <= page.totals.items()
        withheld = len(cluster.committed) - len(lags)
        return (page.lags, page.totals, page.withheld) == (lags, totals, withheld)

    try:
        wait_until(is_right, timeout_s=timeout_s, every_s=0.2)
    except TimeoutError:
        explained = explain(monitor, last[0], lags, totals) if last else "no response"
        pytest.fail(f"after {timeout_s:g} s, without broker {without}:\n{explained}", pytrace=True)
    return time.monotonic() - began_s


def explain(monitor: Monitor, page: Page, lags: dict[Row, int], totals: dict[str, int]) -> str:
    """What differs, with the end of the log."""
    missing = sorted(lags.keys() - page.lags.keys())
    more = sorted(page.lags.keys() - lags.keys())
    wrong = {row: (page.lags[row], lag) for row, lag in lags.items() if page.lags.get(row, lag) != lag}
    wrong_totals = {
        group: (page.totals.get(group), totals.get(group))
        for group in sorted(page.totals.keys() | totals.keys())
        if page.totals.get(group) != totals.get(group)
    }
    excerpt = [line for line in page.text.splitlines() if re.match(r"koff_(up|rows|reader|end_)", line)]
    return "\n".join(
        (
            f"{len(lags)} rows expected, {len(page.lags)} served, withheld {page.withheld}",
            f"missing {len(missing)}: {missing[:8]}",
            f"served although they should not: {len(more)}: {more[:8]}",
            f"wrong (served, expected) {len(wrong)}: {dict(list(wrong.items())[:8])}",
            f"totals (served, expected): {wrong_totals}",
            f"/readyz: {monitor.get('/readyz')}",
            *excerpt,
            *monitor.text.splitlines()[-25:],
        )
    )


def wait_for_rows(monitor: Monitor, cluster: FaultCluster, broker: int) -> float:
    """Waits until exactly the rows that do not depend on the broker are served."""
    lags, began_s = cluster.lags(without=broker), time.monotonic()
    last = list[Page]()

    def are_served() -> bool:
        last[:] = [Page.fetch(monitor)]
        return last[0].lags == lags

    try:
        wait_until(are_served, every_s=0.2)
    except TimeoutError:
        pytest.fail(explain(monitor, last[0], lags, cluster.totals(without=broker)))
    return time.monotonic() - began_s


def check_lag_command(cluster: FaultCluster, broker: int) -> None:
    """`koff lag` prints all rows that do not depend on the broker, says what is missing, and ends in time.

    Groups whose partition of the offsets topic cannot be read are not in its output: it must say so.
    """
    began_s = time.monotonic()
    bootstrap = cluster.kafka.proxied_bootstrap
    result = run_koff("lag", "--brokers", bootstrap, "--format", "json", "--timeout", "8")
    took_s = time.monotonic() - began_s
    print(f"koff lag took {took_s:.1f} s, stderr: {result.stderr}")
    assert result.returncode == 4, result.stderr
    assert took_s < ENDED_S
    rows = {
        (row["group"], row["topic"], row["partition"]): row
        for row in json.loads(result.stdout)["partitions"]
        if row["group"].startswith("at-")
    }
    known = {at: row["lag"] for at, row in rows.items() if row["lag"] is not None}
    assert known == cluster.lags(without=broker), result.stderr
    reasons = {reason for row in rows.values() if row["lag"] is None for reason in row["reasons"].split()}
    assert reasons <= {"commits_not_current", "end_not_current"}
    assert all(reason in result.stderr for reason in reasons)
    assert OFFSETS_TOPIC in result.stderr, f"it does not say that groups may be missing: {result.stderr}"

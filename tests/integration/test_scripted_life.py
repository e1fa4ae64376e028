"""Dozens of groups of every kind live a life, and after each step koff tells what Kafka's own tools tell."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koff.client import ClusterConf
from koff.config import MonitorConf
from koff.kafkatest import LocalKafka, wait_until
from koff.monitor import Monitor
from koff.sampler import SamplerConf
from koff.serve import ServeConf
from tests import scripted_life as script
from tests.kafka_tools import Picture, Workbench, differences, kafkas_picture, koffs_picture
from tests.scripted_life import CONFIG, Life

pytestmark = pytest.mark.kafka

STEPS = (
    script.simple_groups_commit,
    script.members_join,
    script.members_commit_while_lag_grows,
    script.groups_rebalance,
    script.members_leave,
    script.static_members_are_away,
    script.static_members_come_back,
    script.classic_groups_are_upgraded,
    script.consumer_groups_are_downgraded,
    script.transactions_commit_and_abort,
)
NAMES = [step.__name__ for step in STEPS]
STARTS = ("replay",)
AGREEING_S = 15.0


class View:
    """A `koff.monitor.Monitor` at work in this process, started one of the ways."""

    def __init__(self, kafka: LocalKafka, start: str) -> None:
        self.start = start
        self._monitor = Monitor(
            MonitorConf(
                cluster=ClusterConf(kafka.bootstrap),
                sampler=SamplerConf(end_interval_s=0.3),
                serve=ServeConf("127.0.0.1:0"),
            )
        )
        self._running = threading.Thread(target=self._monitor.run, name=f"monitor-{start}")
        self._running.start()

    def picture(self) -> Picture:
        """What it says now, once it calls itself ready."""

        def ready() -> bool:
            assert self._running.is_alive(), "the monitor ended"
            return self._monitor.readiness().ready

        wait_until(ready, timeout_s=30, what=f"the monitor that starts by {self.start}", every_s=0.01)
        return koffs_picture(self._monitor.snapshot())

    def held_back(self) -> int:
        return self._monitor.reader_stats().held_back_records

    def stop(self) -> None:
        self._monitor.stop()
        self._running.join(10)
        assert not self._running.is_alive()


class Comparison:
    """Lives the life up to a step, each step once, and keeps how koff differed from Kafka after it."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._running = {start: View(life.kafka, start) for start in STARTS}
        self._found: dict[tuple[str, str, str], list[str]] = {}
        self._ahead = list(STEPS)
        self.pictures: dict[str, Picture] = {}
        self.took_s: dict[str, float] = {}

    def after(self, step: str, start: str, which: str) -> list[str]:
        while (step, start, which) not in self._found:
            assert self._ahead, "an earlier step did not come to its end"
            self._live(self._ahead.pop(0).__name__)
        return self._found[step, start, which]

    def _live(self, step: str) -> None:
        began = time.monotonic()
        remaining, self._ahead = self._ahead, []
        getattr(script, step)(self._life)
        lived = time.monotonic()
        self.pictures[step] = self._life.picture
        for start, view in self._running.items():
            self._found[step, start, "running"] = self._disagreement(view)
            fresh = View(self._life.kafka, start)
            try:
                self._found[step, start, "fresh"] = self._disagreement(fresh, at_once=True)
            finally:
                fresh.stop()
        self._ahead = remaining
        print(f"{step}: {lived - began:.1f} + {time.monotonic() - lived:.1f} s")

    def _disagreement(self, view: View, *, at_once: bool = False) -> list[str]:
        """What koff tells otherwise than Kafka, after a while in which it may catch up.

        Who has just called itself ready is granted none, unless Kafka itself has changed its mind.
        """
        until = time.monotonic() + AGREEING_S
        kafkas = self._life.picture
        while True:
            koffs = view.picture()
            found = differences({**kafkas, **self._life.held_back}, koffs)
            if not found or time.monotonic() > until:
                return found
            before, kafkas = kafkas, kafkas_picture(self._life.workbench)
            if at_once and before == kafkas:
                return found
            time.sleep(0.05)

    def close(self) -> None:
        for view in self._running.values():
            view.stop()


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    with LocalKafka(config=CONFIG) as kafka, Workbench(kafka) as workbench:
        life = Life(kafka, workbench)
        comparison = Comparison(life)
        try:
            yield comparison
        finally:
            comparison.close()
            life.close()


@pytest.mark.parametrize("which", ["running", "fresh"])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("step", NAMES)
def test_koff_tells_what_kafkas_own_tools_tell_after(comparison, step, start, which):
    found = comparison.after(step, start, which)
    assert not found, "\n".join([f"{len(found)} differences", *found])

"""Dozens of groups of every kind live a life, and after each step koff tells what Kafka's own tools tell."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import get_args

import pytest

from koff.client import ClusterConf
from koff.kafkatest import LocalKafka, reap, spawn, wait_until
from koff.monitor.conf import MonitorConf
from koff.monitor.core_conf import CoreConf
from koff.monitor.plan import Way
from koff.monitor.run import Monitor
from koff.view.cluster_view import ClusterView, MonitorStats
from tests import scripted_changes as changes
from tests import scripted_life as life
from tests.kafka_tools import Picture, Workbench, differences, kafkas_picture, koffs_picture
from tests.left_behind import staying
from tests.scripted_changes import STEPS

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.thorough]

NAMES = [step.__name__ for step in STEPS]
OPENED = NAMES.index(changes.a_transaction_is_left_open.__name__)
STARTS: tuple[Way, ...] = get_args(Way)
FIRST, OPEN, NOW = "at first", "while a transaction was open", "just now"
CASES = [
    (step, start, since)
    for number, step in enumerate(NAMES)
    for start in STARTS
    for since in (FIRST, OPEN, NOW)
    if since != OPEN or number >= OPENED
]
RESUMED = "resumed"
AGREEING_S = 60.0
SAVING_OFTEN = """
from koff.cli import main
from koff.monitor.duties import savings

savings.INTERVAL_S = 0.2
main()
"""


class View:
    """A `koff.monitor.run.Monitor` at work in this process, begun one of the ways."""

    def __init__(self, kafka: LocalKafka, start: Way, state_dir: Path | None) -> None:
        self.start = start
        self._monitor = Monitor(
            MonitorConf(
                cluster=ClusterConf(kafka.bootstrap),
                start=start,
                state_dir=state_dir,
                end_interval_s=0.3,
            )
        )
        self._running = threading.Thread(target=self._monitor.run, name=f"monitor-{start}")
        self._running.start()

    def picture(self) -> Picture:
        """What it says now, once it calls itself ready."""

        def view_when_ready() -> ClusterView | None:
            assert self._running.is_alive(), "the monitor ended"
            view = self._monitor.take_view()
            return view if view.readiness.ready else None

        what = f"a monitor begun by {self.start}"
        return koffs_picture(wait_until(view_when_ready, timeout_s=60, what=what, every_s=0.01).snapshot)

    def fill_back(self) -> None:
        """Returns when it knows the whole log."""
        wait_until(lambda: not self._stats.backfill_remaining, what="the backfill")

    @property
    def held_back(self) -> int:
        return self._stats.held_back_records

    @property
    def _stats(self) -> MonitorStats:
        return self._monitor.take_view().stats

    def progress(self) -> str:
        """For who wonders why it is not further."""
        return f"{self._stats.behind} offsets behind, {self._stats.held_back_records} held back"

    def stop(self) -> None:
        self._monitor.stop()
        self._running.join(60)
        assert not self._running.is_alive()


class Comparison:
    """Lives the life up to a step, each step once, and keeps how koff differed from Kafka after it."""

    def __init__(self, kafka: LocalKafka, workbench: Workbench, folder: Path) -> None:
        self.held_back: dict[str, bool] = {}
        self.pictures: dict[str, Picture] = {}
        self._kafka, self._workbench, self._folder = kafka, workbench, folder
        self._life = life.Life(kafka, workbench)
        self._life.before_the_cut = self._save
        self._ahead = list(STEPS)
        self._found: dict[tuple[str, str, str], list[str]] = {}
        self._views: dict[tuple[Way, str], View] = {}
        self._killed: subprocess.Popen[bytes] | None = None

    def after(self, step: str, start: Way, since: str) -> list[str]:
        """How what koff said after that step differed."""
        while (step, start, since) not in self._found:
            assert self._ahead, "an earlier step did not come to its end"
            with staying():
                self._live()
        return self._found[step, start, since]

    def _live(self) -> None:
        step, *remaining = self._ahead
        self._ahead = []  # unless all goes well
        if step is STEPS[0]:
            self._watch(FIRST)
        step(self._life)
        self.pictures[step.__name__] = self._life.picture
        if step is changes.a_transaction_is_left_open:
            self._watch(OPEN)
        for (start, since), view in self._views.items():
            self._found[step.__name__, start, since] = self._disagreement(view)
        self.held_back[step.__name__] = self._is_held_back(self._views["replay", FIRST])
        for start in STARTS:
            self._found[step.__name__, start, NOW] = self._begun_now(start)
        self._ahead = remaining

    def _is_held_back(self, view: View) -> bool:
        """Whether the view shows an open transaction. The view may need some time to notice a change."""
        expected = bool(self._life.held_back)
        with suppress(TimeoutError):
            wait_until(lambda: bool(view.held_back) == expected, timeout_s=AGREEING_S)
        return bool(view.held_back)

    def _watch(self, since: str) -> None:
        for start in STARTS:
            state_dir = self._folder / since.replace(" ", "-") if start == "resume" else None
            self._views[start, since] = View(self._kafka, start, state_dir)

    def _begun_now(self, start: Way) -> list[str]:
        """By resume it goes on where the one before left off, in every other step by kill -9."""
        state_dir = self._folder / RESUMED if start == "resume" else None
        if state_dir is not None:
            self._kill()
        view = View(self._kafka, start, state_dir)
        try:
            found = self._disagreement(view, at_once=True)
            view.fill_back()
            found += [f"backfilled: {line}" for line in self._disagreement(view, at_once=True)]
        finally:
            view.stop()
        if state_dir is not None and len(self.pictures) % 2 == 0:
            self._killed = self._to_be_killed(state_dir)
        return found

    def _kill(self) -> None:
        if self._killed is not None:
            assert self._killed.poll() is None, "it was to be killed, and had ended before"
            reap(self._killed)
            self._killed = None

    def _save(self) -> None:
        """Leaves a state to resume from that knows commits which the log is about to lose."""
        self._kill()
        view = View(self._kafka, "resume", self._folder / RESUMED)
        try:
            view.picture()
            view.fill_back()
        finally:
            view.stop()

    def _to_be_killed(self, state_dir: Path) -> subprocess.Popen[bytes]:
        at = ("--brokers", self._kafka.bootstrap, "--listen", "127.0.0.1:0")
        resume = ("--start", "resume", "--state-dir", str(state_dir))
        command = [sys.executable, "-c", SAVING_OFTEN, "monitor", *at, *resume]
        return spawn(command, stderr=subprocess.DEVNULL)

    def _disagreement(self, view: View, *, at_once: bool = False) -> list[str]:
        """What koff tells otherwise than Kafka, after a while in which it may catch up.

        A monitor that has just called itself ready is granted none, unless Kafka itself has changed its mind,
        or an open transaction holds commits back: then it withholds them until the coordinators respond.
        """
        until = time.monotonic() + AGREEING_S
        kafkas = self._life.picture
        while True:
            koffs = view.picture()
            found = differences(self._expected(kafkas, koffs), koffs)
            if not found:
                return []
            before, kafkas = kafkas, kafkas_picture(self._workbench)
            has_to_agree = at_once and before == kafkas and not view.held_back
            if has_to_agree or time.monotonic() > until:
                return [*found, view.progress()]

    def _expected(self, kafkas: Picture, koffs: Picture) -> Picture:
        """The log does not show what an open transaction holds back; coordinators that koff asks do."""
        expected = dict(kafkas)
        for at, old in self._life.held_back.items():
            if koffs.get(at) == expected.get(at):
                continue
            expected.pop(at, None)
            if old is not None:
                expected[at] = old
        return expected

    def close(self) -> None:
        with ExitStack() as closing:
            for view in self._views.values():
                closing.callback(view.stop)
            if self._killed is not None:
                closing.callback(reap, self._killed)
            closing.callback(self._life.close)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> Iterator[Comparison]:
    folder = tmp_path_factory.mktemp("scripted-life")
    with (
        LocalKafka(config=life.CONFIG) as kafka,
        Workbench(kafka) as workbench,
        pytest.MonkeyPatch.context() as patched,
    ):
        # 5 intervals of 0.3 s would hide rows while the machine is busy.
        patched.setattr(CoreConf, "limit_s", property(lambda conf: 20 * conf.end_interval_s))
        comparison = Comparison(kafka, workbench, folder)
        try:
            yield comparison
        finally:
            comparison.close()


@pytest.mark.parametrize(("step", "start", "since"), CASES)
def test_a_monitor_tells_what_kafkas_own_tools_tell_after(comparison, step, start, since):
    found = comparison.after(step, start, since)
    assert not found, "\n".join([f"{len(found)} differences", *found])


def test_these_are_dozens_of_groups_of_every_kind_in_every_state(comparison):
    """So that what is compared is not nothing."""
    comparison.after(NAMES[-1], STARTS[-1], NOW)
    facts = [item for picture in comparison.pictures.values() for item in picture.items()]

    def told(what: str) -> set[str]:
        return {value for at, value in facts if at.endswith(f" {what}")}

    assert max(sum(at.endswith(" type") for at in picture) for picture in comparison.pictures.values()) >= 36
    assert told("type") == {"Classic", "Consumer", "Share", "Streams"}
    assert told("state") == {"Empty", "Stable", "Reconciling"}
    assert {"0", "1", "2", "3"} <= told("members")
    assert {"range", "cooperative-sticky", "uniform", "-"} <= told("assignor")
    assert {"one", "two", "three", "four", "five", "-"} <= told("instance")
    assert {"0", "15", "-"} < told("lag")


def test_an_open_transaction_is_reported_until_it_ends(comparison):
    comparison.after(NAMES[-1], STARTS[-1], NOW)
    held_back = comparison.held_back
    assert [step for step in NAMES if held_back[step]] == [changes.a_transaction_is_left_open.__name__]


@pytest.mark.parametrize("place", [0, -1])
def test_every_changed_missing_and_added_fact_is_reported(comparison, place):
    comparison.after(NAMES[0], STARTS[0], FIRST)
    picture = comparison.pictures[NAMES[0]]
    at = sorted(picture)[place]
    without = {each: value for each, value in picture.items() if each != at}
    assert differences(picture, picture) == []
    assert differences(picture, {**picture, at: "other"}) == [f"{at}: Kafka {picture[at]}, koff other"]
    assert differences(picture, without) == [f"{at}: Kafka {picture[at]}, koff says nothing"]
    assert differences(without, picture) == [f"{at}: Kafka says nothing, koff {picture[at]}"]

"""Groups that keep their habits, on a cluster in virtual time, and koff's verdicts on them.

The groups are those of `koff demo`, one that has nothing to read, and one that has much to read. Processes
may be frozen, as by SIGSTOP: koff and brokers. koff judges every `look_s`. What it shows is noted once
`watch` was called.
"""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from koff.lag.verdict import Verdict
from koff.monitor.core import Core
from koff.monitor.core_conf import CoreConf
from koff.monitor.moment import Moment
from koff.monitor.requests import Input
from koff.serve.events.changes import ClusterChanges, look_at
from koff.view.cluster_view import ClusterView
from tests.simulation.catalog import BROKER_KINDS
from tests.simulation.cluster import Cluster
from tests.simulation.conditions import Conditions, Disturbance
from tests.simulation.disk import Disk
from tests.simulation.facts import Commit, Fact
from tests.simulation.logs import PlainLog
from tests.simulation.network import Network

TOPIC, PARTITIONS, STUCK_AT = "orders", 4, 2
RARE_TOPIC, LONG_TOPIC = "rare", "long"
PRODUCE_S, PRODUCED = 0.2, 4
"""So many records are written to each partition of `TOPIC` so often."""
READ_S = 0.3
"""A group that keeps up has read what was written so long ago."""
SLOW_PER_S = 2
"""So many records of each partition a second reads the group that falls behind: a tenth."""
BACKLOG, FAST_PER_S = 1_000_000, 200
"""So many records the group that catches up had to read. It reads ten times as fast as records come."""
LOOK_S = 5.0
STOPS_S = 40.0
"""When one group stops. The records of `RARE_TOPIC` are older."""

Habit = Literal["keeps-up", "catches-up", "idle", "falls-behind", "stuck", "stopped"]
HEALTHY: tuple[Habit, ...] = ("keeps-up", "catches-up", "idle")
IN_TROUBLE: tuple[Habit, ...] = ("falls-behind", "stuck", "stopped")


@dataclass(frozen=True, slots=True)
class Shown:
    """The verdict on a group in a view."""

    at_s: float
    group: str
    verdict: Verdict


class SteadyGroups:
    """A cluster with one group of each habit, and koff's core."""

    def __init__(
        self,
        seed: int,
        *,
        end_interval_s: float,
        commit_s: float,
        trouble_s: float = 0.0,
        look_s: float = LOOK_S,
        **conf: Any,
    ) -> None:
        """Until `trouble_s`, the groups of `IN_TROUBLE` keep up. `conf` is that of the core."""
        self._rng = rng = random.Random(seed)
        self._trouble_s = trouble_s
        self._cluster = Cluster(random.Random(rng.getrandbits(64)))
        self._cluster.stop_lives()
        self._cluster.create_topic(TOPIC, PARTITIONS)
        self._cluster.create_topic(RARE_TOPIC, 1)
        self._cluster.create_topic(LONG_TOPIC, 1)
        self._conditions = Conditions(random.Random(rng.getrandbits(64)))
        self._disk = Disk(random.Random(rng.getrandbits(64)))
        self._network = Network(
            self._cluster, random.Random(rng.getrandbits(64)), self._conditions, self._disk, self._now
        )
        self._frozen: set[int] = set()
        self._unwritten = {(TOPIC, number): 0 for number in range(PARTITIONS)} | {(LONG_TOPIC, 0): BACKLOG}
        self._commit_s, self._look_s = commit_s, look_s
        for habit in (*HEALTHY, *IN_TROUBLE):
            self._cluster.after(rng.uniform(0.0, commit_s), partial(self._commit, habit))
        self._cluster.after(0.0, self._produce)
        given = CoreConf(**{"end_interval_s": end_interval_s, "source": "log", "start": "replay", **conf})
        self._core, self._due_s = Core(given, self._now()), 0.0
        self.shown: list[Shown] = []
        self.incidents: list[tuple[str, str]] = []
        """Group and kind of each event of an incident."""
        self._changes, self._look_due_s = ClusterChanges(), 0.0
        self._is_watched = False
        self._handle(None)

    def close(self) -> None:
        """Removes the files of the run."""
        self._disk.close()

    # --- What tests do ------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Looks at all that koff shows from now on."""
        self._is_watched = True
        self._look()

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        until_s = self._cluster.now + seconds
        while self._cluster.now < until_s:
            own_s = self._due_s + 1e-6
            events = (self._cluster.next_event_s(), self._network.next_event_s(), own_s, until_s)
            self._cluster.advance(max(self._cluster.now, min(events)))
            self._go_on()

    def freeze_koff(self, seconds: float, *, is_network_frozen: bool) -> None:
        """Freezes koff. With `is_network_frozen` it has read nothing meanwhile, else all of it is queued."""
        until_s = self._cluster.now + seconds
        while self._cluster.now < until_s:
            network_s = float("inf") if is_network_frozen else self._network.next_event_s()
            at_s = min(self._cluster.next_event_s(), network_s, until_s)
            self._cluster.advance(max(self._cluster.now, at_s))
            if not is_network_frozen:
                self._network.advance(self._cluster.now)
        if self._rng.random() < 0.5:  # the loop may wake before the workers do
            self._handle(None)
        self._go_on()

    def later(self, seconds: float, happen: Callable[[], None]) -> None:
        """Lets something happen in so many seconds, also while koff is frozen."""
        self._cluster.after(seconds, happen)

    def write_rare_records(self) -> None:
        """Writes what the idle group has waited for. The group reads it all before its next commit."""
        log = self._logs(RARE_TOPIC)[0]
        log.write(10, self._cluster.wall_ms())
        self._cluster.truth.set_end(RARE_TOPIC, 0, self._cluster.now, log.end)

    def list_brokers(self) -> list[int]:
        """The brokers of the cluster."""
        return sorted(self._cluster.brokers)

    def freeze_brokers(self, brokers: Collection[int]) -> None:
        """Freezes brokers. They remain the leaders: nobody can write to what they lead."""
        self._frozen.update(brokers)
        self.hide_brokers(brokers)

    def hide_brokers(self, brokers: Collection[int]) -> None:
        """Lets koff reach these brokers no more."""
        self._conditions.disturbances += [Disturbance("silent", BROKER_KINDS, each) for each in brokers]

    def show_brokers(self) -> None:
        """Ends what `freeze_brokers` and `hide_brokers` did."""
        self._frozen.clear()
        self._conditions.disturbances.clear()

    # --- The cluster --------------------------------------------------------------------------------------

    def _logs(self, topic: str = TOPIC) -> list[PlainLog]:
        return [log for log in self._cluster.topics[topic].partitions if isinstance(log, PlainLog)]

    def _produce(self) -> None:
        for topic, number in self._unwritten:
            log = self._logs(topic)[number]
            self._unwritten[topic, number] += PRODUCED
            if log.leader not in self._frozen:
                log.write(self._unwritten[topic, number], self._cluster.wall_ms())
                self._cluster.truth.set_end(topic, number, self._cluster.now, log.end)
                self._unwritten[topic, number] = 0
        self._cluster.after(PRODUCE_S, self._produce)

    def _commit(self, habit: Habit) -> None:
        now_s = self._cluster.now
        if habit == "stopped" and now_s >= max(STOPS_S, self._trouble_s):
            return
        if habit == "idle" and now_s < STOPS_S:
            self.write_rare_records()
        leader, _ = self._cluster.coordinator(habit)
        if leader not in self._frozen:
            self._cluster.write(habit, self._list_commits(habit))
        self._cluster.after(self._commit_s, partial(self._commit, habit))

    def _list_commits(self, habit: Habit) -> list[Fact]:
        if habit == "idle":
            return [Commit(habit, RARE_TOPIC, 0, self._logs(RARE_TOPIC)[0].end)] if self._is_behind() else []
        if habit == "catches-up":
            return [Commit(habit, LONG_TOPIC, 0, round(self._cluster.now * FAST_PER_S))]
        return [
            Commit(habit, TOPIC, number, self._find_position(habit, number, log))
            for number, log in enumerate(self._logs())
        ]

    def _is_behind(self) -> bool:
        committed = self._cluster.committed("idle").get((RARE_TOPIC, 0))
        return committed != self._logs(RARE_TOPIC)[0].end

    def _find_position(self, habit: Habit, number: int, log: PlainLog) -> int:
        found = log.offset_at_time(self._cluster.wall_ms() - round(READ_S * 1000))
        read = log.end if found < 0 else found
        troubled_s = self._cluster.now - self._trouble_s
        at_first = round(self._trouble_s * PRODUCED / PRODUCE_S)
        if habit == "stuck" and number == STUCK_AT:
            return min(read, at_first)
        return min(read, at_first + round(troubled_s * SLOW_PER_S)) if habit == "falls-behind" else read

    def _show(self, view: ClusterView) -> None:
        """koff shows that view."""

    # --- koff ---------------------------------------------------------------------------------------------

    def _now(self) -> Moment:
        return Moment(self._cluster.now, self._cluster.wall_ms(), "boot")

    def _go_on(self) -> None:
        for given in self._network.receive(self._cluster.now):
            self._handle(given)
        if self._cluster.now >= self._due_s:
            self._handle(None)

    def _handle(self, given: Input | None) -> None:
        requests = self._core.handle(given, self._now())
        self._due_s = self._core.next_due_s()
        self._network.send(requests, self._cluster.now)
        if self._cluster.now >= self._look_due_s:
            self._look_due_s = self._cluster.now + self._look_s
            self._look()

    def _look(self) -> None:
        now = self._now()
        view = self._core.take_view(now)
        if view.cluster is None:
            return
        view, events = look_at(view, self._changes, now.wall_ms)
        self._show(view)
        self.incidents += [
            (each.group or "", each.kind) for each in events if each.kind.startswith("incident_")
        ]
        for shard in view.snapshot.shards.values() if self._is_watched else ():
            verdicts = view.snapshot.find_verdicts(shard).verdict.tolist()
            for group, verdict in zip(shard.groups, verdicts, strict=True):
                if group.name in HEALTHY + IN_TROUBLE:
                    self.shown.append(Shown(now.at_s, group.name, Verdict(verdict)))

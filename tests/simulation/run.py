"""One seeded run: a cluster, koff's core, a fault plan, in virtual time."""

import math
import random
import time
import traceback
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

from koff.monitor.core import Core
from koff.monitor.core_conf import CoreConf
from koff.monitor.duties.groups import GroupsFetched
from koff.monitor.duties.loading import Loaded
from koff.monitor.duties.topics import TopicsFetched
from koff.monitor.moment import Moment
from koff.monitor.plan import Source
from koff.monitor.requests import Command, Failed, Input, ReadFailed
from tests.simulation.cluster import OFFSETS, SHARE_STATE, Cluster
from tests.simulation.conditions import Conditions
from tests.simulation.contract import ContractBroken, check, check_not_hidden, check_recovered
from tests.simulation.disk import Disk
from tests.simulation.faults import FaultPlan
from tests.simulation.network import Network

RECOVERY_S = 60.0
"""How long koff may take until everything is right again."""
SPINS = 10_000
"""So many steps at one moment: the core asks for the same thing again and again."""
RESOLUTION_S = 1e-6
SMALL_SKEW_S = 1.0
"""A difference between the clocks of koff and the brokers that hardly matters."""

CAUTIONARY = (Failed, GroupsFetched, Loaded, ReadFailed, TopicsFetched)
"""After such inputs, mistakes show soon if at all."""

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """How a run went. `broken` is "" if the contract was kept, `kinds` are the classes of `faults`.

    `checks` counts the views that were checked, `served` the lags in them, `starts` those of koff.
    """

    seed: int
    broken: str
    at_s: float
    faults: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    steps: int = 0
    checks: int = 0
    served: int = 0
    starts: int = 0
    cpu_s: float = 0.0


def run(seed: int, *, log: Log | None = None, make_core: Callable[[CoreConf, Moment], Core] = Core) -> Result:
    """Runs one seed. `log` gets a line for whatever happens. The same seed gives the same run."""
    began_s = time.process_time()
    simulation = Simulation(seed, log, make_core)
    broken = ""
    try:
        simulation.run()
    except ContractBroken as error:
        broken = str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        broken = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
        if log is not None:
            log(traceback.format_exc())
    finally:
        simulation.close()
    return replace(simulation.result(), broken=broken, cpu_s=time.process_time() - began_s)


class KoffClock:
    """The clocks of koff's machine: one steps, the other counts from the boot."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.skew_s = rng.choice([0.0, 0.0, 0.0, 0.7, -0.7, 90.0, -90.0, 7_200.0])
        self._has_boot_id = rng.random() < 0.8
        self._boots = 0
        self._offset_s = 0.0
        self.boot()

    def boot(self) -> None:
        """The machine starts."""
        self._boots += 1
        self._offset_s = self._rng.uniform(0.0, 1e6) - self._cluster.now

    def read(self) -> Moment:
        """The present moment."""
        wall_ms = self._cluster.wall_ms() + round(self.skew_s * 1000)
        return Moment(self.at_s(), wall_ms, f"boot-{self._boots}" if self._has_boot_id else "")

    def at_s(self) -> float:
        """The clock that never steps."""
        return self._cluster.now + self._offset_s

    def to_virtual_s(self, at_s: float) -> float:
        """The virtual time of that moment by the clock that never steps."""
        return at_s - self._offset_s


class Simulation:
    """One run. It is koff's process, too: the fault plan kills it, and steps its clock."""

    def __init__(self, seed: int, log: Log | None, make_core: Callable[[CoreConf, Moment], Core]) -> None:
        self.seed = seed
        self._log = log
        self._make_core = make_core
        # Each part has its own generator: more faults must not change what the groups do.
        rng = random.Random(seed)
        self._rng = random.Random(rng.getrandbits(64))
        self._cluster = Cluster(random.Random(rng.getrandbits(64)))
        self._conditions = _draw_conditions(random.Random(rng.getrandbits(64)))
        self._conf = _draw_conf(self._rng, self._cluster.cluster_id)
        self._conditions.follower_s = self._conf.end_interval_s / 2
        # A short delete.retention.ms: koff may be down, or behind, for longer than tombstones are kept.
        if self._rng.random() < 0.25:
            self._cluster.retention_ms = self._rng.choice([20_000, 40_000])
        self._cluster.advance(self._rng.choice([0.0, 5.0, 30.0]))
        self._clock = KoffClock(self._cluster, self._rng)
        self._disk = Disk(random.Random(rng.getrandbits(64)))
        self._network = Network(
            self._cluster,
            random.Random(rng.getrandbits(64)),
            self._conditions,
            self._disk,
            self._clock.read,
        )
        self._core: Core | None = None
        self._skew_s = 0.0  # that of koff's clock when koff started
        self._start_at_s = self._started_s = self._cluster.now
        since_s = self._cluster.now + self._rng.choice([0.0, 0.0, 20.0])
        self._plan = FaultPlan(
            random.Random(rng.getrandbits(64)),
            self._cluster,
            self._conditions,
            self._disk,
            self,
            since_s,
            since_s + self._rng.choice([20.0, 50.0, 100.0]),
        )
        # How often is checked must not change what happens.
        self._check_rng = random.Random(rng.getrandbits(64))
        self._check_interval_s = self._check_rng.choice([4.0, 8.0, 16.0])
        self._due_s = math.inf
        self._next_check_s = 0.0
        self._rests = self._rng.random() < 0.5
        self._choose_rights(random.Random(rng.getrandbits(64)))
        self._ever_denied: set[str] = set()
        self._steps = self._checks = self._served = self._starts = 0

    def _choose_rights(self, rng: random.Random) -> None:
        """In some runs, koff may never describe the offsets topic. Some read few first records."""
        if self._conf.source != "log" and rng.random() < 0.04:
            self._conditions.hidden_topics = frozenset({OFFSETS})
        if self._conf.source != "log" and random.Random(self.seed).random() < 0.06:
            self._conditions.hidden_topics |= {SHARE_STATE}
        if rng.random() < 0.2:
            per_s = rng.choice([1, 50, 50, None])
            self._conf = replace(self._conf, records_per_s=per_s)

    def close(self) -> None:
        """Removes what the run wrote to the disk."""
        self._disk.close()

    def result(self) -> Result:
        """How the run went, so far."""
        return Result(
            self.seed,
            "",
            self._cluster.now,
            tuple(drawn.fault.name for drawn in self._plan.faults),
            tuple(drawn.kind for drawn in self._plan.faults),
            self._steps,
            self._checks,
            self._served,
            self._starts,
        )

    def run(self) -> None:
        """Runs until a minute after the last fault. Raises `ContractBroken`."""
        end_s = self._plan.until_s + RECOVERY_S
        self._note(f"{self._conf}")
        self._note(f"faults until {self._plan.until_s:.3f}")
        rest_s = self._plan.until_s + RECOVERY_S / 2 if self._rests else math.inf
        while self._cluster.now < end_s:
            self._step(min(end_s, rest_s))
            if self._cluster.now >= rest_s:
                self._cluster.stop_lives()
                self._note("the cluster rests")
                rest_s = math.inf
        self._check_recovered()

    # --- koff's process, for the fault plan ----------------------------------------------------------------

    def kill(self, down_s: float, *, reboot: bool) -> None:
        """Kills koff; it is started again before the end of all faults."""
        if self._core is not None and self._rng.random() < 0.3:  # it is asked to stop, and gets the time
            for request in self._core.stop(self._clock.read()):
                self._disk.write(request)  # type: ignore[arg-type]  # it only writes when it stops
        self._core = None
        self._network.restart()
        self._start_at_s = min(self._cluster.now + down_s, self._plan.until_s)
        if reboot:
            self._clock.boot()

    def step_clock(self, seconds: float) -> None:
        """Steps koff's wall clock."""
        self._clock.skew_s += seconds

    # --- Steps ------------------------------------------------------------------------------------------

    def _step(self, at_most_s: float) -> None:
        """Goes on to the next moment at which something happens to koff."""
        own_s = min(at_most_s, self._next_own_event_s())
        now_s = self._next_moment_s(own_s)
        # koff does not notice yet most of what happens in the network. Its clock is rounded otherwise.
        while now_s < own_s - 2 * RESOLUTION_S and not self._network.has_arrived:
            self._cluster.advance(now_s)
            self._network.advance(now_s)
            if not self._network.has_arrived:
                now_s = self._next_moment_s(own_s)
        spins = self._steps
        self._cluster.advance(now_s)
        happened = self._plan.advance(now_s)
        self._ever_denied |= self._conditions.denied_topics
        for name in happened:
            self._note(name)
        if happened:
            self._next_check_s = min(self._next_check_s, now_s)
        if self._core is None and now_s >= self._start_at_s:
            self._start()
        for given in self._network.receive(now_s):
            self._handle(given)
        while self._core is not None and self._clock.at_s() >= self._due_s:
            self._handle(None)
            if self._steps - spins > SPINS:
                raise ContractBroken(f"the core is due all the time: {self._due_s}")
        if self._core is not None and now_s >= self._next_check_s:
            self._check()

    def _next_moment_s(self, own_s: float) -> float:
        return max(self._cluster.now, min(own_s, self._network.next_event_s()))

    def _next_own_event_s(self) -> float:
        """When something happens next, but for what happens in the network."""
        if self._core is None:
            return min(self._plan.next_event_s(), self._start_at_s)
        due_s = self._clock.to_virtual_s(self._due_s) + RESOLUTION_S
        return min(self._plan.next_event_s(), due_s, self._next_check_s)

    def _start(self) -> None:
        self._starts += 1
        self._started_s = self._cluster.now
        self._note("koff starts")
        self._skew_s = self._clock.skew_s
        self._core = self._make_core(self._conf, self._clock.read())
        self._handle(None)

    def _handle(self, given: Input | None) -> None:
        assert self._core is not None
        self._steps += 1
        if given is not None and self._log is not None:
            self._note(f"  > {_shorten(given)}")
        requests: Sequence[Command] = self._core.handle(given, self._clock.read())
        self._due_s = self._core.next_due_s()
        if self._log is not None:
            for event in self._core.take_events():
                self._note(f"  * {event.text} {dict(event.details)}")
            for request in requests:
                self._note(f"  < {_shorten(request)}")
        self._network.send(requests, self._cluster.now)
        if isinstance(given, CAUTIONARY) and self._check_rng.random() < 0.2:
            self._next_check_s = min(
                self._next_check_s, self._cluster.now + self._check_rng.choice([0.0, 0.5, 2.0])
            )

    # --- Checks -----------------------------------------------------------------------------------------

    def _check(self) -> None:
        assert self._core is not None
        now_s = self._cluster.now
        # Most that can go wrong goes wrong while something is wrong.
        mean_s = self._check_interval_s if now_s < self._plan.until_s else 3 * self._check_interval_s
        self._next_check_s = now_s + self._check_rng.expovariate(1.0 / mean_s)
        self._checks += 1
        limit_s = self._conf.limit_s + RESOLUTION_S + self._conditions.old_end_age_s
        view = self._core.take_view(self._clock.read())
        # The totals take as long as all the rest.
        rows = check(
            view,
            self._cluster,
            now_s,
            limit_s,
            with_totals=self._checks % 3 == 0,
            knows_clock=self._knows_clock(self._core),
            hidden_topics=self._ever_denied | self._conditions.hidden_topics,
        )
        self._served += sum(row.lag is not None for row in rows)
        # A failure hides only what depends on it, once koff has found its feet.
        if view.readiness.ready and now_s >= self._started_s + RECOVERY_S:
            hides = self._plan.hides(now_s, RECOVERY_S)
            if hides is not None:
                settled_s = self._conf.limit_s
                check_not_hidden(
                    rows,
                    self._cluster,
                    now_s,
                    settled_s,
                    lambda row: any(hide(row) for hide in hides),
                    knows_clock=self._knows_clock(self._core),
                )
        if self._core.skipped:
            raise ContractBroken(f"inputs were skipped: {dict(self._core.skipped)}")

    def _check_recovered(self) -> None:
        if self._core is None:
            raise ContractBroken("koff was not started again")
        self._check()
        view = self._core.take_view(self._clock.read())
        # At rest, what is served is exactly what is true. Else it is as old as samples may be.
        settled_s = 0.0 if self._rests else self._conf.limit_s
        check_recovered(
            view,
            self._cluster,
            self._cluster.now,
            settled_s,
            knows_clock=self._knows_clock(self._core),
            knows_ids=self._conf.source != "coordinators" and OFFSETS not in self._conditions.hidden_topics,
            other_topics=self._list_other_topics(),
        )

    def _list_other_topics(self) -> set[str]:
        """The topics whose end offsets koff has to serve, whether groups read them or not."""
        if not self._conf.watches_all:
            return set()
        hidden = {OFFSETS, SHARE_STATE} | self._conditions.hidden_topics
        return {topic for topic, _ in self._cluster.truth.partitions()} - hidden

    def _knows_clock(self, core: Core) -> bool:
        """Whether koff's clock was right, or koff could see that it is not: from the times of commits."""
        return core.tracker.is_skew_known or abs(self._skew_s) <= SMALL_SKEW_S

    def _note(self, text: str) -> None:
        if self._log is not None:
            self._log(f"{self._cluster.now:9.3f} {text}")


def _draw_conditions(rng: random.Random) -> Conditions:
    return Conditions(
        rng,
        latency_s=rng.choice([0.005, 0.03, 0.05, 0.3]),
        poll_interval_s=rng.choice([0.1, 0.3, 0.5, 1.0]),
        old_end_age_s=rng.choice([0.0, 0.0, 1.0, 3.0]),
    )


def _draw_conf(rng: random.Random, cluster_id: str) -> CoreConf:
    return CoreConf(
        cluster_id=cluster_id,
        start=rng.choice(["snapshot", "replay", "resume", "resume"]),
        source=_draw_source(rng),
        saves=rng.random() < 0.7,
        end_interval_s=rng.choice([1.0, 5.0, 5.0, 5.0, 5.0, 10.0]),
        watches_all=copy(rng).random() < 0.3,  # of a copy: a seed stays what it was
    )


def _draw_source(rng: random.Random) -> Source:
    sources: list[Source] = ["auto", "log", "coordinators"]
    return rng.choices(sources, [6, 3, 1])[0]


def _shorten(what: object) -> str:
    text = repr(what)
    return text if len(text) < 300 else f"{text[:300]}..."

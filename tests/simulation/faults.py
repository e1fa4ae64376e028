"""The fault plan of a run: which faults come when, and that all of them end."""

import math
import random
from dataclasses import dataclass

from tests.simulation.catalog import Action, Catalog, Fault, Hides, Process
from tests.simulation.cluster import Cluster
from tests.simulation.conditions import Conditions
from tests.simulation.disk import Disk

COUNTS = {0: 6, 1: 18, 2: 22, 3: 20, 4: 16, 5: 10, 6: 8}
"""How many faults a run has, with weights."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the plan does at a moment."""

    at_s: float
    name: str
    action: Action


@dataclass(frozen=True, slots=True)
class Drawn:
    """A fault of the plan, with its class and when it begins and ends."""

    kind: str
    fault: Fault
    start_s: float
    end_s: float


class FaultPlan:
    """The faults of one run, between two moments. After `until_s` nothing is wrong any more."""

    def __init__(
        self,
        rng: random.Random,
        cluster: Cluster,
        conditions: Conditions,
        disk: Disk,
        process: Process,
        since_s: float,
        until_s: float,
    ) -> None:
        self.until_s = until_s
        catalog = Catalog(rng, cluster, conditions, disk, process)
        weights = catalog.weights()
        self.faults: list[Drawn] = []
        for _ in range(rng.choices(list(COUNTS), list(COUNTS.values()))[0]):
            make = rng.choices(list(weights), list(weights.values()))[0]
            start_s = rng.uniform(since_s, until_s)
            # Short, long, and so long that whatever koff knows grows too old.
            end_s = min(start_s + rng.choice([0.5, 3.0, 12.0, 40.0, 90.0]) * rng.uniform(0.5, 1.5), until_s)
            self.faults.append(Drawn(make.__name__, make(), start_s, end_s))
        self._events = [Event(until_s, "the end of all faults", catalog.heal)]
        for drawn in self.faults:
            self._events.append(Event(drawn.start_s, f"+ {drawn.fault.name}", drawn.fault.begin))
            self._events.append(Event(drawn.end_s, f"- {drawn.fault.name}", drawn.fault.end))
        self._events.sort(key=lambda event: event.at_s)

    def next_event_s(self) -> float:
        """When the next fault begins or ends."""
        return self._events[0].at_s if self._events else math.inf

    def advance(self, now_s: float) -> list[str]:
        """Begins and ends faults. Returns the names of what happened."""
        happened = []
        while self._events and self._events[0].at_s <= now_s:
            event = self._events.pop(0)
            event.action()
            happened.append(event.name)
        return happened

    def hides(self, now_s: float, recovery_s: float) -> list[Hides] | None:
        """What koff may withhold because of faults that last, or ended at most `recovery_s` ago.

        None: there is a fault for which it may withhold any row.
        """
        present = [
            drawn.fault.hides for drawn in self.faults if drawn.start_s <= now_s <= drawn.end_s + recovery_s
        ]
        hides = [hide for hide in present if hide is not None]
        # Two faults together may hide what none of them hides alone.
        return hides if len(hides) == len(present) <= 1 else None

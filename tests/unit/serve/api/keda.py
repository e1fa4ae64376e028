"""A stand-in for KEDA's metrics-api scaler and the autoscaler (HPA) that it makes, in virtual time.

By KEDA's documentation and sources (metrics_api_scaler.go, scale_scaledobjects.go): a response other than 200
is an error of the trigger, and then nothing is scaled. A value above 0 activates from 0 to 1 replica; a value
of 0 goes back to 0 after the cooldown. In between, the HPA wants ceil(value / target) replicas, within a
tolerance of a tenth; it goes up by the larger of 4 pods and 100 % each 15 s, and down to the most that it
wanted in the last five minutes.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

SYNC_S, POLLING_S, COOLDOWN_S, STABILIZATION_S = 15, 30, 300, 300
TOLERANCE = 0.1


@dataclass
class Keda:
    """Scales a deployment by `fetch`, which returns a value, or None for an error. Call `look` each 15 s."""

    fetch: Callable[[], float | None]
    most: int = 20
    target: float = 1.0
    replicas: int = 0
    changes: list[tuple[int, int]] = field(default_factory=list)
    """When the number of replicas changed, and to what."""
    _active_s: int = -COOLDOWN_S
    _wanted: deque[tuple[int, int]] = field(default_factory=deque)

    def look(self, now_s: int) -> None:
        before = self.replicas
        if now_s % POLLING_S == 0:
            self._activate(now_s)
        if now_s % SYNC_S == 0 and self.replicas:
            self._scale(now_s)
        if self.replicas != before:
            self.changes.append((now_s, self.replicas))

    def _activate(self, now_s: int) -> None:
        value = self.fetch()
        if value is None:
            return
        if value > 0:
            self._active_s = now_s
            self.replicas = max(self.replicas, 1)
        elif now_s >= self._active_s + COOLDOWN_S:
            self.replicas = 0
            self._wanted.clear()

    def _scale(self, now_s: int) -> None:
        value = self.fetch()
        if value is None:
            return
        ratio = value / self.target / self.replicas
        wanted = self.replicas if abs(ratio - 1) <= TOLERANCE else math.ceil(value / self.target)
        wanted = min(max(wanted, 1), self.most)
        self._wanted.append((now_s, wanted))
        while self._wanted[0][0] <= now_s - STABILIZATION_S:
            self._wanted.popleft()
        if wanted > self.replicas:
            self.replicas = min(wanted, max(2 * self.replicas, self.replicas + 4))
        else:
            self.replicas = min(self.replicas, max(each for _, each in self._wanted))

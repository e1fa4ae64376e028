"""The incidents of a cluster: what became of each group that was late, from the beginning to the end."""

import hashlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from koff.lag.group_verdicts import Judgement
from koff.lag.late_causes import Cause
from koff.lag.verdict import IncidentChange, Verdict
from koff.lag.verdict_sample import Floats
from koff.tracker import Group

MOST_PAST, MOST_STEPS = 1000, 20
"""So many incidents that have ended are kept, and so many steps of each."""
_KEY_CHARACTERS = 200
_MOST = 2.0**62  # offsets that a client made up may have a larger sum


def build_key(*parts: str) -> str:
    """A key of at most 255 characters, as services for alerts take it."""
    key = "/".join(parts)
    if len(key) <= _KEY_CHARACTERS:
        return key
    return f"{key[:_KEY_CHARACTERS]}-{hashlib.sha256(key.encode(errors='replace')).hexdigest()[:32]}"


class Step(NamedTuple):
    """A change of an incident: its verdict or its first cause became this."""

    at_ms: int
    verdict: str
    cause: str
    text: str


@dataclass(slots=True)
class Incident:
    """The incident of a group. `closed_ms` is None as long as it lasts.

    `worst` is the worst verdict, `cause` the present first cause. `lag` and `time_lag_s` are the largest
    (whole numbers). `records_lost` is how many offsets left the log before the group had committed them: at
    least so many.
    """

    key: str
    group: str
    opened_ms: int
    closed_ms: int | None = None
    worst: Verdict = Verdict.OK
    cause: Cause = Cause.NONE
    lag: int = 0
    time_lag_s: int = 0
    records_lost: int = 0
    steps: list[Step] = field(default_factory=list)

    @property
    def duration_s(self) -> float | None:
        """How long it lasted; None if it is open."""
        return None if self.closed_ms is None else max(0, self.closed_ms - self.opened_ms) / 1000

    def note(self, step: Step) -> None:
        """Adds a step. Of too many, the first and the newest stay."""
        self.steps.append(step)
        if len(self.steps) > MOST_STEPS:
            del self.steps[1]

    def save(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def restore(cls, saved: Mapping[str, Any]) -> Self:
        """What `save` returned. Raises `LookupError`, `TypeError` or `ValueError` if it is damaged."""
        closed_ms = saved["closed_ms"]
        return cls(
            str(saved["key"]),
            str(saved["group"]),
            int(saved["opened_ms"]),
            None if closed_ms is None else int(closed_ms),
            Verdict(saved["worst"]),
            Cause(saved["cause"]),
            int(saved["lag"]),
            int(saved["time_lag_s"]),
            int(saved["records_lost"]),
            [Step(int(at_ms), *map(str, texts)) for at_ms, *texts in saved["steps"]],
        )


def _round(values: Floats) -> NDArray[np.int64]:
    return np.nan_to_num(np.minimum(values, _MOST)).round().astype(np.int64)


class Told(NamedTuple):
    """What became of an incident at one look: of the group with this number in the shard."""

    number: int
    incident: Incident
    change: IncidentChange


class IncidentLog:
    """The incidents of one cluster. One thread changes it, any reads it."""

    def __init__(self) -> None:
        self.open: dict[str, Incident] = {}
        """By group."""
        self.past: deque[Incident] = deque(maxlen=MOST_PAST)

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Takes over what `list_all` returned, unless it has incidents already."""
        if not self.open and not self.past:
            for each in reversed(list(incidents)):
                if each.closed_ms is None:
                    self.open[each.group] = each
                else:
                    self.past.append(each)

    def list_all(self) -> list[Incident]:
        """All incidents: those that last first, then the newest first."""
        newest = sorted(self.open.values(), key=lambda each: -each.opened_ms)
        return newest + list(self.past)[::-1]

    def follow(
        self,
        cluster: str,
        groups: Sequence[Group],
        judged: Judgement,
        lags: Floats,
        lost: Floats,
        now_ms: int,
    ) -> Iterator[Told]:
        """Takes over the judgement on the groups of a shard. Returns what has become of incidents.

        A change that is `NONE` is another first cause. `lags` are those of the groups (G,), NaN where
        unknown, and `lost` is how many of these offsets are below the log start.
        """
        is_open = ~np.isnan(judged.since_s)
        numbers = np.flatnonzero(is_open)
        columns = (judged.verdict, judged.cause, _round(lags), _round(lost), _round(judged.late_most_s))
        rows = zip(numbers.tolist(), *(column[numbers].tolist() for column in columns), strict=True)
        # There may be thousands, so no more is done of each than is needed.
        for number, verdict, cause, lag, lost_records, late_s in rows:
            name = groups[number].name
            incident, change = self.open.get(name), IncidentChange.NONE
            if incident is None:
                change = IncidentChange.OPENED
                incident = Incident(build_key(cluster, "incident", name), name, now_ms)
                self.open[name] = incident
            elif verdict == Verdict.ERR and incident.worst < Verdict.ERR:
                change = IncidentChange.RAISED
            if verdict > incident.worst:
                incident.worst = Verdict(verdict)
            incident.lag = max(incident.lag, lag)
            incident.records_lost = max(incident.records_lost, lost_records)
            incident.time_lag_s = max(incident.time_lag_s, late_s)
            if change or cause not in (Cause.NONE, incident.cause):
                incident.cause = Cause(cause)
                yield Told(number, incident, change)
        if not self.open:
            return
        for number, group in enumerate(groups):
            # The judge may have started again: then it does not know the incident.
            if group.name in self.open and not is_open[number] and judged.verdict[number] == Verdict.OK:
                yield Told(number, self._close(group.name, now_ms), IncidentChange.CLOSED)

    def close_missing(self, present: Collection[str], now_ms: int) -> list[Incident]:
        """Ends the incidents of all other groups: they were deleted, or are not shown any more."""
        return [self._close(name, now_ms) for name in self.open.keys() - present]

    def _close(self, group: str, now_ms: int) -> Incident:
        incident = self.open.pop(group)
        incident.closed_ms = now_ms
        self.past.append(incident)
        return incident

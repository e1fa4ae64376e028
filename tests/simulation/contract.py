"""The contract: what may be served, held against the truth of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from koff.lag import WITHHELD
from koff.tracker import Group, PartitionLag, Snapshot
from tests.simulation.cluster import Cluster
from tests.simulation.truth import Row, Truth

if TYPE_CHECKING:
    from koff.monitor.confidence import CoreView

UNKNOWN_STATES = ("", "Unknown")
"""The states of a group of which koff does not claim to know the members."""


class ContractBroken(AssertionError):
    """koff has served what is not true, or has not recovered."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which both sides of a served lag must have been true."""

    truth: Truth
    since_s: float
    until_s: float

    def ends(self, topic: str, partition: int) -> set[int]:
        return _known(self.truth.ends(topic, partition, self.since_s, self.until_s))

    def committed(self, row: Row) -> set[int]:
        return _known(self.truth.committed(*row, self.since_s, self.until_s))

    def allows(self, row: Row, lag: int) -> bool:
        """Whether max(0, end - committed) was that lag, for some end and some commit in this time."""
        ends, committed = self.ends(row[1], row[2]), self.committed(row)
        if not ends or not committed:
            return False
        if lag == 0:
            return min(ends) <= max(committed)
        return any(offset + lag in ends for offset in committed)

    def existed_all_the_time(self, row: Row) -> bool:
        """Whether the row had a commit and an end offset at each moment."""
        return None not in self.truth.committed(
            *row, self.since_s, self.until_s
        ) and None not in self.truth.ends(row[1], row[2], self.since_s, self.until_s)


def check(
    view: CoreView, cluster: Cluster, now_s: float, limit_s: float, *, with_totals: bool = True
) -> list[PartitionLag]:
    """Raises `ContractBroken` if the view shows anything that was not true. Returns the rows of the view.

    `limit_s` is how old both sides of a lag may be.
    """
    window = Window(cluster.truth, now_s - limit_s, now_s)
    rows = list(view.snapshot.rows())
    _check_rows(rows, window)
    _check_members(view.snapshot, rows, window)
    if with_totals:
        _check_totals(view.snapshot, rows)
    return rows


def check_recovered(view: CoreView, cluster: Cluster, now_s: float, settled_s: float) -> None:
    """Raises `ContractBroken` if anything is withheld or missing, although all faults are long over.

    `settled_s`: a row that has existed for so long must be served, and what it shows must have been true in
    that time. 0 if the cluster is at rest.
    """
    if not view.readiness.ready:
        raise ContractBroken(f"not ready: {view.readiness.text}")
    window = Window(cluster.truth, now_s - settled_s, now_s)
    rows = list(view.snapshot.rows())
    for row in rows:
        # A commit that is younger than the last sample may lack its end offset.
        if cluster.truth.is_any(row.group):
            continue
        if row.reasons & WITHHELD and (settled_s == 0 or window.existed_all_the_time(_key(row))):
            raise ContractBroken(f"{_name(row)} is withheld: {row.reasons.names}")
    _check_rows(rows, window)
    served = {_key(row) for row in rows if row.lag is not None}
    for key in sorted(cluster.truth.rows()):
        if key not in served and window.existed_all_the_time(key):
            seen = next((row for row in rows if _key(row) == key), None)
            raise ContractBroken(f"{key} is not served; the row is {_show(seen)}, {_explain(key, window)}")
    _check_all_groups(view.snapshot.groups(), cluster.truth, window)


def check_not_hidden(
    rows: Iterable[PartitionLag],
    cluster: Cluster,
    now_s: float,
    settled_s: float,
    may_hide: Callable[[Row], bool],
) -> None:
    """Raises `ContractBroken` if a row is not served, although no present fault can be the reason.

    Only rows count that existed all the time since `settled_s` ago.
    """
    window = Window(cluster.truth, now_s - settled_s, now_s)
    shown = {_key(row): row for row in rows}
    for key in sorted(cluster.truth.rows()):
        row = shown.get(key)
        if row is not None and row.lag is not None:
            continue
        if window.existed_all_the_time(key) and not may_hide(key):
            raise ContractBroken(f"{key} is hidden without a reason; the row is {_show(row)}")


def _check_rows(rows: Iterable[PartitionLag], window: Window) -> None:
    seen: set[Row] = set()
    for row in rows:
        key = _key(row)
        if key in seen:
            raise ContractBroken(f"{_name(row)} is there twice")
        seen.add(key)
        if row.reasons & WITHHELD:
            _check_nothing_shown(row)
        if row.published_lag is None or window.truth.is_any(row.group):
            continue
        if not window.allows(key, row.published_lag):
            raise ContractBroken(f"{_show(row)} was never true: {_explain(key, window)}")


def _check_nothing_shown(row: PartitionLag) -> None:
    shown = (row.lag, row.readable, row.lag_to_stable, row.time_lag_s)
    if any(value is not None for value in shown):
        raise ContractBroken(f"{_show(row)} is withheld, and shows {shown}")


def _check_totals(snapshot: Snapshot, rows: Iterable[PartitionLag]) -> None:
    by_group: dict[str, list[PartitionLag]] = {}
    for row in rows:
        by_group.setdefault(row.group, []).append(row)
    for total in snapshot.totals():
        own = by_group.get(total.group.name, [])
        lags = [row.published_lag for row in own if row.published_lag is not None]
        withheld = any(row.reasons & WITHHELD for row in own)
        expected = None if withheld or not lags else sum(lags)
        if total.lag != expected:
            raise ContractBroken(f"the total of {total.group.name!r} is {total.lag}, not {expected}")
        if withheld and total.time_lag_s is not None:
            raise ContractBroken(f"{total.group.name!r} has rows withheld, and a time lag")
        if total.partitions != len(own):
            raise ContractBroken(f"{total.group.name!r} has {len(own)} rows, not {total.partitions}")


def _check_members(snapshot: Snapshot, rows: Iterable[PartitionLag], window: Window) -> None:
    withheld = {row.group for row in rows if row.reasons & WITHHELD}
    names: set[str] = set()
    for group in snapshot.groups():
        if group.name in names:
            raise ContractBroken(f"group {group.name!r} is there twice")
        names.add(group.name)
        if group.name in withheld or group.state in UNKNOWN_STATES or window.truth.is_any(group.name):
            continue
        _check_members_of(group, window)


def _check_members_of(group: Group, window: Window) -> None:
    members = sum(member.present for member in group.members)
    true = window.truth.members(group.name, window.since_s, window.until_s)
    if members not in true:
        raise ContractBroken(
            f"group {group.name!r} ({group.state}) shows {members} members, true were {true}"
        )


def _check_all_groups(groups: Iterable[Group], truth: Truth, window: Window) -> None:
    shown: Mapping[str, Group] = {group.name: group for group in groups}
    with_rows = {row[0] for row in truth.rows()}
    for name, members in sorted(truth.groups().items()):
        if None in truth.members(name, window.since_s, window.until_s):
            continue
        if name not in shown and not members and name not in with_rows:
            continue  # a simple group whose commits are all negative: the coordinators answer nothing of it
        if name not in shown:
            raise ContractBroken(f"group {name!r} is not shown")
        _check_members_of(shown[name], window)


def _key(row: PartitionLag) -> Row:
    return row.group, row.topic, row.partition


def _name(row: PartitionLag) -> str:
    return f"{row.group!r} on {row.topic}-{row.partition}"


def _show(row: PartitionLag | None) -> str:
    if row is None:
        return "missing"
    reasons = ",".join(row.reasons.names)
    return f"{_name(row)}: lag {row.lag} = end {row.end} - committed {row.committed} [{reasons}]"


def _explain(row: Row, window: Window) -> str:
    """What was true in the window."""
    return (
        f"between {window.since_s:.3f} and {window.until_s:.3f} the end offsets were "
        f"{_list(window.ends(*row[1:]))}, the commits {_list(window.committed(row))}"
    )


def _list(offsets: set[int]) -> str:
    ordered = sorted(offsets)
    if len(ordered) > 12:
        return f"{ordered[:5]} ... {ordered[-5:]} ({len(ordered)})"
    return str(ordered)


def _known(values: Iterable[int | None]) -> set[int]:
    return {value for value in values if value is not None}

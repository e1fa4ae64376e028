"""The contract: what may be served, held against the truth of the model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from koff.lag import WITHHELD
from koff.tracker import Group, PartitionLag, Snapshot
from tests.simulation.cluster import EPOCH_MS, Cluster
from tests.simulation.truth import Row, Truth

if TYPE_CHECKING:
    from koff.view.cluster_view import ClusterView

PRECISION = 1.2
OLDEST_S = 7 * 86_400.0
"""Records that are older may be served with this age, as a lower bound."""
CLOCK_SLACK_S = 4.0
"""How well koff knows the clock of the brokers: from when it sees commits."""
DATING_S = 5.0
"""So long, at most, koff needs to find how old a record is."""
UNKNOWN_STATES = ("", "Unknown")
"""The states of a group of which koff does not claim to know the members."""


class ContractBroken(AssertionError):
    """koff has served what is not true, or has not recovered."""


class Window:
    """The time in which both sides of a served lag must have been true.

    `with_kept`: a commit to an earlier topic of that name counts if the coordinator has kept it.
    """

    def __init__(self, truth: Truth, since_s: float, until_s: float, *, with_kept: bool = True) -> None:
        self.truth, self.since_s, self.until_s, self.seconds = truth, since_s, until_s, until_s - since_s
        self._with_kept = with_kept
        # Several rows and checks ask the same. The truth does not change during a check.
        self.ends, self.committed, self.is_any = (
            cache(self._find_ends),
            cache(self._find_committed),
            cache(truth.is_any),
        )

    def _find_ends(self, topic: str, partition: int) -> set[int]:
        return _known(self.truth.ends(topic, partition, self.since_s, self.until_s))

    def _find_committed(self, row: Row) -> set[int]:
        return _known(self.truth.committed(*row, self.since_s, self.until_s, with_kept=self._with_kept))

    def allows(self, row: Row, lag: int) -> bool:
        """Whether max(0, end - committed) was that lag, for some end and some commit in this time."""
        ends, committed = self.ends(row[1], row[2]), self.committed(row)
        if not ends or not committed:
            return False
        if lag == 0:
            return min(ends) <= max(committed)
        return any(offset + lag in ends for offset in committed)

    def ages_s(self, row: Row) -> set[float]:
        """The ages of the oldest uncommitted record, for some commit in this time; 0 if there is none."""
        now_ms = EPOCH_MS + self.until_s * 1000
        written = self.truth.written_ms(row[1], row[2], self.committed(row), self.until_s)
        # Nothing was behind if the commit and the end offset of some earlier moment were the same.
        caught_up = {0.0} if self.allows(row, 0) else set()
        return caught_up | {0.0 if at_ms is None else (now_ms - at_ms) / 1000 for at_ms in written}

    def allows_time_lag(self, row: Row, seconds: float, *, at_least: bool) -> bool:
        """Whether the time lag was right within 20 %, or a few seconds.

        Two samples of end offsets tell nothing of the time between them, which may be as long as all that
        koff may serve (`self.seconds`).
        """
        slack_s = self.seconds + CLOCK_SLACK_S
        if not at_least and seconds <= slack_s and self.allows(row, 0):  # most rows: 0 is one of the ages
            return True
        if at_least:
            return seconds >= OLDEST_S and any(seconds <= age_s + slack_s for age_s in self.ages_s(row))
        return any(
            age_s / PRECISION - slack_s <= seconds <= age_s * PRECISION + slack_s
            for age_s in self.ages_s(row)
        )

    def had_one_oldest_record(self, row: Row) -> bool:
        """Whether the oldest uncommitted record was the same all the time, for all that koff can know."""
        starts = {start for start in self.truth.starts(row[1], row[2], self.until_s) if start is not None}
        return len(self.committed(row)) == 1 and len(starts) == 1

    def existed_all_the_time(self, row: Row) -> bool:
        """Whether the row had a commit and an end offset at each moment."""
        committed = self.truth.committed(*row, self.since_s, self.until_s)
        return None not in committed and self.has_existed(row[1:])

    def has_existed(self, at: tuple[str, int]) -> bool:
        """Whether the topic partition had an end offset at each moment."""
        return None not in self.truth.ends(*at, self.since_s, self.until_s)


def check(
    view: ClusterView,
    cluster: Cluster,
    now_s: float,
    limit_s: float,
    *,
    with_totals: bool = True,
    knows_clock: bool = True,
    hidden_topics: Collection[str] = (),
) -> list[PartitionLag]:
    """Raises `ContractBroken` if the view shows anything that was not true. Returns the rows of the view.

    `limit_s` is how old both sides of a lag may be. `knows_clock`: koff could compare its clock with that of
    the brokers, which record timestamps are by. `hidden_topics` are those that koff could not describe at
    some time: coordinators then leave out what is committed to them.
    """
    window = Window(cluster.truth, now_s - limit_s, now_s)
    rows = list(view.snapshot.rows())
    _check_rows(rows, window)
    _check_ends(view.snapshot, window)
    if knows_clock:
        _check_time_lags(rows, window)
    _check_members(view.snapshot, rows, window)
    if with_totals:
        _check_totals(view.snapshot, rows)
        _check_whole(view.snapshot, rows, window, hidden_topics)
    return rows


def check_recovered(
    view: ClusterView,
    cluster: Cluster,
    now_s: float,
    settled_s: float,
    *,
    knows_clock: bool = True,
    knows_ids: bool = False,
    other_topics: Collection[str] = (),
) -> None:
    """Raises `ContractBroken` if anything is withheld or missing, although all faults are long over.

    `settled_s`: a row that has existed for so long must be served, and what it shows must have been true in
    that time. 0 if the cluster is at rest. `knows_ids`: koff knows which topic a commit is to, if the record
    says so: the log does, the coordinators do not. Of `other_topics` all end offsets must be served, whether
    groups read them or not.
    """
    if not view.readiness.ready:
        raise ContractBroken(f"not ready: {view.readiness.text}")
    window = Window(cluster.truth, now_s - settled_s, now_s, with_kept=not knows_ids)
    rows = list(view.snapshot.rows())
    for row in rows:
        # A commit that is younger than the last sample may lack its end offset.
        if cluster.truth.is_any(row.group):
            continue
        if row.reasons & WITHHELD and (settled_s == 0 or window.existed_all_the_time(_key(row))):
            raise ContractBroken(f"{_name(row)} is withheld: {row.reasons.names}")
    _check_rows(rows, window)
    if knows_clock:
        _check_all_dated(rows, window)
    served = {_key(row) for row in rows if row.lag is not None}
    for key in sorted(cluster.truth.rows()):
        if key not in served and window.existed_all_the_time(key):
            seen = next((row for row in rows if _key(row) == key), None)
            raise ContractBroken(f"{key} is not served; the row is {_show(seen)}, {_explain(key, window)}")
    _check_all_groups(view.snapshot.groups(), cluster.truth, window)
    ends = list_served_ends(view.snapshot)
    for at in cluster.truth.partitions():
        if at[0] in other_topics and at not in ends and window.has_existed(at):
            raise ContractBroken(f"the end offset of {at} is not served")
    for total in view.snapshot.totals():
        if not total.whole and not window.is_any(total.group.name):
            raise ContractBroken(f"{total.group.name!r} has no total")


def check_not_hidden(
    rows: Iterable[PartitionLag],
    cluster: Cluster,
    now_s: float,
    settled_s: float,
    may_hide: Callable[[Row], bool],
    *,
    knows_clock: bool = True,
) -> None:
    """Raises `ContractBroken` if a row is not served, although no present fault can be the reason.

    Only rows count that existed all the time since `settled_s` ago. Their time lags must be served, too, if
    the oldest uncommitted record was the same since `DATING_S` before that: koff may have learned of it last.
    """
    window = Window(cluster.truth, now_s - settled_s, now_s)
    longer = Window(cluster.truth, window.since_s - DATING_S, now_s)
    shown = {_key(row): row for row in rows}
    for key in sorted(cluster.truth.rows()):
        row = shown.get(key)
        has_to_be_dated = knows_clock and longer.had_one_oldest_record(key) and not _is_described(row)
        if row is not None and row.lag is not None and (row.time_lag_s is not None or not has_to_be_dated):
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
        if row.published_lag is None or window.is_any(row.group):
            continue
        if not window.allows(key, row.published_lag):
            raise ContractBroken(f"{_show(row)} was never true: {_explain(key, window)}")


def _check_time_lags(rows: Iterable[PartitionLag], window: Window) -> None:
    for row in rows:
        if row.time_lag_s is None or window.is_any(row.group):
            continue
        if not window.allows_time_lag(_key(row), row.time_lag_s, at_least=bool(row.at_least)):
            raise ContractBroken(
                f"{_show(row)} has a time lag of {row.time_lag_s} s ({row.at_least=}), not of "
                f"{sorted(window.ages_s(_key(row)))}: {_explain(_key(row), window)}"
            )


def _check_ends(snapshot: Snapshot, window: Window) -> None:
    for at, end in list_served_ends(snapshot).items():
        if end not in window.ends(*at):
            raise ContractBroken(f"the end offset of {at} was never {end}: {_list(window.ends(*at))}")


def list_served_ends(snapshot: Snapshot) -> dict[tuple[str, int], int]:
    """The end offsets that are served, by topic partition."""
    partitions = snapshot.partitions
    places = zip(partitions.topic, partitions.partition, strict=True)
    served = zip(places, partitions.end.tolist(), snapshot.withheld_ends().tolist(), strict=True)
    return {at: end for at, end, is_withheld in served if at[1] >= 0 and end >= 0 and not is_withheld}


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
        expected = None if withheld or not total.whole or not lags else sum(lags)
        if total.lag != expected:
            raise ContractBroken(f"the total of {total.group.name!r} is {total.lag}, not {expected}")
        if expected is None and total.time_lag_s is not None:
            raise ContractBroken(f"{total.group.name!r} has no total, and a time lag")
        if total.time_lag_s is not None and any(
            row.lag is not None and row.time_lag_s is None for row in own
        ):
            raise ContractBroken(f"{total.group.name!r} has a time lag, but not one of its rows")
        if total.partitions != len(own):
            raise ContractBroken(f"{total.group.name!r} has {len(own)} rows, not {total.partitions}")


def _check_whole(
    snapshot: Snapshot, rows: Iterable[PartitionLag], window: Window, hidden_topics: Collection[str]
) -> None:
    """Raises `ContractBroken` if the total of a group lacks a row that existed all the time."""
    with_total = {total.group.name for total in snapshot.totals() if total.lag is not None}
    shown = {_key(row): row for row in rows}
    for key in sorted(window.truth.rows()):
        if key[0] not in with_total or key[1] in hidden_topics:
            continue
        row = shown.get(key)
        if (row is None or row.lag is None) and window.existed_all_the_time(key):
            raise ContractBroken(f"the total of {key[0]!r} lacks {key}; the row is {_show(row)}")


def _check_members(snapshot: Snapshot, rows: Iterable[PartitionLag], window: Window) -> None:
    withheld = {row.group for row in rows if row.reasons & WITHHELD}
    names: set[str] = set()
    for group in snapshot.groups():
        if group.name in names:
            raise ContractBroken(f"group {group.name!r} is there twice")
        names.add(group.name)
        if group.name in withheld or group.state in UNKNOWN_STATES or window.is_any(group.name):
            continue
        _check_members_of(group, window)


def _check_members_of(group: Group, window: Window) -> None:
    members = sum(member.present for member in group.members)
    true = window.truth.members(group.name, window.since_s, window.until_s)
    if members not in true:
        raise ContractBroken(
            f"group {group.name!r} ({group.state}) shows {members} members, true were {true}"
        )


def _check_all_dated(rows: Iterable[PartitionLag], window: Window) -> None:
    """Raises `ContractBroken` if the time lag of a row is unknown although it was behind all the time."""
    for row in rows:
        if row.lag is None or row.time_lag_s is not None or window.is_any(row.group):
            continue
        if _is_described(row):
            continue
        if window.had_one_oldest_record(_key(row)) and window.existed_all_the_time(_key(row)):
            raise ContractBroken(f"{_show(row)} has no time lag: {_explain(_key(row), window)}")


def _check_all_groups(groups: Iterable[Group], truth: Truth, window: Window) -> None:
    shown: Mapping[str, Group] = {group.name: group for group in groups}
    with_rows = {
        row[0] for row in truth.rows() if None not in truth.committed(*row, window.since_s, window.until_s)
    }
    for name, members in sorted(truth.groups().items()):
        if None in truth.members(name, window.since_s, window.until_s):
            continue
        if name not in shown and not members and name not in with_rows:
            continue  # a simple group whose commits are all negative: the coordinators answer nothing of it
        if name not in shown:
            raise ContractBroken(f"group {name!r} is not shown")
        _check_members_of(shown[name], window)


def _is_described(row: PartitionLag | None) -> bool:
    """Whether a coordinator returned the lag of the row: then koff does not know what is committed."""
    return row is not None and row.lag is not None and row.committed is None


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

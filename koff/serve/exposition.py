"""The Prometheus exposition, rendered from cached labels: only the numbers are formatted at a scrape.

A series' name and labels never change, so their text is kept by row while a shard's layout stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import add

import numpy as np
from numpy.typing import NDArray

from koff.lag import NEVER, CatchUps, Rates, Status
from koff.serve.view import View
from koff.tracker import ShardSnapshot, Snapshot

_STATUSES = {int(each): each.name for each in Status}


@dataclass(frozen=True, slots=True)
class _Labels:
    """The texts after a metric's name, up to the number, for what one shard holds."""

    layout: object
    rows: list[str]
    topics: list[str]
    topic_of_row: NDArray[np.int64]
    groups: list[str]


@dataclass(slots=True)
class _Numbers:
    """One shard at one scrape: its labels, and the lag of its rows."""

    labels: _Labels
    shard: ShardSnapshot
    lag: NDArray[np.int64]
    known: NDArray[np.bool_]
    status: NDArray[np.uint8]
    consume: Rates
    catch_up: CatchUps
    complete: NDArray[np.float64]

    @property
    def exact(self) -> bool:
        """Whether there are exact lags in seconds."""
        return self.shard.time_lag is not None and self.shard.time_lag.exact is not None


class Exposition:
    """Renders a view, as chunks of text in the exposition format that Prometheus and OpenMetrics share."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._cache: dict[int, _Labels] = {}
        self._cluster = ""

    def chunks(self) -> Iterator[str]:
        """The families one after the other; a series with an unknown value is absent."""
        snapshot = self._view.snapshot()
        if self._view.cluster != self._cluster:
            self._cluster, self._cache = self._view.cluster, {}
        numbers = [self._numbers(number, shard, snapshot) for number, shard in snapshot.shards.items()]
        self._cache = {number: n.labels for number, n in zip(snapshot.shards, numbers, strict=True)}
        fresh = self._view.reader_stats().lag_is_fresh
        for name, text, series in _FAMILIES:
            if name not in _NEVER_STALE and not fresh:
                continue  # no confident stale number
            if name == _EXACT and not any(n.exact for n in numbers):
                continue
            yield f"# HELP {name} {text}\n# TYPE {name} gauge\n"
            for shard in numbers:
                yield from _lines(name, *series(shard))
        yield from self._members(numbers, fresh=fresh)
        yield from self._partitions(snapshot, fresh=fresh)

    def _numbers(self, number: int, shard: ShardSnapshot, snapshot: Snapshot) -> _Numbers:
        labels = self._cache.get(number)
        if labels is None or labels.layout is not shard.layout:
            labels = self._labels(shard, snapshot)
        lags = snapshot.lags(shard)
        return _Numbers(
            labels,
            shard,
            lags.published,
            lags.known,
            snapshot.group_statuses(shard),
            snapshot.consume_rates(shard),
            snapshot.group_catch_ups(shard),
            snapshot.group_completeness(shard),
        )

    def _labels(self, shard: ShardSnapshot, snapshot: Snapshot) -> _Labels:
        cluster = f'{{cluster="{escape(self._cluster)}",group="'
        groups = [f"{cluster}{escape(group.name)}" for group in shard.groups]
        rows, topics, topic_of_row = [], dict[tuple[int, str], int](), []
        for group, at in zip(shard.group.tolist(), shard.partition.tolist(), strict=True):
            topic = snapshot.partitions.topic[at]
            topic_of_row.append(topics.setdefault((group, topic), len(topics)))
            rows.append(
                f'{groups[group]}",topic="{escape(topic)}",partition="{snapshot.partitions.partition[at]}"}} '
            )
        return _Labels(
            shard.layout,
            rows,
            [f'{groups[group]}",topic="{escape(topic)}"}} ' for group, topic in topics],
            np.array(topic_of_row, np.int64),
            [f'{group}"}} ' for group in groups],
        )

    def _members(self, numbers: list[_Numbers], *, fresh: bool) -> Iterator[str]:
        yield "# HELP koff_group_members Members of the group.\n# TYPE koff_group_members gauge\n"
        for n in numbers:
            live = [(label, len(g.members)) for label, g in zip(n.labels.groups, n.shard.groups, strict=True)]
            yield from _lines(
                "koff_group_members", [label for label, _ in live], [count for _, count in live]
            )
        yield "# HELP koff_group_state State of the group, as Kafka names it: 1 for the present one.\n"
        yield "# TYPE koff_group_state gauge\n"
        for n in numbers:
            states = [
                f'{label[:-2]},state="{g.state}"}} '
                for label, g in zip(n.labels.groups, n.shard.groups, strict=True)
            ]
            yield from _lines("koff_group_state", states, [1] * len(states))
        yield "# HELP koff_group_status Does the group keep up: 1 for the verdict, its worst partition's.\n"
        yield "# TYPE koff_group_status gauge\n"
        for n in numbers if fresh else ():
            verdicts = [
                f'{label[:-2]},status="{_STATUSES[verdict]}"}} '
                for label, verdict in zip(n.labels.groups, n.status.tolist(), strict=True)
            ]
            yield from _lines("koff_group_status", verdicts, [1] * len(verdicts))

    def _partitions(self, snapshot: Snapshot, *, fresh: bool) -> Iterator[str]:
        at = snapshot.partitions
        labels = [
            f'{{cluster="{escape(self._cluster)}",topic="{escape(topic)}",partition="{partition}"}} '
            for topic, partition in zip(at.topic, at.partition, strict=True)
        ]
        for name, text, column in (
            ("koff_partition_end_offset", "High watermark: the next offset to be written.", at.end),
            ("koff_partition_start_offset", "Log start: the first offset that can be read.", at.start),
        ):
            yield f"# HELP {name} {text}\n# TYPE {name} gauge\n"
            yield from _lines(name, *_where(labels, column, column >= 0))
        if fresh and at.produce is not None:
            yield "# HELP koff_partition_produce_rate Offsets a second by which the end grew in 5 minutes.\n"
            yield "# TYPE koff_partition_produce_rate gauge\n"
            rates = np.round(at.produce.per_s, 3)
            yield from _lines("koff_partition_produce_rate", *_where(labels, rates, at.produce.known))


def escape(text: str) -> str:
    """A label's value as the exposition format wants it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


Series = tuple[list[str], list[int] | list[float] | list[str]]


def _lag(n: _Numbers) -> Series:
    return _where(n.labels.rows, n.lag, n.known)


def _committed(n: _Numbers) -> Series:
    return _where(n.labels.rows, n.shard.committed, n.shard.committed >= 0)


def _time_lag(n: _Numbers) -> Series:
    time_lag = n.shard.time_lag
    if time_lag is None:
        return [], []
    return _where(n.labels.rows, np.round(time_lag.seconds, 3), time_lag.known & n.known)


def _longest_time_lag(n: _Numbers) -> Series:
    time_lag = n.shard.time_lag
    if time_lag is None:
        return [], []
    known, longest = time_lag.known & n.known, np.full(len(n.labels.groups), -1.0)
    np.maximum.at(longest, n.shard.group[known], np.round(time_lag.seconds[known], 3))
    return _where(n.labels.groups, longest, longest >= 0)


def _exact_time_lags(n: _Numbers) -> Series:
    if n.shard.time_lag is None or n.shard.time_lag.exact is None:
        return [], []
    counts = np.bincount(n.shard.group[n.shard.time_lag.exact & n.known], minlength=len(n.labels.groups))
    return _where(n.labels.groups, counts, counts > 0)


def _topic_lag(n: _Numbers) -> Series:
    return _sums(n.labels.topics, n.labels.topic_of_row, n)


def _total_lag(n: _Numbers) -> Series:
    return _sums(n.labels.groups, n.shard.group, n)


def _consume_rate(n: _Numbers) -> Series:
    """By topic: the sum of the known rates."""
    sums, known = np.zeros(len(n.labels.topics)), n.consume.known
    topics = n.labels.topic_of_row[known]
    np.add.at(sums, topics, n.consume.per_s[known])
    return _where(n.labels.topics, np.round(sums, 3), np.bincount(topics, minlength=len(sums)) > 0)


def _catch_up(n: _Numbers) -> Series:
    labels, seconds = _where(n.labels.groups, np.round(n.catch_up.seconds, 3), n.catch_up.known)
    return labels, ["+Inf" if each == NEVER else str(each) for each in seconds]


def _complete(n: _Numbers) -> Series:
    return _where(n.labels.groups, np.round(n.complete, 3), ~np.isnan(n.complete))


_EXACT = "koff_group_exact_time_lags"
_NEVER_STALE = ("koff_group_committed_offset", "koff_group_completeness")
_FAMILIES: tuple[tuple[str, str, Callable[[_Numbers], Series]], ...] = (
    ("koff_group_lag", "Offsets that the group has yet to commit; absent when it is not known.", _lag),
    ("koff_group_committed_offset", "Next offset that the group will read, as committed.", _committed),
    ("koff_group_lag_seconds", "Age of the oldest record that the group has yet to commit.", _time_lag),
    ("koff_group_max_lag_seconds", "The longest of the group's lags in seconds.", _longest_time_lag),
    (_EXACT, "Partitions whose lag in seconds is the age of the record itself.", _exact_time_lags),
    ("koff_group_topic_lag", "Sum of the known lags of the group over the topic's partitions.", _topic_lag),
    ("koff_group_total_lag", "Sum of all known lags of the group.", _total_lag),
    ("koff_group_consume_rate", "Offsets a second that the group commits of the topic.", _consume_rate),
    (
        "koff_group_catch_up_seconds",
        "Time until the slowest partition is at its usual lag; +Inf is never.",
        _catch_up,
    ),
    (
        "koff_group_completeness",
        "Share of the group's partitions of which ten commits are known, 0 to 1.",
        _complete,
    ),
)


def _where(
    labels: list[str], numbers: NDArray[np.int64] | NDArray[np.float64], mask: NDArray[np.bool_]
) -> Series:
    if mask.all():
        return labels, numbers.tolist()
    return [labels[i] for i in np.flatnonzero(mask).tolist()], numbers[mask].tolist()


def _sums(labels: list[str], index: NDArray[np.int64] | NDArray[np.int32], n: _Numbers) -> Series:
    """Lag summed by `index`; sums without a known part are left out."""
    sums = np.zeros(len(labels), np.int64)
    np.add.at(sums, index[n.known], n.lag[n.known])
    return _where(labels, sums, np.bincount(index[n.known], minlength=len(labels)) > 0)


def _lines(name: str, labels: list[str], numbers: Iterable[float | str]) -> Iterator[str]:
    if labels:
        yield f"{name}" + f"\n{name}".join(map(add, labels, map(str, numbers))) + "\n"

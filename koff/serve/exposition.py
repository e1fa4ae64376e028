"""Renders a view in the Prometheus text format, from cached labels.

The name and the labels of a series do not change, so their text is kept for each row as long as the shard's
`layout` is the same object. Only the numbers are formatted at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import add

import numpy as np
from numpy.typing import NDArray

from koff.lag import NEVER, CatchUps, Rates, Status, TimeLags
from koff.serve.view import ClusterView
from koff.tracker import ShardSnapshot, Snapshot

_STATUSES = {int(status): status.name for status in Status}


@dataclass(frozen=True, slots=True)
class _Labels:
    """The texts between the metric's name and the number, for one shard: `{label="value",...} `.

    One text for each row (group, topic, partition), each topic of a group, and each group.
    """

    layout: object
    rows: list[str]
    topics: list[str]
    topic_of_row: NDArray[np.int64]
    group_of_topic: NDArray[np.int64]
    groups: list[str]


@dataclass(slots=True)
class _ShardNumbers:
    """One shard at one scrape: its labels, and the numbers of its rows and groups."""

    labels: _Labels
    snapshot: ShardSnapshot
    lag: NDArray[np.int64]
    known: NDArray[np.bool_]
    committed: NDArray[np.int64]
    time_lag: TimeLags | None
    status: NDArray[np.uint8]
    consume: Rates
    """Of each topic of a group."""
    catch_up: CatchUps
    complete: NDArray[np.float64]
    current_groups: NDArray[np.bool_]
    """Whose members and state are current."""
    whole_groups: NDArray[np.bool_]
    """Which groups have no row that is withheld or may be missing: a partial sum looks like a recovery."""
    whole_topics: NDArray[np.bool_]
    """The same for each topic of a group."""


class Exposition:
    """Renders views as text that is valid for Prometheus and for OpenMetrics. Not thread-safe."""

    def __init__(self) -> None:
        self._cache: dict[int, _Labels] = {}
        self._cluster = ""

    def render_chunks(self, view: ClusterView) -> Iterator[str]:
        """The metric families, one after the other. A series whose value is unknown is absent."""
        if view.cluster is None:
            return  # the series of the same cluster would have other labels later
        snapshot = view.snapshot
        # Labels: a new name of the cluster makes all labels invalid, a new layout the labels of one shard.
        if view.cluster != self._cluster:
            self._cluster, self._cache = view.cluster, {}
        shards = [self._collect_numbers(number, shard, snapshot) for number, shard in snapshot.shards.items()]
        self._cache = {number: shard.labels for number, shard in zip(snapshot.shards, shards, strict=True)}
        # Families.
        for name, text, series in _FAMILIES:
            yield from _render_family(name, text, map(series, shards))
        yield from self._render_groups(shards)
        yield from self._render_partitions(snapshot)
        withheld = [f'{{cluster="{escape_label(self._cluster)}"}} '], [view.stats.withheld]
        yield from _render_family(*_WITHHELD, [withheld])

    def _collect_numbers(self, number: int, shard: ShardSnapshot, snapshot: Snapshot) -> _ShardNumbers:
        labels = self._cache.get(number)
        if labels is None or labels.layout is not shard.layout:
            labels = self._build_labels(shard, snapshot)
        lags = snapshot.lags(shard)
        current = shard.current_groups()
        whole_topics = shard.summable_groups()[labels.group_of_topic]
        whole_topics[labels.topic_of_row[shard.is_withheld()]] = False
        return _ShardNumbers(
            labels,
            shard,
            lags.published,
            lags.known,
            snapshot.committed(shard),
            snapshot.time_lags(shard),
            snapshot.group_statuses(shard),
            snapshot.summed_consume_rates(shard, labels.topic_of_row, len(labels.topics)),
            snapshot.group_catch_ups(shard),
            snapshot.group_completeness(shard),
            current,
            ~snapshot.withheld_groups(shard),
            whole_topics,
        )

    def _build_labels(self, shard: ShardSnapshot, snapshot: Snapshot) -> _Labels:
        cluster = f'{{cluster="{escape_label(self._cluster)}",group="'
        groups = [f"{cluster}{escape_label(group.name)}" for group in shard.groups]
        rows, topics, topic_of_row = [], dict[tuple[int, str], int](), []
        for group, number in zip(shard.group.tolist(), shard.partition.tolist(), strict=True):
            topic = snapshot.partitions.topic[number]
            topic_of_row.append(topics.setdefault((group, topic), len(topics)))
            partition = snapshot.partitions.partition[number]
            rows.append(f'{groups[group]}",topic="{escape_label(topic)}",partition="{partition}"}} ')
        return _Labels(
            shard.layout,
            rows,
            [f'{groups[group]}",topic="{escape_label(topic)}"}} ' for group, topic in topics],
            np.array(topic_of_row, np.int64),
            np.array([group for group, _ in topics], np.int64),
            [f'{group}"}} ' for group in groups],
        )

    def _render_groups(self, shards: list[_ShardNumbers]) -> Iterator[str]:
        """Members, state and status of each group."""
        members = (
            _select_labels(
                s.labels.groups, [group.member_count for group in s.snapshot.groups], s.current_groups
            )
            for s in shards
        )
        yield from _render_family("koff_group_members", "Members of the group that are present.", members)
        states = (
            _select_labels(
                *_label_states(s.labels.groups, "state", [group.state for group in s.snapshot.groups]),
                s.current_groups,
            )
            for s in shards
        )
        text = "1 for the present state of the group, by Kafka's name for it."
        yield from _render_family("koff_group_state", text, states)
        statuses = (
            _select_labels(
                *_label_states(
                    s.labels.groups, "status", [_STATUSES[status] for status in s.status.tolist()]
                ),
                s.whole_groups,
            )
            for s in shards
        )
        text = "1 for the status of the group: that of its worst partition."
        yield from _render_family("koff_group_status", text, statuses)

    def _render_partitions(self, snapshot: Snapshot) -> Iterator[str]:
        """End offset, log start offset and produce rate of each partition that a group reads."""
        partitions, current = snapshot.partitions, ~snapshot.withheld_ends()
        cluster = escape_label(self._cluster)
        # A free row (partition -1) has no offsets and no rate, so it makes no series.
        labels = [
            f'{{cluster="{cluster}",topic="{escape_label(topic)}",partition="{partition}"}} '
            for topic, partition in zip(partitions.topic, partitions.partition, strict=True)
        ]
        ends = _select_series(labels, partitions.end, (partitions.end >= 0) & current)
        text = "High watermark: the offset of the next record."
        yield from _render_family("koff_partition_end_offset", text, [ends])
        starts = _select_series(labels, partitions.start, (partitions.start >= 0) & current)
        text = "Log start offset: the first that can be read."
        yield from _render_family("koff_partition_start_offset", text, [starts])
        if partitions.produce is not None:
            produce = partitions.produce
            rates = _select_series(labels, np.round(produce.per_s, 3), produce.known & current)
            text = "Growth of the end offset, per second, over 5 minutes."
            yield from _render_family("koff_partition_produce_rate", text, [rates])


def escape_label(text: str) -> str:
    """The value of a label, escaped as the text format requires."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


Series = tuple[list[str], list[int] | list[float] | list[str]]
"""The labels of each series, and the number of each series."""


def _lag(numbers: _ShardNumbers) -> Series:
    return _select_series(numbers.labels.rows, numbers.lag, numbers.known)


def _committed(numbers: _ShardNumbers) -> Series:
    return _select_series(numbers.labels.rows, numbers.committed, numbers.committed >= 0)


def _time_lag(numbers: _ShardNumbers) -> Series:
    time_lag = numbers.time_lag
    if time_lag is None:
        return [], []
    return _select_series(numbers.labels.rows, np.round(time_lag.seconds, 3), time_lag.known)


def _longest_time_lag(numbers: _ShardNumbers) -> Series:
    time_lag = numbers.time_lag
    if time_lag is None:
        return [], []
    known, longest = time_lag.known, np.full(len(numbers.labels.groups), -1.0)  # -1: none
    group = numbers.snapshot.group
    np.maximum.at(longest, group[known], np.round(time_lag.seconds[known], 3))
    # A lag without a known age may be the oldest: a partial maximum looks like a recovery.
    longest[group[numbers.known & ~known]] = -1.0
    return _select_series(numbers.labels.groups, longest, (longest >= 0) & numbers.whole_groups)


def _exact_time_lags(numbers: _ShardNumbers) -> Series:
    if numbers.time_lag is None or numbers.time_lag.exact is None:
        return [], []
    counts = np.bincount(numbers.snapshot.group[numbers.time_lag.exact], minlength=len(numbers.labels.groups))
    return _select_series(numbers.labels.groups, counts, (counts > 0) & numbers.whole_groups)


def _topic_lag(numbers: _ShardNumbers) -> Series:
    return _sum_lags(numbers.labels.topics, numbers.labels.topic_of_row, numbers.whole_topics, numbers)


def _total_lag(numbers: _ShardNumbers) -> Series:
    return _sum_lags(numbers.labels.groups, numbers.snapshot.group, numbers.whole_groups, numbers)


def _consume_rate(numbers: _ShardNumbers) -> Series:
    """For each topic of a group, the sum of the known rates of its partitions."""
    rates, topics = numbers.consume, numbers.labels.topics
    return _select_series(topics, np.round(rates.per_s, 3), rates.known & numbers.whole_topics)


def _catch_up(numbers: _ShardNumbers) -> Series:
    labels, seconds = _select_series(
        numbers.labels.groups, np.round(numbers.catch_up.seconds, 3), numbers.catch_up.known
    )
    return labels, ["+Inf" if value == NEVER else str(value) for value in seconds]


def _complete(numbers: _ShardNumbers) -> Series:
    return _select_series(numbers.labels.groups, np.round(numbers.complete, 3), ~np.isnan(numbers.complete))


_WITHHELD = (
    "koff_rows_withheld",
    "Partitions of groups whose lag is not served: an offset in it is not current.",
)
_FAMILIES: tuple[tuple[str, str, Callable[[_ShardNumbers], Series]], ...] = (
    ("koff_group_lag", "Offsets that the group has not committed yet; absent if unknown.", _lag),
    ("koff_group_committed_offset", "Committed offset: the next that the group will read.", _committed),
    (
        "koff_group_lag_seconds",
        "Age of the oldest record that is not committed yet; absent if unknown.",
        _time_lag,
    ),
    (
        "koff_group_max_lag_seconds",
        "Longest lag in seconds of the partitions; absent while one is unknown.",
        _longest_time_lag,
    ),
    (
        "koff_group_exact_time_lags",
        "Partitions whose lag in seconds is the age of a record, not an estimate.",
        _exact_time_lags,
    ),
    ("koff_group_topic_lag", "Sum of the known lags of the group's partitions of the topic.", _topic_lag),
    ("koff_group_total_lag", "Sum of the known lags of the group's partitions.", _total_lag),
    (
        "koff_group_consume_rate",
        "Offsets per second that the group commits in the topic; absent if unknown.",
        _consume_rate,
    ),
    (
        "koff_group_catch_up_seconds",
        "Seconds until the slowest partition is back at its usual lag; +Inf: never.",
        _catch_up,
    ),
    (
        "koff_group_completeness",
        "Share of the group's partitions with ten known commits, 0 to 1.",
        _complete,
    ),
)


def _select_series(
    labels: list[str], column: NDArray[np.int64] | NDArray[np.float64], mask: NDArray[np.bool_]
) -> Series:
    """The series where `mask` is true."""
    if mask.all():  # the usual case, and the only one without a copy of the labels
        return labels, column.tolist()
    return [labels[i] for i in np.flatnonzero(mask).tolist()], column[mask].tolist()


def _select_labels(labels: list[str], numbers: list[int], mask: NDArray[np.bool_]) -> Series:
    """The series where `mask` is true, of numbers in a list."""
    return _select_series(labels, np.array(numbers, np.int64), mask)


def _label_states(labels: list[str], name: str, states: list[str]) -> tuple[list[str], list[int]]:
    """Series of value 1 with one more label, `name`."""
    # A label ends in "} ": without these two characters, another label can follow.
    series = [f'{label[:-2]},{name}="{state}"}} ' for label, state in zip(labels, states, strict=True)]
    return series, [1] * len(series)


def _sum_lags(
    labels: list[str],
    index: NDArray[np.int64] | NDArray[np.int32],
    whole: NDArray[np.bool_],
    numbers: _ShardNumbers,
) -> Series:
    """The known lags summed by `index`, where the sum is `whole`. A sum without a known lag is left out."""
    sums = np.zeros(len(labels), np.int64)
    np.add.at(sums, index[numbers.known], numbers.lag[numbers.known])
    any_known = np.bincount(index[numbers.known], minlength=len(labels)) > 0
    return _select_series(labels, sums, any_known & whole)


def _render_family(name: str, text: str, series: Iterable[Series]) -> Iterator[str]:
    """A family with its head, in one text for each shard. Nothing if there is no series."""
    head = f"# HELP {name} {text}\n# TYPE {name} gauge\n"
    for labels, numbers in series:
        if labels:
            # A scrape of many rows must not call a function for each.
            lines = f"\n{name}".join(map(add, labels, map(str, numbers)))
            yield f"{head}{name}{lines}\n"
            head = ""

"""The lags of share groups, which do not commit: their coordinators return them (KIP-1226).

A coordinator computes the lag from an end offset that it does not return. If the end offset of the partition
is the same before and after the request, the coordinator used this one, and what the group has done follows
from it. Otherwise only the lag is known.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import structlog

from koff.client.cluster import Cluster
from koff.client.groups.coordinators import fetch_from_coordinators
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import FetchedGroups
from koff.client.wire.connection import UnsupportedVersion
from koff.errors import KoffError
from koff.tracker.groups import GroupTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = structlog.get_logger(component="spark.job")
DEADLINE_S, PATIENCE_S = 10.0, 5.0
"""How long a request to all coordinators may take, and how long one of them may be silent."""
UNSUPPORTED_S = 600.0
"""The time until brokers that are too old are asked again."""
DDL = (
    "`group` STRING, topic STRING, partition INT, committed_topic_id STRING, share_lag BIGINT, "
    "share_end BIGINT, not_current BOOLEAN"
)
"""The columns of `ShareLags.to_frame`: those of `ShareRow`."""
_NO_LAG = "the coordinator returned no lag, as brokers before Kafka 4.2 do"
_Slot = tuple[str, str, int]
FetchEnds = Callable[[Iterable[tuple[str, int]]], Mapping[tuple[str, int], int]]


class ShareState(NamedTuple):
    """A share group of the table `group_states`. `assigned` are the (topic, partition) of its members."""

    name: str
    offsets_partition: int
    saved: str
    assigned: Sequence[tuple[str, int]]

    def list_slots(self) -> set[_Slot]:
        """The partitions that the group has state of, and those that are assigned to its members."""
        group = GroupTable.from_state(json.loads(self.saved)).get(self.name)
        topics = group.share_topics if group else ()
        names = {topic.topic_id: topic.name for topic in topics}
        slots = {(self.name, topic.name, partition) for topic in topics for partition in topic.partitions}
        return slots | {(self.name, names.get(topic, topic), p) for topic, p in self.assigned}


class ShareRow(NamedTuple):
    """A share group in a partition.

    `lag` is None if the group has not read the partition, or if `not_current`: the lag is not known now.
    `end_before` is the end offset just before the request; None if that is not known.
    """

    group: str
    topic: str
    partition: int
    topic_id: str | None = None
    lag: int | None = None
    end_before: int | None = None
    not_current: bool = True


class ShareLags:
    """The lags of one cluster's share groups. For each sample, call `load`, then `fetch`, then read `rows`.

    No lag is known with `asks` False.
    `topics` is a regular expression that the name of a topic must match.
    """

    def __init__(self, cluster: Cluster, *, asks: bool = True, topics: str | None = None) -> None:
        self._cluster, self._asks = cluster, asks
        self._topics = re.compile(topics) if topics else None
        self._groups: dict[str, int] = {}
        """The share groups with their partitions of the offsets topic."""
        self._rows: dict[_Slot, ShareRow] = {}
        self._ask_at = 0.0  # monotonic
        self._why = ""

    @property
    def rows(self) -> list[ShareRow]:
        """What is known of each share group in each partition."""
        return list(self._rows.values())

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """The (topic, partition) of all rows."""
        return {slot[1:] for slot in self._rows}

    def by_group(self) -> dict[str, list[ShareRow]]:
        """The rows of each share group, also of one without rows."""
        found: dict[str, list[ShareRow]] = {name: [] for name in self._groups}
        for row in self._rows.values():
            found.setdefault(row.group, []).append(row)
        return found

    def to_frame(self, spark: SparkSession) -> DataFrame | None:
        """The rows, with the columns of `DDL`; None if the cluster has no share groups."""
        return spark.createDataFrame(self.rows, DDL) if self._groups else None

    def load(self, groups: Iterable[ShareState]) -> None:
        """Replaces all share groups by these. Their lags are not current until `fetch`."""
        found = list(groups)
        self._groups = {group.name: group.offsets_partition for group in found}
        slots = {slot for group in found for slot in group.list_slots() if self._shows(slot[1])}
        self._rows = {slot: ShareRow(*slot) for slot in slots}

    def fetch(self, fetch_ends: FetchEnds) -> None:
        """Asks the coordinators of the loaded groups. `fetch_ends` is `EndOffsetSampler.fetch_ends`.

        The lag of a group whose coordinator does not return it stays not current. Raises nothing.
        """
        if not self._groups or not self._asks or time.monotonic() < self._ask_at:
            return
        options = FetchOptions(
            group_filter=self._groups.__contains__,
            deadline_s=DEADLINE_S,
            patience_s=PATIENCE_S,
            describe=False,
            partitions=frozenset(self._groups.values()),
            share_offsets="only",
        )
        try:
            # The end offsets come first: see the top of this file. If no leader responds, no coordinator can
            # compute a lag.
            ends = fetch_ends(self.partitions)
            why = self._add_response(fetch_from_coordinators(self._cluster.lister, options), ends)
        except UnsupportedVersion as error:
            why, self._ask_at = str(error), time.monotonic() + UNSUPPORTED_S
        except KoffError as error:
            why = str(error)
        self._note(why)

    def _add_response(self, fetched: FetchedGroups, ends: Mapping[tuple[str, int], int]) -> str:
        """Takes the rows that the coordinators returned. Returns why rows are not current ("": all are)."""
        failed = {name: why for name, why in fetched.failed.items() if name in self._groups}
        complete = {group.name for group in fetched.groups if group.type == "share"} - failed.keys()
        returned = []
        for each in fetched.share_offsets:
            if each.lag is None and each.start >= 0:  # the group has read the partition
                failed.setdefault(each.group, _NO_LAG)
                complete.discard(each.group)
            elif self._shows(each.topic):
                end = ends.get((each.topic, each.partition))
                slot = each.group, each.topic, each.partition
                returned.append(ShareRow(*slot, each.topic_id, each.lag, end, not_current=False))
        # A partition that a complete response lacks has no state.
        self._rows = {slot: row for slot, row in self._rows.items() if slot[0] not in complete}
        self._rows |= {row[:3]: row for row in returned}
        if errors := [*(f"{group}: {why}" for group, why in failed.items()), *fetched.incomplete]:
            return errors[0]
        return "their coordinators do not return them" if self._groups.keys() - complete else ""

    def _note(self, why: str) -> None:
        """Logs why lags are not current, if that is another cause than before."""
        if why and why != self._why:
            log.warning("lags of share groups are not known", why=why)
        self._why = why

    def _shows(self, topic: str) -> bool:
        return self._topics is None or self._topics.search(topic) is not None


def read_share_states(states: DataFrame) -> list[ShareState]:
    """The share groups among the cluster's rows of `group_states`."""
    rows = states.where("type = 'share'").select("group", "offsets_partition", "saved", "assigned").collect()
    return [
        ShareState(
            row["group"],
            row.offsets_partition,
            row.saved,
            [(each.topic, each.partition) for each in row.assigned or ()],
        )
        for row in rows
    ]

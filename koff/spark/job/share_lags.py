"""The lags of share groups, which do not commit: their coordinators return them (KIP-1226).

A coordinator computes the lag from an end offset that it does not return. If the end offset of the partition
is the same before and after the request, the coordinator used this one, and what the group has done follows
from it. Otherwise only the lag is known.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import structlog

from koff.client.cluster import Cluster
from koff.client.cluster_conf import TopicPartition
from koff.client.groups.coordinators import fetch_from_coordinators
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import FetchedGroups
from koff.client.wire.connection import UnsupportedVersion
from koff.errors import KoffError
from koff.spark.job.samples import ShareOffsets, Slot
from koff.tracker import Group, Tracker

log = structlog.get_logger(component="spark.job")
DEADLINE_S, PATIENCE_S = 10.0, 5.0
"""How long a request to all coordinators may take, and how long one of them may be silent."""
UNSUPPORTED_S = 600.0
"""The time until brokers that are too old are asked again."""
_NO_LAG = "the coordinator returned no lag, as brokers before Kafka 4.2 do"


class ShareState(NamedTuple):
    """A share group, and the partitions that it has state of or that are assigned to its members."""

    name: str
    offsets_partition: int
    slots: frozenset[Slot]


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
    """The lags of one cluster's share groups. For each sample, call `load`, then `fetch`.

    No lag is known with `asks` False.
    `topics` is a regular expression that the name of a topic must match.
    """

    def __init__(self, cluster: Cluster, *, asks: bool = True, topics: str | None = None) -> None:
        self._cluster, self._asks = cluster, asks
        self._topics = re.compile(topics) if topics else None
        self._groups: dict[str, int] = {}
        """The share groups with their partitions of the offsets topic."""
        self._rows: dict[Slot, ShareRow] = {}
        self._ask_at = 0.0  # monotonic
        self._why = ""

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """The (topic, partition) of all rows."""
        return {slot[1:] for slot in self._rows}

    @property
    def lags(self) -> dict[str, list[ShareOffsets]]:
        """The lags by share group, also of one without rows."""
        found: dict[str, list[ShareOffsets]] = {name: [] for name in self._groups}
        for row in self._rows.values():
            offsets = row.topic, row.topic_id or "", row.partition, row.lag, row.end_before
            found.setdefault(row.group, []).append(offsets)
        return found

    @property
    def unknown(self) -> frozenset[Slot]:
        """The slots whose lag is not known now."""
        return frozenset(row[:3] for row in self._rows.values() if row.not_current)

    def load(self, groups: Iterable[ShareState]) -> None:
        """Replaces all share groups by these. Their lags are not current until `fetch`."""
        found = list(groups)
        self._groups = {group.name: group.offsets_partition for group in found}
        slots = {slot for group in found for slot in group.slots if self._shows(slot[1])}
        self._rows = {slot: ShareRow(*slot) for slot in slots}

    def fetch(self) -> None:
        """Asks the coordinators of the loaded groups.

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
            # The end offsets come first: see the top of this file.
            listed = self._cluster.lister.list_offsets([TopicPartition(*at) for at in self.partitions])
            ends = {tuple(at): found.offset for at, found in listed.items() if not isinstance(found, str)}
            why = self._add_response(fetch_from_coordinators(self._cluster.lister, options), ends)
        except UnsupportedVersion as error:
            why, self._ask_at = str(error), time.monotonic() + UNSUPPORTED_S
        except KoffError as error:
            why = str(error)
        self._note(why)

    def _add_response(self, fetched: FetchedGroups, ends: Mapping[tuple[object, ...], int]) -> str:
        """Takes the rows that the coordinators returned. Returns why rows are not current ("": all are)."""
        failed = {name: why for name, why in fetched.failed.items() if name in self._groups}
        complete = {group.name for group in fetched.groups if group.type == "share"} - failed.keys()
        returned = []
        for each in fetched.share_offsets:
            if each.lag is None and each.start >= 0:  # the group has read the partition
                failed.setdefault(each.group, _NO_LAG)
                complete.discard(each.group)
            elif self._shows(each.topic):
                slot = each.group, each.topic, each.partition
                end = ends.get(slot[1:])
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


def list_share_groups(tracker: Tracker) -> list[ShareState]:
    """The share groups of the tracker."""
    return [
        ShareState(group.name, number, frozenset(_list_slots(group)))
        for number, shard in tracker.shards.items()
        for group in shard.list_groups()
        if group.type == "share"
    ]


def _list_slots(group: Group) -> Iterator[Slot]:
    names = {topic.topic_id: topic.name for topic in group.share_topics}
    for topic in group.share_topics:
        yield from ((group.name, topic.name, partition) for partition in topic.partitions)
    for member in group.members:
        for topic_id, partitions in member.assigned.items():
            yield from ((group.name, names.get(topic_id, topic_id), partition) for partition in partitions)

"""The groups of the offsets topic that koff knows, which a response lacks, and what koff lost sight of."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from koff.monitor.duties.groups import GroupsFetched
from koff.monitor.duties.topics import TopicList
from koff.monitor.followed_log import FollowedLog
from koff.monitor.followed_partition import FollowedPartition
from koff.monitor.moment import Moment
from koff.monitor.outbox import NAMED, Outbox
from koff.records.placement import hash_groups
from koff.tracker import Tracker

NO_SUCH_GROUP, NOT_COORDINATOR = "GROUP_ID_NOT_FOUND", "NOT_COORDINATOR"
"""The error that coordinators return, each time, for a group that they list and that does not exist.

After the offsets topic has grown, brokers list what a group has left in its earlier partition."""
MOVING_S = 30.0
"""So long, a group is kept of which no broker says that it is the coordinator: the group may be moving."""


class KnownGroups:
    """The groups of the tracker, and those of partitions that were dropped and have not begun again."""

    def __init__(self, log: FollowedLog, tracker: Tracker) -> None:
        self._log, self._tracker = log, tracker
        self._dropped_groups: set[str] = set()

    def note_dropped(self, partition: int) -> None:
        """The tracker is about to drop the partition, which begins again.

        A response that then lacks one of its groups does not show that the group was deleted.
        """
        self._dropped_groups |= self._tracker.group_names(partition)

    def find_missing(
        self, partitions: Iterable[int], given: GroupsFetched, now: Moment
    ) -> dict[int, set[str]]:
        """By partition, the known groups that the response lacks, and that may exist all the same.

        Such a group may be one that koff may not DESCRIBE: if the log may be read, the log will say. Else
        only the coordinator says, by name, that there is no such group. The group may be moving to another
        coordinator, which does not know of it before it has begun to load it.
        """
        found = {}
        for number, known in self.find_known(partitions).items():
            part, missing = self._log.partitions[number], known - given.groups.keys()
            if self._log.denied is not None or part.is_unseeded:
                missing = {name for name in missing if self._may_exist(name, part, given.failed, now)}
            if missing:
                found[number] = missing
        return found

    def _may_exist(self, name: str, part: FollowedPartition, failed: Mapping[str, str], now: Moment) -> bool:
        """Returns whether a group may exist that a response lacks. Coordinators were asked for it by name."""
        why = failed.get(name)
        if why != NOT_COORDINATOR:
            return why != NO_SUCH_GROUP
        upto = part.stale_groups.get(name, part.current)
        return upto is not None and now.at_s - upto.at_s < MOVING_S

    def find_known(self, partitions: Iterable[int]) -> dict[int, set[str]]:
        """Returns the known groups of each partition, with the groups that were dropped with it."""
        known = {number: self._tracker.group_names(number) for number in partitions}
        names = list(self._dropped_groups)
        places = hash_groups(names) % max(self._log.partition_count, 1)
        for name, number in zip(names, places.tolist(), strict=True):
            if number in known:
                known[number].add(name)
        return known

    def forget_dropped(self, partitions: Iterable[int]) -> None:
        """These partitions have begun again: what is known of their groups is up to date, or will be."""
        if self._dropped_groups:
            self._dropped_groups.difference_update(*self.find_known(partitions).values())

    def find_earlier_places(self, elsewhere: Iterable[str], among: Collection[int]) -> set[int]:
        """Those of the partitions `among` that have one of these groups, if brokers use an earlier count.

        There are none if the log may not be read.
        """
        if self._log.denied is not None or not among:
            return set()
        hashes, is_place = hash_groups(list(elsewhere)), np.zeros(self._log.partition_count, np.bool_)
        for count in self._list_earlier_counts():
            is_place[hashes % count] = True
        return set(np.flatnonzero(is_place).tolist()).intersection(among)

    def find_unplaced(self, groups: Iterable[str]) -> set[str]:
        """Those of these groups that may be in a partition of which nothing is known, by an earlier count.

        koff reads the log of that partition from its start: only the log shows whether they are there.
        """
        unknown = [number for number, part in self._log.partitions.items() if part.current is None]
        names = sorted(groups) if unknown else []
        hashes, found = hash_groups(names), np.zeros(len(names), np.bool_)
        for count in self._list_earlier_counts():
            found |= np.isin(hashes % count, unknown)
        return {names[index] for index in np.flatnonzero(found).tolist()}

    def _list_earlier_counts(self) -> range:
        """The partition counts that brokers may still use: each is above every partition with records."""
        return range(max(self._log.last_written + 1, 1), self._log.partition_count)


DENIED_GROUP = "GROUP_AUTHORIZATION_FAILED"


class DeniedGroups:
    """The groups that koff may not DESCRIBE any more, and cannot see in the log either."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._names: dict[int, set[str]] = {}  # by partition of the offsets topic

    @property
    def count(self) -> int:
        return sum(map(len, self._names.values()))

    def clear(self) -> None:
        """The log may be read: it shows all groups."""
        self._names.clear()

    def note(
        self,
        partitions: Collection[int],
        kept: Mapping[int, Collection[str]],
        failed: Mapping[str, str],
        now: Moment,
    ) -> None:
        """Notes a response about these partitions. An event says when there are denied groups, or no more.

        `kept` are the groups that the response lacks, by partition, and `failed` are the errors by group.
        """
        had_some = bool(self._names)
        for number in partitions:
            names = {name for name in kept.get(number, ()) if failed.get(name) == DENIED_GROUP}
            self._names.pop(number, None)
            if names:
                self._names[number] = names
        if self._names and not had_some:
            names = set().union(*self._names.values())
            text = "groups may not be described any more"
            self._outbox.note(now, text, warn=True, count=len(names), groups=sorted(names)[:NAMED])
        elif had_some and not self._names:
            self._outbox.note(now, "all groups may be described again")


class LeftTopics:
    """The topics to which responses lack all commits. The commits may have been deleted, or hidden."""

    def __init__(self, topics: TopicList) -> None:
        self._topics = topics
        self._since: dict[int, dict[str, Moment]] = {}  # by partition of the offsets topic
        self.newest_s = float("-inf")
        """Since when responses lack the last of these topics: a newer list says more of it."""

    def find_unsure(self, number: int, left: Collection[str], requested: Moment, now: Moment) -> set[str]:
        """Those of the topics `left` that koff may perhaps not DESCRIBE: then their commits may exist.

        A response about the partition `number`, to a request of `requested`, lacks all commits to them. Such
        a topic may be described if a list says so that was requested between two such responses. Topics that
        koff certainly may not DESCRIBE are left out (`TopicList.denied`).
        """
        before, listed, denied = self._since.pop(number, {}), self._topics.requested, self._topics.denied
        since = {topic: now if topic in denied else before.get(topic, now) for topic in left}
        if since:
            self._since[number] = since
        if since.keys() - before.keys():
            self.newest_s = now.at_s
        return {
            topic
            for topic, moment in since.items()
            if topic not in denied and (listed is None or not moment.at_s < listed.at_s <= requested.at_s)
        }

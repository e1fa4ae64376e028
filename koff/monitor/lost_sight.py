"""What koff may not see any more: groups, and topics that responses of coordinators lack.

Kafka leaves what a user may not DESCRIBE out of its responses, without an error: it was not deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from koff.monitor.duties.topics import TopicList
from koff.monitor.moment import Moment
from koff.monitor.outbox import NAMED, Outbox

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

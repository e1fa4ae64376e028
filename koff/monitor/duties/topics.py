"""The topics of the cluster: when a list of them is requested, and what is believed of several lists.

One broker that has just started may list no topics, or an old list. So a topic that is missing, that has
another id or fewer partitions is believed only after `AGREEING` responses over `AGREEING_S` seconds; after
`AGREEING_NEW` over `AGREEING_NEW_S` if no response has had that topic: nothing is forgotten then. A new topic
and a new partition are believed at once.

A topic that koff may not DESCRIBE any more is missing in the list too. Brokers say so when they are asked by
name. Such a topic stays what it was, and is `denied`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from koff.monitor.means import Means
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox, Pending
from koff.monitor.requests import Request, Result, Topic, TopicPartition
from koff.records.placement import has_other_places
from koff.records.topics import OFFSETS_TOPIC
from koff.tracker import ShownNames
from koff.view.cluster_view import ClusterFacts, TopicFacts

if TYPE_CHECKING:
    from koff.client.metadata import Metadata

TIMEOUT_S = 10.0
RETRY_S = 1.0
"""The pause before a list is requested again after a failure."""
SHOWN = 3
"""What a list says of brokers and topics is shown for so many intervals: a request may fail."""

AGREEING = 3
AGREEING_S = 4.0
AGREEING_NEW = 2
AGREEING_NEW_S = 1.0


@dataclass(frozen=True, slots=True)
class TopicsFetched(Result):
    """All topics that this user may describe, by name."""

    topics: Mapping[str, Topic]
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    """The same and more, as one broker lists it, for metrics. It also has the wanted topics that this user
    may not describe."""
    cluster_id: str = ""

    def hide_misplaced_groups(self) -> "TopicsFetched":
        """Without the offsets topic, if the cluster has groups in other partitions of it than Kafka has.

        The coordinators are then asked about all groups at once, and no partition is taken for a group's.
        """
        if not has_other_places(self.cluster_id):
            return self
        topics = {name: topic for name, topic in self.topics.items() if name != OFFSETS_TOPIC}
        return replace(self, topics=topics, facts=replace(self.facts, coordinators=()))


@dataclass(frozen=True, slots=True)
class FetchTopics(Request):
    """All topics of the cluster, with their ids. Its result is `TopicsFetched`.

    Brokers are asked by name about the topics of `wanted` that the list lacks: koff may not DESCRIBE them, or
    they do not exist.
    """

    metric = "topics"
    is_to_any_broker = True
    wanted: frozenset[str] = frozenset()

    def carry_out(self, means: Means) -> Result:
        """Fetches the list from any broker. The leaders that are asked for offsets are fetched beside it."""
        means.refresh_leaders()
        metadata = means.cluster.fetch_metadata()
        leaders = means.leaders.note(metadata)
        topics = {
            name: Topic(
                metadata.topic_ids.get(name, ""),
                len(led),
                frozenset(partition for partition, leader in enumerate(led) if leader < 0),
            )
            for name, led in leaders.items()
        }
        denied = means.cluster.find_denied_topics(sorted(self.wanted - topics.keys()))
        coordinators = leaders.get(OFFSETS_TOPIC, ())
        facts = ClusterFacts(
            len(metadata.brokers), _gather_facts(metadata), coordinators, denied=frozenset(denied)
        )
        return TopicsFetched(self.id, topics, facts, metadata.cluster_id)


def _gather_facts(metadata: "Metadata") -> dict[str, TopicFacts]:
    return {
        name: TopicFacts(
            len(partitions),
            min((len(at.replicas) for at in partitions), default=0),
            sum(at.leader < 0 for at in partitions),
            sum(len(at.in_sync) < len(at.replicas) for at in partitions),
        )
        for name, partitions in metadata.topics.items()
    }


class TopicLists:
    """Requests a list of all topics, every `interval_s` or sooner (`hurry`).

    `find_wanted` returns the topics that groups refer to, and those that are read. `on_listed` takes a list;
    it returns in how many seconds the next one is due.
    """

    def __init__(
        self,
        interval_s: float,
        outbox: Outbox,
        find_wanted: Callable[[], frozenset[str]],
        on_listed: Callable[[TopicsFetched, Moment, Moment], float],
        now: Moment,
        *,
        has_coordinators: bool,
        may_hide: bool,
    ) -> None:
        """Without `has_coordinators`, groups are those of another cluster, and so are their coordinators.

        `may_hide` the offsets topic if groups are in other partitions of it: the coordinators can be asked.
        """
        self._interval_s, self._outbox = interval_s, outbox
        self._find_wanted, self._on_listed = find_wanted, on_listed
        self._due_s, self.sent_s = now.at_s, float("-inf")
        self._may_hide = may_hide
        self._has_coordinators, self._names = has_coordinators, ShownNames()
        self._listed = self._shown = ClusterFacts()
        self._listed_s = float("-inf")

    @property
    def due_s(self) -> float:
        """When the next list is to be requested; infinite while one is."""
        return float("inf") if self._outbox.has(FetchTopics) else self._due_s

    def hurry(self, at_s: float) -> None:
        """The next list is to be requested then at the latest."""
        self._due_s = min(self._due_s, at_s)

    def request(self, now: Moment) -> None:
        if now.at_s >= self.due_s:
            self.sent_s, self._due_s = now.at_s, now.at_s + self._interval_s
            request = FetchTopics(self._outbox.next_id(), self._find_wanted())
            self._outbox.send(request, self, now, TIMEOUT_S)

    def receive(self, given: TopicsFetched, pending: Pending[FetchTopics], now: Moment) -> None:
        if self._may_hide:
            given = given.hide_misplaced_groups()
        self._listed, self._listed_s = given.facts, pending.requested.at_s
        self.show(self._names)
        self._due_s = now.at_s + self._on_listed(given, pending.requested, now)

    def give_up(self, pending: Pending[FetchTopics], why: str, now: Moment) -> None:
        self.hurry(now.at_s + RETRY_S)

    def show(self, names: ShownNames) -> None:
        """Selects the topics that are shown."""
        self._names, shown = names, self._listed
        if names.topics:
            topics = {name: topic for name, topic in shown.topics.items() if names.shows_topic(name)}
            shown = replace(shown, topics=topics)
        self._shown = shown if self._has_coordinators else replace(shown, coordinators=())

    def list_facts(self, now: Moment) -> ClusterFacts:
        """What the newest list says of brokers and of the topics that are shown; nothing if it is too old."""
        return self._shown if now.at_s - self._listed_s <= SHOWN * self._interval_s else ClusterFacts()


@dataclass(slots=True)
class _Doubt:
    """The responses about a topic that contradict what koff believes."""

    seen: Topic | None
    first_s: float
    responses: int = 1


class TopicList:
    """The believed topics. `topics` maps a name to None if the topic does not exist, or is not shown."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic | None] = {}
        self.requested: Moment | None = None
        """When the newest response was requested; None before the first."""
        self.undoubted: Moment | None = None
        """When the newest response was requested that is believed in all."""
        self.denied: frozenset[str] = frozenset()
        """The topics that koff may not DESCRIBE, as of the newest response: whether they exist is unknown."""
        self._doubts: dict[str, _Doubt] = {}
        self._unknown: dict[str, Moment] = {}  # since when
        self._lists_without = 0  # how many lists in a row have not made the unknown topics known
        self._counted: Moment | None = None

    @property
    def is_doubtful(self) -> bool:
        """Whether a response contradicts what is believed: then the topics should be fetched again soon."""
        return bool(self._doubts)

    def is_another(self, topic: str) -> bool:
        """Whether the newest response shows another topic of that name than the one that koff believes in."""
        return topic in self._doubts and self._doubts[topic].seen is not None

    def partition_count(self, topic: str) -> int | None:
        """The partition count; 0 if the topic does not exist; None if nothing is known of it yet."""
        if topic not in self.topics:
            return None
        known = self.topics[topic]
        return known.partitions if known else 0

    def has_partition(self, at: TopicPartition) -> bool | None:
        """Whether the topic partition exists; None if nothing is known of its topic yet."""
        count = self.partition_count(at[0])
        return None if count is None else at[1] < count

    def note(
        self,
        response: Mapping[str, Topic],
        requested: Moment,
        *,
        wanted: Collection[str],
        alive: Collection[str],
        denied: frozenset[str] = frozenset(),
    ) -> set[str]:
        """Notes a response to a request of `requested`. Returns the topics whose believed state changed.

        `wanted` are the topics that groups refer to: they may be absent. `alive` are topics from which
        records came in since the last response: they exist, even if this response lacks them. `denied` are
        topics that the response lacks because koff may not DESCRIBE them.
        """
        self.requested, self.denied = requested, denied
        changed = set()
        known_names = response.keys() | self.topics.keys() | set(wanted)
        self._doubts = {name: doubt for name, doubt in self._doubts.items() if name in known_names}
        for name in known_names:
            seen, known = response.get(name), self.topics.get(name)
            if seen is not None and (known is None or _is_same_topic(known, seen)):
                self._doubts.pop(name, None)
            elif seen is None and known is None and name in self.topics:
                continue  # absent, as believed
            elif seen is None and (name in alive or (name in denied and known is not None)):
                self._doubts.pop(name, None)
                continue
            elif not self._is_agreed(name, seen, requested):
                continue
            if name not in self.topics or known != seen:
                self.topics[name] = seen
                changed.add(name)
        if not self._doubts:
            self.undoubted = requested
        return changed

    def forget_unwanted(self, wanted: Collection[str]) -> None:
        """Drops the absent topics that nobody refers to any more."""
        for name in [n for n, topic in self.topics.items() if topic is None and n not in wanted]:
            del self.topics[name]

    def list_again_s(self, unknown: set[str], pause_s: float, now: Moment) -> float:
        """When topics are to be fetched again because some are `unknown` (names or ids); infinite if none is.

        The pause after a list is `pause_s`, and doubles with each list that has none of them: an id may be
        that of a topic that was deleted, and never gets a name.
        """
        if not unknown or unknown - self._unknown.keys():
            self._lists_without = 0
        elif self.requested != self._counted:
            self._lists_without += 1
        self._unknown = {topic: self._unknown.get(topic, now) for topic in unknown}
        self._counted = self.requested
        if not unknown:
            return float("inf")
        listed_s = self.requested.at_s if self.requested else now.at_s
        return listed_s + pause_s * 2.0 ** min(self._lists_without, 10)

    def find_unlisted(self, unknown: Iterable[str]) -> set[str]:
        """Those of these unknown topics (names or ids) for which no list was requested since they were seen.

        A topic that such a list lacks was deleted, or may not be described.
        """
        listed_s = self.undoubted.at_s if self.undoubted else float("-inf")
        since = self._unknown
        return {topic for topic in unknown if topic not in since or listed_s < since[topic].at_s}

    def _is_agreed(self, name: str, seen: Topic | None, requested: Moment) -> bool:
        """Whether enough responses in a row say the same about the topic."""
        doubt = self._doubts.get(name)
        if doubt is None or not _says_the_same(doubt.seen, seen):
            self._doubts[name] = _Doubt(seen, requested.at_s)
            return False
        doubt.responses += 1
        is_new = name not in self.topics
        enough, enough_s = (AGREEING_NEW, AGREEING_NEW_S) if is_new else (AGREEING, AGREEING_S)
        if doubt.responses < enough or requested.at_s - doubt.first_s < enough_s:
            return False
        del self._doubts[name]
        return True


def _is_same_topic(known: Topic, seen: Topic) -> bool:
    return seen.id == known.id and seen.partitions >= known.partitions


def _says_the_same(before: Topic | None, seen: Topic | None) -> bool:
    if before is None or seen is None:
        return before is seen
    return (before.id, before.partitions) == (seen.id, seen.partitions)

"""How long topics keep what was written: records that groups read, and tombstones of the internal topics.

Needs DESCRIBE_CONFIGS on the topics; without it, nothing is known, and brokers log one denied request a topic
and hour.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from koff.monitor.means import Means
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox, Pending
from koff.monitor.requests import Request, Result
from koff.tracker import Tracker

SETTINGS = ("cleanup.policy", "retention.ms")
AT_ONCE = 1_000
"""The most topics in one request."""
TIMEOUT_S = 10.0
PAUSE_S, LOOK_S = 1.0, 10.0
"""The pause between two requests; and before koff looks again for new topics, if there are none."""
RETRY_S = 60.0
"""When topics are requested again for which there was no response."""
AGAIN_S = 600.0
"""When a retention that is known is requested again."""
DENIED_S = 3_600.0
"""When a topic is requested again whose settings this user may not see: rights may be granted."""
_DENIED = "TOPIC_AUTHORIZATION_FAILED"
SETTING = "delete.retention.ms"
ASSUMED_RETENTION_MS = 3_600_000
"""What delete.retention.ms is taken for while it is unknown: Kafka's default is a day."""
TOMBSTONE_RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class TopicConfigsFetched(Result):
    """The response to `FetchTopicConfigs`: by topic, its settings, or why they are unknown."""

    configs: Mapping[str, Mapping[str, str] | str]


@dataclass(frozen=True, slots=True)
class FetchTopicConfigs(Request):
    """The settings of these names, of each topic. Its result is `TopicConfigsFetched`."""

    metric = "topic_configs"
    topics: tuple[str, ...]
    names: tuple[str, ...]

    def carry_out(self, means: Means) -> Result:
        from koff.client.configs import fetch_topic_configs

        configs = fetch_topic_configs(means.brokers, self.topics, self.names, timeout_s=means.timeout_s)
        return TopicConfigsFetched(self.id, configs)


class RecordRetention:
    """Requests how long topics keep records: a group must not be later than that.

    All topics are requested now and then, and a new topic soon. A topic whose cleanup.policy is not to delete
    keeps its records for ever. `find_topics` returns the topics that groups read and that exist.
    """

    def __init__(self, tracker: Tracker, outbox: Outbox, find_topics: Callable[[], Collection[str]]) -> None:
        self._tracker, self._outbox, self._find_topics = tracker, outbox, find_topics
        self.due_s = float("-inf")
        self._again_s: dict[str, float] = {}
        self._retention_s: dict[str, float] = {}

    @property
    def is_settled(self) -> bool:
        """Whether koff has sent requests, and all of them had a response or failed."""
        open_requests = self._outbox.list_open(FetchTopicConfigs)
        return self.due_s > float("-inf") and all(pending.requester is not self for pending in open_requests)

    def request(self, now: Moment) -> None:
        if now.at_s < self.due_s:
            return
        topics = self._find_topics()
        due = sorted(name for name in topics if now.at_s >= self._again_s.get(name, now.at_s))[:AT_ONCE]
        self._again_s = {name: again_s for name, again_s in self._again_s.items() if name in topics}
        self.due_s = now.at_s + (LOOK_S if len(due) < AT_ONCE else PAUSE_S)
        if due:
            self._ask_again(due, now, AGAIN_S)
            request = FetchTopicConfigs(self._outbox.next_id(), tuple(due), SETTINGS)
            self._outbox.send(request, self, now, TIMEOUT_S)

    def receive(self, given: TopicConfigsFetched, pending: Pending[FetchTopicConfigs], now: Moment) -> None:
        """Takes settings. A retention that is not known any more stays as it was."""
        configs = {name: given.configs.get(name, "no response") for name in pending.request.topics}
        found = {name: read_retention_s(of_topic) for name, of_topic in configs.items()}
        known = {name: retention_s for name, retention_s in found.items() if retention_s is not None}
        kept = self._retention_s.items()
        self._retention_s = {name: value for name, value in kept if name in self._again_s} | known
        self._tracker.partitions.retention_s = self._retention_s
        self._ask_again([name for name in configs if name not in known], now, RETRY_S)
        denied = [name for name, of_topic in configs.items() if of_topic == _DENIED]
        self._ask_again(denied, now, DENIED_S)

    def give_up(self, pending: Pending[FetchTopicConfigs], why: str, now: Moment) -> None:
        """The topics are requested again later."""
        self._ask_again(pending.request.topics, now, RETRY_S)

    def _ask_again(self, topics: Collection[str], now: Moment, pause_s: float) -> None:
        self._again_s |= dict.fromkeys(topics, now.at_s + pause_s)


class TombstoneRetention:
    """Requests delete.retention.ms of a topic, again and again. After a failure, the last value stays."""

    def __init__(self, topic: str, outbox: Outbox) -> None:
        self._topic, self._outbox = topic, outbox
        self._retention_ms: int | None = None
        self.due_s = float("-inf")
        """When the next request is due."""
        self._sent_s = float("-inf")
        self._requests = 0

    @property
    def retention_ms(self) -> int:
        """How long a deletion can be seen, at the least."""
        return ASSUMED_RETENTION_MS if self._retention_ms is None else self._retention_ms

    @property
    def is_first_requested(self) -> bool:
        """Whether the first request is open. A retention that is not known soon is assumed."""
        open_requests = self._outbox.list_open(FetchTopicConfigs)
        return self._requests == 1 and any(pending.requester is self for pending in open_requests)

    def request(self, now: Moment) -> None:
        if now.at_s >= self.due_s:
            self._sent_s, self.due_s = now.at_s, now.at_s + TOMBSTONE_RETRY_S
            self._requests += 1
            request = FetchTopicConfigs(self._outbox.next_id(), (self._topic,), (SETTING,))
            self._outbox.send(request, self, now, TIMEOUT_S)

    def receive(self, given: TopicConfigsFetched, pending: Pending[FetchTopicConfigs], now: Moment) -> None:
        """Takes the topic's settings. Raises ValueError if a broker sends no number."""
        configs = given.configs.get(self._topic)
        if isinstance(configs, Mapping) and SETTING in configs:
            self._retention_ms = int(configs[SETTING])
            self.due_s = self._sent_s + AGAIN_S

    def give_up(self, pending: Pending[FetchTopicConfigs], why: str, now: Moment) -> None:
        """The last value stays."""


def read_retention_s(configs: Mapping[str, str] | str) -> float | None:
    """How long a topic with these settings keeps a record, in seconds; infinite: for ever. None: unknown."""
    if isinstance(configs, str) or not configs.keys() >= set(SETTINGS):
        return None
    try:
        retention_ms = int(configs["retention.ms"])
    except ValueError:
        return None
    is_deleted = "delete" in configs["cleanup.policy"].replace(" ", "").split(",")
    return retention_ms / 1000 if is_deleted and retention_ms >= 0 else float("inf")

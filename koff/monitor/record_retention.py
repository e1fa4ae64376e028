"""How long the topics that groups read keep their records: a group must not be later than that.

Asked of all topics now and then, and of a new topic soon. A topic whose cleanup.policy is not to delete keeps
its records for ever. Needs DESCRIBE_CONFIGS on the topics; without it, nothing is known, and brokers log one
denied request a topic and hour. Pure: no I/O, no threads, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from koff.monitor.outbox import Ask, Outbox
from koff.monitor.requests import FetchTopicConfigs, Moment, TopicConfigsFetched
from koff.tracker import Tracker

SETTINGS = ("cleanup.policy", "retention.ms")
AT_ONCE = 1_000
"""The most topics in one request."""
TIMEOUT_S = 10.0
PAUSE_S, LOOK_S = 1.0, 10.0
"""The pause between two requests; and before koff looks again for new topics, if there are none."""
RETRY_S = 60.0
"""When topics are asked again for which there was no answer."""
AGAIN_S = 600.0
"""When a retention that is known is asked again."""
DENIED_S = 3_600.0
"""When a topic is asked again whose settings this user may not see: rights may be granted."""
_DENIED = "TOPIC_AUTHORIZATION_FAILED"


class RecordRetention:
    """Requests the retention of topics. `find_topics` returns those that groups read and that exist."""

    def __init__(self, tracker: Tracker, outbox: Outbox, find_topics: Callable[[], Collection[str]]) -> None:
        self._tracker, self._outbox, self._find_topics = tracker, outbox, find_topics
        self.due_s = float("-inf")
        self._again_s: dict[str, float] = {}
        self._retention_s: dict[str, float] = {}

    @property
    def is_settled(self) -> bool:
        """Whether koff has asked, and all that it asked was answered or failed."""
        asks = self._outbox.of_kind(FetchTopicConfigs)
        return self.due_s > float("-inf") and all(ask.request.names != SETTINGS for ask in asks)

    def request(self, now: Moment) -> None:
        """Requests the retention of topics if that is due."""
        if now.at_s < self.due_s:
            return
        topics = self._find_topics()
        due = sorted(name for name in topics if now.at_s >= self._again_s.get(name, now.at_s))[:AT_ONCE]
        self._again_s = {name: again_s for name, again_s in self._again_s.items() if name in topics}
        self.due_s = now.at_s + (LOOK_S if len(due) < AT_ONCE else PAUSE_S)
        if due:
            self._ask_again(due, now, AGAIN_S)
            request = FetchTopicConfigs(self._outbox.next_id(), tuple(due), SETTINGS)
            self._outbox.send(request, now, TIMEOUT_S)

    def receive(self, given: TopicConfigsFetched, ask: Ask[FetchTopicConfigs], now: Moment) -> None:
        """Takes settings. What is not known any more stays as it was."""
        configs = {name: given.configs.get(name, "no answer") for name in ask.request.topics}
        found = {name: read_retention_s(of_topic) for name, of_topic in configs.items()}
        known = {name: retention_s for name, retention_s in found.items() if retention_s is not None}
        kept = self._retention_s.items()
        self._retention_s = {name: value for name, value in kept if name in self._again_s} | known
        self._tracker.partitions.retention_s = self._retention_s
        self._ask_again([name for name in configs if name not in known], now, RETRY_S)
        denied = [name for name, of_topic in configs.items() if of_topic == _DENIED]
        self._ask_again(denied, now, DENIED_S)

    def give_up(self, ask: Ask[FetchTopicConfigs], now: Moment) -> None:
        """A request failed, or was not answered in time."""
        if ask.request.names == SETTINGS:
            self._ask_again(ask.request.topics, now, RETRY_S)

    def _ask_again(self, topics: Collection[str], now: Moment, pause_s: float) -> None:
        self._again_s |= dict.fromkeys(topics, now.at_s + pause_s)


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

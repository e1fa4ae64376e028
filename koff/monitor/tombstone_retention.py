"""How long deletions can be seen in an internal topic: delete.retention.ms."""

from __future__ import annotations

from collections.abc import Mapping

from koff.monitor.outbox import Outbox
from koff.monitor.requests import FetchTopicConfigs, Moment, TopicConfigsFetched

SETTING = "delete.retention.ms"
ASSUMED_RETENTION_MS = 3_600_000
"""What delete.retention.ms is taken for while it is unknown: Kafka's default is a day."""
RETRY_S, TIMEOUT_S = 10.0, 10.0
AGAIN_S = 600.0
"""The pause before a retention that is known is requested again: it may be lowered."""


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
        asks = self._outbox.of_kind(FetchTopicConfigs)
        return self._requests == 1 and any(ask.request.topics == (self._topic,) for ask in asks)

    def request(self, now: Moment) -> None:
        """Sends the request if it is due."""
        if now.at_s >= self.due_s:
            self._sent_s, self.due_s = now.at_s, now.at_s + RETRY_S
            self._requests += 1
            request = FetchTopicConfigs(self._outbox.next_id(), (self._topic,), (SETTING,))
            self._outbox.send(request, now, TIMEOUT_S)

    def receive(self, given: TopicConfigsFetched) -> None:
        """Takes the topic's settings. Raises ValueError if a broker sends no number."""
        configs = given.configs.get(self._topic)
        if isinstance(configs, Mapping) and SETTING in configs:
            self._retention_ms = int(configs[SETTING])
            self.due_s = self._sent_s + AGAIN_S

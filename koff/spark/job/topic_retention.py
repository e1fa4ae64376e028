"""How long topics keep records: without an objective, a group must not be later than half of that."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

import structlog

from koff.client.configs import fetch_topic_configs
from koff.client.wire.brokers import Brokers
from koff.errors import ConnectError
from koff.monitor.duties.retention import (
    AGAIN_S,
    AT_ONCE,
    DENIED_S,
    RETRY_S,
    SETTINGS,
    TIMEOUT_S,
    read_retention_s,
)

log = structlog.get_logger(component="spark.job")
_DENIED = "TOPIC_AUTHORIZATION_FAILED"


class TopicRetention:
    """Requests the settings of topics as often as the daemon: each now and then, a new one soon."""

    def __init__(self, brokers: Brokers, clock: Callable[[], float] = time.monotonic) -> None:
        self._brokers, self._clock = brokers, clock
        self._again_s: dict[str, float] = {}
        self._known: dict[str, float] = {}

    def fetch(self, topics: Collection[str], before: Mapping[str, float]) -> dict[str, float]:
        """How many seconds each topic keeps a record, by name; infinite: for ever. Without unknown topics.

        After an error, a topic keeps the value that it has in `before`, and a later sample tries again.
        """
        self._again_s = {name: at_s for name, at_s in self._again_s.items() if name in topics}
        now_s = self._clock()
        due = sorted(name for name in topics if now_s >= self._again_s.get(name, now_s))[:AT_ONCE]
        if due:
            self._request(due, now_s)
        known = {**before, **self._known}
        self._known = {name: kept_s for name, kept_s in known.items() if name in topics}
        return self._known

    def _request(self, due: list[str], now_s: float) -> None:
        self._again_s |= dict.fromkeys(due, now_s + RETRY_S)
        try:
            configs = fetch_topic_configs(self._brokers, due, SETTINGS, timeout_s=TIMEOUT_S)
        except ConnectError as error:
            log.debug("the retention of topics is as before", why=str(error))
            return
        for name, settings in configs.items():
            kept_s = read_retention_s(settings)
            if kept_s is not None:
                self._known[name], self._again_s[name] = kept_s, now_s + AGAIN_S
            elif settings == _DENIED:
                self._again_s[name] = now_s + DENIED_S

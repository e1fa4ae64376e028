"""When the sizes of logs are requested, and for how long a response is shown."""

from __future__ import annotations

from collections.abc import Mapping

from koff.monitor.outbox import Outbox
from koff.monitor.requests import FetchLogSizes, LogSizesFetched, Moment

TIMEOUT_S = 30.0
SHOWN = 3
"""A response of a broker is shown for so many intervals: a request may fail."""


class LogSizes:
    """The newest sizes by broker. `interval_s` is None if they are not requested at all."""

    def __init__(self, interval_s: float | None, outbox: Outbox) -> None:
        self._interval_s, self._outbox = interval_s, outbox
        self.due_s = float("inf") if interval_s is None else float("-inf")
        self._sizes: dict[int, tuple[Moment, Mapping[str, int]]] = {}
        self._errors: dict[int, str] = {}
        self._answered: set[int] = set()  # the brokers of the open request that have responded, or failed

    def request(self, now: Moment) -> None:
        """Requests the sizes if they are due."""
        if self._interval_s is not None and now.at_s >= self.due_s:
            self.due_s = now.at_s + self._interval_s
            if not self._outbox.has(FetchLogSizes):
                self._answered = set()
                self._outbox.send(FetchLogSizes(self._outbox.next_id()), now, TIMEOUT_S)

    def receive(self, given: LogSizesFetched, asked: Moment, now: Moment) -> None:
        """Takes the response of a broker. An error is logged when it is another one than before."""
        if given.broker is None:
            return
        self._answered.add(given.broker)
        if given.final:  # a broker that was not asked is not in the cluster any more
            self._sizes = {broker: known for broker, known in self._sizes.items() if broker in self._answered}
        if not isinstance(given.sizes, str):
            self._sizes[given.broker] = asked, given.sizes
            self._errors.pop(given.broker, None)
        elif self._errors.get(given.broker) != given.sizes:
            self._errors[given.broker] = given.sizes
            self._outbox.note(now, "log sizes are not known", warn=True, broker=given.broker, why=given.sizes)

    def list_current(self, now: Moment) -> dict[int, Mapping[str, int]]:
        """The bytes by topic, of each broker whose response is new enough."""
        if self._interval_s is None:
            return {}
        oldest_s = now.at_s - SHOWN * self._interval_s
        self._sizes = {broker: known for broker, known in self._sizes.items() if known[0].at_s >= oldest_s}
        return {broker: sizes for broker, (_, sizes) in self._sizes.items()}

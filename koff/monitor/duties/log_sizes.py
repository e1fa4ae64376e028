"""The sizes of logs: requested of each broker now and then."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from koff.monitor.means import Means
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox, Pending
from koff.monitor.requests import Request, Result

if TYPE_CHECKING:
    from koff.client.metadata import Node

TIMEOUT_S, FETCH_S = 30.0, 20.0
"""How long the core waits, and a broker is waited for: so the core learns why there are no sizes."""
SHOWN = 3
"""A response of a broker is shown for so many intervals: a request may fail."""


@dataclass(frozen=True, slots=True)
class LogSizesFetched(Result):
    """The bytes by topic on a broker, or why they are unknown. Without a `broker`, none can be asked."""

    broker: int | None
    sizes: Mapping[str, int] | str

    @property
    def failure(self) -> str:
        return self.sizes if isinstance(self.sizes, str) else ""


@dataclass(frozen=True, slots=True)
class FetchLogSizes(Request):
    """How many bytes the logs have on each broker. Each broker has its own `LogSizesFetched`."""

    metric = "log_sizes"

    def carry_out(self, means: Means) -> Result | None:
        nodes = means.leaders.nodes
        if not nodes:
            return LogSizesFetched(self.id, None, "")
        means.fetch_parts([[node] for node in nodes], partial(self._fetch, means), self._fail)
        return None

    def _fetch(self, means: Means, node: "Node") -> LogSizesFetched:
        from koff.client.offsets.log_sizes import fetch_log_sizes

        return LogSizesFetched(self.id, node.id, fetch_log_sizes(means.brokers, node, timeout_s=FETCH_S))

    def _fail(self, node: "Node", why: str) -> LogSizesFetched:
        return LogSizesFetched(self.id, node.id, why)


class LogSizes:
    """The newest sizes by broker. `interval_s` is None if they are not requested at all."""

    def __init__(self, interval_s: float | None, outbox: Outbox) -> None:
        self._interval_s, self._outbox = interval_s, outbox
        self.due_s = float("inf") if interval_s is None else float("-inf")
        self._sizes: dict[int, tuple[Moment, Mapping[str, int]]] = {}
        self._errors: dict[int, str] = {}
        self._responded: set[int] = set()  # the brokers of the open request that have responded, or failed

    def request(self, now: Moment) -> None:
        if self._interval_s is not None and now.at_s >= self.due_s:
            self.due_s = now.at_s + self._interval_s
            if not self._outbox.has(FetchLogSizes):
                self._responded = set()
                self._outbox.send(FetchLogSizes(self._outbox.next_id()), self, now, TIMEOUT_S)

    def receive(self, given: LogSizesFetched, pending: Pending[FetchLogSizes], now: Moment) -> None:
        """Takes the response of a broker. An error is logged when it is another one than before."""
        if given.broker is None:
            return
        self._responded.add(given.broker)
        if given.final:  # a broker that was not asked is not in the cluster any more
            self._sizes = {
                broker: known for broker, known in self._sizes.items() if broker in self._responded
            }
        if not isinstance(given.sizes, str):
            self._sizes[given.broker] = pending.requested, given.sizes
            self._errors.pop(given.broker, None)
        elif self._errors.get(given.broker) != given.sizes:
            self._errors[given.broker] = given.sizes
            self._outbox.note(now, "log sizes are not known", warn=True, broker=given.broker, why=given.sizes)

    def give_up(self, pending: Pending[FetchLogSizes], why: str, now: Moment) -> None:
        """The last sizes are shown for a while."""

    def list_current(self, now: Moment) -> dict[int, Mapping[str, int]]:
        """The bytes by topic, of each broker whose response is new enough."""
        if self._interval_s is None:
            return {}
        oldest_s = now.at_s - SHOWN * self._interval_s
        self._sizes = {broker: known for broker, known in self._sizes.items() if known[0].at_s >= oldest_s}
        return {broker: sizes for broker, (_, sizes) in self._sizes.items()}

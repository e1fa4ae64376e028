"""Statistics of the reader and the writer of many clusters, counted since the reader or writer was made.

What librdkafka counts itself is in its STATISTICS.md. It reports every `statistics.interval.ms`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from koff.client.delivery.conf import RedeliveryCounts
from koff.logs import get_logger

log = get_logger("client.multicluster")

INTERVAL = {"statistics.interval.ms": "5000"}
"""librdkafka's default is 0, no statistics. The user's properties override this."""
_DECODER = json.JSONDecoder()
_US = 1e-6


@dataclass(frozen=True, slots=True)
class Summary:
    """How many values there were, their sum, the smallest and the largest. All are 0 without a value."""

    count: int = 0
    total: float = 0.0
    minimum: float = 0.0
    maximum: float = 0.0

    @property
    def average(self) -> float:
        """The mean value; 0 without a value."""
        return self.total / self.count if self.count else 0.0

    def with_value(self, value: float) -> Summary:
        """The summary with one value more."""
        if not self.count:
            return Summary(1, value, value, value)
        return Summary(self.count + 1, self.total + value, min(self.minimum, value), max(self.maximum, value))

    def __add__(self, other: Summary) -> Summary:
        if not (self.count and other.count):
            return self if self.count else other
        return Summary(
            self.count + other.count,
            self.total + other.total,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
        )


NO_VALUES = Summary()


@dataclass(frozen=True, slots=True)
class ClientStats:
    """What a librdkafka client did, as of its last report (every 5 s, or `statistics.interval.ms`).

    Counted since the reader or writer was made, also over clients that koff has replaced. All brokers count.

    - `dials`: attempts to connect to a broker, failed ones included (librdkafka's `connects`).
    - `fetches`, `writes`: Fetch requests and Produce requests that were sent (`req`).
    - `resends`: requests that were sent again (`txretries`).
    - `timeouts`: requests without a response in time (`req_timeouts`).
    - `connection_errors`: errors while sending and receiving (`txerrs`, `rxerrs`).
    - `batch_messages`, `batch_bytes`: messages and bytes of one record batch that was written; with a reader,
      of one partition in a fetch response (`batchcnt`, `batchsize`).
    - `queue_s`: seconds that messages waited in librdkafka before they were sent (`int_latency`).
    - `rtt_s`: seconds from a request to its response; a broker may let a Fetch wait for messages (`rtt`).
    """

    dials: int = 0
    fetches: int = 0
    writes: int = 0
    resends: int = 0
    timeouts: int = 0
    connection_errors: int = 0
    batch_messages: Summary = NO_VALUES
    batch_bytes: Summary = NO_VALUES
    queue_s: Summary = NO_VALUES
    rtt_s: Summary = NO_VALUES

    def __add__(self, other: ClientStats) -> Self:
        sums: dict[str, Any] = {
            each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)
        }
        return type(self)(**sums)


_NO_CLIENT, _NO_REDELIVERIES = ClientStats(), RedeliveryCounts()


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """One reader: counts since it was made, and its state now. koff counts all but `client`.

    - `partition`, `offset`, `lag`: -1 with a group.
    - `queue_length`: messages that were fetched and wait to be read.
    - `failure`: why the reader cannot read now; "" when it can.
    - `messages`, `bytes`: returned to the caller; bytes of keys and values.
    - `errors`: failed attempts to read; an outage that lasts counts again and again.
    - `rebalances`: assignments that the group's member got.
    - `skipped`: offsets that retention deleted before the reader could read them.
    - `wait_s`: seconds that a fetch waited until messages of this reader came, from librdkafka.
    - `read_s`: seconds that it took to make messages of one fetch ready to be read.
    - `redelivery`: messages that were delivered again, passed over, and written as dead letters.
    - `client`: librdkafka's own statistics. Readers of one topic in one cluster with the same settings share
      a client, and so have the same ones.
    """

    cluster: str
    topic: str
    partition: int
    offset: int
    lag: int
    queue_length: int
    queue_capacity: int
    failure: str = ""
    messages: int = 0
    bytes: int = 0
    errors: int = 0
    rebalances: int = 0
    skipped: int = 0
    wait_s: Summary = NO_VALUES
    read_s: Summary = NO_VALUES
    redelivery: RedeliveryCounts = _NO_REDELIVERIES
    client: ClientStats = _NO_CLIENT


@dataclass(frozen=True, slots=True)
class ClusterWrites:
    """One cluster of a writer: counts since the writer was made, and its state now.

    - `messages`, `bytes`: acknowledged by the cluster; bytes of keys and values.
    - `failures`: attempts to write a message that this cluster did not acknowledge.
    - `failure`: why the writer cannot write to it now; "" when it can.
    - `client`: librdkafka's own statistics.
    """

    messages: int = 0
    bytes: int = 0
    failures: int = 0
    reachable: bool = False
    failure: str = ""
    client: ClientStats = _NO_CLIENT


@dataclass(frozen=True, slots=True)
class WriterStats:
    """Counts since the writer was made. koff counts all but `client`.

    - `messages`, `bytes`: acknowledged by a cluster; bytes of keys and values.
    - `errors`: messages that failed for good. `in_doubt` of them may have been written.
    - `retries`: attempts after a failed attempt. `failovers`: attempts that went to another cluster.
    - `possible_duplicates`: acknowledged after an earlier attempt, which may have written the message too.
    - `write_s`: seconds from the call to the acknowledgement of a message.
    - `wait_s`: seconds that a call waited until its messages had room (`queue_capacity`).
    - `client`: librdkafka's own statistics, of all clusters together.
    """

    messages: int = 0
    bytes: int = 0
    errors: int = 0
    retries: int = 0
    failovers: int = 0
    possible_duplicates: int = 0
    in_doubt: int = 0
    write_s: Summary = NO_VALUES
    wait_s: Summary = NO_VALUES
    clusters: Mapping[str, ClusterWrites] = field(default_factory=dict)

    @property
    def client(self) -> ClientStats:
        """librdkafka's statistics of all clusters together."""
        return sum((each.client for each in self.clusters.values()), ClientStats())


class ClientStatistics:
    """Adds up the reports of one client after another. Any thread may call `read`."""

    def __init__(self) -> None:
        self._former = ClientStats()  # of replaced clients
        self._present = ClientStats()
        self._clients = 0

    def read(self) -> ClientStats:
        """The statistics as of the last report."""
        return self._former + self._present

    def make_callback(self) -> Callable[[str], None]:
        """The `stats_cb` of a new client, which replaces the client before. It never raises an error."""
        self._former, self._present = self.read(), ClientStats()
        self._clients += 1
        number = self._clients

        def note_report(report: str) -> None:
            try:
                if number == self._clients:  # a replaced client may report once more
                    self._present = _add_report(self._present, report)
            except Exception as error:  # would be an error of the call that polls the client
                log.debug("librdkafka's statistics are left out", reason=repr(error))

        return note_report


def _add_report(before: ClientStats, report: str) -> ClientStats:
    """The statistics after one more report. Counters in it are totals; summaries cover its interval only."""
    # Only the parts that are needed: a report has a long part for each partition of the topic.
    brokers = _decode_part(report, "brokers")
    requests = [broker.get("req", {}) for broker in brokers.values()]

    def total(*names: str) -> int:
        return sum(broker.get(name, 0) for broker in brokers.values() for name in names)

    def summary(name: str) -> Summary:
        return sum((_read_summary(each.get(name, {}), _US) for each in brokers.values()), NO_VALUES)

    return ClientStats(
        dials=total("connects"),
        fetches=sum(each.get("Fetch", 0) for each in requests),
        writes=sum(each.get("Produce", 0) for each in requests),
        resends=total("txretries"),
        timeouts=total("req_timeouts"),
        connection_errors=total("txerrs", "rxerrs"),
        batch_messages=before.batch_messages + _read_summary(_decode_part(report, "batchcnt")),
        batch_bytes=before.batch_bytes + _read_summary(_decode_part(report, "batchsize")),
        queue_s=before.queue_s + summary("int_latency"),
        rtt_s=before.rtt_s + summary("rtt"),
    )


def _decode_part(report: str, name: str) -> dict[str, Any]:
    """The first object of that name in the report; empty if there is none."""
    at = report.find(f'"{name}":')
    if at < 0:
        return {}
    part: dict[str, Any]
    part, _ = _DECODER.raw_decode(report, report.index("{", at))
    return part


def _read_summary(window: dict[str, Any], unit: float = 1.0) -> Summary:
    count = window.get("cnt", 0)
    if not count:
        return NO_VALUES
    return Summary(count, window["sum"] * unit, window["min"] * unit, window["max"] * unit)

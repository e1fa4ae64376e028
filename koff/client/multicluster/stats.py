"""Statistics of the reader and the writer of many clusters, counted since the reader or writer was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koff.client.multicluster.client_statistics import NO_VALUES, ClientStats, Summary
from koff.client.redelivery.conf import RedeliveryCounts

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

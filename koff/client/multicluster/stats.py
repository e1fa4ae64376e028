"""Statistics of the reader and the writer of many clusters. Counts start again at each call of `stats`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """One reader: counts since the last call of `stats`, and its state now.

    - `skipped`: offsets that retention deleted before the reader could read them.
    - `partition`, `offset`, `lag`: -1 with a group.
    - `queue_length`: messages that were fetched and wait to be read.
    - `failure`: why the reader cannot read now; "" when it can.
    """

    cluster: str
    topic: str
    partition: int
    offset: int
    lag: int
    queue_length: int
    queue_capacity: int
    messages: int = 0
    bytes: int = 0
    errors: int = 0
    rebalances: int = 0
    skipped: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class ClusterWrites:
    """One cluster of a writer: what it acknowledged since the last call of `stats`, and its state now.

    - `failures`: attempts to write a message that this cluster did not acknowledge.
    - `failure`: why the writer cannot write to it now; "" when it can.
    """

    messages: int = 0
    bytes: int = 0
    failures: int = 0
    reachable: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class WriterStats:
    """Counts of messages since the last call of `stats`.

    - `messages`, `bytes`: acknowledged by a cluster.
    - `errors`: not acknowledged within the attempts. `in_doubt` of them may have been written.
    - `retries`: attempts after a failed attempt. `failovers`: attempts that went to another cluster.
    - `possible_duplicates`: acknowledged after an earlier attempt, which may have written the message too.
    - `seconds`, `longest_s`: time from the call to the acknowledgement, summed and of the slowest message.
    """

    messages: int = 0
    bytes: int = 0
    errors: int = 0
    retries: int = 0
    failovers: int = 0
    possible_duplicates: int = 0
    in_doubt: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    clusters: Mapping[str, ClusterWrites] = field(default_factory=dict)

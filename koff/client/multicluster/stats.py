"""What readers and writers of many clusters have done since they were last asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """One reader: counts since the last call, and how it is now.

    `skipped` are offsets that retention took before they were read. `lag` and `offset` are -1 with a group.
    `failure` says why it cannot read just now, "" when it can.
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
    """One cluster: what it acknowledged, how many messages it did not take, whether it can be written to."""

    messages: int = 0
    bytes: int = 0
    failures: int = 0
    reachable: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class WriterStats:
    """The messages written, tried again and given up (`errors`) since the last call.

    `possible_duplicates` were acknowledged after an attempt that may have written them as well; `in_doubt`
    were given up, and may have been written. `seconds` and `longest_s` are from the call to the
    acknowledgement, over all and of the slowest.
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

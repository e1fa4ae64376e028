"""What is wrong at present between koff and the cluster, and with koff's disk.

The fault plan adds and removes disturbances. The network asks, for each request, what becomes of it.
"""

import random
from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal["topics", "offsets", "retention", "groups", "read", "history", "records", "load", "save"]
"""The kinds of requests. "records" reads first records, and "save" is every write to the disk."""
KINDS: tuple[Kind, ...] = get_args(Kind)
Effect = Literal["slow", "lost", "failed", "denied", "silent", "refused"]
"""What a disturbance does. "silent" and "refused" are of a broker that koff cannot reach: it never responds,
or koff gives up after `CONNECT_TIMEOUT_S`."""
CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Disturbance:
    """One thing that is wrong. `kinds` are the requests it concerns, `broker` the only broker, if not None.

    `share` of the requests are concerned. A slow response takes between a tenth of `seconds` and `seconds`.
    """

    effect: Effect
    kinds: frozenset[Kind]
    broker: int | None = None
    share: float = 1.0
    seconds: float = 0.0


@dataclass(eq=False)
class Conditions:
    """All that is wrong at present. `latency_s` is how long ordinary responses take at most.

    While a follower is read, the leader says every `follower_s` where the log ends.

    `denied_topics` and `denied_groups` may not be described or read by koff, nor may `hidden_topics`, for the
    whole run. The next `wrong_topic_lists`
    responses to FetchTopics lack the topics `missing_topics`. `deposed` has the partitions of which a deposed
    leader still responds so many times: with the end offset of up to `old_end_age_s` ago.
    """

    rng: random.Random
    latency_s: float = 0.03
    poll_interval_s: float = 0.2
    follower_s: float = 2.0
    disturbances: list[Disturbance] = field(default_factory=list)
    denied_topics: set[str] = field(default_factory=set)
    denied_groups: set[str] = field(default_factory=set)
    hidden_topics: frozenset[str] = frozenset()
    missing_topics: frozenset[str] = frozenset()
    wrong_topic_lists: int = 0
    deposed: dict[tuple[str, int], int] = field(default_factory=dict)
    old_end_age_s: float = 0.0

    def is_deposed(self, partition: tuple[str, int]) -> bool:
        """Whether the next response comes from a broker that does not know that it is the leader no more."""
        left = self.deposed.get(partition, 0)
        if left:
            self.deposed[partition] = left - 1
        return left > 0

    def draw(self, kind: Kind, broker: int | None = None) -> tuple[float | None, Effect | None]:
        """How long a response takes (None: it never comes), and what is wrong with it."""
        latency_s = self.rng.uniform(0.001, self.latency_s)
        for disturbance in self.disturbances:
            if kind not in disturbance.kinds or disturbance.broker not in {None, broker}:
                continue
            if disturbance.share < 1.0 and self.rng.random() >= disturbance.share:
                continue
            match disturbance.effect:
                case "lost" | "silent":
                    return None, disturbance.effect
                case "refused":
                    return CONNECT_TIMEOUT_S, disturbance.effect
                case "failed" | "denied":
                    return latency_s, disturbance.effect
                case "slow":
                    latency_s += self.rng.uniform(0.1, 1.0) * disturbance.seconds
        return latency_s, None

    def may_read(self, topic: str) -> bool:
        """Whether koff may describe and read that topic."""
        return topic not in self.denied_topics and topic not in self.hidden_topics

    def can_reach(self, broker: int) -> bool:
        """Whether koff can reach that broker, as far as the network is concerned."""
        return not self.disturbances or not any(
            disturbance.broker == broker and disturbance.effect in {"silent", "refused"}
            for disturbance in self.disturbances
        )

    def is_hung(self, kind: Kind) -> bool:
        """Whether requests of that kind are never answered at present."""
        return bool(self.disturbances) and any(
            kind in disturbance.kinds and disturbance.effect == "lost" and disturbance.broker is None
            for disturbance in self.disturbances
        )

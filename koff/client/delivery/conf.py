"""When and how often a message is delivered again that the application could not process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from koff.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Redelivery:
    """When a message is delivered again after `nack`.

    The first time after `first_s`, then each time after `factor` times as long, at most `longest_s`. Messages
    of a partition that are due together are delivered in the order of their offsets.

    After its last delivery, a message is written to `dead_letter_topic`, a topic of the same cluster, before
    it counts as processed. While that fails, the message is delivered again every `longest_s`. "": it is
    reported by `errors` only.
    """

    first_s: float = 1.0
    factor: float = 2.0
    longest_s: float = 60.0
    dead_letter_topic: str = ""

    def __post_init__(self) -> None:
        if not (0 <= self.first_s <= self.longest_s and self.factor >= 1):
            raise ConfigError(
                f"redelivery after {self.first_s} to {self.longest_s} s by factor {self.factor} is not "
                "possible: use 0 <= first_s <= longest_s, and a factor of 1 or more"
            )

    def delay_s(self, deliveries: int) -> float:
        """The delay before the next delivery of a message that was delivered `deliveries` times."""
        delay_s = self.first_s
        for _ in range(deliveries - 1):
            delay_s = min(delay_s * self.factor, self.longest_s)
        return delay_s


class RedeliveryCounts(NamedTuple):
    """How often a member delivered a message again, passed one over, and wrote one as a dead letter.

    Each dead letter is also counted as passed over.
    """

    redelivered: int = 0
    passed_over: int = 0
    dead_letters: int = 0


WriteDeadLetter = Callable[[Any, int, BaseException | None], None]
"""Writes confluent-kafka's message elsewhere, with how often it was delivered and the last cause."""


@dataclass(slots=True, eq=False)
class FailureRule:
    """What becomes of messages that failed: of a member of a group, or of one reader of many.

    `write_dead_letter` writes a message before it is passed over, and raises an error if it cannot. `counts`
    has what became of messages; the lock of the delivery guards it.
    """

    redelivery: Redelivery
    max_redeliveries: int
    write_dead_letter: WriteDeadLetter | None = None
    counts: RedeliveryCounts = field(default_factory=RedeliveryCounts)

    def count(self, name: str) -> None:
        """Adds one to that number of `counts`."""
        self.counts = self.counts._replace(**{name: getattr(self.counts, name) + 1})

"""What reading and writing can come to, other than messages: errors of the client stack by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koff.errors import Closed, KoffError


class NoData(KoffError):
    """The consumer is at the end of its partition, and its retry limit is used up."""


class MxClosed(Closed):
    """The merged stream is closed, or all its consumers have ended."""


class MxError(KoffError):
    """A merged consumer failed, for the reason in `__cause__`; `topic` and `partition` say which."""

    def __init__(self, text: str, *, topic: str = "", partition: int = -1) -> None:
        super().__init__(text)
        self.topic = topic
        self.partition = partition


class UnknownTopic(KoffError):
    """There is no such topic, or it has no such partition."""


class OffsetOutOfRange(KoffError):
    """The partition has no such offset: it has those from `earliest` to before `latest`."""

    def __init__(self, topic: str, partition: int, offset: int, earliest: int, latest: int) -> None:
        super().__init__(
            f"{topic}/{partition} has no offset {offset}: it has {earliest} to {latest}, where the next "
            f"message will be; start there, or at the oldest or the newest"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.earliest = earliest
        self.latest = latest


class CoordinatorError(KoffError):
    """The group's coordinator refuses, for a reason that another try will not mend."""


class ProduceError(KoffError):
    """Not all messages of a call were written. Indices say which: `written`, `failed`, `unknown`.

    `failed` ones are not in the log. `unknown` ones may be: their acknowledgement was not seen. `errors`
    has the reason for each of both kinds.
    """

    def __init__(
        self, place: str, count: int, errors: Mapping[int, str], unknown: Sequence[int] = ()
    ) -> None:
        self.count = count
        self.errors = dict(sorted(errors.items()))
        self.unknown = tuple(sorted(unknown))
        self.failed = tuple(at for at in self.errors if at not in set(unknown))
        self.written = tuple(at for at in range(count) if at not in self.errors)
        maybe = f", {len(self.unknown)} of them perhaps" if self.unknown else ""
        reasons = ", ".join(dict.fromkeys(self.errors.values()))
        super().__init__(
            f"{len(self.errors)} of {count} messages for {place} were not written{maybe}: {reasons}; "
            "write `failed` again, and `unknown` if it may be there twice"
        )

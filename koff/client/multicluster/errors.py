"""Errors of the reader and the writer of many clusters."""

from collections.abc import Iterator, Sequence

from koff.errors import KoffError


class WriteError(KoffError):
    """Why one message was not acknowledged by any cluster.

    `in_doubt` is true when a cluster may have written the message, but its acknowledgement did not arrive.
    """

    def __init__(self, reason: str, *, in_doubt: bool = False) -> None:
        super().__init__(reason)
        self.in_doubt = in_doubt


class WriteErrors(KoffError):
    """Not all messages of a call were written. Has one entry for each message, in order.

    An entry is the message's `WriteError`, or None if the message was written. `written`, `failed` and
    `unknown` hold the indices of the messages: a failed message is in no log and will be in none; an unknown
    message is in doubt.
    """

    def __init__(self, errors: Sequence[WriteError | None]) -> None:
        self.errors = tuple(errors)
        self.written = tuple(i for i, error in enumerate(self.errors) if error is None)
        self.failed = tuple(i for i, error in enumerate(self.errors) if error and not error.in_doubt)
        self.unknown = tuple(i for i, error in enumerate(self.errors) if error and error.in_doubt)
        first = next(filter(None, self.errors), None)
        super().__init__(f"{self.count()} of {len(self.errors)} messages were not written: {first}")

    def count(self) -> int:
        """How many messages were not written."""
        return sum(error is not None for error in self.errors)

    def __len__(self) -> int:
        return len(self.errors)

    def __iter__(self) -> Iterator[WriteError | None]:
        return iter(self.errors)

    def __getitem__(self, index: int) -> WriteError | None:
        return self.errors[index]


class ReadErrors(KoffError):
    """All readers have failed. `errors` has the error of each of them, in the order of the configurations."""

    def __init__(self, errors: Sequence[KoffError]) -> None:
        self.errors = tuple(errors)
        reasons = "; ".join(dict.fromkeys(map(str, errors)))
        super().__init__(f"none of {len(self.errors)} readers can read: {reasons}")


class ReadError(KoffError):
    """One reader of a `Reader` cannot read."""


class CommitError(KoffError):
    """The offsets of a group were not committed, or only some of them were."""


class Unavailable(KoffError):
    """The method is not available for this reader: it needs a consumer group, or a reader without one."""

"""What goes wrong with many clusters: said once for each message, or for each reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koff.errors import KoffError


class WriteError(KoffError):
    """Why one message was not written. `in_doubt`: some cluster may have it all the same, unacknowledged."""

    def __init__(self, reason: str, *, in_doubt: bool = False) -> None:
        super().__init__(reason)
        self.in_doubt = in_doubt


class WriteErrors(KoffError):
    """How it went with each message of a call: its error, or None where it was written."""

    def __init__(self, errors: Sequence[WriteError | None]) -> None:
        self.errors = tuple(errors)
        first = next(filter(None, self.errors), None)
        super().__init__(f"{self.count()} of {len(self.errors)} messages were not written: {first}")

    def count(self) -> int:
        """How many messages were not written."""
        return sum(error is not None for error in self.errors)

    def __len__(self) -> int:
        return len(self.errors)

    def __iter__(self) -> Iterator[WriteError | None]:
        return iter(self.errors)

    def __getitem__(self, place: int) -> WriteError | None:
        return self.errors[place]


class ReadErrors(KoffError):
    """All readers have failed: the error of each, in the order of their configurations."""

    def __init__(self, errors: Sequence[KoffError]) -> None:
        self.errors = tuple(errors)
        told = "; ".join(dict.fromkeys(map(str, errors)))
        super().__init__(f"none of {len(self.errors)} readers can read: {told}")


class ReadError(KoffError):
    """Why one reader cannot read."""


class CommitError(KoffError):
    """Offsets could not be committed for a group."""


class Unavailable(KoffError):
    """A question that only readers with a consumer group, or only those without, can answer."""

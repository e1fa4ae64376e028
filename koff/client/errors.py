"""The errors that reading and writing raise."""

from collections.abc import Mapping, Sequence

from koff.errors import Closed, KoffError


class NoData(KoffError):
    """The consumer has reached the end of its partition and has used up its retry limit."""


class NoDataInTime(NoData):
    """No message came within the `timeout_s` of the call. The partition may have more messages."""


class Woken(NoDataInTime):
    """Another thread has ended the wait, by `wake`."""


class MxClosed(Closed):
    """The merged stream is closed, or all of its consumers have ended."""


class MxError(KoffError):
    """One consumer of a merged stream failed. `__cause__` is its error.

    `topic` and `partition` name the consumer that failed.
    """

    def __init__(self, text: str, *, topic: str = "", partition: int = -1) -> None:
        super().__init__(text)
        self.topic = topic
        self.partition = partition


class UnknownTopic(KoffError):
    """The cluster has no such topic, or the topic has no such partition."""


class OffsetOutOfRange(KoffError):
    """The partition does not have this offset. Its offsets begin at `earliest` and end before `latest`."""

    def __init__(self, topic: str, partition: int, offset: int, earliest: int, latest: int) -> None:
        super().__init__(
            f"{topic}/{partition} has no offset {offset}: its log starts at {earliest} and ends at {latest}; "
            f"start between these two offsets, or at the oldest or the newest offset"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.earliest = earliest
        self.latest = latest


class TopicRecreated(OffsetOutOfRange):
    """The topic was deleted and created again: `offset`, the next one, belongs to the old topic's log.

    `earliest` and `latest` are those of the new topic.
    """

    def __init__(self, topic: str, partition: int, offset: int, earliest: int, latest: int) -> None:
        super().__init__(topic, partition, offset, earliest, latest)
        self.args = (
            f"{topic} was deleted and created again: offset {offset} of partition {partition} is of the old "
            f"log, and the new log starts at {earliest} and ends at {latest}; seek the offset to read next "
            "or set on_out_of_range",
        )


class InvalidMessage(KoffError, ValueError):
    """A message that no cluster can take, or a call without messages. Nothing of the call was written."""


class CoordinatorError(KoffError):
    """The group's coordinator refused the request, and a retry would not help."""


class ProduceError(KoffError):
    """Not all messages of a call were written. `written`, `failed` and `unknown` hold their indices.

    A `failed` message is not in the log. An `unknown` message may be in the log: its acknowledgement did
    not arrive. `errors` maps the index of each failed or unknown message to the reason.
    """

    def __init__(
        self, place: str, count: int, errors: Mapping[int, str], unknown: Sequence[int] = ()
    ) -> None:
        self.count = count
        self.errors = dict(sorted(errors.items()))
        self.unknown = tuple(sorted(unknown))
        self.failed = tuple(index for index in self.errors if index not in set(unknown))
        self.written = tuple(index for index in range(count) if index not in self.errors)
        unknown_count = f" ({len(self.unknown)} of them may have been written)" if self.unknown else ""
        reasons = ", ".join(dict.fromkeys(self.errors.values()))
        super().__init__(
            f"{len(self.errors)} of {count} messages for {place} were not written{unknown_count}: {reasons}; "
            "write `failed` again, and `unknown` too if duplicates are allowed"
        )

"""The errors of a consumer group on ZooKeeper."""

from collections.abc import Sequence

from koff.client.cluster_conf import TopicPartition
from koff.errors import Closed, ConnectError, KoffError, copy_error


class ZooKeeperLost(ConnectError):
    """ZooKeeper does not respond, or the session has ended. ZooKeeper may still execute the request."""


class AlreadyClosing(Closed):
    """The consumer group is already shutting down."""


class UncleanClose(KoffError):
    """Not all offsets were committed before shutdown was completed."""


class ClaimLost(KoffError):
    """This member does not own the partition any more. The next owner gets the uncommitted messages."""


def make_koff_error(what: str, error: BaseException) -> KoffError:
    """To keep: a copy of a `KoffError`; else a `KoffError` that says what failed, chained to a copy."""
    if isinstance(error, KoffError):
        return copy_error(error)
    made = KoffError(f"{what}: {error!r}")
    made.__cause__ = copy_error(error)
    return made


def raise_close_errors(group: str, errors: Sequence[KoffError]) -> None:
    """Raises `UncleanClose` if there are errors since the shutdown of the member began."""
    if errors:
        raise UncleanClose(
            f"not all offsets of {group} were committed before shutdown was completed: "
            + "; ".join(map(str, errors))
        ) from errors[0]


def check_processed(at: TopicPartition, processed: int | None, last_offset: int | None) -> None:
    """Raises `UncleanClose` unless all messages up to `last_offset` were processed; None: there are none."""
    if last_offset is not None and (processed is None or processed < last_offset):
        raise UncleanClose(
            f"{at.topic}/{at.partition}: offsets up to {processed} are committed, and up to {last_offset} "
            "were handed out: the rest will be delivered again; acknowledge all messages, or raise "
            "processing_timeout_s"
        )

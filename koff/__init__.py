"""koff tells how far behind every Kafka consumer group is, and why."""

from typing import TYPE_CHECKING, Any

from koff.version import VERSION

if TYPE_CHECKING:
    from koff.records import GroupMember, GroupMessage, Message, OffsetMessage, TopicAndPartition, decode
    from koff.tail.messages import Consumer

__version__ = VERSION
__all__ = [
    "Consumer",
    "GroupMember",
    "GroupMessage",
    "Message",
    "OffsetMessage",
    "TopicAndPartition",
    "decode",
]


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first asked for: the command line chooses what it loads, and how."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from koff import records
    from koff.tail import messages as consumer

    globals()[name] = getattr(consumer if name == "Consumer" else records, name)
    return globals()[name]

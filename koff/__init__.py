"""koff shows how far behind every Kafka consumer group is, and why."""

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
    """A public name of this package, imported when it is first used. Raises `AttributeError`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not at the top: `import koff` would then load numpy before koff.cli can set its number of threads.
    from koff import records
    from koff.tail import messages

    globals()[name] = getattr(messages if name == "Consumer" else records, name)
    return globals()[name]

"""koff shows how far behind every Kafka consumer group is, and why."""

from typing import TYPE_CHECKING, Any

from koff.version import VERSION

if TYPE_CHECKING:
    from koff.records import (
        DecodedMessage,
        GroupMember,
        GroupMessage,
        OffsetMessage,
        TopicAndPartition,
        decode,
    )
    from koff.tail.messages import OffsetsConsumer

    Consumer, Message = OffsetsConsumer, DecodedMessage

__version__ = VERSION
__all__ = [
    "Consumer",
    "DecodedMessage",
    "GroupMember",
    "GroupMessage",
    "Message",
    "OffsetMessage",
    "OffsetsConsumer",
    "TopicAndPartition",
    "decode",
]

_SHORT_NAMES = {"Consumer": "OffsetsConsumer", "Message": "DecodedMessage"}
"""The names in the Go library of the same name. Elsewhere in koff, a `Message` is that of `koff.client`."""


def __getattr__(name: str) -> Any:
    """A public name of this package, imported when it is first used. Raises `AttributeError`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not at the top: `import koff` would then load numpy before koff.cli can set its number of threads.
    from koff import records
    from koff.tail import messages

    class_name = _SHORT_NAMES.get(name, name)
    globals()[name] = getattr(messages if class_name == "OffsetsConsumer" else records, class_name)
    return globals()[name]

"""koff tells how far behind every Kafka consumer group is, and why."""

from koff.reader import Consumer
from koff.records import GroupMember, GroupMessage, Message, OffsetMessage, TopicAndPartition, decode
from koff.version import VERSION

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

"""koff tells how far behind every Kafka consumer group is, and why."""

from koff.reader import Consumer
from koff.records import GroupMember, GroupMessage, Message, OffsetMessage, TopicAndPartition, decode

__version__ = "0.1.0"
__all__ = [
    "Consumer",
    "GroupMember",
    "GroupMessage",
    "Message",
    "OffsetMessage",
    "TopicAndPartition",
    "decode",
]

"""What the records say of groups beside their offsets: kind, state, epochs, members, assignments."""

from koff.tracker.groups.consumer import ConsumerGroup
from koff.tracker.groups.group import (
    NOTHING,
    STABLE,
    Assignment,
    Group,
    Member,
    ShareTopic,
    Subscription,
    Subtopology,
    Tasks,
    Topology,
)
from koff.tracker.groups.modern import Current, Profile, Told
from koff.tracker.groups.share import ShareGroup
from koff.tracker.groups.streams import StreamsGroup
from koff.tracker.groups.table import Described, GroupTable

__all__ = [
    "NOTHING",
    "STABLE",
    "Assignment",
    "ConsumerGroup",
    "Current",
    "Described",
    "Group",
    "GroupTable",
    "Member",
    "Profile",
    "ShareGroup",
    "ShareTopic",
    "StreamsGroup",
    "Subscription",
    "Subtopology",
    "Tasks",
    "Told",
    "Topology",
]

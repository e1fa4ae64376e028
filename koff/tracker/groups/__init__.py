"""What the records say of groups beside their offsets: kind, state, epochs, members, assignments."""

from koff.tracker.groups.consumer_group import ConsumerGroup
from koff.tracker.groups.group_table import Described, GroupTable
from koff.tracker.groups.modern_group import Current, Profile, Told
from koff.tracker.groups.share_group import ShareGroup
from koff.tracker.groups.streams_group import StreamsGroup
from koff.tracker.groups.views import (
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

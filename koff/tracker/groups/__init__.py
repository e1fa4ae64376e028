"""The state of groups apart from their offsets: type, state, epochs, members, assignments."""

from koff.tracker.groups.consumer_group import ConsumerGroupState
from koff.tracker.groups.group_table import Described, GroupTable
from koff.tracker.groups.modern_group import Current, MemberDescription, Profile
from koff.tracker.groups.share_group import ShareGroupState
from koff.tracker.groups.streams_group import StreamsGroupState
from koff.tracker.groups.views import (
    NOTHING,
    STABLE,
    Assignment,
    Group,
    GroupSubscription,
    GroupSubtopology,
    Member,
    ShareTopic,
    Tasks,
    Topology,
    merge_assignments,
)

__all__ = [
    "NOTHING",
    "STABLE",
    "Assignment",
    "ConsumerGroupState",
    "Current",
    "Described",
    "Group",
    "GroupSubscription",
    "GroupSubtopology",
    "GroupTable",
    "Member",
    "MemberDescription",
    "Profile",
    "ShareGroupState",
    "ShareTopic",
    "StreamsGroupState",
    "Tasks",
    "Topology",
    "merge_assignments",
]

"""What the records say of groups beside their offsets: kind, state, epochs, members, assignments."""

from koff.tracker.groups.group import (
    Assignment,
    Group,
    Member,
    ShareTopic,
    Subscription,
    Subtopology,
    Tasks,
    Topology,
)
from koff.tracker.groups.table import GroupTable

__all__ = [
    "Assignment",
    "Group",
    "GroupTable",
    "Member",
    "ShareTopic",
    "Subscription",
    "Subtopology",
    "Tasks",
    "Topology",
]

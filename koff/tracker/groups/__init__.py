"""The state of groups apart from their offsets: type, state, epochs, members, assignments.

`as` tells type checkers that a name is public.
"""

from koff.tracker.groups.consumer_group import ConsumerGroupState as ConsumerGroupState
from koff.tracker.groups.group_table import Described as Described
from koff.tracker.groups.group_table import GroupTable as GroupTable
from koff.tracker.groups.modern_group import Current as Current
from koff.tracker.groups.modern_group import MemberDescription as MemberDescription
from koff.tracker.groups.modern_group import Profile as Profile
from koff.tracker.groups.share_group import ShareGroupState as ShareGroupState
from koff.tracker.groups.streams_group import StreamsGroupState as StreamsGroupState
from koff.tracker.groups.views import NOTHING as NOTHING
from koff.tracker.groups.views import STABLE as STABLE
from koff.tracker.groups.views import Assignment as Assignment
from koff.tracker.groups.views import Group as Group
from koff.tracker.groups.views import GroupSubscription as GroupSubscription
from koff.tracker.groups.views import GroupSubtopology as GroupSubtopology
from koff.tracker.groups.views import Member as Member
from koff.tracker.groups.views import ShareTopic as ShareTopic
from koff.tracker.groups.views import Tasks as Tasks
from koff.tracker.groups.views import Topology as Topology
from koff.tracker.groups.views import merge_assignments as merge_assignments

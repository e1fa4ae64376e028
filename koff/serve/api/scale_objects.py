"""The JSON object for autoscalers: how many members a group should have."""

from koff.lag.scaling import ScaleReason
from koff.serve.api.group_objects import CAUSES
from koff.serve.api.shapes import COUNT, NUMBER, STRING, JsonField, JsonObject, list_of, nullable, one_of
from koff.view.scaling import GroupScale

SCALE: JsonObject[GroupScale] = JsonObject(
    JsonField("cluster", STRING, "The cluster."),
    JsonField("group", STRING, "The group."),
    JsonField("members_wanted", COUNT, "So many members should be there.", "scale.members"),
    JsonField("members", COUNT, "So many are there."),
    JsonField(
        "most_members",
        nullable(COUNT),
        "So many can have a partition. Null: any number can (share groups).",
        "load.partitions",
    ),
    JsonField(
        "reason",
        one_of([str(reason) for reason in ScaleReason]),
        "Why `members_wanted` is what it is.",
        lambda each: str(each.scale.reason),
    ),
    JsonField("text", STRING, "The same as a sentence."),
    JsonField("lag", COUNT, "The lag, without transaction markers at the end of a log.", "load.lag"),
    JsonField("curable_lag", COUNT, "The part of it that more members can cure.", "load.curable"),
    JsonField("causes", list_of(one_of(CAUSES)), "Why they cannot cure the rest."),
    JsonField("produce_per_s", NUMBER, "How fast records come.", "load.produce_per_s"),
    JsonField(
        "member_per_s",
        nullable(NUMBER),
        "How many records one member can do, as far as that is known.",
        "scale.member_per_s",
    ),
    JsonField("allowance_s", NUMBER, "So late the group may be.", "load.allowance_s"),
    JsonField("seconds", COUNT, "In so many seconds it is to be within that."),
)

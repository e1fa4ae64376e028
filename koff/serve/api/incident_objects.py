"""The JSON object of an incident."""

from koff.lag.verdict import Verdict
from koff.serve.api.group_objects import CAUSES
from koff.serve.api.shapes import (
    COUNT,
    NUMBER,
    STRING,
    JsonField,
    JsonObject,
    list_of,
    nullable,
    object_of,
    one_of,
    told,
)
from koff.view.incidents import Incident

_VERDICTS = one_of([Verdict.WARN.name, Verdict.ERR.name])
_STEPS = list_of(
    object_of(
        {
            "at_ms": told(COUNT, "When it became so, in ms since 1970."),
            "status": one_of([verdict.name for verdict in Verdict]),
            "cause": nullable(one_of(CAUSES)),
            "text": STRING,
        }
    )
)


INCIDENT: JsonObject[Incident] = JsonObject(
    JsonField("key", STRING, "That of its events, and of all incidents of the group."),
    JsonField("cluster", nullable(STRING), "The cluster."),
    JsonField("group", STRING, "The group."),
    JsonField("opened_ms", COUNT, "When it began, in ms since 1970."),
    JsonField("closed_ms", nullable(COUNT), "When it ended. Null: it lasts."),
    JsonField("duration_s", nullable(NUMBER), "How long it lasted. Null: it lasts."),
    JsonField("worst", _VERDICTS, "The worst verdict.", "worst.name"),
    JsonField("worst_lag", COUNT, "The largest lag, in offsets.", "lag"),
    JsonField("worst_time_lag_s", COUNT, "The longest time lag.", "time_lag_s"),
    JsonField("records_lost", COUNT, "At least so many offsets left the log before they were committed."),
    JsonField(
        "steps",
        _STEPS,
        "The verdicts and the first causes that it had: the oldest first.",
        lambda each: [
            {"at_ms": step.at_ms, "status": step.verdict, "cause": step.cause or None, "text": step.text}
            for step in list(each.steps)
        ],
    ),
)

"""The JSON object of an incident."""

from __future__ import annotations

from typing import NamedTuple

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
)
from koff.view.incidents import Incident

_VERDICTS = one_of([Verdict.WARN.name, Verdict.ERR.name])
_STEPS = list_of(
    object_of(
        {
            "at_ms": {**COUNT, "description": "When it became so, in ms since 1970."},
            "status": one_of([verdict.name for verdict in Verdict]),
            "cause": nullable(one_of(CAUSES)),
            "text": STRING,
        }
    )
)


class ClusterIncident(NamedTuple):
    """An incident of a cluster."""

    cluster: str | None
    incident: Incident


INCIDENT: JsonObject[ClusterIncident] = JsonObject(
    JsonField("key", STRING, "That of its events, and of all incidents of the group.", "incident.key"),
    JsonField("cluster", nullable(STRING), "The cluster."),
    JsonField("group", STRING, "The group.", "incident.group"),
    JsonField("opened_ms", COUNT, "When it began, in ms since 1970.", "incident.opened_ms"),
    JsonField("closed_ms", nullable(COUNT), "When it ended. Null: it lasts.", "incident.closed_ms"),
    JsonField("duration_s", nullable(NUMBER), "How long it lasted. Null: it lasts.", "incident.duration_s"),
    JsonField("worst", _VERDICTS, "The worst verdict.", "incident.worst.name"),
    JsonField("worst_lag", COUNT, "The largest lag, in offsets.", "incident.lag"),
    JsonField("worst_time_lag_s", COUNT, "The longest time lag.", "incident.time_lag_s"),
    JsonField(
        "records_lost",
        COUNT,
        "At least so many offsets left the log before they were committed.",
        "incident.records_lost",
    ),
    JsonField(
        "steps",
        _STEPS,
        "The verdicts and the first causes that it had: the oldest first.",
        lambda each: [
            {"at_ms": step.at_ms, "status": step.verdict, "cause": step.cause or None, "text": step.text}
            for step in list(each.incident.steps)
        ],
    ),
)

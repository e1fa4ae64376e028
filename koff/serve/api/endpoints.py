"""The endpoints of the API: one table for requests, for OpenAPI and for the page at /api."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from koff.serve.api import queries
from koff.serve.api.cluster_objects import CLUSTER, PARTITION_OFFSETS, READER, TOPIC, UNUSED
from koff.serve.api.earlier_objects import BUDGET, EARLIER
from koff.serve.api.group_columns import MOST_LABELS
from koff.serve.api.group_objects import (
    CAUSES,
    CLUSTER_GROUP,
    DETAILS,
    GROUP,
    GROUP_TYPES,
    LAST_KNOWN,
    MEMBER,
    ROW,
    STATUSES,
)
from koff.serve.api.incident_objects import INCIDENT
from koff.serve.api.parameters import Parameter, Query, any_text, choice, label, regex, whole_number
from koff.serve.api.scale_objects import SCALE
from koff.serve.api.shapes import BOOLEAN, COUNT, NUMBER, STRING, Schema, list_of, nullable, object_of, told
from koff.view.cluster_view import Views
from koff.view.lag_history import Course

ROOT = "/api/v1"
_MAX_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """A path, in which `{name}` stands for one segment, and what a GET returns.

    `respond` gets the names in the path and the parameters that are required.
    """

    path: str
    summary: str
    respond: Callable[[Views, Mapping[str, str], Query], dict[str, Any]]
    schema: Schema
    parameters: tuple[Parameter, ...] = ()

    @property
    def segments(self) -> list[str]:
        return self.path.split("/")[1:]

    @property
    def names(self) -> list[str]:
        return [part[1:-1] for part in self.segments if part.startswith("{")]

    @property
    def required(self) -> list[str]:
        """The names in the query without which there is no response."""
        return [parameter.name for parameter in self.parameters if parameter.is_required]

    @property
    def operation_id(self) -> str:
        return f"{self.respond.__name__}_by_query" if self.required else self.respond.__name__

    @property
    def has_names(self) -> bool:
        """Whether a request may name something that does not exist."""
        return bool(self.names) or any(parameter.name == "cluster" for parameter in self.parameters)

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The values of the names in these segments of a path; None if the path is another one."""
        if len(segments) != len(self.segments):
            return None
        pairs = list(zip(self.segments, segments, strict=True))
        if any(own != given for own, given in pairs if not own.startswith("{")):
            return None
        return {own[1:-1]: given for own, given in pairs if own.startswith("{")}


_PAGE = (
    whole_number("limit", "How many are returned, at most.", 1, 1000, default=100),
    whole_number("offset", "How many are left out before the first.", 0, _MAX_OFFSET, default=0),
)
_NAMES = (
    any_text("name", "Only names with this text in them."),
    regex("match", "Only names in which this regular expression is found."),
)
_GROUPS = (
    *_NAMES,
    choice("status", "Only groups with one of these statuses.", STATUSES, is_list=True),
    choice("withheld", "Only groups with a lag that is withheld.", ("true",)),
    choice("cause", "Only groups with one of these causes of a lag.", CAUSES, is_list=True),
    choice("type", "Only groups of one of these types.", GROUP_TYPES, is_list=True),
    any_text("state", "Only groups in one of these states, such as Stable or Empty.", is_list=True),
    label("label", "Only groups with all of these labels (`group_labels`, `owners`)."),
    whole_number("min_lag", "Only groups with a lag of at least so many offsets.", 0, _MAX_OFFSET),
    choice(
        "sort",
        "What the groups are sorted by. worst: ERR, WARN, UNKNOWN, OK, in these the latest by its allowance.",
        ("worst", "lag", "time_lag_s", "status", "name"),
        default="worst",
    ),
    choice("order", "By default names are ascending, all else is descending.", ("asc", "desc")),
    *_PAGE,
)
_LIST = {
    "total": told(COUNT, "How many match, on all pages."),
    "next_offset": told(nullable(COUNT), "`offset` of the next page. Null: this is the last one."),
}
_COUNTS = told(
    list_of(object_of({"cluster": STRING, **dict.fromkeys((*STATUSES, "withheld"), nullable(COUNT))})),
    "How many groups of each cluster match all filters but cluster, status and withheld: by "
    "status, and with a lag that is withheld. Null: koff does not know the groups of the cluster.",
)
_GROUP_LIST = object_of(
    {
        **_LIST,
        "unknown": told(COUNT, "How many groups `min_lag` has left out because their lag is not known."),
        "counts": _COUNTS,
        "labels": told(
            list_of(STRING), f"The labels of all groups, as `label` takes them: {MOST_LABELS} at most."
        ),
        "groups": list_of(CLUSTER_GROUP),
    }
)
_COURSE = object_of(
    {
        "step_s": told(COUNT, "The time between two values."),
        "end_ms": told(COUNT, "When the newest was taken, since 1970."),
        **{name: list_of(nullable(NUMBER)) for name in Course._fields if name != "end_ms"},
    }
)
_LAST_HOUR = told(
    nullable(_COURSE),
    "The lags and the rates (records a second) of the last hour. Null: nothing is kept.",
)


def _ask_in_query(path: str, endpoint: ApiEndpoint) -> ApiEndpoint:
    """The endpoint at a path without names: the query has them.

    Browsers and proxies change a path with the names "." and "..", encoded slashes, or empty segments. They
    leave a query alone.
    """
    names = (any_text(name, f"The name of the {name}.", is_required=True) for name in endpoint.names)
    return replace(endpoint, path=path, parameters=(*names, *endpoint.parameters))


_BY_PATH = (
    ApiEndpoint(
        f"{ROOT}/clusters",
        "All clusters, and whether koff is ready.",
        queries.list_clusters,
        object_of(
            {
                "ready": BOOLEAN,
                "readiness": STRING,
                "memory_bytes": told(nullable(COUNT), "The resident memory of koff."),
                "clusters": list_of(CLUSTER.schema),
            }
        ),
    ),
    ApiEndpoint(
        f"{ROOT}/clusters/{{cluster}}",
        "One cluster.",
        queries.show_cluster,
        object_of({**CLUSTER.schema["properties"], "last_hour": _LAST_HOUR}),
    ),
    ApiEndpoint(
        f"{ROOT}/clusters/{{cluster}}/topics",
        "The topics of a cluster, by name.",
        queries.list_topics,
        object_of({**_LIST, "cluster": STRING, "topics": list_of(TOPIC.schema)}),
        (*_NAMES, *_PAGE),
    ),
    ApiEndpoint(
        f"{ROOT}/clusters/{{cluster}}/topics/{{topic}}",
        "One topic, with the offsets of its partitions and, in pages, the groups that read it.",
        queries.show_topic,
        object_of(
            {
                **_LIST,
                "cluster": STRING,
                **TOPIC.schema["properties"],
                "offsets": list_of(PARTITION_OFFSETS.schema),
                "groups": list_of(READER.schema),
            }
        ),
        _PAGE,
    ),
    ApiEndpoint(
        f"{ROOT}/clusters/{{cluster}}/groups",
        "The groups of a cluster.",
        queries.list_groups,
        _GROUP_LIST,
        _GROUPS,
    ),
    ApiEndpoint(
        f"{ROOT}/clusters/{{cluster}}/groups/{{group}}",
        "One group, with its members and partitions.",
        queries.show_group,
        object_of(
            {
                "cluster": STRING,
                "group": object_of({**GROUP.schema["properties"], **DETAILS.schema["properties"]}),
                "last_hour": _LAST_HOUR,
                "last_known": LAST_KNOWN,
                "earlier": told(
                    list_of(EARLIER.schema),
                    "The same hour a day and a week before, as far as koff has kept it.",
                ),
                "budget": told(
                    nullable(BUDGET),
                    "How long it missed its objective. Null: it has none, or nothing is kept.",
                ),
                "members": told(nullable(list_of(MEMBER.schema)), "Null: not current."),
                "partitions": list_of(ROW.schema),
                "runbook_url": told(nullable(STRING), "By `owners`, or `runbook`."),
                "commands": told(
                    list_of(STRING), "Commands of Kafka's tools that help. They change nothing."
                ),
            }
        ),
    ),
    ApiEndpoint(
        f"{ROOT}/clusters/{{cluster}}/unused",
        "The groups of a cluster that nobody uses. `koff unused` checks topics, too.",
        queries.list_unused,
        object_of({**_LIST, "cluster": STRING, "unused": list_of(UNUSED)}),
        (
            whole_number("idle_s", "A group is idle after so many seconds.", 0, 10**9, default=3 * 86_400),
            whole_number("topics_above", "Name groups that read more topics.", 0, 10**9, default=50),
            *_PAGE,
        ),
    ),
    ApiEndpoint(
        f"{ROOT}/groups",
        "The groups of all clusters, or of one.",
        queries.list_all_groups,
        _GROUP_LIST,
        (any_text("cluster", "Only groups of this cluster."), *_GROUPS),
    ),
    ApiEndpoint(
        f"{ROOT}/incidents",
        "The incidents of all clusters, or of one: those that last, then the newest.",
        queries.list_incidents,
        object_of({**_LIST, "incidents": list_of(INCIDENT.schema)}),
        (
            any_text("cluster", "Only incidents of this cluster."),
            any_text("group", "Only incidents of this group."),
            any_text("name", "Only incidents with this text in the name of the group, or in a sentence."),
            choice("worst", "Only incidents with one of these as the worst.", ("WARN", "ERR"), is_list=True),
            choice("open", "Only incidents that last, or only those that have ended.", ("true", "false")),
            whole_number("since_ms", "Only incidents that lasted until then, or longer.", 0, _MAX_OFFSET),
            whole_number("until_ms", "Only incidents that began until then.", 0, _MAX_OFFSET),
            *_PAGE,
        ),
    ),
)
_SCALE = ApiEndpoint(
    f"{ROOT}/scale",
    "How many members a group should have, for autoscalers. 503 if that is withheld or not known.",
    queries.show_scale,
    SCALE.schema,
    (
        any_text("group", "The name of the group.", is_required=True),
        any_text("cluster", "Its cluster. May be left out if koff watches one."),
        any_text("topic", "Only this topic of it, as if it read no other.", is_list=True),
        whole_number(
            "seconds", "In so many seconds it is to be within its allowance.", 1, 86_400, default=300
        ),
        whole_number(
            "member_per_s",
            "How many records a second one member can do: by default, what koff saw.",
            1,
            10**9,
        ),
    ),
)
_PATHS = {endpoint.path: endpoint for endpoint in _BY_PATH}
ENDPOINTS = (
    *_BY_PATH,
    _SCALE,
    _ask_in_query(f"{ROOT}/cluster", _PATHS[f"{ROOT}/clusters/{{cluster}}"]),
    _ask_in_query(f"{ROOT}/topics", _PATHS[f"{ROOT}/clusters/{{cluster}}/topics"]),
    _ask_in_query(f"{ROOT}/topic", _PATHS[f"{ROOT}/clusters/{{cluster}}/topics/{{topic}}"]),
    _ask_in_query(f"{ROOT}/unused", _PATHS[f"{ROOT}/clusters/{{cluster}}/unused"]),
    _ask_in_query(f"{ROOT}/group", _PATHS[f"{ROOT}/clusters/{{cluster}}/groups/{{group}}"]),
)


def find_endpoint(segments: list[str]) -> tuple[ApiEndpoint, dict[str, str]] | None:
    """The endpoint of a path, and the names in the path; None if there is none."""
    for endpoint in ENDPOINTS:
        names = endpoint.match(segments)
        if names is not None:
            return endpoint, names
    return None

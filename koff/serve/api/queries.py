"""What each endpoint returns, from the views of the clusters."""

import math
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from koff.serve.api.cluster_objects import (
    CLUSTER,
    PARTITION_OFFSETS,
    READER,
    TOPIC,
    build_unused,
    list_topic_partitions,
)
from koff.serve.api.commands import list_commands
from koff.serve.api.earlier_objects import build_budget, build_earlier
from koff.serve.api.group_columns import (
    GroupColumns,
    GroupPlace,
    build_last_known,
    build_place,
    list_known,
    select_places,
)
from koff.serve.api.group_objects import (
    DETAILS,
    build_members,
    build_rows,
)
from koff.serve.api.incident_objects import INCIDENT
from koff.serve.api.name_pattern import search_names
from koff.serve.api.parameters import Query
from koff.serve.api.problems import NotFound, NotKnown, Problem
from koff.serve.api.scale_objects import SCALE
from koff.serve.api.topic_columns import TopicColumns
from koff.view.cluster_view import ClusterView, Views
from koff.view.incidents import Incident
from koff.view.lag_history import STEP_S, Course
from koff.view.scaling import NoScale, scale_group
from koff.view.unused import Limits, list_unused_groups

T = TypeVar("T")
Names = Mapping[str, str]
"""The names in the path, or in the query."""
BROKERS = '"$BROKERS"'
"""Stands for the addresses of the brokers in commands: the API does not say how koff connects."""


def list_clusters(views: Views, _names: Names, _query: Query) -> dict[str, Any]:
    return {
        "ready": views.readiness.ready,
        "readiness": views.readiness.text,
        "memory_bytes": read_memory_bytes(),
        "clusters": [CLUSTER.build(view) for view in views.clusters],
    }


def show_cluster(views: Views, names: Names, _query: Query) -> dict[str, Any]:
    view = find_cluster(views, names["cluster"])
    return {**CLUSTER.build(view), "last_hour": _build_last_hour(view.activity.history.find_total())}


def list_topics(views: Views, names: Names, query: Query) -> dict[str, Any]:
    view = find_cluster(views, names["cluster"])
    topics = TopicColumns(view)
    found = [name for name in topics.names if query["name"] in name] if query["name"] else topics.names
    if query["match"]:
        matches = search_names(query["match"], found)
        found = [name for name, is_found in zip(found, matches, strict=True) if is_found]
    head, page = _cut(found, query)
    return {**head, "cluster": view.cluster, "topics": [TOPIC.build(each) for each in topics.build(page)]}


def show_topic(views: Views, names: Names, query: Query) -> dict[str, Any]:
    """One topic, with its partitions and a page of its readers."""
    view, topic = find_cluster(views, names["cluster"]), names["topic"]
    topics = TopicColumns(view)
    check_topic(topics, view, topic)
    (found,) = topics.build([topic])
    partitions = list_topic_partitions(view.snapshot, topic)
    head, page = _cut(topics.list_readers(topic), query)
    return {
        **head,
        "cluster": view.cluster,
        **TOPIC.build(found),
        "offsets": [PARTITION_OFFSETS.build(partition) for partition in partitions],
        "groups": [READER.build(reader) for reader in topics.build_readers(topic, page)],
    }


def list_all_groups(views: Views, _names: Names, query: Query) -> dict[str, Any]:
    """A page of the groups of all clusters, or of the one in the query."""
    if query["cluster"] is not None:
        find_cluster(views, query["cluster"])
    page = GroupColumns(views.clusters).find_page(query)
    return {
        **_describe_page(page.total, query),
        "unknown": page.unknown,
        "counts": [{"cluster": cluster, **counts} for cluster, counts in page.counts.items()],
        "labels": page.labels,
        "groups": page.groups,
    }


def list_groups(views: Views, names: Names, query: Query) -> dict[str, Any]:
    return list_all_groups(views, names, {**query, "cluster": names["cluster"]})


def list_unused(views: Views, names: Names, query: Query) -> dict[str, Any]:
    """A page of the groups of a cluster that nobody uses."""
    view = find_cluster(views, names["cluster"])
    limits = Limits(query["idle_s"], math.inf, query["topics_above"])
    head, page = _cut(list_unused_groups(view, limits, {}), query)
    return {**head, "cluster": view.cluster, "unused": [build_unused(each, BROKERS) for each in page]}


def list_incidents(views: Views, _names: Names, query: Query) -> dict[str, Any]:
    """A page of the incidents of all clusters, or of the one in the query."""
    chosen = views.clusters if query["cluster"] is None else [find_cluster(views, query["cluster"])]
    found = [
        (incident, view.cluster)
        for view in chosen
        for incident in view.activity.incidents.list_all()
        if view.shown.shows_group(incident.group) and _fits(incident, query)
    ]
    found.sort(key=lambda each: (each[0].closed_ms is not None, -each[0].opened_ms))
    head, page = _cut(found, query)
    return {**head, "incidents": [INCIDENT.build(each, cluster=cluster) for each, cluster in page]}


def _fits(incident: Incident, query: Query) -> bool:
    texts = (incident.group, *(step.text for step in list(incident.steps)))
    return (
        query["group"] in (None, incident.group)
        and query["open"] in (None, "true" if incident.closed_ms is None else "false")
        and (not query["name"] or any(query["name"] in text for text in texts))
        and (not query["worst"] or incident.worst.name in query["worst"])
        and (query["since_ms"] is None or (incident.closed_ms or query["since_ms"]) >= query["since_ms"])
        and (query["until_ms"] is None or incident.opened_ms <= query["until_ms"])
    )


def show_group(views: Views, names: Names, _query: Query) -> dict[str, Any]:
    place = find_group(find_cluster(views, names["cluster"]), names["group"])
    selected = select_places([place])
    (total,) = selected.totals()
    coordinators = place.view.facts.coordinators
    leader = coordinators[place.shard] if 0 <= place.shard < len(coordinators) else -1
    details = DETAILS.build(
        total,
        coordinator=leader if leader >= 0 else None,
        commits_held_back=place.shard in place.view.stats.held_back_partitions,
    )
    members = build_members(selected, total.group) if total.current else None
    course = place.view.activity.history.find(place.name)
    found = {
        "cluster": place.view.cluster,
        "group": {**build_place(place, total), **details},
        "last_hour": _build_last_hour(course),
        "last_known": build_last_known(course, total),
        "earlier": build_earlier(place.view.activity.archive, place.name, course),
        "budget": build_budget(place.view.activity.archive, place.name, place.view.snapshot.now_ms),
        "members": members,
        "partitions": list(build_rows(selected)),
        "runbook_url": place.view.find_runbook_url(place.name, total.cause.label),
    }
    return {**found, "commands": list_commands(found, BROKERS)}


def show_scale(views: Views, names: Names, query: Query) -> dict[str, Any]:
    """How many members a group should have. Raises `Problem` 503 if what it follows from is withheld."""
    if query["cluster"] is None and len(views.clusters) != 1:
        raise Problem(404, f"there are {len(views.clusters)} clusters: name one in the parameter cluster")
    view = views.clusters[0] if query["cluster"] is None else find_cluster(views, query["cluster"])
    place = find_group(view, names["group"])
    wanted = {name: query[name] for name in ("seconds", "member_per_s")}
    try:
        found = scale_group(view, place.shard, place.number, topics=query["topic"], **wanted)
    except NoScale as error:
        raise Problem(503, str(error)) from None
    return SCALE.build(found, cluster=view.cluster or "", group=place.name)


def _build_last_hour(course: Course | None) -> dict[str, Any] | None:
    if course is None:
        return None
    values = {name: list_known(values) for name, values in course._asdict().items() if name != "end_ms"}
    return {"step_s": STEP_S, "end_ms": course.end_ms, **values}


def find_cluster(views: Views, name: str) -> ClusterView:
    """The view of a cluster. Raises `NotFound`."""
    for view in views.clusters:
        if view.cluster == name:
            return view
    raise NotFound("cluster", name, [view.cluster for view in views.clusters if view.cluster is not None])


def find_group(view: ClusterView, name: str) -> GroupPlace:
    """Where a group is. Raises `NotFound`, or `NotKnown` if groups may be missing in the view."""
    for number, shard in view.snapshot.shards.items():
        for place, group in enumerate(shard.groups):
            if group.name == name:
                return GroupPlace(view, number, place)
    if not view.readiness.ready:
        raise NotKnown("group", name, view.readiness.text)
    if missing := view.stats.not_current:
        raise NotKnown("group", name, f"{missing} partitions of internal topics are not current")
    raise NotFound("group", name, [group.name for group in view.snapshot.groups()])


def check_topic(topics: TopicColumns, view: ClusterView, name: str) -> None:
    """Raises `NotFound` if there is no such topic, and `NotKnown` if the list of topics is not known."""
    if name in topics.names:
        return
    if view.facts.brokers is None:
        why = "the list of topics is not known" if view.readiness.ready else view.readiness.text
        raise NotKnown("topic", name, why)
    raise NotFound("topic", name, topics.names)


def _cut(found: Sequence[T], query: Query) -> tuple[dict[str, Any], Sequence[T]]:
    """What a page says of all that was found, and what is on that page."""
    page = found[query["offset"] : query["offset"] + query["limit"]]
    return _describe_page(len(found), query), page


def _describe_page(total: int, query: Query) -> dict[str, Any]:
    last = query["offset"] + query["limit"]
    return {"total": total, "next_offset": last if last < total else None}


_STATM = Path("/proc/self/statm")


def read_memory_bytes() -> int | None:
    """The resident memory. None where the system does not say it (not Linux)."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None

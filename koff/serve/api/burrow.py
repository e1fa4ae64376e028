"""Burrow's read endpoints, field for field (Burrow's HTTP API v3).

What differs, because koff serves no number that it does not know:

- A group with a withheld lag gets 503 and an error: Burrow's totals have no null, and clients in Go read null
  as 0, which looks like a recovery.
- A group that is not there gets 503, not NOTFOUND, while groups may be missing (the cluster is down, say).
- A partition with a commit but without a lag (its topic is gone, say) is left out and counted in
  `partition_count`. A group without any lag is not found, as in Burrow one without commits.
- koff keeps no commit but the newest: `start` is null if the window has more, and so are earlier `offsets`.
- The offsets of a topic are all or none: their places are the partitions.
"""

import socket
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from koff.lag import WINDOW, Status
from koff.serve.api.cluster_objects import list_topic_partitions
from koff.serve.api.group_columns import select_places
from koff.serve.api.problems import NotFound, Problem
from koff.serve.api.queries import check_topic, find_cluster, find_group
from koff.serve.api.topic_columns import TopicColumns
from koff.tracker import GroupTotal, PartitionLag, ShardSnapshot, Snapshot
from koff.view.cluster_view import ClusterView, Views, ViewSource

_MAX_PARTITIONS = 100_000
"""A list has a place for each partition up to the largest, and any client may commit to any partition."""
Object = dict[str, Any]
Found = tuple[int, str, Object]
"""The status, the message, and what is returned."""


class BurrowResponse(NamedTuple):
    """The status, and JSON or a text."""

    status: int
    value: Object | str


class _Commit(NamedTuple):
    """The newest commit of a row; times are null if they are not known."""

    offset: int
    timestamp_ms: int | None
    seen_at_ms: int | None
    is_only: bool


class Burrow:
    """Responds as Burrow does, from the views of a source."""

    def __init__(self, source: ViewSource) -> None:
        self._source = source
        self._host = socket.gethostname()

    def respond(self, segments: list[str], *, is_read: bool) -> BurrowResponse:
        """The response to a request for this path. Raises `Problem`."""
        is_readiness = segments == ["burrow", "admin", "ready"]
        find = _find_content(segments)
        if not (is_readiness or find or _is_deletion(segments)):
            # Burrow's own words
            return BurrowResponse(404, {"error": True, "message": "invalid request type", "result": {}})
        if not is_read or not (is_readiness or find):
            raise Problem(405, "koff changes nothing: only GET is allowed")
        views = self._source.take_views()
        if find is None:
            is_ready = views.readiness.ready
            return BurrowResponse(200, "READY") if is_ready else BurrowResponse(503, "STARTING")
        status, message, content = find(views)
        about = self._build_request(segments)
        return BurrowResponse(status, {"error": False, "message": message, **content, "request": about})

    def build_error(self, message: str, segments: list[str]) -> Object:
        return {"error": True, "message": message, "request": self._build_request(segments)}

    def _build_request(self, segments: list[str]) -> Object:
        return {"url": "/" + "/".join(segments), "host": self._host}


def _find_content(segments: list[str]) -> Callable[[Views], Found] | None:
    match segments:
        case ["v3", "kafka"]:
            return _list_clusters
        case ["v3", "kafka", cluster]:
            return lambda views: _show_cluster(views, cluster)
        case ["v3", "kafka", cluster, "topic"]:
            return lambda views: _list_topics(views, cluster)
        case ["v3", "kafka", cluster, "topic", topic]:
            return lambda views: _show_topic(views, cluster, topic)
        case ["v3", "kafka", cluster, "topic", topic, "consumers"]:
            return lambda views: _list_readers(views, cluster, topic)
        case ["v3", "kafka", cluster, "consumer"]:
            return lambda views: _list_groups(views, cluster)
        case ["v3", "kafka", cluster, "consumer", group]:
            return lambda views: _show_group(views, cluster, group)
        case ["v3", "kafka", cluster, "consumer", group, "status" | "lag" as what]:
            return lambda views: _show_status(views, cluster, group, is_whole=what == "lag")
    return None


def _is_deletion(segments: list[str]) -> bool:
    """Whether Burrow has the path for DELETE only."""
    match segments:
        case ["v3", "kafka", _, "consumer", _, "topic", _]:
            return True
    return False


def _find_cluster(views: Views, cluster: str, message: str = "cluster not found") -> ClusterView:
    try:
        return find_cluster(views, cluster)
    except NotFound:
        raise Problem(404, message) from None


def _list_clusters(views: Views) -> Found:
    names = [view.cluster for view in views.clusters if view.cluster is not None]
    return 200, "cluster list returned", {"clusters": names}


def _show_cluster(views: Views, cluster: str) -> Found:
    _find_cluster(views, cluster, "cluster module not found")
    # How koff connects to the cluster is not told to clients.
    profile = {"name": "", "client-id": "", "kafka-version": "", "tls": None, "sasl": None}
    module: Object = {"class-name": "kafka", "servers": [], "client-profile": profile}
    module |= {"topic-refresh": 0, "offset-refresh": 0}
    return 200, "cluster module detail returned", {"module": module}


def _list_topics(views: Views, cluster: str) -> Found:
    return 200, "topic list returned", {"topics": TopicColumns(_find_cluster(views, cluster)).names}


def _show_topic(views: Views, cluster: str, topic: str) -> Found:
    missing = "cluster or topic not found"
    view = _find_cluster(views, cluster, missing)
    try:
        check_topic(TopicColumns(view), view, topic)
    except NotFound:
        raise Problem(404, missing) from None
    ends = [partition.end for partition in list_topic_partitions(view.snapshot, topic)]
    facts = view.facts.topics.get(topic)
    is_whole = facts is not None and len(ends) == facts.partitions and None not in ends
    return 200, "topic offsets returned", {"offsets": ends if is_whole else []}


def _list_readers(views: Views, cluster: str, topic: str) -> Found:
    readers = TopicColumns(_find_cluster(views, cluster)).list_readers(topic)
    return 200, "consumers of topic returned", {"consumers": [reader.name for reader in readers]}


def _list_groups(views: Views, cluster: str) -> Found:
    # Burrow knows a group by its commits.
    names = [
        shard.groups[number].name
        for shard in _find_cluster(views, cluster).snapshot.shards.values()
        for number in np.unique(shard.group[_has_commit(shard)]).tolist()
    ]
    return 200, "consumer list returned", {"consumers": sorted(names)}


class _BurrowGroup(NamedTuple):
    """A group, its rows with a commit, the newest commit of each, and statuses by Burrow's rule."""

    total: GroupTotal
    rows: list[PartitionLag]
    commits: dict[tuple[str, int], _Commit]
    status: Status
    statuses: dict[tuple[str, int], Status]


def _find_group(views: Views, cluster: str, name: str) -> _BurrowGroup | None:
    try:
        place = find_group(find_cluster(views, cluster), name)
    except NotFound:
        return None
    snapshot = select_places([place])
    (total,), commits = snapshot.totals(), _list_commits(snapshot)
    rows = sorted(snapshot.rows(), key=lambda row: (row.topic, row.partition))
    (shard,), partitions = snapshot.shards.values(), snapshot.partitions
    statuses = {
        (partitions.topic[number], partitions.partition[number]): Status(status)
        for number, status in zip(shard.partition.tolist(), snapshot.statuses(shard).tolist(), strict=True)
    }
    own = [row for row in rows if (row.topic, row.partition) in commits]
    return _BurrowGroup(total, own, commits, Status(snapshot.group_statuses(shard)[0]), statuses)


def _has_commit(shard: ShardSnapshot) -> NDArray[np.bool_]:
    """A mask of the rows with a commit, or with a lag that a coordinator returned."""
    mask: NDArray[np.bool_] = shard.replace_described(shard.committed, 0) >= 0
    return mask


def _list_commits(snapshot: Snapshot) -> dict[tuple[str, int], _Commit]:
    """The newest commits of a snapshot of one group, by topic and partition."""
    (shard,), partitions = snapshot.shards.values(), snapshot.partitions
    numbers = np.flatnonzero(_has_commit(shard))
    commits = {}
    for row in numbers.tolist():
        at_ms, seen_at_ms = int(shard.committed_at[row]), int(shard.seen_at[row])
        number = int(shard.partition[row])
        commits[partitions.topic[number], partitions.partition[number]] = _Commit(
            int(shard.committed[row]),
            at_ms if at_ms >= 0 else None,
            seen_at_ms if seen_at_ms >= 0 else None,
            int(shard.features.commits[row]) == 1,
        )
    return commits


def _show_group(views: Views, cluster: str, name: str) -> Found:
    group = _find_group(views, cluster, name)
    if group is None:
        raise Problem(404, "cluster or consumer not found")
    topics: dict[str, dict[int, Object]] = defaultdict(dict)
    for row in group.rows:
        if row.published_lag is not None and row.partition < _MAX_PARTITIONS:
            topics[row.topic][row.partition] = {
                "offsets": [None] * (WINDOW - 1) + [_build_commit(group, row)],
                **_build_owner(row),
                "current-lag": row.published_lag,
            }
    listed = {topic: [rows.get(number) for number in range(max(rows) + 1)] for topic, rows in topics.items()}
    return 200, "consumer detail returned", {"topics": listed}


def _show_status(views: Views, cluster: str, name: str, *, is_whole: bool) -> Found:
    """The status of a group. Unless it `is_whole`, only partitions with WARN or worse are listed."""
    group, message = _find_group(views, cluster, name), "consumer status returned"
    status: Object = {
        "cluster": cluster,
        "group": name,
        "status": "NOTFOUND",
        "complete": 1.0,
        "partitions": [],
        "partition_count": 0,
        "maxlag": None,
        "totallag": 0,
    }
    if group is None:
        return 404, message, {"status": status}
    total = group.total
    if total.reason in ("commits_not_current", "rows_missing", "lags_withheld"):
        path = f"/api/v1/clusters/{quote(cluster, safe='')}/groups/{quote(name, safe='')}"
        raise Problem(503, f"the lag of the group is not current ({total.reason}): see {path}")
    if total.lag is None:
        return 404, message, {"status": status}
    partitions = [_build_partition(group, row) for row in group.rows if row.published_lag is not None]
    listed = [each for each in partitions if is_whole or Status[each["status"]] >= Status.WARN]
    status |= {
        "status": group.status.name,
        "complete": total.complete or 0.0,
        "partitions": listed,
        "partition_count": len(group.rows),
        "maxlag": max(partitions, key=lambda each: int(each["current_lag"])),
        "totallag": total.lag,
    }
    return 200, message, {"status": status}


def _build_partition(group: _BurrowGroup, row: PartitionLag) -> Object:
    commit = _build_commit(group, row)
    return {
        "topic": row.topic,
        "partition": row.partition,
        **_build_owner(row),
        "status": group.statuses.get((row.topic, row.partition), Status.NOTFOUND).name,
        "start": commit if group.commits[row.topic, row.partition].is_only else None,
        "end": commit,
        "current_lag": row.published_lag,
        "complete": row.complete or 0.0,
    }


def _build_commit(group: _BurrowGroup, row: PartitionLag) -> Object | None:
    """The newest commit; None where a coordinator returned the lag only. The lag at that time is not kept."""
    commit = group.commits[row.topic, row.partition]
    if row.committed is None:
        return None
    times = {"timestamp": commit.timestamp_ms, "observedAt": commit.seen_at_ms}
    return {"offset": commit.offset, **times, "lag": None}


def _build_owner(row: PartitionLag) -> Object:
    member = row.member
    return {"owner": member.client_host if member else "", "client_id": member.client_id if member else ""}

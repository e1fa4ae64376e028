"""Groups, commits and lags of share groups, as the coordinators return them, in the core's terms."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import structlog

from koff.client.cluster import Cluster
from koff.client.groups.coordinators import fetch_from_coordinators
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import FetchedGroups
from koff.errors import ConnectError
from koff.monitor.described import build_group
from koff.monitor.requests import (
    COORDINATOR_PATIENCE_S,
    FetchGroups,
    FetchShareLags,
    GroupsFetched,
    ShareLagsFetched,
)
from koff.records.placement import group_partition
from koff.tracker import ShareLag

log = structlog.get_logger(component="monitor.fetched_groups")
DEADLINE_S = 15.0
"""Less than the core waits for the result."""
_NO_LAG = "the coordinator returned no lag, as brokers before Kafka 4.2 do"


def fetch_described_groups(cluster: Cluster, request: FetchGroups, *, quiet: bool) -> GroupsFetched:
    """The result of the request. Raises `ConnectError` if no broker answers. `quiet`: logs at debug only."""
    count = request.partition_count
    options = FetchOptions(
        group_filter=partial(_is_wanted, count, request.partitions),
        deadline_s=DEADLINE_S,
        patience_s=request.patience_s,
        partitions=request.partitions if count > 1 and not request.together else None,
        empty=request.empty,
        known=request.known,
        share_offsets="not",  # a request of its own asks for them, where they are needed
    )
    fetched = fetch_from_coordinators(cluster.lister, options)
    write = log.debug if quiet else log.info
    write(
        "asked the coordinators",
        groups=len(fetched.groups),
        offsets=len(fetched.offsets),
        seconds=round(fetched.seconds, 3),
    )
    ids = _find_topic_ids(cluster, fetched)
    return GroupsFetched(
        request.id,
        fetched.offsets,
        {group.name: build_group(group, ids) for group in fetched.groups if group.name not in fetched.failed},
        {**fetched.unlisted, **fetched.failed},
        fetched.find_incomplete(request.partitions, count),
        ids,
        request.partitions,
        elsewhere=fetched.elsewhere,
    )


def fetch_share_lags(cluster: Cluster, request: FetchShareLags) -> ShareLagsFetched:
    """The result of the request. Raises `KoffError`: also if a broker or the log-in do not support it."""
    options = FetchOptions(
        deadline_s=DEADLINE_S,
        describe=False,
        patience_s=COORDINATOR_PATIENCE_S,
        partitions=request.partitions if request.partition_count > 1 else None,
        share_offsets="only",
    )
    fetched = fetch_from_coordinators(cluster.lister, options)
    lags: dict[str, list[ShareLag]] = {
        group.name: [] for group in fetched.groups if group.name not in fetched.failed
    }
    failed = dict(fetched.failed)
    for row in fetched.share_offsets:
        rows = lags.setdefault(row.group, [])
        if row.lag is None and row.start >= 0:  # the group has read the partition
            failed.setdefault(row.group, _NO_LAG)
        else:
            rows.append(ShareLag(row.topic, row.topic_id, row.partition, row.lag))
    errors = [*(f"{group}: {error}" for group, error in failed.items()), *fetched.incomplete]
    return ShareLagsFetched(
        request.id, lags, request.partitions, frozenset(failed) & lags.keys(), why=errors[0] if errors else ""
    )


def _is_wanted(partition_count: int, partitions: Collection[int], group: str) -> bool:
    return not partition_count or group_partition(group, partition_count) in partitions


def _find_topic_ids(cluster: Cluster, fetched: FetchedGroups) -> dict[str, str]:
    """The ids of all topics that are assigned to members by id. Some coordinators return only names."""
    ids = {name: id_ for group in fetched.groups for name, id_ in group.topic_ids.items()}
    unknown = {
        topic
        for group in fetched.groups
        if group.type in {"consumer", "share"}
        for member in group.members
        for topic in (*member.assigned, *(member.target or ()))
        if topic not in ids
    }
    if unknown:
        try:
            present = cluster.fetch_metadata().topic_ids
        except ConnectError as error:  # only names of assigned topics are missing then
            log.debug("no ids of assigned topics", why=str(error))
            return ids
        ids |= {name: present[name] for name in unknown & present.keys()}
    return ids

"""Requests to the cluster, and their results in the core's terms. Any thread may send them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.configs import Configs, fetch_topic_configs
from koff.client.metadata import Metadata, Node
from koff.errors import ConnectError, KoffError
from koff.monitor.fetched_groups import fetch_described_groups, fetch_share_lags
from koff.monitor.requests import (
    Answered,
    FetchGroups,
    FetchShareLags,
    FetchTopicConfigs,
    FetchTopics,
    GroupsFetched,
    Input,
    OffsetKind,
    ShareLagsFetched,
    Topic,
    TopicConfigsFetched,
    TopicsFetched,
)
from koff.records.topics import OFFSETS_TOPIC
from koff.tracker.commit_columns import CommitColumns
from koff.view.cluster_view import ClusterFacts, TopicFacts

log = structlog.get_logger(component="monitor.fetching")
OFFSETS_TIMEOUT_S = 8.0
"""Less than the core waits, so that it learns why there is no offset."""
CHUNK = 2_000
"""So many partitions in one call for offsets: the results come piece by piece."""
_UNKNOWN_LEADER = -1
_Item = TypeVar("_Item")
OfCoordinators = TypeVar("OfCoordinators", FetchGroups, FetchShareLags)


class Fetching:
    """Requests to the cluster. Any thread may call any method."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._lister = cluster, cluster.lister
        self._leaders: Mapping[str, tuple[int, ...]] = {}
        self._has_fetched_groups = False
        self.brokers: tuple[Node, ...] = ()
        """The brokers of the newest list of topics."""

    def fetch(self, request: Answered) -> Input:
        """The result of a request that is not for offsets. Raises `KoffError`."""
        match request:
            case FetchTopics():
                return self._fetch_topics(request)
            case FetchTopicConfigs():
                return TopicConfigsFetched(request.id, self._fetch_topic_configs(request))
        raise TypeError(f"{type(request).__name__} is not a request to the cluster")

    def _fetch_topic_configs(self, request: FetchTopicConfigs) -> Configs:
        brokers, timeout_s = self._cluster.brokers, OFFSETS_TIMEOUT_S
        return fetch_topic_configs(brokers, request.topics, request.names, timeout_s=timeout_s)

    def _fetch_topics(self, request: FetchTopics) -> TopicsFetched:
        metadata = self._cluster.fetch_metadata()
        listed, self.brokers = metadata.topics, metadata.brokers
        self._leaders = {
            name: tuple(partition.leader for partition in partitions) for name, partitions in listed.items()
        }
        topics = {
            name: Topic(
                metadata.topic_ids.get(name, ""),
                len(leaders),
                frozenset(p for p, leader in enumerate(leaders) if leader < 0),
            )
            for name, leaders in self._leaders.items()
        }
        denied = self._cluster.find_denied_topics(sorted(request.wanted - listed.keys()))
        return TopicsFetched(request.id, topics, self._gather_facts(metadata, frozenset(denied)))

    def _gather_facts(self, metadata: Metadata, denied: frozenset[str]) -> ClusterFacts:
        topics = {
            name: TopicFacts(
                len(partitions),
                min((len(at.replicas) for at in partitions), default=0),
                sum(at.leader < 0 for at in partitions),
                sum(len(at.in_sync) < len(at.replicas) for at in partitions),
            )
            for name, partitions in metadata.topics.items()
        }
        leaders = self._leaders.get(OFFSETS_TOPIC, ())
        return ClusterFacts(len(metadata.brokers), topics, leaders, denied=denied)

    def split_by_leader(self, partitions: Iterable[tuple[str, int]]) -> list[list[TopicPartition]]:
        """The partitions of each leader, as the lister or the newest list of topics knows it."""
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        leaders: dict[str, tuple[int, ...]] = {}
        for topic, partition in partitions:
            known = leaders.get(topic)
            if known is None:
                known = leaders[topic] = self._find_leaders(topic)
            leader = known[partition] if partition < len(known) else _UNKNOWN_LEADER
            by_leader[leader].append(TopicPartition(topic, partition))
        return list(by_leader.values())

    def _find_leaders(self, topic: str) -> tuple[int, ...]:
        return self._lister.find_leaders(topic) or self._leaders.get(topic, ())

    def refresh_leaders(self) -> None:
        """Fetches the leaders that are asked for offsets. Raises nothing."""
        try:
            self._lister.refresh_leaders(timeout_s=OFFSETS_TIMEOUT_S)
        except KoffError as error:  # the leaders that are known are asked
            log.debug("leaders cannot be fetched", why=str(error))
        except Exception:  # a fault of koff must not end the process
            log.exception("leaders cannot be fetched")

    def split_by_coordinator(self, request: OfCoordinators) -> list[OfCoordinators]:
        """A request for each coordinator, as of the newest list of topics; they have the same id."""
        by_leader: dict[int, set[int]] = defaultdict(set)
        known = self._leaders.get(OFFSETS_TOPIC, ())
        is_known = len(known) == request.partition_count
        if isinstance(request, FetchGroups) and request.together:
            return [request]
        for number in request.partitions:
            by_leader[known[number] if is_known else _UNKNOWN_LEADER].add(number)
        return [replace(request, partitions=frozenset(numbers)) for numbers in by_leader.values()]

    def fetch_groups(self, request: FetchGroups) -> Callable[..., GroupsFetched]:
        """The groups of one coordinator, or why they are unknown. Raises nothing."""
        quiet, self._has_fetched_groups = self._has_fetched_groups, True
        try:
            return partial(replace, fetch_described_groups(self._cluster, request, quiet=quiet))
        except KoffError as error:
            why = str(error)
        except Exception as error:  # a fault of koff must not end the process
            log.exception("groups cannot be fetched")
            why = f"{type(error).__name__}: {error}"
        incomplete = dict.fromkeys(request.partitions, why)
        nothing = CommitColumns.from_offsets({})
        return partial(
            GroupsFetched, request.id, nothing, {}, incomplete=incomplete, partitions=request.partitions
        )

    def fetch_share_lags(self, request: FetchShareLags) -> Callable[..., ShareLagsFetched]:
        """The lags of share groups of one coordinator, or why they are unknown. Raises nothing."""
        try:
            return partial(replace, fetch_share_lags(self._cluster, request))
        except KoffError as error:
            why = str(error)
        except Exception as error:  # a fault of koff must not end the process
            log.exception("lags of share groups cannot be fetched")
            why = f"{type(error).__name__}: {error}"
        return partial(ShareLagsFetched, request.id, {}, request.partitions, why=why)

    def fetch_offsets(
        self, kind: OffsetKind, partitions: Iterable[TopicPartition]
    ) -> dict[tuple[str, int], int | str]:
        """The offsets, or why they are unknown. Raises nothing."""
        wanted = list(partitions)
        spec: OffsetSpec | int = OffsetSpec.LATEST
        if isinstance(kind, int):
            spec = kind
        elif kind == "start":
            spec = OffsetSpec.EARLIEST
        isolation = Isolation.READ_COMMITTED if kind == "stable" else Isolation.READ_UNCOMMITTED
        try:
            listed = self._lister.list_offsets(wanted, spec, isolation, timeout_s=OFFSETS_TIMEOUT_S)
        except ConnectError as error:
            first = min(wanted)
            why = f"the leader of {first.topic}-{first.partition} does not respond: {error}"
            return dict.fromkeys(wanted, why)
        except KoffError as error:
            return {at: str(error) for at in wanted}
        except Exception as error:  # a fault of koff must not end the process
            log.exception("offsets cannot be fetched")
            return {at: f"{type(error).__name__}: {error}" for at in wanted}
        return {at: found if isinstance(found, str) else found.offset for at, found in listed.items()}


def split_into_chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """The items in order, `size` of them at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))

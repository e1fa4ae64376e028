"""`Cluster` fetches the id, the topics and the offsets of one Kafka cluster, over koff's own connections."""

import time
from collections.abc import Callable, Collection, Iterable
from concurrent import futures
from operator import attrgetter
from typing import Self

from koff.client.calls import call_in_thread, get_result
from koff.client.closing import Closing
from koff.client.cluster_conf import (
    TOPIC_PROPAGATION_S,
    ClusterConf,
    Isolation,
    OffsetSpec,
    TopicInfo,
    TopicPartition,
)
from koff.client.configs import fetch_topic_configs
from koff.client.foreign_errors import make_denied_error
from koff.client.metadata import Metadata, Node, PartitionMetadata
from koff.client.offsets.lister import OffsetLister
from koff.client.offsets.messages import MetadataResponse, TopicMetadata
from koff.client.wire.credentials import TokenSource, check_properties
from koff.client.wire.pool import Address
from koff.errors import ConnectError, copy_error
from koff.proto.primitives import ZERO_UUID
from koff.proto.requests import error_name

CHUNK = 2_000
"""The most topics in one request."""
_PAUSE_S = 0.2
"""Between two requests for a topic that is missing."""
_ABSENT = "UNKNOWN_TOPIC_OR_PARTITION"
_DENIED = "TOPIC_AUTHORIZATION_FAILED"


class Cluster(Closing):
    """Requests to one cluster. A context manager; several threads may use it, and `close` it twice.

    Raises `ConfigError` for properties that koff does not support. Every method that sends a request raises
    `ConnectError` (one line of text) when the cluster does not respond, and `Closed` after `close`. `lister`
    lists the offsets, and knows the leaders.
    """

    def __init__(self, conf: ClusterConf, *, token: TokenSource | None = None) -> None:
        check_properties(conf, token=token)  # an error here is clearer than one of each connection
        self.conf, self.id = conf, ""
        self.lister = OffsetLister(conf, token=token)
        self.brokers = self.lister.brokers

    def close(self) -> None:
        """Closes the connections."""
        self.lister.close()

    def connect(
        self,
        *,
        wait: Callable[[ConnectError], bool] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Connects, fetches the cluster's id, and returns self. Raises `ConnectError`.

        An attempt takes the connect timeout at the most. If `wait` is given, `connect` passes the error of an
        attempt to `wait`, and tries again if `wait` returns true. `should_stop` is called every 0.05 s while
        a request is under way: once it returns true, the attempt ends with an error.
        """
        while True:
            try:
                self.id = self._fetch_id(should_stop)
            except ConnectError as error:
                failure = copy_error(error)
            else:
                self.lister.expect_cluster(self.id)
                return self
            if wait is None or not wait(failure):
                raise copy_error(failure)

    def fetch_topic(self, name: str, *, patience_s: float = 0.0) -> TopicInfo | None:
        """The topic of that name, None if there is none. Raises `Denied` without DESCRIBE on it.

        Never creates the topic. The brokers learn of a new topic one after another: a topic that is missing
        is requested again until `patience_s` has passed.
        """
        until = time.monotonic() + patience_s
        while True:
            for topic in self._fetch_named([name]):
                match error_name(topic.error_code):
                    case "":
                        return TopicInfo(name, len(topic.partitions), _format_id(topic))
                    case str(error) if error == _DENIED:
                        raise make_denied_error(name, self.conf.brokers, "DESCRIBE")
                    case str(error) if error != _ABSENT:
                        raise ConnectError(f"topic {name} cannot be described: {error}")
            if time.monotonic() >= until:
                return None
            time.sleep(_PAUSE_S)

    def lacks_partition(self, at: TopicPartition, reason: str) -> bool:
        """Whether the partition does not exist.

        `reason` is the name of the error that the request for its offset returned. Sends a request only if
        this error may mean that the partition does not exist.
        """
        if reason != _ABSENT:
            return False
        topic = self.fetch_topic(at.topic, patience_s=TOPIC_PROPAGATION_S)
        return topic is None or not 0 <= at.partition < topic.partitions

    def find_denied_topics(self, names: Iterable[str]) -> set[str]:
        """Those of the named topics that this user may not DESCRIBE, whether they exist or not."""
        fetched = self._fetch_named(names)
        return {topic.name for topic in fetched if topic.name and error_name(topic.error_code) == _DENIED}

    def fetch_topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of those of the named topics that exist and that this user may DESCRIBE."""
        fetched = self._fetch_named(names)
        return {topic.name: _format_id(topic) for topic in fetched if topic.name and not topic.error_code}

    def fetch_metadata(self) -> Metadata:
        """The brokers, and the topics that this user may describe with their leaders, in one request."""
        return _convert_metadata(self._fetch(None, self.conf.request_timeout_s))

    def fetch_topic_configs(self, topic: str, *names: str) -> dict[str, str]:
        """The topic's settings of these names, with the brokers' defaults.

        Raises `Denied` without DESCRIBE_CONFIGS.
        """
        timeout_s = self.conf.request_timeout_s
        configs = fetch_topic_configs(self.brokers, [topic], names, timeout_s=timeout_s).get(
            topic, "no response"
        )
        if configs == _DENIED:
            raise make_denied_error(topic, self.conf.brokers, "DESCRIBE_CONFIGS")
        if isinstance(configs, str):
            raise ConnectError(f"the settings of {topic} cannot be fetched: {configs}")
        return configs

    def fetch_offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec | int = OffsetSpec.LATEST,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int | str]:
        """The offsets that `OffsetLister.list_offsets` returns, without leader epochs."""
        listed = self.lister.list_offsets(partitions, spec, isolation, timeout_s=timeout_s)
        return {at: found if isinstance(found, str) else found.offset for at, found in listed.items()}

    def find_address(self, broker: int) -> Address:
        """The address of a broker. Raises `ConnectError` if no broker has that id."""
        for node in self.fetch_metadata().brokers:
            if node.id == broker:
                return node.host, node.port
        raise ConnectError(f"there is no broker {broker}")

    def _fetch_id(self, should_stop: Callable[[], bool]) -> str:
        pending = call_in_thread(self._fetch, [], self.conf.connect_timeout_s)
        while not futures.wait([pending], 0.05).done:
            if should_stop():
                raise self.brokers.make_late_error()
        return get_result(pending).cluster_id or ""

    def _fetch_named(self, names: Iterable[str]) -> list[TopicMetadata]:
        wanted = list(names)
        chunks = (wanted[first : first + CHUNK] for first in range(0, len(wanted), CHUNK))
        timeout_s = self.conf.request_timeout_s
        return [topic for chunk in chunks for topic in self._fetch(chunk, timeout_s).topics]

    def _fetch(self, topics: Collection[str] | None, timeout_s: float) -> MetadataResponse:
        """Metadata of these topics, or of all, from any broker."""
        _, metadata = self.lister.fetch_metadata(topics, time.monotonic() + timeout_s)
        return metadata


def _format_id(topic: TopicMetadata) -> str:
    return "" if topic.topic_id == ZERO_UUID else topic.topic_id


def _convert_metadata(listed: MetadataResponse) -> Metadata:
    brokers = (Node(broker.id, broker.host, broker.port) for broker in listed.brokers)
    known = {topic.name: topic for topic in listed.topics if topic.name is not None and not topic.error_code}
    topics = {
        name: tuple(
            PartitionMetadata(each.partition, each.leader, each.replicas, each.in_sync)
            for each in sorted(topic.partitions, key=attrgetter("partition"))
        )
        for name, topic in known.items()
    }
    ids = {name: topic_id for name, topic in known.items() if (topic_id := _format_id(topic))}
    return Metadata(listed.cluster_id or "", listed.controller, tuple(sorted(brokers)), topics, ids)

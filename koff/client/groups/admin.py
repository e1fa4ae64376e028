"""The same answers through confluent-kafka's admin client: slower, and less, but by any way to log in.

One group a request. librdkafka leaves out groups whose protocol type is neither "" nor consumer (share,
streams, Kafka Connect's), and tells no epochs. Metadata stays empty: confluent-kafka reads past its end
(seen with 2.16.1: UnicodeDecodeError). A coordinator that has just started may list too few groups here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
)
from confluent_kafka.admin import AdminClient

from koff.client.cluster import ClusterConf
from koff.client.foreign_errors import connect_error, kafka_error
from koff.client.groups.responses import (
    Assigned,
    DescribedGroup,
    DescribedMember,
    GroupAnswers,
    Offsets,
    columns,
)
from koff.client.librdkafka import new_client

IN_FLIGHT = 512

_TYPES = {ConsumerGroupType.CLASSIC: "classic", ConsumerGroupType.CONSUMER: "consumer"}
_STATES = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}


def ask_admin(
    conf: ClusterConf,
    *,
    group_filter: Callable[[str], bool] | None = None,
    deadline_s: float = 30.0,
    describe: bool = True,
) -> GroupAnswers:
    """All groups that we may see, and what the classic and consumer groups among them have committed.

    Raises `ConnectError` when the cluster cannot be reached.
    """
    return _Admin(conf, deadline_s).run(group_filter, describe)


class _Admin:
    """One asking, and what it has met with so far."""

    def __init__(self, conf: ClusterConf, deadline_s: float) -> None:
        self._conf = conf
        self._deadline = time.monotonic() + deadline_s
        self._errors: list[KafkaError] = []
        self._admin = new_client(AdminClient, conf.librdkafka(), error_cb=self._errors.append)
        self._failed: dict[str, str] = {}

    def run(self, wanted: Callable[[str], bool] | None, describe: bool) -> GroupAnswers:
        marks = [time.monotonic()]
        groups, incomplete = self._listed(wanted)
        marks.append(time.monotonic())
        named = [each.name for each in groups if each.type in _TYPES.values()]
        offsets = columns([self._offsets(named)])
        marks.append(time.monotonic())
        described: dict[str, DescribedGroup] = {}
        if describe:
            told = set(named)
            busy = [each for each in groups if each.name in told and each.state != "Empty"]
            described = {each.name: each for each in self._descriptions(busy)}
        marks.append(time.monotonic())
        steps = zip(("list", "offsets", "describe"), marks, marks[1:], strict=False)
        return GroupAnswers(
            offsets=offsets,
            groups=tuple(described.get(each.name, each) for each in groups),
            failed=self._failed,
            brokers=0,
            seconds=marks[-1] - marks[0],
            incomplete=incomplete,
            source="admin",
            seconds_by_step={step: until - since for step, since, until in steps},
        )

    def _listed(
        self, wanted: Callable[[str], bool] | None
    ) -> tuple[tuple[DescribedGroup, ...], tuple[str, ...]]:
        """The groups, and which brokers did not list theirs. Nobody lists any: that is a failure."""
        future = self._admin.list_consumer_groups(request_timeout=self._patience())
        try:
            answer = future.result(self._patience() + 1)
        except (KafkaException, TimeoutError) as failure:
            self._admin.poll(0)
            error = kafka_error(failure)
            raise connect_error(self._conf.brokers, [*self._errors, *([error] if error else [])]) from failure
        groups = (_group(each) for each in answer.valid if wanted is None or wanted(each.group_id))
        return tuple(groups), tuple(_line(failure) for failure in answer.errors)

    def _offsets(self, names: Sequence[str]) -> Offsets:
        topics: list[tuple[str, str]] = []
        rows: list[Any] = []
        for name, answer in self._each(names, self._ask_offsets):
            for row in answer.topic_partitions:
                if row.error is not None:
                    self._failed[name] = row.error.name()
                elif row.offset >= 0:
                    topics.append((name, row.topic))
                    rows.append(row)
        return Offsets(
            names=[name for name, _ in topics],
            topics=[topic for _, topic in topics],
            counts=[1] * len(rows),
            partition=np.array([row.partition for row in rows], np.int32),
            offset=np.array([row.offset for row in rows], np.int64),
            leader_epoch=np.array(
                [-1 if row.leader_epoch is None else row.leader_epoch for row in rows], np.int32
            ),
            metadata={},
        )

    def _descriptions(self, groups: Iterable[DescribedGroup]) -> Iterator[DescribedGroup]:
        listed = {each.name: each for each in groups}
        for name, answer in self._each(list(listed), self._ask_description):
            yield _description(answer, listed[name])

    def _each(self, names: Sequence[str], start: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
        """The answer for each name that has one, `IN_FLIGHT` of them under way; the others have failed."""
        waiting: deque[tuple[str, Any]] = deque()
        coming = iter(names)
        while True:
            while len(waiting) < IN_FLIGHT and (name := next(coming, None)) is not None:
                if time.monotonic() > self._deadline:
                    self._failed[name] = "not asked in time"
                    continue
                waiting.append((name, start(name)))
            if not waiting:
                return
            name, future = waiting.popleft()
            try:
                answer = future.result(self._patience() + 1)
            except (KafkaException, TimeoutError) as failure:
                self._failed[name] = _line(failure)
            else:
                yield name, answer

    def _ask_offsets(self, name: str) -> Any:
        futures = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=self._patience()
        )
        return futures[name]

    def _ask_description(self, name: str) -> Any:
        return self._admin.describe_consumer_groups([name], request_timeout=self._patience())[name]

    def _patience(self) -> float:
        return max(min(self._conf.request_timeout_s, self._deadline - time.monotonic()), 0.1)


def _line(failure: BaseException) -> str:
    error = kafka_error(failure)
    return error.name() if error else str(failure) or type(failure).__name__


def _group(listing: Any) -> DescribedGroup:
    return DescribedGroup(
        listing.group_id,
        _TYPES.get(listing.type, ""),
        _STATES.get(listing.state, ""),
        "" if listing.is_simple_consumer_group else "consumer",
    )


def _description(told: Any, listed: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        listed.name,
        listed.type,
        _STATES.get(told.state, ""),
        listed.protocol_type,
        told.partition_assignor,
        members=tuple(map(_member, told.members)),
    )


def _member(told: Any) -> DescribedMember:
    return DescribedMember(
        told.member_id,
        told.client_id,
        told.host,
        told.group_instance_id,
        _assigned(told.assignment),
        None if told.target_assignment is None else _assigned(told.target_assignment),
    )


def _assigned(told: Any) -> Assigned:
    found: dict[str, tuple[int, ...]] = {}
    for each in told.topic_partitions if told else ():
        found[each.topic] = (*found.get(each.topic, ()), each.partition)
    return found

"""Fetches all groups and offsets through confluent-kafka's admin client.

This is slower than koff's own connections and returns less data, but it supports every way to log in. Each
request is for one group.
librdkafka leaves out groups whose protocol type is neither "" nor consumer (share, streams, Kafka Connect's),
and returns no epochs. Metadata stays empty: confluent-kafka reads past its end (seen with 2.16.1:
UnicodeDecodeError). A coordinator that has just started may list too few groups here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import suppress
from typing import Any

import numpy as np
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
)
from confluent_kafka.admin import AdminClient

from koff.client.cluster import ClusterConf, get_result
from koff.client.foreign_errors import describe_error, make_connect_error, map_foreign_errors
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import (
    Assigned,
    DescribedGroup,
    DescribedMember,
    FetchedGroups,
    PackedOffsets,
    join_columns,
)
from koff.client.groups.unlisted_groups import GROUP_NOT_FOUND, PRESENT
from koff.client.librdkafka import new_client
from koff.errors import ConnectError, LogInRefused

IN_FLIGHT = 512
"""How many requests are under way at a time."""

_REFUSED_CHECK_S = 0.1

_TYPES = {ConsumerGroupType.CLASSIC: "classic", ConsumerGroupType.CONSUMER: "consumer"}
_STATES = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}


def fetch_through_admin(conf: ClusterConf, options: FetchOptions | None = None) -> FetchedGroups:
    """All groups that this user may describe, and the offsets of the classic and consumer groups among them.

    Of the options, only `group_filter`, `deadline_s`, `describe` and `known` are used. Raises `ConnectError`
    when the cluster cannot be reached.
    """
    return _AdminFetch(conf, options or FetchOptions()).run()


class _AdminFetch:
    """The state of one `fetch_through_admin`."""

    def __init__(self, conf: ClusterConf, options: FetchOptions) -> None:
        self._conf, self._options = conf, options
        self._deadline = time.monotonic() + options.deadline_s
        self._errors: list[KafkaError] = []
        properties = conf.librdkafka_properties()
        self._admin = new_client(AdminClient, properties, error_cb=self._errors.append)
        self._failed: dict[str, str] = {}

    def run(self) -> FetchedGroups:
        times = [time.monotonic()]
        groups, incomplete = self._list_groups()
        times.append(time.monotonic())

        offsets = join_columns([self._fetch_offsets([group.name for group in groups])])
        times.append(time.monotonic())

        # Descriptions. A group without members has nothing more to describe.
        described: dict[str, DescribedGroup] = {}
        if self._options.describe:
            not_empty = [group for group in groups if group.state != "Empty"]
            described = {group.name: group for group in self._describe_groups(not_empty)}
        unlisted = self._explain_unlisted({group.name for group in groups})
        times.append(time.monotonic())

        steps = zip(("list", "offsets", "describe"), times, times[1:], strict=False)
        return FetchedGroups(
            offsets=offsets,
            groups=tuple(described.get(group.name, group) for group in groups),
            failed=self._failed,
            brokers=0,
            seconds=times[-1] - times[0],
            unlisted=unlisted,
            incomplete=incomplete,
            source="admin",
            seconds_by_step={step: until - since for step, since, until in steps},
        )

    def _list_groups(self) -> tuple[tuple[DescribedGroup, ...], tuple[str, ...]]:
        """The groups, and the errors of the brokers that did not list theirs.

        Raises `ConnectError` if no broker lists groups.
        """
        with map_foreign_errors("groups cannot be listed", self._make_error):
            future = self._admin.list_consumer_groups(request_timeout=self._timeout_s())
            self._wait_or_refuse(future, self._timeout_s() + 1)
            response = get_result(future, 0)
        groups = (
            _convert_listing(listing)
            for listing in response.valid
            if self._options.is_chosen(listing.group_id)
        )
        return tuple(groups), tuple(describe_error(error) for error in response.errors)

    def _wait_or_refuse(self, future: Any, timeout_s: float) -> None:
        """Waits for the future. Raises `LogInRefused` soon: librdkafka would try again and again."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and not futures.wait([future], _REFUSED_CHECK_S).done:
            error = self._make_error([])
            if isinstance(error, LogInRefused):
                raise error

    def _make_error(self, errors: Sequence[KafkaError]) -> ConnectError:
        with suppress(Exception):  # of a callback
            self._admin.poll(0)  # the cause may still wait in librdkafka
        return make_connect_error(self._conf.brokers, [*self._errors, *errors])

    def _fetch_offsets(self, names: Sequence[str]) -> PackedOffsets:
        topics: list[tuple[str, str]] = []
        rows: list[Any] = []
        for name, response in self._send_for_each(names, self._send_offset_fetch):
            for row in response.topic_partitions:
                if row.error is not None:
                    self._failed[name] = row.error.name()
                elif row.offset >= 0:  # negative: no commit
                    topics.append((name, row.topic))
                    rows.append(row)
        return PackedOffsets(
            names=[name for name, _ in topics],
            topics=[topic for _, topic in topics],
            counts=[1] * len(rows),  # each row has its own entry in `names` and `topics`
            partition=np.array([row.partition for row in rows], np.int32),
            offset=np.array([row.offset for row in rows], np.int64),
            leader_epoch=np.array(
                [-1 if row.leader_epoch is None else row.leader_epoch for row in rows], np.int32
            ),
            metadata={},
        )

    def _describe_groups(self, groups: Iterable[DescribedGroup]) -> Iterator[DescribedGroup]:
        listed = {group.name: group for group in groups}
        for name, response in self._send_for_each(list(listed), self._send_describe):
            yield _convert_description(response, listed[name])

    def _explain_unlisted(self, listed: Collection[str]) -> dict[str, str]:
        """Why known groups are not listed; see `FetchedGroups.unlisted`."""
        names = {name for name in self._options.known if self._options.is_chosen(name)}.difference(listed)
        described = dict(self._send_for_each(sorted(names), self._send_describe))
        unlisted = {name: self._failed.pop(name) for name in names & self._failed.keys()}
        for name, group in described.items():
            is_dead = group.state == ConsumerGroupState.DEAD
            unlisted[name] = GROUP_NOT_FOUND if is_dead else PRESENT
        return unlisted

    def _send_for_each(self, names: Sequence[str], send: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
        """Each name with its response. At most `IN_FLIGHT` requests are under way.

        A name without a response is added to `_failed` instead.
        """
        in_flight: deque[tuple[str, Any]] = deque()
        unsent = iter(names)
        while True:
            # Send as many requests as may be under way, then wait for the oldest one. Responses to later
            # requests wait in their futures.
            while len(in_flight) < IN_FLIGHT and (name := next(unsent, None)) is not None:
                if time.monotonic() > self._deadline:
                    self._failed[name] = "the deadline passed before its request was sent"
                    continue
                try:
                    in_flight.append((name, send(name)))
                except Exception as error:  # for example the name "", of very old clients
                    self._failed[name] = describe_error(error)
            if not in_flight:
                return
            name, future = in_flight.popleft()
            try:
                response = get_result(future, self._timeout_s() + 1)  # librdkafka's own timeout comes first
            except Exception as error:
                self._failed[name] = describe_error(error)
            else:
                yield name, response

    def _send_offset_fetch(self, name: str) -> Any:
        futures = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=self._timeout_s()
        )
        return futures[name]

    def _send_describe(self, name: str) -> Any:
        return self._admin.describe_consumer_groups([name], request_timeout=self._timeout_s())[name]

    def _timeout_s(self) -> float:
        return max(min(self._conf.request_timeout_s, self._deadline - time.monotonic()), 0.1)


def _convert_listing(listing: Any) -> DescribedGroup:
    return DescribedGroup(
        listing.group_id,
        # Before 3.8 (ListGroups version 5) brokers return no types, and have classic groups only by default.
        _TYPES.get(listing.type, "classic"),
        _STATES.get(listing.state, ""),
        # A simple group: its offsets were committed without a group protocol.
        "" if listing.is_simple_consumer_group else "consumer",
    )


def _convert_description(description: Any, listed: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        listed.name,
        listed.type,
        _STATES.get(description.state, ""),
        listed.protocol_type,
        description.partition_assignor,
        members=tuple(map(_convert_member, description.members)),
    )


def _convert_member(member: Any) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.host,
        member.group_instance_id,
        _convert_assignment(member.assignment),
        None if member.target_assignment is None else _convert_assignment(member.target_assignment),
    )


def _convert_assignment(assignment: Any) -> Assigned:
    partitions: dict[str, tuple[int, ...]] = {}
    for assigned in assignment.topic_partitions if assignment else ():
        partitions[assigned.topic] = (*partitions.get(assigned.topic, ()), assigned.partition)
    return partitions

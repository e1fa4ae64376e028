"""Fetches all groups of a cluster with their offsets: each coordinator returns its own.

One round fetches the leaders of `__consumer_offsets`, sends requests to all leaders at the same time (first
ListGroups, then OffsetFetch with up to 1,000 groups a request), and fetches the leaders again. If the
leaders have changed, a broker did not respond, or a group was not at its coordinator, another round fetches
what is missing.

A broker that has just become the leader of a partition lists none of its groups until it has begun to load
the partition, and returns no error either (seen after a restart of 4.3.1). So koff first probes each broker:
it sends an OffsetFetch that names, for each partition that the broker leads, one made-up group. The error
NOT_COORDINATOR then shows that the broker's list of groups will be too short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Literal

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf
from koff.client.groups import offset_fetch
from koff.client.groups.descriptions import (
    GroupListing,
    build_describe_requests,
    build_share_offset_requests,
    read_listings,
)
from koff.client.groups.leaders import BrokerAddress, Layout, fetch_layout
from koff.client.groups.missing_partitions import MissingPartitions
from koff.client.groups.responses import (
    DescribedGroup,
    FetchedGroups,
    PackedOffsets,
    ShareOffset,
    join_columns,
)
from koff.client.own_process import call_in_own_process
from koff.client.wire.connection import MAX_REQUEST_BYTES, Connection, UnsupportedVersion
from koff.client.wire.credentials import TokenSource, check_support, parse_addresses
from koff.client.wire.requests import Api, Request, encode_request, error_name
from koff.errors import ConfigError, ConnectError, Denied
from koff.records.placement import group_partition
from koff.records.topics import OFFSETS_TOPIC

GroupFilter = Callable[[str], bool]
ShareOffsets = Literal["too", "only", "not"]
"""Whether offsets of share groups are fetched besides those of the others. "only": no other groups at all."""

_PROCESS_START_S = 5.0
"""How much longer than its work a process of its own may take."""
_THREADS = 32
"""How many brokers are queried at the same time."""
_PAUSE_S = (0.05, 0.4)
"""The pause between rounds: the first pause, and the longest. It doubles each time."""
_COORDINATOR_ERRORS = frozenset(
    {"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"}
)
"""The group's coordinator is another broker, or is not ready: another round may succeed."""
_GROUP_CHANGED = "GROUP_ID_NOT_FOUND"
"""The group was deleted, or has become a group of another type since it was listed."""
_MAX_FAILURES = 3
"""After errors in so many rounds, a group has failed for good. Rounds in which its broker was not ready do
not count. The group may come from a hostile record: a broker lists every group of its partitions, but each
time responds with NOT_COORDINATOR for a group whose name belongs to another broker's partition."""


def fetch_groups(
    conf: ClusterConf,
    *,
    group_filter: GroupFilter | None = None,
    deadline_s: float = 30.0,
    describe: bool = True,
    token: TokenSource | None = None,
    patience_s: float | None = None,
    partitions: frozenset[int] | None = None,
    share_offsets: ShareOffsets = "too",
    empty: frozenset[int] = frozenset(),
) -> FetchedGroups:
    """All groups and offsets by `fetch_from_coordinators` if possible, else by `fetch_through_admin`.

    `source` of the result is "wire" or "admin"; `reason` is why koff's own connections were not used.
    The admin client ignores `patience_s`. It works in a process of its own, so `group_filter` has to be
    picklable. When a coordinator responds NOT_COORDINATOR to OffsetFetch, which happens while coordinators
    move, librdkafka follows a null pointer (its issue 5040; seen with 2.16.1) and that process ends.
    """
    from koff.client.groups.admin import fetch_through_admin  # imported late: it is rarely needed

    reason = check_support(conf, token=token).reason
    if not reason and find_spec("kio") is None:
        reason = "kio is not installed (pip install kio)"
    if not reason:
        try:
            return fetch_from_coordinators(
                conf,
                group_filter=group_filter,
                deadline_s=deadline_s,
                describe=describe,
                token=token,
                patience_s=patience_s,
                partitions=partitions,
                share_offsets=share_offsets,
                empty=empty,
            )
        except UnsupportedVersion as error:
            reason = str(error)
    fetched = call_in_own_process(
        fetch_through_admin,
        conf,
        group_filter=group_filter,
        deadline_s=deadline_s,
        describe=describe,
        timeout_s=deadline_s + _PROCESS_START_S,
    )
    return replace(fetched, reason=reason)


def fetch_from_coordinators(
    conf: ClusterConf,
    *,
    group_filter: GroupFilter | None = None,
    deadline_s: float = 30.0,
    describe: bool = True,
    token: TokenSource | None = None,
    patience_s: float | None = None,
    partitions: frozenset[int] | None = None,
    share_offsets: ShareOffsets = "too",
    empty: frozenset[int] = frozenset(),
) -> FetchedGroups:
    """All groups that pass `group_filter`, with their offsets, from all coordinators, within `deadline_s`.

    With `patience_s`, a broker that is silent for so long is given up, and no round begins later than that
    after the start: the groups of the other brokers are returned, and `FetchedGroups.find_incomplete` says
    where groups may be missing. Without it, koff tries until `deadline_s`.

    `partitions` limits the fetch to groups of these partitions of the offsets topic. `empty` are partitions
    without records (see `FetchedGroups.astray`).

    Raises `ConnectError` (`Denied` for a refused log-in) when no broker responds, `ConfigError` for
    properties that koff's own connections do not support, and `UnsupportedVersion` when a broker is too old.
    Later errors are in the result, by group name. Needs DESCRIBE on the groups, on their topics, and on
    `__consumer_offsets`. A user without the first two gets fewer groups and offsets. Without DESCRIBE on
    `__consumer_offsets`, groups may be missing from the result, without an error in it, while coordinators
    change.
    """
    with _CoordinatorFetch(
        conf, group_filter, deadline_s, describe, token, patience_s, partitions, share_offsets, empty
    ) as fetch:
        return fetch.run()


@dataclass(slots=True)
class _BrokerResponse:
    """The responses of one broker in one round.

    `probes` are the made-up groups (see the top of this file). `listings` is None if ListGroups failed.
    """

    broker: BrokerAddress
    probes: Sequence[str] = ()
    listings: Sequence[GroupListing] | None = None
    astray: frozenset[str] = frozenset()  # see `_find_astray`
    offsets: list[offset_fetch.FetchedOffsets] = field(default_factory=list)
    described: list[DescribedGroup] = field(default_factory=list)
    share_offsets: list[tuple[str, str, list[ShareOffset]]] = field(default_factory=list)
    error: str = ""
    unready: dict[str, str] = field(default_factory=dict)  # errors by probe
    seconds_by_step: dict[str, float] = field(default_factory=dict)


class _CoordinatorFetch(Closing):
    """The state of one `fetch_from_coordinators`, over all rounds.

    A round queries up to `_THREADS` brokers at the same time, each in one thread. This thread changes only
    the broker's `_BrokerResponse` and connection (and `_bytes`, when it replaces a closed connection). The
    maps of groups change only between rounds, in `_apply`.
    """

    def __init__(
        self,
        conf: ClusterConf,
        group_filter: GroupFilter | None,
        deadline_s: float,
        describe: bool,
        token: TokenSource | None,
        patience_s: float | None,
        partitions: frozenset[int] | None,
        share_offsets: ShareOffsets,
        empty: frozenset[int],
    ) -> None:
        self._partitions, self._with_share_offsets, self._empty = partitions, share_offsets, empty
        self._conf = conf if patience_s is None else _limit_timeouts(conf, patience_s)
        self._patience_s = patience_s
        self._group_filter = group_filter
        self._describe = describe
        self._token = token
        self._began = time.monotonic()
        self._deadline = self._began + deadline_s
        # No round begins later than that.
        self._last_round_s = self._deadline if patience_s is None else self._began + patience_s
        self._connections: dict[tuple[str, int], Connection] = {}
        self._bootstrap = list(parse_addresses(conf.brokers))
        if not self._bootstrap:
            raise ConfigError("--brokers names no broker")
        self._listings: dict[str, GroupListing] = {}
        self._offsets: list[PackedOffsets] = []
        self._share_offsets: list[ShareOffset] = []
        self._fetched: set[str] = set()  # groups whose offsets are complete, or failed for good
        self._described: dict[str, DescribedGroup] = {}
        self._failed: dict[str, str] = {}  # for good
        self._pending: dict[str, str] = {}  # the next round tries these groups again
        self._failures: dict[str, set[int]] = {}  # by group, the rounds that count for `_MAX_FAILURES`
        self._astray: set[str] = set()
        self._missing = MissingPartitions()
        self._rounds = 0
        self._seconds_by_step: dict[str, float] = {}
        self._bytes = 0

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._connections.values():
            connection.close()

    def run(self) -> FetchedGroups:
        layout, pause = self._fetch_layout(), _PAUSE_S[0]
        while True:
            self._rounds += 1
            responses = self._run_round(layout)
            self._apply(responses)
            errors = [f"{response.broker}: {response.error}" for response in responses if response.error]

            # Were the brokers of this round still the coordinators at its end?
            try:
                before, layout = layout, self._fetch_layout()
            except ConnectError as error:
                errors.append(str(error))
                self._note_missing(layout, str(error), responses)
            else:
                errors += _describe_changes(before, layout)
                self._note_missing(before, layout, responses)

            if not errors and not self._pending:
                break
            if time.monotonic() + pause >= self._last_round_s:
                break  # what is missing is in `failed` and `incomplete`
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_S[1])

        self._bytes += sum(connection.bytes_read for connection in self._connections.values())
        return FetchedGroups(
            offsets=join_columns(self._offsets),
            groups=tuple(map(self._to_described_group, self._listings.values())),
            failed={**self._pending, **self._failed},
            brokers=sum(response.listings is not None for response in responses),
            seconds=time.monotonic() - self._began,
            share_offsets=tuple(self._share_offsets),
            astray=frozenset(self._astray),
            incomplete=tuple(errors),
            rounds=self._rounds,
            bytes_read=self._bytes,
            seconds_by_step=self._seconds_by_step,
            partition_count=self._missing.partition_count,
            incomplete_partitions=self._missing.reasons,
        )

    def _note_missing(
        self, before: Layout, after: Layout | str, responses: Sequence[_BrokerResponse]
    ) -> None:
        """Notes of which partitions groups may be missing after a round."""
        count = len(before.leaders or ())
        unready = {
            group_partition(probe, count): f"{response.broker}: its coordinator is not ready: {error}"
            for response in responses
            for probe, error in response.unready.items()
        }
        failed = {
            response.broker.id: f"{response.broker}: {response.error}"
            for response in responses
            if response.error and not response.unready
        }
        self._missing.note_round(before, after, failed, unready)

    def _fetch_layout(self) -> Layout:
        """The layout from the first broker that responds. Raises `ConnectError` when none responds.

        Brokers with an open connection come first, and brokers whose connection failed come last. At the
        start, the bootstrap servers share the time that koff waits.
        """
        began = time.monotonic()
        errors: list[ConnectError] = []
        connected = [address for address, connection in self._connections.items() if not connection.closed]
        # `dict.fromkeys` removes duplicates and keeps the order.
        for host, port in dict.fromkeys([*connected, *self._bootstrap, *self._connections]):
            try:
                share_of = 1 if self._connections else len(self._bootstrap)
                connection = self._connect(host, port, share_of=share_of)
                if self._patience_s is not None:  # a stalled broker may accept connections
                    connection.deadline = time.monotonic() + self._patience_s / share_of
                layout = replace(fetch_layout(connection), wanted=self._partitions)
                connection.deadline = self._deadline
            except Denied:
                raise  # the other brokers would refuse the log-in too
            except ConnectError as error:
                errors.append(error)
            else:
                spent = self._seconds_by_step.get("metadata", 0.0)
                self._seconds_by_step["metadata"] = spent + time.monotonic() - began
                return layout
        raise errors[0]

    def _connect(self, host: str, port: int, *, share_of: int = 1) -> Connection:
        """The connection to that address, opened if there is none. Raises `ConnectError`.

        `share_of` is the number of addresses that share the connect timeout.
        """
        connection = self._connections.get((host, port))
        if connection is None or connection.closed:
            if connection is not None:
                self._bytes += self._connections.pop((host, port)).bytes_read
            # The connect timeout limits the whole start, so unreachable bootstrap servers share it.
            timeout_s = min(self._conf.connect_timeout_s / share_of, self._deadline - time.monotonic())
            connection = Connection.connect(
                self._conf, host, port, token=self._token, timeout_s=max(timeout_s, 0.001)
            )
            connection.deadline = self._deadline
            self._connections[host, port] = connection
        return connection

    def _run_round(self, layout: Layout) -> list[_BrokerResponse]:
        responses = [_BrokerResponse(broker, layout.probe_groups(broker)) for broker in layout.coordinators]
        if len(responses) == 1:  # no thread needed
            self._query_broker(responses[0], layout)
        elif responses:
            with ThreadPoolExecutor(min(len(responses), _THREADS), "koff-coordinators") as threads:
                list(threads.map(self._query_broker, responses, [layout] * len(responses)))
        # The brokers work in parallel: the time of a step is the time of its slowest broker.
        for step in ("connect", "list", "fetch"):
            slowest = max((response.seconds_by_step.get(step, 0.0) for response in responses), default=0.0)
            self._seconds_by_step[step] = self._seconds_by_step.get(step, 0.0) + slowest
        return responses

    def _query_broker(self, response: _BrokerResponse, layout: Layout) -> None:
        """Fetches everything from one broker into `response`. Keeps results that came before an error."""
        times = [time.monotonic()]
        try:
            connection = self._connect(response.broker.host, response.broker.port)
            times.append(time.monotonic())

            # The probes, then the groups: see the top of this file.
            types = ("share",) if self._with_share_offsets == "only" else ()
            *probed, listed = connection.send_requests(
                _build_list_requests(connection, response.probes, types)
            )
            times.append(time.monotonic())
            if listed.error_code:
                response.error = f"cannot list its groups: {error_name(listed.error_code)}"
                return
            loading = {
                probe: error
                for fetched in probed
                for probe, error in fetched.errors.items()
                if error in _COORDINATOR_ERRORS
            }
            if loading:
                response.error = f"is not ready for {len(loading)} of its partitions: {min(loading.values())}"
                response.unready = loading
            # A broker lists a group twice if it also leads a partition that the group was in before the
            # offsets topic has grown.
            every = list({listing.name: listing for listing in read_listings(listed)}.values())
            group_filter = self._group_filter
            response.listings = [
                listing
                for listing in every
                if group_filter is None or group_filter(listing.name)
                if not types or listing.type in types  # brokers before 3.8 ignore what is asked for
            ]
            response.astray = self._find_astray(response, every, layout)

            # Offsets and descriptions, pipelined. Each result is kept at once: the broker may fail half-way.
            requests = list(self._build_requests(connection, response))
            results = connection.send_requests(request for request, _ in requests)
            for (_, add_result), result in zip(requests, results, strict=True):
                add_result(result)
        except ConnectError as error:
            response.error, response.unready = str(error), {}
        finally:
            times.append(time.monotonic())
            steps = zip(("connect", "list", "fetch"), times, times[1:], strict=False)
            response.seconds_by_step = {step: until - since for step, since, until in steps}

    def _find_astray(
        self, response: _BrokerResponse, listings: Sequence[GroupListing], layout: Layout
    ) -> frozenset[str]:
        """The groups that the broker lists, but does not lead their partition, or it is empty."""
        names = {listing.name for listing in listings}
        if self._partitions is not None:  # the caller's filter keeps groups of the broker's own partitions
            names.difference_update(listing.name for listing in response.listings or ())
        count = len(layout.leaders or ())
        return frozenset(
            name
            for name in names
            if not layout.is_leader_of(response.broker, name)
            or (count and group_partition(name, count) in self._empty)
        )

    def _build_requests(
        self, connection: Connection, response: _BrokerResponse
    ) -> Iterator[tuple[Request[Any], Callable[[Any], None]]]:
        """The requests for the missing data of the broker's groups, each with a function for its result."""
        listings = response.listings or ()
        missing = [listing for listing in listings if listing.name not in self._fetched]
        names = [listing.name for listing in missing if listing.type != "share"]
        for request in _build_offset_requests(connection, names):
            yield request, response.offsets.append

        wants = self._with_share_offsets
        share_names = [listing.name for listing in missing if listing.type == "share" and wants != "not"]
        is_supported = connection.highest_version(Api.DESCRIBE_SHARE_GROUP_OFFSETS) is not None
        if share_names and (is_supported or wants == "only"):  # else this raises `UnsupportedVersion`
            for share_request in build_share_offset_requests(connection, share_names):
                yield share_request, response.share_offsets.extend

        if self._describe:
            undescribed = [listing for listing in listings if listing.name not in self._described]
            for api in dict.fromkeys(listing.describe_api for listing in undescribed):
                if api is not None and connection.highest_version(api) is not None:
                    same_api = [listing for listing in undescribed if listing.describe_api is api]
                    for describe_request in build_describe_requests(connection, api, same_api):
                        yield describe_request, response.described.extend

    def _apply(self, responses: Sequence[_BrokerResponse]) -> None:
        """Adds a round's responses to the state. `_pending` gets the incomplete groups, with reasons."""
        listed = {
            listing.name: (listing, response.error)
            for response in responses
            for listing in response.listings or ()
        }
        # If all brokers listed their groups, a pending group that is not listed any more was deleted. Offsets
        # that were fetched before stay in the result.
        if all(response.listings is not None and not response.error for response in responses):
            deleted = [name for name in self._pending if name not in listed]
            for name in deleted:
                del self._pending[name]
                if name not in self._fetched:
                    self._listings.pop(name, None)
        self._listings |= {name: listing for name, (listing, _) in listed.items()}

        retry: dict[str, str] = {}
        for response in responses:
            self._astray |= response.astray - {listing.name for listing in response.listings or ()}
            self._apply_offsets(response, retry)
            self._apply_descriptions(response, retry)

        # A listed group needs another round if it has an error that may pass, or if its broker failed before
        # the group was complete.
        for name, (listing, broker_error) in listed.items():
            if name in retry and not self._is_complete(listing):
                self._pending[name] = retry[name]
            elif self._is_complete(listing) or not broker_error:
                self._pending.pop(name, None)
            else:
                self._pending[name] = f"its coordinator failed: {broker_error}"

    def _apply_offsets(self, response: _BrokerResponse, retry: dict[str, str]) -> None:
        for fetched in response.offsets:
            # After the offsets topic has grown, two brokers may both count as the coordinator of a group.
            known = self._fetched.intersection(fetched.groups)
            self._offsets.append(fetched.offsets.drop_groups(known) if known else fetched.offsets)
            self._fetched.update(fetched.groups)
            self._astray |= response.astray.intersection(fetched.groups)
            self._fetched.update(
                name
                for name, error in fetched.errors.items()
                if self._note_failure(name, error, response, retry)
            )
        for name, error, offsets in response.share_offsets:
            if not error or self._note_failure(name, error, response, retry):
                self._fetched.add(name)
                self._share_offsets += offsets

    def _apply_descriptions(self, response: _BrokerResponse, retry: dict[str, str]) -> None:
        for group in response.described:
            if not group.error or self._note_failure(group.name, group.error, response, retry):
                self._described[group.name] = group

    def _note_failure(self, name: str, error: str, response: _BrokerResponse, retry: dict[str, str]) -> bool:
        """Notes a group's error. Returns whether the group has failed for good.

        An error that may be gone in another round goes into `retry` instead.
        """
        failures = self._failures.setdefault(name, set())
        if error == _GROUP_CHANGED or not response.error:
            failures.add(self._rounds)
        may_pass = error == _GROUP_CHANGED or error in _COORDINATOR_ERRORS
        if may_pass and len(failures) < _MAX_FAILURES:
            retry[name] = error
            return False
        self._failed[name] = error
        return True

    def _is_complete(self, listing: GroupListing) -> bool:
        described = not self._describe or listing.describe_api is None or listing.name in self._described
        is_left_out = listing.type == "share" and self._with_share_offsets == "not"
        return described and (is_left_out or listing.name in self._fetched)

    def _to_described_group(self, listing: GroupListing) -> DescribedGroup:
        described = self._described.get(listing.name)
        error = self._failed.get(listing.name) or self._pending.get(listing.name, "")
        return described or listing.to_described_group(error)


def _limit_timeouts(conf: ClusterConf, patience_s: float) -> ClusterConf:
    """The same cluster, where neither connecting nor a response may take longer than that."""
    return replace(
        conf,
        connect_timeout_s=min(conf.connect_timeout_s, patience_s),
        request_timeout_s=min(conf.request_timeout_s, patience_s),
    )


def _build_list_requests(
    connection: Connection, probes: Sequence[str], types: Sequence[str]
) -> Iterator[Request[Any]]:
    """The probes, then ListGroups: for groups of these types, or of all if there are none.

    A broker processes the requests of one connection in their order.
    """
    yield from _build_offset_requests(connection, probes)
    yield encode_request(connection.build_request(Api.LIST_GROUPS, types_filter=tuple(types)))


def _build_offset_requests(
    connection: Connection, groups: Sequence[str]
) -> Iterator[Request[offset_fetch.FetchedOffsets]]:
    version = min(connection.highest_version(Api.OFFSET_FETCH) or 0, offset_fetch.LAST_VERSION)
    if version < offset_fetch.FIRST_VERSION:
        raise UnsupportedVersion(
            f"Kafka at {connection.address} takes only one group in an OffsetFetch request (older than 3.0)"
        )
    return offset_fetch.build_requests(groups, version, max_bytes=MAX_REQUEST_BYTES)


def _describe_changes(before: Layout, after: Layout) -> Iterator[str]:
    """The reasons why groups may be missing although all brokers have responded."""
    if after.leaderless:
        yield f"{OFFSETS_TOPIC} has no leader for partitions {', '.join(map(str, after.leaderless))}"
    elif after != before:
        yield f"the leaders of {OFFSETS_TOPIC} changed while the groups were fetched"

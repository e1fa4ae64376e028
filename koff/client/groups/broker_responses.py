"""What one broker returns of its groups: a list of them, then their offsets and descriptions.

A broker that has just become the leader of a partition lists none of its groups until it has begun to load
the partition, and returns no error either (seen after a restart of 4.3.1). So koff first probes each broker:
it sends an OffsetFetch that names, for each partition that the broker leads, one made-up group. The error
NOT_COORDINATOR then shows that the broker's list of groups will be too short.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from koff.client.groups import offset_fetch
from koff.client.groups.descriptions import (
    GroupListing,
    build_describe_requests,
    build_share_offset_requests,
    read_listings,
)
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.leaders import BrokerAddress, OffsetsLeaders
from koff.client.groups.responses import DescribedGroup, ShareOffset
from koff.client.wire.connection import MAX_REQUEST_BYTES, Connection, UnsupportedVersion
from koff.proto.requests import Api, EncodedRequest, encode_request, error_name
from koff.records.placement import group_partition

COORDINATOR_ERRORS = frozenset(
    {"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"}
)
"""The group's coordinator is another broker, or is not ready: another round may succeed."""


@dataclass(slots=True)
class BrokerResponses:
    """The responses of one broker in one round. What came before an error is kept.

    `listings` is None if ListGroups failed. `elsewhere` are the groups that the broker lists although it does
    not lead their partition, or although that partition is empty. `unready` has errors by probe (see the top
    of this file).
    """

    broker: BrokerAddress
    layout: OffsetsLeaders
    listings: Sequence[GroupListing] | None = None
    elsewhere: frozenset[str] = frozenset()
    offsets: list[offset_fetch.FetchedOffsets] = field(default_factory=list)
    described: list[DescribedGroup] = field(default_factory=list)
    share_offsets: list[tuple[str, str, list[ShareOffset]]] = field(default_factory=list)
    error: str = ""
    unready: dict[str, str] = field(default_factory=dict)

    def list_groups(self, connection: Connection, options: FetchOptions) -> None:
        """Sends the probes, then lists the groups. Raises `ConnectError`."""
        types = ("share",) if options.share_offsets == "only" else ()
        probes = self.layout.probe_groups(self.broker)
        *probed, listed = connection.send_requests(_build_list_requests(connection, probes, types))
        if listed.error_code:
            self.error = f"cannot list its groups: {error_name(listed.error_code)}"
            return
        self.unready = {
            probe: error
            for fetched in probed
            for probe, error in fetched.errors.items()
            if error in COORDINATOR_ERRORS
        }
        if self.unready:
            why = min(self.unready.values())
            self.error = f"is not ready for {len(self.unready)} of its partitions: {why}"
        # A broker lists a group twice if it also leads a partition that the group was in before the offsets
        # topic has grown.
        every = {listing.name: listing for listing in read_listings(listed)}
        self.listings = [
            listing
            for name, listing in every.items()
            if options.is_chosen(name)
            if not types or listing.type in types  # brokers before 3.8 ignore the requested types
        ]
        self.elsewhere = self._find_elsewhere(every, options)

    def fetch_missing(
        self,
        connection: Connection,
        options: FetchOptions,
        fetched: Collection[str],
        described: Collection[str],
    ) -> None:
        """Fetches the offsets of the listed groups that are not in `fetched`, and descriptions likewise.

        Raises `ConnectError`.
        """
        # Pipelined. Each result is kept at once: the broker may fail half-way.
        requests = list(self._build_requests(connection, options, fetched, described))
        results = connection.send_requests(request for request, _ in requests)
        for (_, add_result), result in zip(requests, results, strict=True):
            add_result(result)

    def _find_elsewhere(self, names: Collection[str], options: FetchOptions) -> frozenset[str]:
        found = set(names)
        if options.partitions is not None:  # the caller's filter keeps groups of the broker's own partitions
            found.difference_update(listing.name for listing in self.listings or ())
        count = len(self.layout.leaders or ())
        return frozenset(
            name
            for name in found
            if not self.layout.is_leader_of(self.broker, name)
            or (count and group_partition(name, count) in options.empty)
        )

    def _build_requests(
        self,
        connection: Connection,
        options: FetchOptions,
        fetched: Collection[str],
        described: Collection[str],
    ) -> Iterator[tuple[EncodedRequest[Any], Callable[[Any], None]]]:
        """The requests for what is missing of the listed groups, each with a function for its result."""
        listings = self.listings or ()
        missing = [listing for listing in listings if listing.name not in fetched]
        names = [listing.name for listing in missing if listing.type != "share"]
        for request in _build_offset_requests(connection, names):
            yield request, self.offsets.append

        wants = options.share_offsets
        share_names = [listing.name for listing in missing if listing.type == "share" and wants != "not"]
        is_supported = connection.highest_version(Api.DESCRIBE_SHARE_GROUP_OFFSETS) is not None
        if share_names and (is_supported or wants == "only"):  # else this raises `UnsupportedVersion`
            for share_request in build_share_offset_requests(connection, share_names):
                yield share_request, self.share_offsets.extend

        if options.describe:
            undescribed = [listing for listing in listings if listing.name not in described]
            for api in dict.fromkeys(listing.describe_api for listing in undescribed):
                if api is not None and connection.highest_version(api) is not None:
                    same_api = [listing for listing in undescribed if listing.describe_api is api]
                    for describe_request in build_describe_requests(connection, api, same_api):
                        yield describe_request, self.described.extend


def _build_list_requests(
    connection: Connection, probes: Sequence[str], types: Sequence[str]
) -> Iterator[EncodedRequest[Any]]:
    """The probes, then ListGroups: for groups of these types, or of all if there are none.

    A broker processes the requests of one connection in their order.
    """
    yield from _build_offset_requests(connection, probes)
    yield encode_request(connection.build_request(Api.LIST_GROUPS, types_filter=tuple(types)))


def _build_offset_requests(
    connection: Connection, groups: Sequence[str]
) -> Iterator[EncodedRequest[offset_fetch.FetchedOffsets]]:
    version = min(connection.highest_version(Api.OFFSET_FETCH) or 0, offset_fetch.LAST_VERSION)
    if version < offset_fetch.FIRST_VERSION:
        raise UnsupportedVersion(f"Kafka at {connection.address} is older than Kafka 2.8: upgrade the broker")
    return offset_fetch.build_requests(groups, version, max_bytes=MAX_REQUEST_BYTES)

"""Requests to brokers, by name, about groups that their lists lack.

Kafka leaves a group that this user may not DESCRIBE out of its lists, without an error. So a list alone does
not show that a group was deleted. DescribeGroups checks the right first, and then names the reason: it knows
no such group (GROUP_ID_NOT_FOUND) of any type but its own.
"""

from collections.abc import Collection, Iterable, Mapping

from koff.client.groups.broker_responses import COORDINATOR_ERRORS
from koff.client.groups.descriptions import GroupListing, build_describe_requests
from koff.client.wire.connection import Connection
from koff.proto.requests import Api

PRESENT = "the group exists, and was not listed"


def explain_unlisted(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """Why the broker did not list each of these groups: Kafka's error. Raises `ConnectError`."""
    listings = [GroupListing(name, "", "", "") for name in sorted(names)]
    responses = connection.send_requests(build_describe_requests(connection, Api.DESCRIBE_GROUPS, listings))
    return {group.name: group.error or PRESENT for response in responses for group in response}


def join_reasons(responses: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The reasons of several brokers: that of the group's coordinator, if it is among them."""
    joined: dict[str, str] = {}
    for name, why in (pair for response in responses for pair in response.items()):
        if joined.get(name) is None or joined[name] in COORDINATOR_ERRORS:
            joined[name] = why
    return joined

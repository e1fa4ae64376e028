"""What was fetched of each group in the rounds so far, and what is missing."""

from collections.abc import Collection, Mapping, Sequence

from koff.client.groups.broker_responses import COORDINATOR_ERRORS, BrokerResponses
from koff.client.groups.descriptions import GroupListing
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import (
    DescribedGroup,
    OffsetColumns,
    PackedOffsets,
    ShareOffset,
    join_columns,
)

_GROUP_CHANGED = "GROUP_ID_NOT_FOUND"
"""The group was deleted, or has become a group of another type since it was listed."""
_MAX_FAILURES = 3
"""After errors in so many rounds, a group has failed for good. Rounds in which its broker was not ready do
not count. The group may come from a hostile record: a broker lists every group of its partitions, but each
time responds with NOT_COORDINATOR for a group whose name belongs to another broker's partition."""


class CollectedGroups:
    """The groups, their offsets and their errors, over all rounds."""

    def __init__(self, options: FetchOptions) -> None:
        self.fetched: set[str] = set()
        """The groups whose offsets are complete, or failed for good."""
        self.described: dict[str, DescribedGroup] = {}
        self.pending: dict[str, str] = {}
        """The groups that the next round tries again, with reasons."""
        self.share_offsets: list[ShareOffset] = []
        self.elsewhere: set[str] = set()
        """See `FetchedGroups.elsewhere`."""
        self._options = options
        self._rounds = 0
        self._listings: dict[str, GroupListing] = {}
        self._offsets: list[PackedOffsets] = []
        self._failed: dict[str, str] = {}  # for good
        self._failures: dict[str, set[int]] = {}  # by group, the rounds that count for `_MAX_FAILURES`

    @property
    def failed(self) -> Mapping[str, str]:
        """The groups of which a part is missing, with reasons."""
        return {**self.pending, **self._failed}

    def join_offsets(self) -> OffsetColumns:
        """The committed offsets of all groups."""
        return join_columns(self._offsets)

    def describe_groups(self) -> tuple[DescribedGroup, ...]:
        """All groups, with what is known of them."""
        return tuple(map(self._describe, self._listings.values()))

    def _describe(self, listing: GroupListing) -> DescribedGroup:
        error = self._failed.get(listing.name) or self.pending.get(listing.name, "")
        return self.described.get(listing.name) or listing.to_described_group(error)

    def add_round(self, responses: Sequence[BrokerResponses], *, knows_leaders: bool) -> None:
        """Adds the responses of a round.

        Without `knows_leaders`, koff does not know which brokers are coordinators, and could not probe them.
        """
        self._rounds += 1
        listed = {
            listing.name: (listing, response.error)
            for response in responses
            for listing in response.listings or ()
        }
        if all(response.listings is not None and not response.error for response in responses):
            self._drop_deleted(listed, knows_leaders=knows_leaders)
        self._listings |= {name: listing for name, (listing, _) in listed.items()}

        retry: dict[str, str] = {}
        for response in responses:
            self.elsewhere |= response.elsewhere - {listing.name for listing in response.listings or ()}
            self._add_offsets(response, retry)
            self._add_descriptions(response, retry)

        # A listed group needs another round if it has an error that may pass, or if its broker failed before
        # the group was complete.
        for name, (listing, broker_error) in listed.items():
            if name in retry and not self._is_complete(listing):
                self.pending[name] = retry[name]
            elif self._is_complete(listing) or not broker_error:
                self.pending.pop(name, None)
            else:
                self.pending[name] = f"its coordinator failed: {broker_error}"

    def _drop_deleted(self, listed: Collection[str], *, knows_leaders: bool) -> None:
        """All brokers listed their groups: a pending group that is not listed any more was deleted.

        But without probes, its coordinator may be another broker now, which has not begun to load it. Offsets
        that were fetched before stay in the result.
        """
        for name, why in list(self.pending.items()):
            if name not in listed and (knows_leaders or why == _GROUP_CHANGED):
                del self.pending[name]
                if name not in self.fetched:
                    self._listings.pop(name, None)

    def _add_offsets(self, response: BrokerResponses, retry: dict[str, str]) -> None:
        for part in response.offsets:
            # After the offsets topic has grown, two brokers may both count as the coordinator of a group.
            known = self.fetched.intersection(part.groups)
            self._offsets.append(part.offsets.drop_groups(known) if known else part.offsets)
            self.fetched.update(part.groups)
            self.elsewhere |= response.elsewhere.intersection(part.groups)
            self.fetched.update(
                name
                for name, error in part.errors.items()
                if self._note_failure(name, error, response, retry)
            )
        for name, error, offsets in response.share_offsets:
            if not error or self._note_failure(name, error, response, retry):
                self.fetched.add(name)
                self.share_offsets += offsets

    def _add_descriptions(self, response: BrokerResponses, retry: dict[str, str]) -> None:
        for group in response.described:
            if not group.error or self._note_failure(group.name, group.error, response, retry):
                self.described[group.name] = group

    def _note_failure(self, name: str, error: str, response: BrokerResponses, retry: dict[str, str]) -> bool:
        """Notes a group's error. Returns whether the group has failed for good.

        An error that may be gone in another round goes into `retry` instead.
        """
        failures = self._failures.setdefault(name, set())
        if error == _GROUP_CHANGED or not response.error:
            failures.add(self._rounds)
        may_pass = error == _GROUP_CHANGED or error in COORDINATOR_ERRORS
        if may_pass and len(failures) < _MAX_FAILURES:
            retry[name] = error
            return False
        self._failed[name] = error
        return True

    def _is_complete(self, listing: GroupListing) -> bool:
        described = (
            not self._options.describe or listing.describe_api is None or listing.name in self.described
        )
        is_left_out = listing.type == "share" and self._options.share_offsets == "not"
        return described and (is_left_out or listing.name in self.fetched)

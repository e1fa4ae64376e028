"""Fetches all groups of a cluster with their offsets: each coordinator returns its own.

One round fetches the leaders of `__consumer_offsets`, sends requests to all leaders at the same time (first
ListGroups, then OffsetFetch with up to 1,000 groups a request), and fetches the leaders again. If the
leaders have changed, a broker did not respond, or a group was not at its coordinator, another round fetches
what is missing.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from koff.client.groups.broker_responses import COORDINATOR_ERRORS, BrokerResponses
from koff.client.groups.collected_groups import CollectedGroups
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.leaders import BrokerAddress, OffsetsLeaders, read_layout
from koff.client.groups.missing_partitions import MissingPartitions
from koff.client.groups.responses import FetchedGroups
from koff.client.groups.unlisted_groups import explain_unlisted, join_reasons
from koff.client.offsets.lister import OffsetLister
from koff.client.wire.connection import Connection
from koff.errors import ConnectError
from koff.records.placement import group_partition
from koff.records.topics import OFFSETS_TOPIC

_THREADS = 32
"""How many brokers are queried at the same time."""
_PAUSE_S = (0.05, 0.4)
"""The pause between rounds: the first pause, and the longest. It doubles each time."""

T = TypeVar("T")


def fetch_from_coordinators(lister: OffsetLister, options: FetchOptions | None = None) -> FetchedGroups:
    """The groups with their offsets, from all coordinators, within `deadline_s` of the options.

    With `patience_s`, the groups of the brokers that responded are returned, and
    `FetchedGroups.find_incomplete` says where groups may be missing.

    Raises `ConnectError` (`Denied` for a refused log-in) when no broker responds, `ConfigError` for
    properties that koff's own connections do not support, and `UnsupportedVersion` when a broker is too old.
    Later errors are in the result, by group name. Needs DESCRIBE on the groups, on their topics, and on
    `__consumer_offsets`. A user without the first two gets fewer groups and offsets. Without DESCRIBE on
    `__consumer_offsets`, groups may be missing from the result, without an error in it, while coordinators
    change.
    """
    return _CoordinatorFetch(lister, options or FetchOptions()).run()


class _CoordinatorFetch:
    """The state of one `fetch_from_coordinators`, over all rounds.

    A round queries up to `_THREADS` brokers at the same time, each in one thread. This thread changes only
    the broker's `BrokerResponses`. `_groups` change only between rounds.
    """

    def __init__(self, lister: OffsetLister, options: FetchOptions) -> None:
        self._lister, self._options = lister, options
        self._began = time.monotonic()
        self._deadline = self._began + options.deadline_s
        patience_s, timeout_s = options.patience_s, lister.conf.request_timeout_s
        self._timeout_s = timeout_s if patience_s is None else min(timeout_s, patience_s)
        # No round begins later than that.
        self._last_round_s = self._deadline if patience_s is None else self._began + patience_s
        self._groups = CollectedGroups(options)
        self._missing = MissingPartitions()
        self._rounds = 0

    def run(self) -> FetchedGroups:
        layout, pause = self._fetch_layout(), _PAUSE_S[0]
        while True:
            self._rounds += 1
            responses = self._run_round(layout)
            self._groups.add_round(responses, knows_leaders=bool(layout.leaders))
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

            if not errors and not self._groups.pending:
                break
            if time.monotonic() + pause >= self._last_round_s:
                break  # what is missing is in `failed` and `incomplete`
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_S[1])

        groups = self._groups.describe_groups()
        unlisted = self._explain_unlisted(layout, {group.name for group in groups})
        return FetchedGroups(
            offsets=self._groups.join_offsets(),
            groups=groups,
            failed=self._groups.failed,
            brokers=sum(response.listings is not None for response in responses),
            seconds=time.monotonic() - self._began,
            share_offsets=tuple(self._groups.share_offsets),
            elsewhere=frozenset(self._groups.elsewhere),
            unlisted=unlisted,
            incomplete=tuple(errors),
            rounds=self._rounds,
            partition_count=self._missing.partition_count,
            incomplete_partitions=self._missing.reasons,
        )

    def _explain_unlisted(self, layout: OffsetsLeaders, listed: Collection[str]) -> dict[str, str]:
        """Why the brokers do not list known groups, by name.

        A broker that fails explains nothing: it may be the coordinator of groups that the others do not know.
        """
        chosen = {name for name in self._options.known if self._options.is_chosen(name)}
        missing = chosen.difference(listed)

        def send_request(broker: BrokerAddress) -> dict[str, str] | None:
            wants_all = self._options.partitions is None
            names = {name for name in missing if wants_all or layout.is_leader_of(broker, name)}
            with suppress(ConnectError):
                return self._lend(broker, lambda connection: explain_unlisted(connection, names))
            return None

        if not missing or not layout.coordinators:
            return {}
        with ThreadPoolExecutor(min(len(layout.coordinators), _THREADS), "koff-coordinators") as threads:
            responses = list(threads.map(send_request, layout.coordinators))
        joined = join_reasons(filter(None, responses))
        if None in responses:
            return {name: why for name, why in joined.items() if why not in COORDINATOR_ERRORS}
        return joined

    def _note_missing(
        self, before: OffsetsLeaders, after: OffsetsLeaders | str, responses: Sequence[BrokerResponses]
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

    def _fetch_layout(self) -> OffsetsLeaders:
        """The layout from the first broker that responds. Raises `ConnectError` when none responds."""
        deadline = min(self._deadline, time.monotonic() + self._timeout_s)
        _, metadata = self._lister.fetch_metadata([OFFSETS_TOPIC], deadline)
        return read_layout(metadata, self._options.partitions)

    def _lend(self, broker: BrokerAddress, use: Callable[[Connection], T]) -> T:
        """What `use` returns for a connection to the broker. Each response may take `_timeout_s`."""

        def use_patiently(connection: Connection) -> T:
            connection.deadline, connection.timeout_s = self._deadline, self._timeout_s
            return use(connection)

        connected_s = min(self._deadline, time.monotonic() + self._timeout_s)
        return self._lister.brokers.lend((broker.host, broker.port), use_patiently, deadline=connected_s)

    def _run_round(self, layout: OffsetsLeaders) -> list[BrokerResponses]:
        if not layout.coordinators:
            return []
        with ThreadPoolExecutor(min(len(layout.coordinators), _THREADS), "koff-coordinators") as threads:
            return list(threads.map(lambda broker: self._query_broker(broker, layout), layout.coordinators))

    def _query_broker(self, broker: BrokerAddress, layout: OffsetsLeaders) -> BrokerResponses:
        """All that one broker returns."""
        response = BrokerResponses(broker, layout)

        def query(connection: Connection) -> None:
            nonlocal response
            response = BrokerResponses(broker, layout)  # `lend` may call this twice
            response.list_groups(connection, self._options)
            if response.listings is not None:
                response.fetch_missing(
                    connection, self._options, self._groups.fetched, self._groups.described
                )

        try:
            self._lend(broker, query)
        except ConnectError as error:
            response.error, response.unready = str(error), {}
        return response


def _describe_changes(before: OffsetsLeaders, after: OffsetsLeaders) -> Iterator[str]:
    """The reasons why groups may be missing although all brokers have responded."""
    if after.leaderless:
        yield f"{OFFSETS_TOPIC} has no leader for partitions {', '.join(map(str, after.leaderless))}"
    elif after != before:
        yield f"the leaders of {OFFSETS_TOPIC} changed while the groups were fetched"

"""Fetches all groups of a cluster with their offsets: each coordinator returns its own.

One round fetches the leaders of `__consumer_offsets`, sends requests to all leaders at the same time (first
ListGroups, then OffsetFetch with up to 1,000 groups a request), and fetches the leaders again. If the
leaders have changed, a broker did not respond, or a group was not at its coordinator, another round fetches
what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from koff.client.addresses import parse_addresses
from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.groups.broker_responses import COORDINATOR_ERRORS, BrokerResponses
from koff.client.groups.collected_groups import CollectedGroups
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.leaders import BrokerAddress, Layout, fetch_layout
from koff.client.groups.missing_partitions import MissingPartitions
from koff.client.groups.responses import FetchedGroups
from koff.client.groups.unlisted_groups import explain_unlisted, join_reasons
from koff.client.wire.connection import Connection
from koff.client.wire.credentials import TokenSource
from koff.errors import ConfigError, ConnectError, Denied, copy_error
from koff.records.placement import group_partition
from koff.records.topics import OFFSETS_TOPIC

_THREADS = 32
"""How many brokers are queried at the same time."""
_PAUSE_S = (0.05, 0.4)
"""The pause between rounds: the first pause, and the longest. It doubles each time."""


def fetch_from_coordinators(
    conf: ClusterConf, options: FetchOptions | None = None, *, token: TokenSource | None = None
) -> FetchedGroups:
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
    with _CoordinatorFetch(conf, options or FetchOptions(), token) as fetch:
        return fetch.run()


class _CoordinatorFetch(Closing):
    """The state of one `fetch_from_coordinators`, over all rounds.

    A round queries up to `_THREADS` brokers at the same time, each in one thread. This thread changes only
    the broker's `BrokerResponses` and connection (and `_bytes`, when it replaces a closed connection).
    `_groups` change only between rounds.
    """

    def __init__(self, conf: ClusterConf, options: FetchOptions, token: TokenSource | None) -> None:
        patience_s = options.patience_s
        self._conf = conf if patience_s is None else _limit_timeouts(conf, patience_s)
        self._options = options
        self._token = token
        self._began = time.monotonic()
        self._deadline = self._began + options.deadline_s
        # No round begins later than that.
        self._last_round_s = self._deadline if patience_s is None else self._began + patience_s
        self._connections: dict[tuple[str, int], Connection] = {}
        self._bootstrap = list(parse_addresses(conf.brokers))
        if not self._bootstrap:
            raise ConfigError("--brokers names no broker")
        self._groups = CollectedGroups(options)
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
        self._bytes += sum(connection.bytes_read for connection in self._connections.values())
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
            bytes_read=self._bytes,
            seconds_by_step=self._seconds_by_step,
            partition_count=self._missing.partition_count,
            incomplete_partitions=self._missing.reasons,
        )

    def _explain_unlisted(self, layout: Layout, listed: Collection[str]) -> dict[str, str]:
        """Why the brokers do not list known groups, by name.

        A broker that fails explains nothing: it may be the coordinator of groups that the others do not know.
        """
        chosen = {name for name in self._options.known if self._options.is_chosen(name)}
        missing = chosen.difference(listed)

        def ask(broker: BrokerAddress) -> dict[str, str] | None:
            asks_all = self._options.partitions is None
            names = {name for name in missing if asks_all or layout.is_leader_of(broker, name)}
            with suppress(ConnectError):
                return explain_unlisted(self._connect(broker.host, broker.port), names)
            return None

        if not missing or not layout.coordinators:
            return {}
        with ThreadPoolExecutor(min(len(layout.coordinators), _THREADS), "koff-coordinators") as threads:
            answers = list(threads.map(ask, layout.coordinators))
        joined = join_reasons(filter(None, answers))
        if None in answers:
            return {name: why for name, why in joined.items() if why not in COORDINATOR_ERRORS}
        return joined

    def _note_missing(
        self, before: Layout, after: Layout | str, responses: Sequence[BrokerResponses]
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
                if self._options.patience_s is not None:  # a stalled broker may accept connections
                    connection.deadline = time.monotonic() + self._options.patience_s / share_of
                layout = replace(fetch_layout(connection), wanted=self._options.partitions)
                connection.deadline = self._deadline
            except Denied:
                raise  # the other brokers would refuse the log-in too
            except ConnectError as error:
                errors.append(copy_error(error))
            else:
                spent = self._seconds_by_step.get("metadata", 0.0)
                self._seconds_by_step["metadata"] = spent + time.monotonic() - began
                return layout
        raise copy_error(errors[0])

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

    def _run_round(self, layout: Layout) -> list[BrokerResponses]:
        responses = [BrokerResponses(broker, layout) for broker in layout.coordinators]
        if len(responses) == 1:  # no thread needed
            self._query_broker(responses[0])
        elif responses:
            with ThreadPoolExecutor(min(len(responses), _THREADS), "koff-coordinators") as threads:
                list(threads.map(self._query_broker, responses))
        # The brokers work in parallel: the time of a step is the time of its slowest broker.
        for step in ("connect", "list", "fetch"):
            slowest = max((response.seconds_by_step.get(step, 0.0) for response in responses), default=0.0)
            self._seconds_by_step[step] = self._seconds_by_step.get(step, 0.0) + slowest
        return responses

    def _query_broker(self, response: BrokerResponses) -> None:
        """Fetches everything from one broker into `response`."""
        times = [time.monotonic()]
        try:
            connection = self._connect(response.broker.host, response.broker.port)
            times.append(time.monotonic())
            response.list_groups(connection, self._options)
            times.append(time.monotonic())
            if response.listings is not None:
                response.fetch_missing(
                    connection, self._options, self._groups.fetched, self._groups.described
                )
        except ConnectError as error:
            response.error, response.unready = str(error), {}
        finally:
            times.append(time.monotonic())
            steps = zip(("connect", "list", "fetch"), times, times[1:], strict=False)
            response.seconds_by_step = {step: until - since for step, since, until in steps}


def _limit_timeouts(conf: ClusterConf, patience_s: float) -> ClusterConf:
    """The same cluster, where neither connecting nor a response may take longer than that."""
    return replace(
        conf,
        connect_timeout_s=min(conf.connect_timeout_s, patience_s),
        request_timeout_s=min(conf.request_timeout_s, patience_s),
    )


def _describe_changes(before: Layout, after: Layout) -> Iterator[str]:
    """The reasons why groups may be missing although all brokers have responded."""
    if after.leaderless:
        yield f"{OFFSETS_TOPIC} has no leader for partitions {', '.join(map(str, after.leaderless))}"
    elif after != before:
        yield f"the leaders of {OFFSETS_TOPIC} changed while the groups were fetched"

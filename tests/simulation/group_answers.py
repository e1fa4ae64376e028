"""FetchGroups as koff's client carries it out: round after round, until the coordinators agree."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count, zip_longest

from koff.client.groups import responses
from koff.monitor.described import build_group
from koff.monitor.duties.groups import FetchGroups, GroupsFetched
from koff.monitor.duties.share_lags import FetchShareLags, ShareLagsFetched
from koff.monitor.requests import Failed, Input
from koff.tracker import Described, ShareLag
from koff.tracker.commit_columns import CommitColumns
from tests.simulation.cluster import OFFSETS, Cluster, DescribedGroup
from tests.simulation.conditions import Conditions
from tests.simulation.placement import kafka_hash
from tests.simulation.reading import Schedule

MAX_ROUNDS_FOR_GROUPS = 3
PATIENCE_S = 5.0
"""So long the client waits for a coordinator that koff cannot reach."""


@dataclass(eq=False)
class _GroupsAnswer:
    """A FetchGroups under way.

    `leaders` are those of the offsets topic when the present round began, `brokers` those that it asks.
    """

    request: FetchGroups
    latency_s: float
    deadline_s: float
    open_parts: list[frozenset[int]]
    """The parts of the request that have no result yet; shared by the answers to all of them."""
    rounds: int = 0
    leaders: list[int | None] = field(default_factory=list)
    brokers: set[int] = field(default_factory=set)
    commits: dict[tuple[str, str, int], int] = field(default_factory=dict)
    groups: dict[str, Described] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    incomplete: dict[int, str] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)

    @property
    def asks_all(self) -> bool:
        """Whether all coordinators are asked."""
        return self.request.together or self.request.partition_count <= 1

    def forget(self) -> None:
        """Forgets what the round before has found."""
        self.commits, self.groups, self.failed, self.incomplete = {}, {}, {}, {}


class Coordinators:
    """Answers requests for groups, from what the coordinators know."""

    def __init__(
        self,
        cluster: Cluster,
        rng: random.Random,
        conditions: Conditions,
        schedule: Schedule,
        deliver: Callable[[Input], None],
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._conditions = conditions
        self._schedule = schedule
        self._deliver = deliver

    def fetch(self, request: FetchGroups, now_s: float) -> None:
        """Asks the coordinators of the partitions; there is a result for each of them."""
        latency_s = self._draw_latency(request.id, now_s)
        if latency_s is None:
            return
        deadline_s = now_s + self._rng.choice([5.0, 25.0])
        parts = self._split(request.partitions, -1 if request.together else request.partition_count)
        for part in list(parts):
            answer = _GroupsAnswer(replace(request, partitions=part), latency_s, deadline_s, parts)
            self._begin_round(answer, now_s)

    def _draw_latency(self, request_id: int, now_s: float) -> float | None:
        """How long the coordinators take; None if the request is lost, or fails: that is then delivered."""
        latency_s, effect = self._conditions.draw("groups")
        if latency_s is None or effect is None:
            return latency_s
        failed = Failed(request_id, f"groups {effect}", denied=effect == "denied")
        self._schedule(now_s + latency_s, lambda _: self._deliver(failed))
        return None

    def fetch_share_lags(self, request: FetchShareLags, now_s: float) -> None:
        """Asks the coordinators of the partitions for the lags of share groups; each responds for itself."""
        latency_s = self._draw_latency(request.id, now_s)
        if latency_s is None:
            return
        parts = self._split(request.partitions, request.partition_count)
        for part in list(parts):
            answer_s = now_s + self._rng.uniform(0, latency_s)
            self._schedule(answer_s, partial(self._list_share_lags, request, part, parts))

    def _list_share_lags(
        self,
        request: FetchShareLags,
        part: frozenset[int],
        open_parts: list[frozenset[int]],
        now_s: float,
    ) -> None:
        leaders = self._leaders()
        brokers = {leader for number, leader in enumerate(leaders) if leader is not None and number in part}
        if not leaders:  # who leads what is unknown, so all brokers are asked
            brokers = {broker for broker, is_up in self._cluster.brokers.items() if is_up}
        reached = {broker for broker in brokers if self._conditions.can_reach(broker)}
        lags: dict[str, list[ShareLag]] = {}
        incomplete: set[str] = set()
        for name in sorted({name for broker in reached for name in self._shares_of(broker)}):
            lags[name] = []
            for (topic, id_, number), state in self._cluster.share_states(name).items():
                if not self._conditions.may_read(topic):
                    continue
                if state is None:
                    incomplete.add(name)
                    continue
                end, done = self._cluster.topics[topic].partitions[number].end, state.committed
                lags[name].append(ShareLag(topic, id_, number, None if done is None else max(0, end - done)))

        def deliver(_: float) -> None:
            open_parts.remove(part)
            is_final = not open_parts
            self._deliver(ShareLagsFetched(request.id, lags, part, frozenset(incomplete), final=is_final))

        self._schedule(now_s if reached == brokers else now_s + PATIENCE_S, deliver)

    def _shares_of(self, broker: int) -> list[str]:
        """The share groups that the broker coordinates and koff may describe."""
        return [
            name
            for name in self._cluster.list_groups(broker)
            if name not in self._conditions.denied_groups and self._cluster.is_coordinator(broker, name)
            if (described := self._cluster.described(name)) is not None and described.kind == "share"
        ]

    def _split(self, partitions: frozenset[int], count: int) -> list[frozenset[int]]:
        """The partitions of each leader; all together if koff does not know the leaders of so many."""
        leaders = self._leaders()
        if len(leaders) != count:
            return [partitions]
        parts: dict[int | None, set[int]] = {}
        for number in sorted(partitions):
            parts.setdefault(leaders[number], set()).add(number)
        return [frozenset(numbers) for numbers in parts.values()]

    def _begin_round(self, answer: _GroupsAnswer, now_s: float) -> None:
        """Asks every coordinator, as the client does: again, if they changed meanwhile or one is silent."""
        answer.forget()
        answer.leaders, is_hidden = self._leaders(), not self._conditions.may_read(OFFSETS)
        brokers = {
            leader
            for number, leader in enumerate(answer.leaders)
            if leader is not None and (answer.asks_all or number in answer.request.partitions)
        }
        if is_hidden:  # who leads what is unknown, so all brokers are asked
            brokers = {broker for broker, is_up in self._cluster.brokers.items() if is_up}
        answer.brokers = brokers
        for broker in sorted(brokers):
            if self._conditions.can_reach(broker):
                at_s = now_s + self._rng.uniform(0, answer.latency_s)
                self._schedule(at_s, partial(self._list_groups, broker, answer))
            else:
                led = [p for p, leader in enumerate(answer.leaders) if leader == broker]
                led = list(answer.request.partitions) if is_hidden else led
                answer.incomplete |= dict.fromkeys(led, f"broker {broker}: timed out")
        self._schedule(now_s + answer.latency_s, lambda at_s: self._end_round(answer, at_s))

    def _end_round(self, answer: _GroupsAnswer, now_s: float) -> None:
        leaders = self._leaders()
        # The client waits for leaders of the partitions that it fetches, and probes the brokers that it asks.
        # A leader that has changed makes another round, whatever partition it is of.
        for number, (before, leader) in enumerate(zip_longest(answer.leaders, leaders)):
            if before != leader:
                why = "has no leader" if leader is None else "its coordinator has changed"
                answer.incomplete[number] = why
            elif leader is None:
                if answer.asks_all or number in answer.request.partitions:
                    answer.incomplete[number] = "has no leader"
            elif leader in answer.brokers and not self._cluster.is_coordinator(
                leader, _probes(len(leaders))[number]
            ):
                answer.incomplete[number] = "its coordinator is not ready"
        answer.failed = {name: why for name, why in answer.failed.items() if name not in answer.groups}
        for name in sorted(answer.request.known - answer.groups.keys() - answer.failed.keys()):
            if kafka_hash(name) % answer.request.partition_count in answer.request.partitions:
                answer.failed |= self._explain_unlisted(name, answer)
        answer.rounds += 1
        pause_s = self._rng.uniform(0.1, 1.0)
        # A group that its broker lists and does not answer for is given up soon: it may be a hostile record.
        is_missing_some = answer.incomplete or (answer.failed and answer.rounds < MAX_ROUNDS_FOR_GROUPS)
        if is_missing_some and now_s + pause_s < answer.deadline_s:
            self._schedule(now_s + pause_s, lambda at_s: self._begin_round(answer, at_s))
            return
        answer.open_parts.remove(answer.request.partitions)
        self._deliver(
            GroupsFetched(
                answer.request.id,
                CommitColumns.from_offsets(answer.commits),
                answer.groups,
                answer.failed,
                {p: why for p, why in answer.incomplete.items() if p in answer.request.partitions},
                {name: topic.id for name, topic in self._cluster.topics.items()},
                answer.request.partitions,
                frozenset(answer.elsewhere),
                final=not answer.open_parts,
            )
        )

    def _explain_unlisted(self, name: str, answer: _GroupsAnswer) -> dict[str, str]:
        """What brokers answer when they are asked by name about a group that no list has."""
        asked = [broker for broker in answer.brokers if self._conditions.can_reach(broker)]
        if not asked:
            return {}
        if name in self._conditions.denied_groups:
            return {name: "GROUP_AUTHORIZATION_FAILED"}
        if not any(self._cluster.is_coordinator(broker, name) for broker in asked):
            return {name: "NOT_COORDINATOR"}
        is_there = self._cluster.described(name) is not None
        return {name: "it was not listed" if is_there else "GROUP_ID_NOT_FOUND"}

    def _leaders(self) -> list[int | None]:
        """The leaders of the offsets topic, as far as koff may know them."""
        topic = self._cluster.topics.get(OFFSETS)
        return (
            []
            if topic is None or not self._conditions.may_read(OFFSETS)
            else [
                log.leader if log.leader is not None and self._cluster.brokers[log.leader] else None
                for log in topic.partitions
            ]
        )

    def _list_groups(self, broker: int, answer: _GroupsAnswer, _: float) -> None:
        request, denied = answer.request, self._conditions.denied_groups
        led = {number for number, leader in enumerate(answer.leaders) if leader == broker}
        for name in self._cluster.list_groups(broker):
            if name in denied:
                continue
            place = kafka_hash(name) % max(len(answer.leaders), 1)
            is_elsewhere = bool(led) and (place not in led or place in request.empty)
            if kafka_hash(name) % request.partition_count not in request.partitions:
                answer.elsewhere |= {name} if is_elsewhere else set()
                continue
            # After the offsets topic has grown, brokers list what groups have left in earlier partitions.
            if not self._cluster.is_coordinator(broker, name):
                answer.failed[name] = "NOT_COORDINATOR"
                continue
            described = self._cluster.described(name)
            if described is None:
                answer.failed[name] = "GROUP_ID_NOT_FOUND"
                continue
            answer.elsewhere |= {name} if is_elsewhere and request.together else set()
            answer.groups[name] = build_group(_describe(described), {})
            if described.kind != "share":
                for (topic, partition), offset in self._cluster.committed(name).items():
                    if not self._conditions.may_read(topic):
                        continue  # Kafka leaves it out, without an error
                    answer.commits[name, topic, partition] = offset


@cache
def _probes(partitions: int) -> tuple[str, ...]:
    """A group name for each partition, by which the client finds out whether its coordinator is ready."""
    names: dict[int, str] = {}
    for number in count():
        if len(names) == partitions:
            break
        name = f"koff-probe-{number}"
        names.setdefault(kafka_hash(name) % partitions, name)
    return tuple(names[number] for number in range(partitions))


def _describe(group: DescribedGroup) -> responses.DescribedGroup:
    """The group in the terms of the client, whose own tests show that it reads the responses right.

    Assignments of the model are by topic id where the tracker wants ids, so no id has to be looked up.
    """
    modern = group.kind in {"consumer", "share", "streams"}
    return responses.DescribedGroup(
        group.name,
        "classic" if group.kind == "simple" else group.kind,
        group.state,
        group.protocol_type,
        epoch=group.epoch if modern else None,
        assignment_epoch=group.assignment_epoch if modern else None,
        members=tuple(
            responses.DescribedMember(
                member.id,
                member.client_id,
                "/10.0.0.1",
                member.instance_id,
                member.assigned,
                member.target if modern else None,
                epoch=member.epoch if modern else None,
            )
            for member in group.members
        ),
    )

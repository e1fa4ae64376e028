"""Every class of fault that a run may have."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from tests.simulation.cluster import OFFSETS, SHARE_STATE, Cluster
from tests.simulation.conditions import KINDS, Conditions, Disturbance, Effect, Kind
from tests.simulation.disk import Disk
from tests.simulation.truth import Row

CLOCK_STEPS_S = (1.0, 3_600.0, 30 * 365 * 86_400.0)
BROKER_KINDS: frozenset[Kind] = frozenset({"offsets", "groups", "read", "history", "records"})
"""The requests that one certain broker has to answer."""

Action = Callable[[], None]
Hides = Callable[[Row], bool]


class Process(Protocol):
    """koff's process and its clock, as the fault plan sees them."""

    def kill(self, down_s: float, *, reboot: bool) -> None:
        """Kills koff, and starts it again that much later; `reboot`: with its machine."""

    def step_clock(self, seconds: float) -> None:
        """Steps koff's wall clock."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `end` undoes what `begin` did.

    `hides` says of a row whether koff may withhold it while the fault lasts. None: it may withhold any row.
    """

    name: str
    begin: Action
    end: Action
    hides: Hides | None = None


class Catalog:
    """Every class of fault. Each method draws one fault of its class."""

    def __init__(
        self, rng: random.Random, cluster: Cluster, conditions: Conditions, disk: Disk, process: Process
    ) -> None:
        self._rng = rng
        self._cluster = cluster
        self._conditions = conditions
        self._disk = disk
        self._process = process
        self._usual_latency_s = conditions.latency_s

    def weights(self) -> dict[Callable[[], Fault], float]:
        """Every class of fault with its weight."""
        return {
            # Between koff and the cluster
            self.slow: 2,
            self.slow_broker: 1.5,
            self.lost: 2,
            self.failed: 2,
            self.reordered: 1,
            self.denied_topic: 2,
            self.hidden_offsets_topic: 1,
            self.denied_kind: 1,
            self.denied_groups: 0.5,
            self.unreachable_broker: 3,
            self.unreachable_cluster: 1,
            self.wrong_topic_list: 1.5,
            self.deposed_leader: 1,
            # The cluster
            self.moved_leaders: 1.5,
            self.leaderless: 3,
            self.stopped_broker: 2,
            self.restarted_broker: 1,
            self.unclean_election: 2,
            self.deleted_topic: 1.5,
            self.recreated_topic: 1.5,
            self.grown_topic: 1,
            self.grown_offsets_topic: 1,
            self.recreated_internal_topic: 1,
            self.transaction: 2.5,
            self.compaction: 1,
            self.records_deleted: 0.5,
            self.groups_removed: 1,
            self.hostile: 1.5,
            # koff
            self.clock_step: 1.5,
            self.kill: 2.5,
            self.missed_deletions: 1.5,
            self.full_disk: 0.7,
            self.failing_disk: 0.7,
            self.damaged_disk: 0.7,
        }

    def heal(self) -> None:
        """Ends whatever is still wrong."""
        conditions, cluster = self._conditions, self._cluster
        conditions.disturbances.clear()
        conditions.denied_topics.clear()
        conditions.denied_groups.clear()
        conditions.deposed.clear()
        conditions.wrong_topic_lists = 0
        conditions.latency_s = self._usual_latency_s
        self._disk.is_full = False
        cluster.end_faults()

    # --- Between koff and the cluster -------------------------------------------------------------------

    def slow(self) -> Fault:
        kinds = self._some_kinds()
        # A poll under way is not given up like a request: it must come back soon after the fault.
        seconds = self._rng.choice([1.0, 5.0, 20.0] if "read" in kinds else [1.0, 5.0, 20.0, 120.0])
        return self._disturb("slow", kinds, self._share(), seconds, hides=_hides_of(kinds))

    def slow_broker(self) -> Fault:
        """One broker responds slowly to requests for offsets."""
        broker = self._rng.choice(sorted(self._cluster.brokers))
        seconds = self._rng.choice([2.0, 9.0, 60.0])
        return self._disturb(
            "slow",
            frozenset({"offsets"}),
            self._share(),
            seconds,
            broker,
            hides=lambda row: self._needs(row, broker),
        )

    def lost(self) -> Fault:
        kinds = self._some_kinds()
        return self._disturb("lost", kinds, self._share(), hides=_hides_of(kinds))

    def failed(self) -> Fault:
        kinds = self._some_kinds()
        return self._disturb("failed", kinds, self._share(), hides=_hides_of(kinds))

    def denied_kind(self) -> Fault:
        kinds: list[Kind] = ["topics", "offsets", "retention", "groups", "history", "records"]
        denied = frozenset({self._rng.choice(kinds)})
        return self._disturb("denied", denied, self._share(), hides=_hides_of(denied))

    def unreachable_broker(self) -> Fault:
        effect: Effect = self._rng.choice(["silent", "refused"])
        broker = self._rng.choice(sorted(self._cluster.brokers))
        return self._disturb(effect, BROKER_KINDS, broker=broker, hides=lambda row: self._needs(row, broker))

    def unreachable_cluster(self) -> Fault:
        effect: Effect = self._rng.choice(["lost", "failed"])
        return self._disturb(effect, frozenset(KINDS) - {"load", "save"})

    def reordered(self) -> Fault:
        """Responses of very different latency overtake each other."""
        latency_s = self._rng.choice([1.0, 4.0, 12.0])

        def begin() -> None:
            self._conditions.latency_s = latency_s

        def end() -> None:
            self._conditions.latency_s = self._usual_latency_s

        return Fault(f"latency up to {latency_s} s", begin, end)

    def denied_topic(self) -> Fault:
        names = [OFFSETS, SHARE_STATE, *self._cluster.ordinary_topics()]
        weights = [4, 3, *[1] * (len(names) - 2)]
        name = self._rng.choices(names, weights)[0]
        denied = self._conditions.denied_topics
        hides = None if name == OFFSETS else lambda row: row[1] == name or self._needs_topic(row, name)
        return Fault(f"{name} denied", lambda: denied.add(name), lambda: denied.discard(name), hides)

    def hidden_offsets_topic(self) -> Fault:
        """koff starts without DESCRIBE on the offsets topic, which therefore seems not to exist."""
        denied = self._conditions.denied_topics

        def begin() -> None:
            denied.add(OFFSETS)
            self._process.kill(0.1, reboot=False)

        return Fault(f"{OFFSETS} hidden, koff killed", begin, lambda: denied.discard(OFFSETS))

    def denied_groups(self) -> Fault:
        denied, names = self._conditions.denied_groups, set[str]()

        def begin() -> None:
            names.update(name for name in self._cluster.group_names() if self._rng.random() < 0.3)
            denied.update(names)

        # `names` stays: their rows may be missing for a while after the end, too.
        return Fault("groups denied", begin, denied.clear, lambda row: row[0] in names)

    def wrong_topic_list(self) -> Fault:
        """For one or two responses, topics are said not to exist."""
        ordinary = self._cluster.ordinary_topics()
        missing = self._rng.choice(
            [
                {OFFSETS},
                {SHARE_STATE},
                {OFFSETS, SHARE_STATE},
                {name for name in ordinary if self._rng.random() < 0.5},
                {OFFSETS, SHARE_STATE, *ordinary},
            ]
        )
        count = self._rng.choice([1, 1, 2])

        def begin() -> None:
            self._conditions.missing_topics = frozenset(missing)
            self._conditions.wrong_topic_lists = count

        return Fault(f"{count} topic lists without {sorted(missing)}", begin, _nothing, _hide_nothing)

    def deposed_leader(self) -> Fault:
        """What a broker leads moves to others, and it does not know that for its next few responses."""
        broker, count = self._rng.choice(sorted(self._cluster.brokers)), self._rng.choice([1, 2, 3])
        age_s = self._conditions.old_end_age_s

        def begin() -> None:
            for name, topic in sorted(self._cluster.topics.items()):
                for partition, log in enumerate(topic.partitions):
                    if log.leader == broker:
                        self._cluster.move_leader(name, partition)
                        if log.leader != broker:
                            self._conditions.deposed[name, partition] = count

        end = self._conditions.deposed.clear
        return Fault(f"broker {broker} deposed, {count} responses {age_s:.1f} s old", begin, end)

    # --- The cluster ------------------------------------------------------------------------------------

    def moved_leaders(self) -> Fault:
        moved = [self._some_partition() for _ in range(self._rng.choice([1, 1, 3, 10]))]

        def begin() -> None:
            for topic, partition in moved:
                self._cluster.move_leader(topic, partition)

        return Fault(f"leaders move: {moved}", begin, begin)

    def leaderless(self) -> Fault:
        topic, partition = self._some_partition()
        return Fault(
            f"{topic}-{partition} leaderless",
            lambda: self._cluster.take_leader(topic, partition),
            lambda: self._cluster.give_leader(topic, partition),
            lambda row: self._needs_partition(row, topic, partition),
        )

    def stopped_broker(self) -> Fault:
        broker, failover = self._rng.choice(sorted(self._cluster.brokers)), self._rng.random() < 0.7

        def begin() -> None:
            if sum(self._cluster.brokers.values()) > 1:
                self._cluster.stop_broker(broker, failover=failover)

        def end() -> None:
            if not self._cluster.brokers[broker]:
                self._cluster.start_broker(broker)

        return Fault(f"broker {broker} stopped, {failover=}", begin, end)

    def restarted_broker(self) -> Fault:
        broker = self._rng.choice(sorted(self._cluster.brokers))

        def begin() -> None:
            if self._cluster.brokers[broker]:
                self._cluster.restart_broker(broker)

        return Fault(f"broker {broker} restarted", begin, _nothing)

    def unclean_election(self) -> Fault:
        topic, partition = self._some_partition()
        return Fault(
            f"unclean election of {topic}-{partition}",
            lambda: self._cluster.unclean_election(topic, partition),
            _nothing,
        )

    def deleted_topic(self) -> Fault:
        name = self._rng.choice(self._cluster.ordinary_topics())
        return Fault(
            f"{name} deleted", lambda: self._cluster.delete_topic(name), _nothing, lambda row: row[1] == name
        )

    def recreated_topic(self) -> Fault:
        """The topic is deleted, and created again at once or at the end, perhaps with other partitions."""
        name, partitions = self._rng.choice(self._cluster.ordinary_topics()), self._rng.randrange(1, 5)
        create = lambda: self._cluster.create_topic(name, partitions)  # noqa: E731 - it is an argument
        return replace(self._recreated(name, create), hides=lambda row: row[1] == name)

    def recreated_internal_topic(self) -> Fault:
        name = self._rng.choice([OFFSETS, OFFSETS, SHARE_STATE])
        return self._recreated(name, self._cluster.create_internal_topics)

    def _recreated(self, name: str, create: Action) -> Fault:
        at_once = self._rng.random() < 0.5

        def begin() -> None:
            self._cluster.delete_topic(name)
            if at_once:
                create()

        def end() -> None:
            if name not in self._cluster.topics:
                create()

        return Fault(f"{name} deleted and created again, {at_once=}", begin, end)

    def grown_topic(self) -> Fault:
        name, more = (
            self._rng.choice([*self._cluster.ordinary_topics(), SHARE_STATE]),
            self._rng.randrange(1, 4),
        )
        return Fault(f"{name} grown by {more}", lambda: self._grow(name, more), _nothing, _hide_nothing)

    def grown_offsets_topic(self) -> Fault:
        """The coordinators learn the new number of partitions when their brokers are started again.

        koff may start in between.
        """
        more, is_killed = self._rng.randrange(1, 5), self._rng.random() < 0.3

        def begin() -> None:
            self._grow(OFFSETS, more)
            if is_killed:
                self._process.kill(0.1, reboot=False)

        def end() -> None:
            for broker in sorted(self._cluster.brokers):
                if self._cluster.brokers[broker]:
                    self._cluster.restart_broker(broker)

        return Fault(f"{OFFSETS} grown by {more}{', koff killed' * is_killed}", begin, end)

    def _grow(self, name: str, more: int) -> None:
        topic = self._cluster.topics.get(name)
        if topic is not None:
            self._cluster.grow_topic(name, len(topic.partitions) + more)

    def transaction(self) -> Fault:
        """A transaction of a group hangs, and is committed or aborted late."""
        producers: list[int] = []
        commit, count = self._rng.random() < 0.6, self._rng.choice([1, 1, 2, 4])

        def begin() -> None:
            for _ in range(count):
                producer = self._cluster.hang_transaction()
                if producer is not None:
                    producers.append(producer)

        def end() -> None:
            for producer in producers:
                self._cluster.end_transaction(producer, commit=commit)

        return Fault(f"{count} transactions hang, {commit=}", begin, end, _hide_nothing)

    def compaction(self) -> Fault:
        return Fault("compaction", self._cluster.compact, self._cluster.compact, _hide_nothing)

    def records_deleted(self) -> Fault:
        topic, partition = self._some_partition(internal_share=0.2)

        def begin() -> None:
            found = self._cluster.topics.get(topic)
            # Of internal topics, only the share coordinator deletes records: it knows what is needed no more.
            if (
                found is not None
                and topic not in {OFFSETS, SHARE_STATE}
                and partition < len(found.partitions)
            ):
                log = found.partitions[partition]
                self._cluster.delete_records(topic, partition, self._rng.randint(log.start, log.end))

        return Fault(f"records of {topic}-{partition} deleted", begin, _nothing, _hide_nothing)

    def groups_removed(self) -> Fault:
        removals = [
            self._rng.choice([self._cluster.expire_group, self._cluster.delete_group]) for _ in range(3)
        ]

        def begin() -> None:
            for remove in removals:
                remove()

        return Fault("groups expire or are deleted", begin, _nothing, _hide_nothing)

    def hostile(self) -> Fault:
        write = self._cluster.write_hostile
        return Fault("hostile records", write, write, _hide_nothing)

    # --- koff -------------------------------------------------------------------------------------------

    def clock_step(self) -> Fault:
        """koff's wall clock is wrong for a while."""
        seconds = self._rng.choice(CLOCK_STEPS_S) * self._rng.choice([1, -1])
        return Fault(
            f"clock steps by {seconds:.0f} s",
            lambda: self._process.step_clock(seconds),
            lambda: self._process.step_clock(-seconds),
            _hide_nothing,
        )

    def kill(self) -> Fault:
        down_s = self._rng.choice([0.0, 0.1, 5.0, 60.0])
        reboot = self._rng.random() < 0.2
        again = self._rng.random() < 0.3

        def begin() -> None:
            self._process.kill(down_s, reboot=reboot)

        return Fault(f"koff killed for {down_s} s, {reboot=}, {again=}", begin, begin if again else _nothing)

    def missed_deletions(self) -> Fault:
        """koff is down while groups are deleted, and until compaction has removed the tombstones, too."""
        cluster, reboot = self._cluster, self._rng.random() < 0.3
        removals = [self._rng.choice([cluster.expire_group, cluster.delete_group]) for _ in range(4)]
        cluster.retention_ms = min(cluster.retention_ms, 30_000)  # the plan is drawn before koff starts

        def begin() -> None:
            self._process.kill(55.0, reboot=reboot)
            for remove in removals:
                remove()
            # Compaction drops a tombstone that an earlier compaction has seen, delete.retention.ms before.
            for delay_s in (1.0, 2.0 + cluster.retention_ms / 1000):
                cluster.after(delay_s, cluster.compact)

        return Fault(f"groups are deleted while koff is down, {reboot=}", begin, _nothing)

    def full_disk(self) -> Fault:
        def fill(full: bool) -> None:
            self._disk.is_full = full

        return Fault("disk full", lambda: fill(True), lambda: fill(False), _hide_nothing)

    def failing_disk(self) -> Fault:
        effect: Effect = self._rng.choice(["failed", "slow", "lost"])
        return self._disturb(effect, frozenset({"save"}), self._share(), 30.0, hides=_hide_nothing)

    def damaged_disk(self) -> Fault:
        """A file is damaged, and koff killed: only a start reads files."""

        def begin() -> None:
            self._disk.damage()
            self._process.kill(1.0, reboot=False)

        return Fault("a file damaged, koff killed", begin, _nothing)

    # --- Drawing ----------------------------------------------------------------------------------------

    def _disturb(
        self,
        effect: Effect,
        kinds: frozenset[Kind],
        share: float = 1.0,
        seconds: float = 0.0,
        broker: int | None = None,
        hides: Hides | None = None,
    ) -> Fault:
        disturbance = Disturbance(effect, kinds, broker, share, seconds)
        active = self._conditions.disturbances

        def end() -> None:
            if disturbance in active:
                active.remove(disturbance)

        where = "" if broker is None else f" at broker {broker}"
        name = f"{effect} {share:.0%} of {','.join(sorted(kinds))}{where} {seconds or ''}"
        return Fault(name, lambda: active.append(disturbance), end, hides)

    def _needs(self, row: Row, broker: int) -> bool:
        """Whether koff needs that broker for that row, as long as no leader moves."""
        return any(
            log.leader == broker and self._needs_partition(row, name, partition)
            for name, topic in self._cluster.topics.items()
            for partition, log in enumerate(topic.partitions)
        )

    def _needs_topic(self, row: Row, topic: str) -> bool:
        """Whether the row depends on that topic as a source of commits."""
        return topic == SHARE_STATE and self._needs_partition(row, topic, 0)

    def _needs_partition(self, row: Row, topic: str, partition: int) -> bool:
        """Whether the row depends on that partition: its own, its group's, or any of share groups' state."""
        if topic == SHARE_STATE:
            return any(life.group == row[0] and life.kind == "share" for life in self._cluster.lives)
        if topic == OFFSETS:
            return self._cluster.coordinator(row[0])[1] == partition
        return row[1:] == (topic, partition)

    def _some_kinds(self) -> frozenset[Kind]:
        return frozenset(self._rng.sample(KINDS, self._rng.choice([1, 1, 2, 3])))

    def _share(self) -> float:
        return self._rng.choice([0.1, 0.5, 1.0, 1.0])

    def _some_partition(self, internal_share: float = 0.7) -> tuple[str, int]:
        """A partition as of now: by the time of the fault it may be gone, and nothing happens."""
        internal = [name for name in (OFFSETS, OFFSETS, SHARE_STATE) if name in self._cluster.topics]
        ordinary = self._cluster.ordinary_topics()
        name = self._rng.choice(internal if self._rng.random() < internal_share else ordinary)
        return name, self._rng.randrange(len(self._cluster.topics[name].partitions))


def _hide_nothing(_: Row) -> bool:
    """Such a fault is no reason to withhold a row that was served before."""
    return False


def _hides_of(kinds: frozenset[Kind]) -> Hides | None:
    """What responses of these kinds are needed for, once koff is ready."""
    return None if kinds & {"offsets", "read"} else _hide_nothing


def _nothing() -> None:
    """The end of a fault that ends by itself."""

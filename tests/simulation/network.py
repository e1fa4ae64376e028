"""The network between the core and the model: it takes requests, and delivers inputs later.

Each request is evaluated against the model at a moment between its sending and its response. `Conditions`
says what goes wrong on the way. Nothing here knows what is true: that is the contract's business.
"""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from koff.monitor.duties.groups import FetchGroups
from koff.monitor.duties.history import ReadHistory
from koff.monitor.duties.loading import Load
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.record_ages import FirstRecord, FirstRecordsRead, ReadFirstRecords, RecordPlace
from koff.monitor.duties.retention import FetchTopicConfigs, TopicConfigsFetched
from koff.monitor.duties.savings import WriteRequest
from koff.monitor.duties.share_lags import FetchShareLags
from koff.monitor.duties.stored_groups import FetchStoredGroups
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.moment import Moment
from koff.monitor.requests import Command, Failed, Input, OffsetKind, Read, StopReading, Topic, TopicPartition
from koff.view.cluster_view import ClusterFacts
from tests.simulation.cluster import Cluster
from tests.simulation.conditions import Conditions, Effect, Kind
from tests.simulation.disk import Disk
from tests.simulation.group_answers import Coordinators
from tests.simulation.logs import PartitionLog, PlainLog
from tests.simulation.quiet_cluster import OFFSETS
from tests.simulation.reading import Readers

DENIED = "TOPIC_AUTHORIZATION_FAILED"
LEADERLESS = "LEADER_NOT_AVAILABLE"
MOVED = "NOT_LEADER_OR_FOLLOWER"
NO_SUCH_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"
NO_RECORD = -2
"""Stands for the timestamp where there is no record up to the end offset."""
NOBODY = -1
"""Stands for the leader of partitions that have none, and of partitions that do not exist."""


_Offsets = dict[TopicPartition, int | str]
"""Offsets or errors."""


@dataclass(eq=False)
class _OffsetsAnswer:
    """A FetchOffsets under way. Each broker responds for itself."""

    request: FetchOffsets
    parts: int


class Network:
    """Delivers the results of requests. Only what is on the disk outlives koff (`restart`)."""

    def __init__(
        self,
        cluster: Cluster,
        rng: random.Random,
        conditions: Conditions,
        disk: Disk,
        read_moment: Callable[[], Moment],
    ) -> None:
        self.cluster = cluster
        self.conditions = conditions
        self.disk = disk
        self._rng = rng
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()
        self._arrived: list[Input] = []
        self._read_moment = read_moment
        self._readers = self._make_readers()
        self._coordinators = Coordinators(cluster, rng, conditions, self._schedule, self._deliver)

    def restart(self) -> None:
        """koff was killed: what is on its way is lost."""
        self._events.clear()
        self._arrived.clear()
        self.disk.restart()
        self._readers = self._make_readers()

    def _make_readers(self) -> Readers:
        return Readers(
            self.cluster, self._rng, self.conditions, self._schedule, self._deliver, self._read_moment
        )

    def next_event_s(self) -> float:
        """When something happens next, by the virtual clock."""
        return self._events[0][0] if self._events else math.inf

    @property
    def has_arrived(self) -> bool:
        """Whether there are inputs for `receive`."""
        return bool(self._arrived)

    def advance(self, now_s: float) -> None:
        """Lets happen all that is to happen up to then."""
        events = self._events
        while events and events[0][0] <= now_s:
            at_s, _, action = heapq.heappop(events)
            action(at_s)

    def receive(self, now_s: float) -> list[Input]:
        """The inputs that have arrived, in the order in which they arrived."""
        self.advance(now_s)
        arrived, self._arrived = self._arrived, []
        return arrived

    def send(self, requests: Sequence[Command], now_s: float) -> None:
        """Takes requests of the core."""
        for request in requests:
            self._send(request, now_s)

    def _send(self, request: Command, now_s: float) -> None:
        match request:
            case FetchTopics():
                self._ask(request.id, "topics", now_s, lambda: self._list_topics(request))
            case FetchOffsets():
                self._ask_offsets(request, now_s)
            case FetchTopicConfigs():
                settings = dict.fromkeys(request.names, str(self.cluster.retention_ms))
                fetched = TopicConfigsFetched(request.id, dict.fromkeys(request.topics, settings))
                self._ask(request.id, "retention", now_s, lambda: fetched)
            case FetchGroups():
                self._coordinators.fetch(request, now_s)
            case FetchShareLags():
                self._coordinators.fetch_share_lags(request, now_s)
            case Read():
                self._readers.start(request, now_s)
            case StopReading():
                self._readers.stop(request, now_s)
            case ReadHistory():
                self._readers.read_history(request, now_s)
            case Load():
                self._ask(request.id, "load", now_s, lambda: self.disk.load(request))
            case WriteRequest():
                self._ask(request.id, "save", now_s, lambda: self.disk.write(request))
            case ReadFirstRecords():
                self._ask(request.id, "records", now_s, lambda: self._read_first_records(request))
            case FetchStoredGroups():
                self._schedule(now_s + 0.01, lambda _: self._deliver(Failed(request.id, "no ZooKeeper")))

    # --- One request, one response ---------------------------------------------------------------------

    def _ask(self, id_: int, kind: Kind, now_s: float, evaluate: Callable[[], Input]) -> None:
        latency_s, effect = self.conditions.draw(kind)
        if latency_s is None:
            # A request whose response is lost may still have been carried out.
            if self._rng.random() < 0.5:
                self._schedule(now_s + self.conditions.latency_s, lambda _: _drop(evaluate()))
            return
        answer_at_s = now_s + latency_s
        if effect is not None:
            failed = Failed(id_, f"{kind} {effect}", denied=effect == "denied")
            self._schedule(answer_at_s, lambda _: self._deliver(failed))
            return

        def carry_out(_: float) -> None:
            answer = evaluate()
            self._schedule(answer_at_s, lambda _: self._deliver(answer))

        self._schedule(self._rng.uniform(now_s, answer_at_s), carry_out)

    def _list_topics(self, request: FetchTopics) -> TopicsFetched:
        hidden = {name for name in self.cluster.topics if not self.conditions.may_read(name)}
        if self.conditions.wrong_topic_lists > 0:
            self.conditions.wrong_topic_lists -= 1
            hidden |= self.conditions.missing_topics
        topics = {
            name: Topic(
                topic.id,
                len(topic.partitions),
                frozenset(p for p, log in enumerate(topic.partitions) if self._leader(log) is None),
            )
            for name, topic in self.cluster.topics.items()
            if name not in hidden
        }
        denied = frozenset(name for name in request.wanted if not self.conditions.may_read(name))
        return TopicsFetched(request.id, topics, ClusterFacts(denied=denied))

    def _read_first_records(self, request: ReadFirstRecords) -> FirstRecordsRead:
        """All records of ordinary topics exist: there are no gaps, and no control records."""
        records: dict[RecordPlace, FirstRecord | str] = {}
        for place in request.places:
            log = self._log(place.topic, place.partition)
            leader = None if log is None else self._leader(log)
            if not self.conditions.may_read(place.topic):
                records[place] = DENIED
            elif not isinstance(log, PlainLog):
                records[place] = NO_SUCH_PARTITION
            elif leader is None or not self.conditions.can_reach(leader):
                records[place] = LEADERLESS
            else:
                offset = max(place.offset, log.start)
                written_ms = log.written_ms(offset)
                if written_ms is None or offset >= log.end:
                    offset, written_ms = log.end, NO_RECORD
                records[place] = FirstRecord(offset, written_ms)
        denied = {place.topic for place, record in records.items() if record == DENIED}
        return FirstRecordsRead(request.id, records, frozenset(denied))

    # --- Offsets: each broker responds for the partitions that it leads ----------------------------------

    def _ask_offsets(self, request: FetchOffsets, now_s: float) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(request.partitions):
            log = self._log(*partition)
            leader = None if log is None else self._leader(log)
            by_leader.setdefault(NOBODY if leader is None else leader, []).append(partition)
        if not by_leader:
            by_leader[NOBODY] = []
        answer = _OffsetsAnswer(request, len(by_leader))
        for broker, partitions in by_leader.items():
            self._ask_offsets_of(broker, partitions, answer, now_s)

    def _ask_offsets_of(
        self, broker: int, partitions: list[TopicPartition], answer: _OffsetsAnswer, now_s: float
    ) -> None:
        latency_s, effect = self.conditions.draw("offsets", broker)
        if latency_s is None:
            return
        answer_at_s = now_s + latency_s

        def carry_out(at_s: float) -> None:
            found = self._offsets(broker, partitions, answer.request.kind, effect, at_s)
            self._schedule(answer_at_s, lambda _: self._deliver_offsets(answer, found))

        self._schedule(self._rng.uniform(now_s, answer_at_s), carry_out)

    def _offsets(
        self,
        broker: int,
        partitions: Iterable[TopicPartition],
        kind: OffsetKind,
        effect: Effect | None,
        at_s: float,
    ) -> _Offsets:
        """What a broker answers for partitions that it led when the request was sent."""
        offsets: _Offsets = {}
        for partition in partitions:
            log = self._log(*partition)
            why = self._reason_for_no_offset(broker, partition, log, effect)
            if why or log is None:
                offsets[partition] = why
                continue
            is_deposed = kind == "end" and self.conditions.is_deposed(partition)
            offsets[partition] = self._old_end(partition, log, at_s) if is_deposed else _look_up(log, kind)
        return offsets

    def _reason_for_no_offset(
        self,
        broker: int,
        partition: TopicPartition,
        log: PartitionLog | PlainLog | None,
        effect: Effect | None,
    ) -> str:
        if effect is not None:
            return DENIED if effect == "denied" else f"request {effect}"
        if not self.conditions.may_read(partition[0]):
            return DENIED
        if log is None:
            return NO_SUCH_PARTITION
        leader = self._leader(log)
        if leader is None:
            return LEADERLESS
        # A worker may ask the new leader by itself, or give up.
        return MOVED if leader != broker and self._rng.random() < 0.5 else ""

    def _old_end(self, partition: TopicPartition, log: PartitionLog | PlainLog, at_s: float) -> int:
        if isinstance(log, PartitionLog):
            return log.end_at(self.cluster.wall_ms() - round(self.conditions.old_end_age_s * 1000))
        ends = self.cluster.truth.ends(*partition, at_s - self.conditions.old_end_age_s, at_s)
        return min((end for end in ends if end is not None), default=log.end)

    def _deliver_offsets(self, answer: _OffsetsAnswer, found: _Offsets) -> None:
        answer.parts -= 1
        self._deliver(OffsetsFetched(answer.request.id, found, final=answer.parts == 0))

    # --- The model ------------------------------------------------------------------------------------

    def _log(self, topic: str, partition: int) -> PartitionLog | PlainLog | None:
        found = self.cluster.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def _leader(self, log: PartitionLog | PlainLog) -> int | None:
        return log.leader if log.leader is not None and self.cluster.brokers[log.leader] else None

    # --- Events ---------------------------------------------------------------------------------------

    def _schedule(self, at_s: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), action))

    def _deliver(self, arrived: Input) -> None:
        self._arrived.append(arrived)
        if isinstance(arrived, TopicsFetched) and (offsets := arrived.topics.get(OFFSETS)) is not None:
            self.cluster.note_listed(offsets.partitions)


def _look_up(log: PartitionLog | PlainLog, kind: OffsetKind) -> int:
    match kind:
        case "end":
            return log.end
        case "stable":
            return log.stable
        case "start":
            return log.start
    return log.offset_at_time(kind)


def _drop(_: Input) -> None:
    """Makes an expression of a call whose result nobody gets."""

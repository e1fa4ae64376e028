"""koff's readers of internal topics, as `LogReader` behaves: what they deliver, and what they notice when."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from koff.monitor.duties.history import HistoryRead, ReadHistory
from koff.monitor.moment import Moment
from koff.monitor.requests import (
    Failed,
    Input,
    Lost,
    Polled,
    Read,
    ReadFailed,
    Records,
    StopReading,
    Watermarks,
)
from koff.proto.buffers import Binary
from tests.simulation.cluster import Cluster
from tests.simulation.conditions import Conditions
from tests.simulation.logs import LogRecord, PartitionLog

GHOST_SHARE = 0.3
"""How often records that were read before a reader was stopped arrive after it was begun again."""
RETRY_S = 0.5
"""How often a reader of history looks whether its partition can be read again."""
HISTORY_DEADLINE_S = 120.0

Schedule = Callable[[float, Callable[[float], None]], None]


@dataclass(eq=False)
class _Reading:
    """A partition that is read. `log` and `generation` are those at the start: a recreated topic has another.

    `report_at_s` is when the reader notices and reports that it cannot go on. `ends_every_s` is the pause
    between two responses with watermarks: while a follower is read, the leader is only asked now and then.
    """

    attempt: int
    position: int
    epoch: int
    log: PartitionLog | None
    generation: int
    leader: int | None
    paused_until_s: float
    ends_every_s: float
    ends_due_s: float = 0.0
    was_reachable: bool = True
    was_read: bool = False
    end_reported: int = -1
    trouble: Lost | None = None
    report_at_s: float = 0.0


class Readers:
    """Reads internal topics: one poll under way for each topic. Delivers `Polled` and `ReadFailed`."""

    def __init__(
        self,
        cluster: Cluster,
        rng: random.Random,
        conditions: Conditions,
        schedule: Schedule,
        deliver: Callable[[Input], None],
        read_moment: Callable[[], Moment],
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._conditions = conditions
        self._schedule = schedule
        self._deliver = deliver
        self._read_moment = read_moment
        self._readings: dict[str, dict[int, _Reading]] = {}
        self._ticking: set[str] = set()

    def start(self, request: Read, now_s: float) -> None:
        """Reads these partitions from now on."""
        readings = self._readings.setdefault(request.topic, {})
        for partition, start in sorted(request.starts.items()):
            self._haunt(request.topic, partition, now_s)
            log = self._log(request.topic, partition)
            readings[partition] = _Reading(
                start.attempt,
                start.offset,
                start.leader_epoch,
                log,
                log.generation if log else 0,
                log.leader if log else None,
                now_s + self._rng.uniform(0.0, 0.1),
                self._rng.choice([0.0, 0.0, self._conditions.follower_s]),
            )
        if request.topic not in self._ticking:
            self._ticking.add(request.topic)
            self._schedule(now_s + self._rng.uniform(0.0, 0.1), lambda at_s: self._tick(request.topic, at_s))

    def stop(self, request: StopReading, now_s: float) -> None:
        """Reads these partitions no more. What was read before may still arrive."""
        for partition in sorted(request.partitions):
            self._haunt(request.topic, partition, now_s)
            self._readings.get(request.topic, {}).pop(partition, None)

    def _haunt(self, topic: str, partition: int, now_s: float) -> None:
        """Lets the next records of an attempt that ends arrive late, as if they had been read in time."""
        reading = self._readings.get(topic, {}).get(partition)
        if reading is None or reading.log is None or self._rng.random() >= GHOST_SHARE:
            return
        log = reading.log
        found = log.read(reading.position, 20)[0] if reading.position >= log.start else []
        if found and reading.was_read and self._conditions.may_read(topic):
            ghost = Polled(topic, [_to_records(partition, reading.attempt, found)])
            self._schedule(now_s + self._rng.uniform(0.0, 1.0), lambda _: self._deliver(ghost))

    # --- Polls ----------------------------------------------------------------------------------------

    def _tick(self, topic: str, now_s: float) -> None:
        readings = self._readings[topic]
        if not readings:
            self._ticking.discard(topic)
            return
        interval_s = self._conditions.poll_interval_s
        if self._conditions.is_hung("read"):
            self._schedule(now_s + interval_s, lambda at_s: self._tick(topic, at_s))
            return
        latency_s, effect = self._conditions.draw("read")
        if not self._conditions.may_read(topic):
            effect = "denied"
        if latency_s is None:
            latency_s = 0.0
        # What was read before a failure is delivered before it. A new reader has read nothing.
        if effect in {"failed", "denied"}:
            for partition in [number for number, reading in readings.items() if not reading.was_read]:
                del readings[partition]
        polled = self._poll(topic, readings, now_s)
        deliver_at_s = now_s + latency_s
        if polled is not None:
            self._schedule(deliver_at_s, lambda _: self._deliver(polled))
        if effect in {"failed", "denied"}:
            readings.clear()
            self._ticking.discard(topic)
            failed = ReadFailed(topic, f"reading {effect}", denied=effect == "denied")
            self._schedule(deliver_at_s, lambda _: self._deliver(failed))
            return
        self._schedule(deliver_at_s + interval_s, lambda at_s: self._tick(topic, at_s))

    def _poll(self, topic: str, readings: dict[int, _Reading], now_s: float) -> Polled | None:
        """What a poll returns, None if nothing."""
        records: list[Records] = []
        positions: dict[int, tuple[int, int]] = {}
        lost: list[Lost] = []
        ends: dict[int, Watermarks] = {}
        room = self._rng.randrange(20, 200)
        order = list(readings)
        if len(order) > 1:
            turn = self._rng.randrange(len(order))
            order = order[turn:] + order[:turn]
        for partition in order:
            reading = readings[partition]
            if self._has_nothing_new(topic, partition, reading):
                self._note_ends(topic, partition, reading, ends, now_s)
                continue
            log = self._find_readable(topic, partition, reading, now_s)
            if reading.trouble is not None:
                if now_s >= reading.report_at_s:
                    lost.append(reading.trouble)
                    del readings[partition]
                continue
            if log is None:
                continue
            self._note_ends(topic, partition, reading, ends, now_s)
            if reading.position >= log.stable:
                # The reader says once that it has reached the end, also where it began there.
                if reading.end_reported != reading.position:
                    reading.end_reported = reading.position
                    positions[partition] = (reading.attempt, reading.position)
                continue
            if not room:
                continue
            found, next_offset = log.read(reading.position, room)
            room -= len(found)
            reading.epoch = log.epoch
            if found:
                records.append(_to_records(partition, reading.attempt, found))
            # The reader learns where the log goes on only at the last stable offset.
            reading.position = next_offset
            if next_offset == log.stable and next_offset != (found[-1].offset + 1 if found else -1):
                positions[partition] = (reading.attempt, next_offset)
                reading.end_reported = next_offset
        if not records and not positions and not lost and not ends:
            return None
        return Polled(topic, records, positions, lost, ends)

    def _note_ends(
        self, topic: str, partition: int, reading: _Reading, ends: dict[int, Watermarks], now_s: float
    ) -> None:
        log = reading.log
        if log is None or now_s < reading.ends_due_s:
            return
        reading.ends_due_s, end = now_s + reading.ends_every_s, log.end
        if self._conditions.is_deposed((topic, partition)):
            end = log.end_at(self._cluster.wall_ms() - round(self._conditions.old_end_age_s * 1000))
        ends[partition] = Watermarks(reading.attempt, end, min(end, log.stable), self._read_moment())

    def _has_nothing_new(self, topic: str, partition: int, reading: _Reading) -> bool:
        """Whether all is as it was when the end was reported: so it is in most polls."""
        log = reading.log
        return (
            log is not None
            and reading.trouble is None
            and reading.end_reported == reading.position == log.end
            and reading.was_reachable
            and reading.generation == log.generation
            and reading.leader == log.leader
            and log is self._log(topic, partition)
            and self._is_reachable(log)
        )

    def _find_readable(
        self, topic: str, partition: int, reading: _Reading, now_s: float
    ) -> PartitionLog | None:
        """The log, if it can be read now. Sets `reading.trouble` once the reader can notice it."""
        if reading.trouble is not None:
            return None
        log = self._log(topic, partition)
        if log is None or (reading.log is not None and log is not reading.log):
            self._note_recreation(partition, reading, log, now_s)
            return None
        if reading.log is None:  # the partition did not exist when reading began
            reading.log, reading.generation = log, log.generation
        if not self._is_reachable(log):
            reading.was_reachable = False
            return None
        if not reading.was_reachable:  # the reader tries again with growing pauses
            reading.was_reachable = True
            reading.paused_until_s = now_s + self._rng.choice([0.0, 0.5, 2.0, 8.0])
        if log.leader != reading.leader:  # it has to look up the new leader first
            reading.leader = log.leader
            reading.paused_until_s = max(reading.paused_until_s, now_s + self._rng.choice([0.0, 0.1, 1.0]))
        if now_s < reading.paused_until_s:
            return None
        why = _find_loss(log, reading)
        if why:
            reading.trouble = Lost(partition, reading.attempt, why)
            reading.report_at_s = now_s + self._rng.choice([0.0, 0.0, 0.1, 1.0])
            return None
        reading.generation = log.generation
        reading.was_read = True
        return log

    def _note_recreation(
        self, partition: int, reading: _Reading, log: PartitionLog | None, now_s: float
    ) -> None:
        """The topic is gone, or it is another one of that name: for a while the reader sees nothing."""
        out_of_range = log is not None and self._rng.random() < 0.5
        why = "offset out of range" if out_of_range else "unknown topic or partition"
        reading.trouble = Lost(partition, reading.attempt, why, gone=not out_of_range)
        reading.report_at_s = now_s + self._rng.choice([0.0, 0.5, 2.0, 5.0])

    # --- History --------------------------------------------------------------------------------------

    def read_history(self, request: ReadHistory, now_s: float) -> None:
        """Reads a partition from its log start up to an offset."""
        latency_s, effect = self._conditions.draw("history")
        if latency_s is None:
            return
        if effect is None and not self._conditions.may_read(request.topic):
            effect = "denied"
        at_s = now_s + latency_s
        if effect is not None:
            failed = Failed(request.id, f"history {effect}", denied=effect == "denied")
            self._schedule(at_s, lambda _: self._deliver(failed))
            return
        log = self._log(request.topic, request.partition)
        position = log.start if log else 0
        generation = log.generation if log else 0
        deadline_s = now_s + HISTORY_DEADLINE_S
        self._schedule(at_s, lambda at: self._go_on(request, log, generation, position, at, deadline_s))

    def _go_on(
        self,
        request: ReadHistory,
        log: PartitionLog | None,
        generation: int,
        position: int,
        now_s: float,
        deadline_s: float,
    ) -> None:
        """Delivers the next piece of a history."""
        again_s = now_s + RETRY_S
        if log is None or self._log(request.topic, request.partition) is not log:
            self._deliver(Failed(request.id, "unknown topic or partition"))
            return
        if not self._conditions.may_read(request.topic):
            self._deliver(Failed(request.id, "denied", denied=True))
            return
        if now_s > deadline_s:
            self._deliver(Failed(request.id, "timed out"))
            return
        if self._is_reachable(log) and not self._conditions.is_hung("history"):
            if position < log.start or any(
                at < position for number, at in log.truncated_to.items() if number > generation
            ):
                self._deliver(Failed(request.id, "offset out of range"))
                return
            found, next_offset = log.read(position, self._rng.randrange(20, 500))
            final = next_offset >= request.until
            if final or found:
                wanted = [record for record in found if record.offset < request.until]
                self._deliver(
                    HistoryRead(
                        request.id,
                        [record.key for record in wanted],
                        [record.value for record in wanted],
                        [record.offset for record in wanted],
                        min(next_offset, request.until),
                        final=final,
                    )
                )
                again_s = now_s + self._rng.uniform(0.001, self._conditions.latency_s)
            if final:
                return
            position, generation = next_offset, log.generation
        self._schedule(again_s, lambda at: self._go_on(request, log, generation, position, at, deadline_s))

    # --- The model ------------------------------------------------------------------------------------

    def _log(self, topic: str, partition: int) -> PartitionLog | None:
        found = self._cluster.topics.get(topic)
        if found is None or partition >= len(found.partitions):
            return None
        log = found.partitions[partition]
        assert isinstance(log, PartitionLog), f"{topic} is no internal topic"
        return log

    def _is_reachable(self, log: PartitionLog) -> bool:
        leader = log.leader
        return leader is not None and self._cluster.brokers[leader] and self._conditions.can_reach(leader)


def _find_loss(log: PartitionLog, reading: _Reading) -> str:
    """Why the broker refuses to let the reader read on, "" if it does not."""
    position = reading.position
    if not log.start <= position <= log.end:
        return f"offset {position} is out of range [{log.start}, {log.end}]"
    if reading.epoch >= 0 and log.epoch_end(reading.epoch) < position:
        return f"the log was truncated below {position}"
    if any(at < position for number, at in log.truncated_to.items() if number > reading.generation):
        return f"the log was truncated below {position} since reading began"
    return ""


def _to_records(partition: int, attempt: int, found: list[LogRecord]) -> Records:
    keys, values = [record.key for record in found], [record.value for record in found]
    # Records of a long history come as columns. Here they may come at any time: the core must not care.
    is_columns = found[0].offset % 2 == 1
    return Records(
        partition,
        attempt,
        Binary.from_values(keys) if is_columns else keys,
        Binary.from_values(values) if is_columns else values,
        [record.offset for record in found],
        found[-1].epoch,
    )

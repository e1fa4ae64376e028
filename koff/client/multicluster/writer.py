"""Writes to many clusters: what one of them does not take goes to another."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import structlog
from confluent_kafka import KafkaError

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf
from koff.client.message import Message
from koff.client.multicluster.balancers import size
from koff.client.multicluster.conf import RWMode, WriterConf
from koff.client.multicluster.errors import WriteError, WriteErrors
from koff.client.multicluster.stats import ClusterWrites, WriterStats
from koff.client.multicluster.write_target import Item, Reach, Target, refused
from koff.errors import Closed, ConfigError

log = structlog.get_logger(component="client.multicluster")

_BACKOFF_S, _MAX_BACKOFF_S = 0.1, 1.0
_GATHER_S = 0.02
"""Failures of one batch come one by one: those of so short a time go on together, in their order."""


class _WriteCall:
    """The messages of one `write_messages`, and what became of them."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.errors: list[WriteError | None] = [None] * len(messages)
        self.left = len(messages)
        self.done = threading.Event()

    def outcome(self) -> WriteErrors | None:
        return WriteErrors(self.errors) if any(self.errors) else None


class Writer(Closing):
    """Writes messages to some of many clusters, by name: in turn, or to the first that can be reached.

    A context manager, for any number of threads. The messages of one call go to one cluster, in their order
    within a partition. When that one fails, those not acknowledged go to the next, in their order again:
    then they may be behind messages of later calls, and whoever reads both clusters may find some twice
    (`stats().possible_duplicates` counts them). Nothing acknowledged is lost: all replicas in sync have it.
    """

    def __init__(self, clusters: Mapping[str, ClusterConf], conf: WriterConf) -> None:
        if not clusters:
            raise ConfigError("a writer needs one cluster at least")
        self._conf = conf
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # what waits may have somewhere to go
        self._room = threading.Condition(self._lock)  # less is under way
        self._turn = 0
        self._numbers = itertools.count()
        self._under_way = 0
        self._again: list[tuple[float, int, Item]] = []
        self._closing = self._over = False
        self._counts = _no_counts()
        self._targets = [
            Target(name, cluster, conf, self._settle, self._look_again) for name, cluster in clusters.items()
        ]
        self._by_target = {
            target: dict.fromkeys(("messages", "bytes", "failures"), 0) for target in self._targets
        }
        self._thread = threading.Thread(target=self._send_again, name="koff-write-again", daemon=True)
        for target in self._targets:
            target.start()
        self._thread.start()

    def write_messages(self, *messages: Message) -> None:
        """Returns when all are written, each with its `cluster`, partition and offset set.

        Raises `WriteErrors` when attempts were used up for some, with one entry a message. An asynchronous
        writer returns once they are under way.
        """
        if not messages:
            return
        call, began = _WriteCall(messages), time.monotonic()
        with self._lock:
            self._room.wait_for(lambda: self._closing or self._has_room(len(messages)))
            if self._closing:
                raise Closed("the writer is closed")
            self._under_way += len(messages)
            items = [
                Item(message, next(self._numbers), place, call, began)
                for place, message in enumerate(messages)
            ]
            turn, self._turn = self._turn, self._turn + 1
            target = self._choose(items[0], turn)
            if target is None:
                self._put_off(items)
        if target is not None:
            target.send(items)
        if not self._conf.asynchronous:
            call.done.wait()
            errors = call.outcome()
            if errors is not None:
                raise errors

    def stats(self) -> WriterStats:
        """What happened since the last call, or since the writer was made."""
        with self._lock:
            clusters = {
                target.name: ClusterWrites(
                    **self._by_target[target],
                    reachable=target.reach is Reach.UP,
                    failure=target.failure,
                )
                for target in self._targets
            }
            counts, self._counts = self._counts, _no_counts()
            for counted in self._by_target.values():
                counted.update(dict.fromkeys(counted, 0))
        return WriterStats(**{**counts, "clusters": clusters})

    def close(self) -> None:
        """Takes no more messages, waits until all under way are written or given up. Safe to call twice."""
        with self._lock:
            self._closing = True
            self._room.notify_all()
            self._room.wait_for(lambda: self._under_way == 0)
            self._over = True
            self._changed.notify_all()
        self._thread.join()
        for target in self._targets:
            target.close()

    def _has_room(self, count: int) -> bool:
        return self._under_way == 0 or self._under_way + count <= self._conf.queue_capacity

    def _choose(self, item: Item, turn: int = 0) -> Target | None:
        """The cluster to try now, rather not the last one; None while there is none.

        Nor is there one before it is known whether the primary can be reached.
        """
        possible = [target for target in self._targets if target not in item.refused]
        if self._conf.mode is RWMode.PRIMARY_BACKUP:
            turn = 0
            if possible[0].reach is Reach.UNKNOWN:
                return None
        up = [target for target in possible if target.reach is Reach.UP]
        others = [target for target in up if target is not item.last] or up
        return others[turn % len(others)] if others else None

    def _settle(self, target: Target, item: Item, error: KafkaError | None, delivered: Any) -> None:
        if error is None:
            self._written(target, item, delivered)
            return
        item.reason = f"{target.name}: {error.str()}"
        with self._lock:
            self._by_target[target]["failures"] += 1
            if refused(error):
                item.refused.add(target)
            else:
                item.in_doubt = item.in_doubt or delivered is not None
            item.attempts += 1
            hopeless = len(item.refused) == len(self._targets) or item.attempts >= self._conf.max_attempts
            if not hopeless:
                item.due = time.monotonic() + _GATHER_S
                self._queue(item)
        if hopeless:
            self._give_up(item)

    def _written(self, target: Target, item: Item, delivered: Any) -> None:
        message, seconds = item.message, time.monotonic() - item.began
        message.topic, message.cluster = self._conf.topic, target.name
        message.partition, message.offset = delivered.partition(), delivered.offset()
        with self._lock:
            counted = self._by_target[target]
            self._counts["messages"] += 1
            self._counts["bytes"] += size(message)
            counted["messages"] += 1
            counted["bytes"] += size(message)
            self._counts["possible_duplicates"] += item.in_doubt
            self._counts["seconds"] += seconds
            self._counts["longest_s"] = max(self._counts["longest_s"], seconds)
        self._finish(item, None)

    def _give_up(self, item: Item) -> None:
        reason = f"{item.reason}; gave up after {item.attempts} attempts"
        with self._lock:
            self._counts["errors"] += 1
            self._counts["in_doubt"] += item.in_doubt
        self._finish(item, WriteError(reason, in_doubt=item.in_doubt))

    def _finish(self, item: Item, error: WriteError | None) -> None:
        call: _WriteCall = item.call
        with self._lock:
            call.errors[item.place] = error
            call.left -= 1
            finished = call.left == 0
        if finished:
            if self._conf.on_completion is not None:
                self._tell(call)
            call.done.set()
        with self._lock:
            self._under_way -= 1
            self._room.notify_all()

    def _tell(self, call: _WriteCall) -> None:
        assert self._conf.on_completion is not None
        try:
            self._conf.on_completion(call.messages, call.outcome())
        except Exception:  # the thread serves other messages too
            log.exception("on_completion failed", messages=len(call.messages))

    def _put_off(self, items: Sequence[Item]) -> None:
        """Tries them again later: sooner when a cluster comes up."""
        now = time.monotonic()
        for item in items:
            item.due = now + min(_BACKOFF_S * 2**item.attempts, _MAX_BACKOFF_S)
            self._queue(item)

    def _queue(self, item: Item) -> None:
        heapq.heappush(self._again, (item.due, item.number, item))
        self._changed.notify_all()

    def _look_again(self) -> None:
        """A cluster can be reached, or no longer: what waits need not wait for its time."""
        with self._lock:
            now = time.monotonic()
            self._again = [(now, number, item) for _, number, item in sorted(self._again)]
            self._changed.notify_all()

    def _send_again(self) -> None:
        while True:
            with self._lock:
                items = self._due()
                if items is None:
                    return
                sending, hopeless = self._sorted_out(items)
            for target, own in sending.items():
                target.send(own)
            for item in hopeless:
                self._give_up(item)

    def _due(self) -> list[Item] | None:
        """Waits for items whose time has come, in the order in which they were handed in; None at the end."""
        while not self._over:
            now = time.monotonic()
            due: list[Item] = []
            while self._again and self._again[0][0] <= now:
                due.append(heapq.heappop(self._again)[2])
            if due:
                return sorted(due, key=lambda item: item.number)
            self._changed.wait(self._again[0][0] - now if self._again else None)
        return None

    def _sorted_out(self, items: Sequence[Item]) -> tuple[dict[Target, list[Item]], list[Item]]:
        """The items by the cluster that they go to now, and those whose attempts are used up."""
        sending: dict[Target, list[Item]] = {}
        hopeless: list[Item] = []
        turn, self._turn = self._turn, self._turn + 1
        for item in items:
            target = self._choose(item, turn)
            if target is not None:
                self._counts["retries"] += item.attempts > 0
                self._counts["failovers"] += item.last not in (None, target)
                sending.setdefault(target, []).append(item)
            elif self._none_known():
                item.attempts += 1
                item.reason = item.reason or "; ".join(f"{t.name}: {t.failure}" for t in self._targets)
                if item.attempts >= self._conf.max_attempts:
                    hopeless.append(item)
                else:
                    self._put_off([item])
            else:
                self._put_off([item])
        return sending, hopeless

    def _none_known(self) -> bool:
        return not any(target.reach is Reach.UNKNOWN for target in self._targets)


def _no_counts() -> dict[str, Any]:
    """Each number of `WriterStats`, at its start."""
    return {each.name: each.default for each in fields(WriterStats) if each.name != "clusters"}

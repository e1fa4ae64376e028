"""Scripted incidents of the demo: consumers stop, rewind and rebalance, records and transactions go wrong."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import KafkaException, TopicPartition

from koff.kafkatest.kafka_cluster import KafkaCluster
from koff.kafkatest.traffic import Traffic, TrafficGroup

TOPICS = {"invoices": 2, "searches": 3, "emails": 4, "audits": 2, "transfers": 2}
GROUPS = (
    TrafficGroup("invoice-mailer", ("invoices",), about="stops now and then"),
    TrafficGroup("search-index", ("searches",), about="goes back now and then, and reads again"),
    TrafficGroup("email-sender", ("emails",), about="rebalances without end now and then"),
    TrafficGroup("audit-archive", ("audits",), about="is so slow that retention deletes its records"),
    TrafficGroup("settlement", ("transfers",), about="waits for a transaction that hangs"),
)
CYCLE_S = 300.0
"""After so many seconds, all begins again."""
_TICK_S = 0.2
_SOON_S = 5.0
_BACKLOG_S = 10.0
_JOINED_S = 3.0
_REWOUND = 500
_NO_RESPONSE = (KafkaException, TimeoutError)


class ScriptedIncident(NamedTuple):
    """A fault of one group. It begins at second `begins_s` of the cycle. koff should name the `cause`."""

    about: str
    group: str
    cause: str
    begins_s: float
    lasts_s: float


class ScheduledChange(NamedTuple):
    """The incident begins or ends."""

    at_s: float
    begins: bool
    incident: ScriptedIncident


SCHEDULE = (
    ScriptedIncident("its only member is stopped", "invoice-mailer", "no_members", 20, 50),
    ScriptedIncident("it goes back, and reads slowly", "search-index", "reset", 80, 50),
    ScriptedIncident("a second member joins and leaves without end", "email-sender", "rebalancing", 140, 60),
    ScriptedIncident("records that it has not read are deleted", "audit-archive", "fell_out_of_log", 200, 60),
    ScriptedIncident("a transaction on its topic is left open", "settlement", "open_transaction", 260, 60),
)


def play_one(group: str) -> tuple[ScriptedIncident, ...]:
    """A schedule of the incident of `group` alone: it begins soon and lasts for most of each cycle."""
    return tuple(
        each._replace(begins_s=_SOON_S, lasts_s=CYCLE_S - 60.0) for each in SCHEDULE if each.group == group
    )


def list_changes(
    since_s: float, until_s: float, schedule: Sequence[ScriptedIncident] = SCHEDULE
) -> list[ScheduledChange]:
    """What begins and ends after second `since_s` of the demo, up to second `until_s`, in order."""
    found = []
    for cycle in itertools.takewhile(lambda number: number * CYCLE_S <= until_s, itertools.count()):
        for incident in schedule:
            begin_s = cycle * CYCLE_S + incident.begins_s
            found += [
                ScheduledChange(begin_s, True, incident),
                ScheduledChange(begin_s + incident.lasts_s, False, incident),
            ]
    return sorted(change for change in found if since_s < change.at_s <= until_s)


class Incidents:
    """Runs `schedule` on the traffic of a cluster, inside `with`, in a thread of its own.

    The thread calls `announce` with a line for each incident that begins or ends.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        traffic: Traffic,
        schedule: Sequence[ScriptedIncident] = SCHEDULE,
        announce: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._cluster, self._traffic = cluster, traffic
        self._schedule, self._announce = schedule, announce
        self._stopping = threading.Event()
        self._running: dict[str, ExitStack] = {}
        self._thread = threading.Thread(target=self._run, name="incidents", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        began_s, seen_s = time.monotonic(), 0.0
        while not self._stopping.wait(_TICK_S):
            now_s = time.monotonic() - began_s
            for change in list_changes(seen_s, now_s, self._schedule):
                if change.begins:
                    self.begin(change.incident)
                else:
                    self.end(change.incident)
            seen_s = now_s
        for group in list(self._running):
            self._close(group)

    def begin(self, incident: ScriptedIncident) -> None:
        """Begins the incident. If a broker does not respond, nothing happens."""
        running = self._running[incident.group] = ExitStack()
        with suppress(*_NO_RESPONSE):
            self._announce(f"{time.strftime('%H:%M:%S')} {incident.group}: {incident.about}")
            running.enter_context(_ACTIONS[incident.cause](self, incident.group))

    def end(self, incident: ScriptedIncident) -> None:
        """Ends the incident, if it runs."""
        if incident.group in self._running:
            self._close(incident.group)
            self._announce(f"{time.strftime('%H:%M:%S')} {incident.group}: mended")

    def _close(self, group: str) -> None:
        with suppress(*_NO_RESPONSE):
            self._running.pop(group).close()

    # --- What goes wrong: from the start of each block to its end -----------------------------------------

    @contextmanager
    def _control(self, group: str, *, pace: float | None = None, is_away: bool = False) -> Iterator[None]:
        control = self._traffic.controls[group]
        control.pace, control.is_away = pace, is_away
        try:
            yield
        finally:
            control.pace, control.is_away = None, False

    def _stop(self, group: str) -> AbstractContextManager[None]:
        return self._control(group, is_away=True)

    def _rewind(self, group: str) -> AbstractContextManager[None]:
        self._traffic.controls[group].rewound = _REWOUND
        return self._control(group, pace=0.2)

    @contextmanager
    def _rebalance(self, group: str) -> Iterator[None]:
        """A second member comes and leaves and commits nothing, and the first gets little done."""
        ended = threading.Event()
        own = {"client.id": f"{group}-flaky", "enable.auto.commit": False}
        (topic,) = _find_topics(group)

        def come_and_leave() -> None:
            while not ended.wait(_TICK_S):
                with suppress(KafkaException), closing(self._cluster.consumer(group, own)) as consumer:
                    consumer.subscribe([topic])
                    until_s = time.monotonic() + _JOINED_S
                    while time.monotonic() < until_s and not ended.is_set():
                        consumer.poll(_TICK_S)

        thread = threading.Thread(target=come_and_leave, name=f"{group}-flaky", daemon=True)
        with self._control(group, pace=0.1):
            thread.start()
            try:
                yield
            finally:
                ended.set()
        thread.join(10.0)

    @contextmanager
    def _lose_records(self, group: str) -> Iterator[None]:
        """The group does not get on, and its topic is emptied."""
        with self._control(group, pace=0.0):
            self._stopping.wait(_BACKLOG_S)
            for topic in _find_topics(group):
                ends = [TopicPartition(topic, partition, -1) for partition in range(TOPICS[topic])]
                for deleted in self._cluster.admin.delete_records(ends).values():
                    deleted.result(10.0)
            yield

    @contextmanager
    def _hang(self, group: str) -> Iterator[None]:
        """A transaction writes into each partition, and is neither committed nor aborted."""
        producer = self._cluster.producer(
            {"transactional.id": f"{group}-hangs", "transaction.timeout.ms": 600_000}
        )
        producer.init_transactions(10.0)
        producer.begin_transaction()
        for topic in _find_topics(group):
            for partition in range(TOPICS[topic]):
                producer.produce(topic, value="a transfer", partition=partition)
        producer.flush(10.0)
        yield
        producer.abort_transaction(10.0)


def _find_topics(group: str) -> Sequence[str]:
    return next(each.topics for each in GROUPS if each.name == group)


_ACTIONS: dict[str, Callable[[Incidents, str], AbstractContextManager[None]]] = {
    "no_members": Incidents._stop,
    "reset": Incidents._rewind,
    "rebalancing": Incidents._rebalance,
    "fell_out_of_log": Incidents._lose_records,
    "open_transaction": Incidents._hang,
}
"""By the cause that koff should name, what is done."""

"""The schedule of the demo's incidents."""

from concurrent.futures import Future
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.kafkatest.incidents import _ACTIONS as ACTIONS
from koff.kafkatest.incidents import CYCLE_S, GROUPS, SCHEDULE, TOPICS, Incidents, list_changes, play_one
from koff.kafkatest.traffic import Control
from koff.lag import Cause


def describe(since_s: float, until_s: float) -> list[tuple[float, bool, str]]:
    return [(each.at_s, each.begins, each.incident.cause) for each in list_changes(since_s, until_s)]


@pytest.mark.parametrize(
    ("since_s", "until_s", "changes"),
    [
        (0, 19.9, []),
        (19.9, 20, [(20, True, "no_members")]),
        (20, 79, [(70, False, "no_members")]),
        (369, 439, [(370, False, "no_members"), (380, True, "reset"), (430, False, "reset")]),
        (310, 325, [(320, False, "open_transaction"), (320, True, "no_members")]),
        (0, 0, []),
    ],
)
def test_what_begins_and_ends_in_a_time(since_s, until_s, changes):
    assert describe(since_s, until_s) == changes


def test_looking_often_or_seldom_finds_the_same_changes():
    often = [change for at_s in range(2000) for change in list_changes(at_s / 2, at_s / 2 + 0.5)]
    assert often == list_changes(0, 1000)


def test_something_begins_each_minute_or_so_and_no_incident_begins_before_it_has_ended():
    begins = [at_s for at_s, begins, _ in describe(0, 4 * CYCLE_S) if begins]
    assert max(after - before for before, after in pairwise(begins)) <= 75
    assert all(incident.lasts_s < CYCLE_S for incident in SCHEDULE)


@pytest.mark.parametrize("group", [group.name for group in GROUPS])
def test_one_incident_alone_begins_soon_and_ends_before_the_next_cycle(group):
    changes = list_changes(0, CYCLE_S, play_one(group))
    assert [(each.begins, each.incident.group) for each in changes] == [(True, group), (False, group)]
    assert changes[0].at_s < 10


def test_what_begins_and_ends_is_announced_in_a_line():
    lines: list[str] = []
    traffic: Any = SimpleNamespace(controls={"invoice-mailer": Control()})
    cluster: Any = SimpleNamespace()
    incidents = Incidents(cluster, traffic, announce=lines.append)
    incidents.begin(SCHEDULE[0])
    incidents.end(SCHEDULE[0])
    assert [line.partition(" ")[2] for line in lines] == [
        "invoice-mailer: its only member is stopped",
        "invoice-mailer: mended",
    ]


def test_each_incident_has_a_group_with_a_topic_of_its_own_and_a_cause_of_koff():
    topics = {group.name: group.topics for group in GROUPS}
    assert {incident.group for incident in SCHEDULE} == topics.keys()
    assert sorted(topic for names in topics.values() for topic in names) == sorted(TOPICS)
    assert {incident.cause for incident in SCHEDULE} == ACTIONS.keys()
    assert ACTIONS.keys() <= {cause.label for cause in Cause}


@pytest.mark.parametrize("error", [TimeoutError(), KafkaException(KafkaError(KafkaError._TIMED_OUT))])
@pytest.mark.parametrize("incident", SCHEDULE, ids=lambda incident: incident.cause)
def test_a_broker_that_does_not_respond_ends_no_incident_for_good(incident, error):
    def delete_records(partitions: list[Any]) -> dict[Any, Future[None]]:
        futures: dict[Any, Future[None]] = {partition: Future() for partition in partitions}
        for future in futures.values():
            future.set_exception(error)
        return futures

    class Transactions:
        def init_transactions(self, timeout_s: float) -> None:
            raise error

    def refuse(*_: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    cluster: Any = SimpleNamespace(
        admin=SimpleNamespace(delete_records=delete_records),
        consumer=refuse,
        producer=lambda properties: Transactions(),
    )
    control = Control()
    traffic: Any = SimpleNamespace(controls={incident.group: control})
    incidents = Incidents(cluster, traffic)
    incidents._stopping.set()  # do not wait for a backlog
    incidents.begin(incident)
    incidents.end(incident)
    assert (control.is_away, control.pace) == (False, None)
    incidents.begin(incident)
    incidents.end(incident)

"""`koff monitor` and `koff lag` while `__consumer_offsets` gets more partitions, on a real Kafka."""

import re
from collections import Counter
from contextlib import ExitStack
from functools import partial

import pytest
from confluent_kafka.admin import NewPartitions

from koff.kafkatest import LocalKafka, wait_until
from koff.records.placement import group_partition
from tests.kafka_groups import commit, produce
from tests.koff_process import Monitor, monitoring, run_lag

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.thorough]

BEFORE, AFTER, RECORDS = 5, 10, 100
POLLING = ("--source", "coordinators")
GROUPS = [f"group-{number}" for number in range(24)]
_LAG = re.compile(
    r'^koff_group_lag\{cluster="[^"]*",group="([^"]*)",topic="[^"]*",partition="0"\} (\d+)', re.M
)


def served(monitor: Monitor) -> dict[str, int]:
    """The lag of each group. Fails if a group has two series."""
    rows = _LAG.findall(monitor.get("/metrics")[1])
    assert max(Counter(group for group, _ in rows).values(), default=1) == 1, "a group is served twice"
    return {group: int(lag) for group, lag in rows}


class Groups:
    """The groups that commit to partition 0 of a topic, and their true lags."""

    def __init__(self, kafka: LocalKafka, topic: str) -> None:
        self.lags: dict[str, int] = {}
        self._kafka, self._topic = kafka, topic

    def commit(self, groups: list[str], first: int) -> None:
        """Commits `first`, and one more for each group after the first."""
        for offset, group in enumerate(groups, start=first):
            commit(self._kafka, group, (self._topic, 0, offset))
            self.lags[group] = RECORDS - offset

    def wait_for(self, *monitors: Monitor) -> None:
        """Waits until each monitor serves the lags of all groups, and no other."""
        for monitor in monitors:
            wait_until(partial(self._is_served_by, monitor), timeout_s=60, what=f"the lags {self.lags}")

    def check_commands(self) -> None:
        """Runs `koff lag` for each way to know the commits."""
        for how in ((), POLLING, ("--start", "replay")):
            assert list_lags(self._kafka, *how) == self.lags, f"koff lag {' '.join(how)}"

    def _is_served_by(self, monitor: Monitor) -> bool:
        return served(monitor) == self.lags


@pytest.mark.parametrize("start", ["snapshot", pytest.param("replay", marks=pytest.mark.long)])
def test_each_group_is_served_once_and_right_while_the_offsets_topic_grows(more_kafka, start):
    kafka = more_kafka(config={"offsets.topic.num.partitions": str(BEFORE)})
    topic = kafka.create_topic()
    produce(kafka, topic, RECORDS)
    groups = Groups(kafka, topic)
    groups.commit(GROUPS, 0)
    with ExitStack() as running:
        asking = running.enter_context(monitoring(kafka.bootstrap, *POLLING))
        monitors = [asking, running.enter_context(monitoring(kafka.bootstrap, "--start", start))]
        groups.wait_for(*monitors)
        grow(kafka)
        # The broker goes on with the partition count that it read at its start.
        groups.commit(GROUPS[::2], 30)
        groups.wait_for(*monitors)
        groups.check_commands()
        monitors.append(running.enter_context(monitoring(kafka.bootstrap, "--start", start)))
        groups.wait_for(*monitors)
        kafka.restart()
        # A group that belongs to another partition now has no offsets there.
        moved = [name for name in GROUPS if group_partition(name, BEFORE) != group_partition(name, AFTER)]
        for group in moved:
            del groups.lags[group]
        assert 0 < len(groups.lags) < len(GROUPS)
        groups.commit(list(groups.lags), 60)
        groups.wait_for(asking)
        # The log shows that brokers use the new count once a later partition has a record.
        groups.commit(moved[:1], 70)
        groups.wait_for(*monitors)
        groups.check_commands()
        groups.commit(GROUPS, 71)
        groups.wait_for(*monitors)
        groups.check_commands()


def grow(kafka: LocalKafka) -> None:
    """Gives the offsets topic more partitions, and waits until the broker lists them with a leader."""
    kafka.admin.create_partitions([NewPartitions("__consumer_offsets", AFTER)])["__consumer_offsets"].result(
        60
    )
    wait_until(lambda: len(kafka.leaders("__consumer_offsets") or {}) == AFTER, what="the partitions")


def list_lags(kafka: LocalKafka, *args: str) -> dict[str, int]:
    groups = run_lag(kafka.bootstrap, *args)["groups"]
    assert max(Counter(group["group"] for group in groups).values()) == 1
    return {group["group"]: group["lag"] for group in groups if group["lag"] is not None}

"""Memory while groups come and go: an hour's worth of commits and deletions, a minute at a time. Prints JSON.

python -m bench.churn --groups 1000
"""

import json
import time
from typing import Any

import click

from bench.catchup import PARTITIONS_A_GROUP, key, main_partition, value
from bench.tracker import resident_mib
from koff.records import GroupMetadata, GroupMetadataValue, encode
from koff.serve.metrics.exposition import Exposition
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness

START_MS = 1_790_000_000_000
STAYING = 200
"""Groups that go on committing."""


def commits(group: str, topic: str, offset: int | None) -> list[tuple[bytes, bytes | None]]:
    """A group's commits of all its partitions; None deletes them."""
    data = None if offset is None else value(offset, b"\1" * 16)
    return [(key(group, topic, p), data) for p in range(PARTITIONS_A_GROUP)]


def described(group: str, generation: int | None) -> tuple[bytes, bytes | None]:
    """A classic group without members; None deletes it."""
    about = None
    if generation is not None:
        about = GroupMetadataValue(
            version=3,
            protocol_type="consumer",
            generation=generation,
            protocol=None,
            leader=None,
            current_state_timestamp=1,
            members=(),
        )
    return encode(GroupMetadata(group=group, value=about))


def apply(tracker: Tracker, group: str, pairs: list[tuple[bytes, bytes | None]], at_ms: int) -> None:
    tracker.apply(main_partition(group), [k for k, _ in pairs], [v for _, v in pairs], seen_at_ms=at_ms)


def minute(tracker: Tracker, number: int, groups: int, topics: int) -> None:
    """Groups are created, commit and are deleted; ends are sampled and a scrape is answered in between."""
    at_ms = START_MS + number * 60_000
    new = [(f"job-{number:05d}-{n:05d}", f"topic-{number if topics else 0}-{n % 20}") for n in range(groups)]
    for n in range(STAYING):
        name = f"stays-{n:03d}"
        apply(tracker, name, commits(name, "here", number), at_ms)
    for name, topic in new:
        apply(tracker, name, [described(name, 1), *commits(name, topic, 1)], at_ms)
    tracker.add_samples(ends=dict.fromkeys(tracker.watched_partitions(), 100 + number), at_ms=at_ms)
    view = ClusterView("bench", tracker.take_snapshot(at_ms), Readiness(True, "ready"), MonitorStats())
    for _ in Exposition().render_chunks(view):
        pass
    for name, topic in new:
        apply(tracker, name, [*commits(name, topic, None), described(name, None)], at_ms)


def run(minutes: int, groups: int, *, topics: bool) -> dict[str, Any]:
    tracker = Tracker()
    resident: list[float] = []
    started = time.process_time()
    for number in range(minutes):
        minute(tracker, number, groups, topics)
        resident.append(round(resident_mib(), 1))
    snapshot = tracker.take_snapshot()
    assert sum(1 for _ in snapshot.groups()) == STAYING
    applied = sum(tracker.record_counts.values())
    every = max(1, minutes // 12)
    return {
        "topics_come_and_go": topics,
        "groups_a_minute": groups,
        "records": applied,
        "cpu_s": round(time.process_time() - started, 1),
        "resident_mib": dict(zip(range(0, minutes, every), resident[::every], strict=True)),
        "grown_mib_in_second_half": round(resident[-1] - resident[minutes // 2], 1),
    }


@click.command()
@click.option("--minutes", default=60, show_default=True, help="How long, in the records' time.")
@click.option(
    "--groups", default=1000, show_default=True, help=f"New ones a minute, {PARTITIONS_A_GROUP} offsets each."
)
def main(minutes: int, groups: int) -> None:
    """Resident memory over time."""
    click.echo(json.dumps([run(minutes, groups, topics=topics) for topics in (False, True)], indent=2))


if __name__ == "__main__":
    main()

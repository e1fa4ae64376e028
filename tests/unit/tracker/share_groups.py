"""Share groups as tests want them: their state, their records, and what a tracker shows of them."""

from typing import Any

from koff.records import ShareSnapshot, ShareSnapshotValue, ShareUpdate, ShareUpdateValue, encode
from koff.records.placement import group_partition
from koff.tracker import Tracker
from tests.group_records import Share
from tests.unit.builders import Pair, apply

OLD, NEW = Share.places
NOW_MS = 1_790_000_000_000
HOME = group_partition("s", 50)


def snapshot_record(
    group: str,
    start: int | None,
    *,
    topic_id: str = OLD,
    partition: int = 0,
    at_ms: int = 1,
    done: int = 0,
) -> ShareSnapshot:
    """Share state that starts at `start`, with `done` deliveries above; None deletes it."""
    value = None
    if start is not None:
        value = ShareSnapshotValue(
            version=0,
            snapshot_epoch=0,
            state_epoch=0,
            leader_epoch=0,
            start_offset=start,
            delivery_complete_count=done,
            create_timestamp=1,
            write_timestamp=at_ms,
            state_batches=(),
        )
    return ShareSnapshot(group_id=group, topic_id=topic_id, partition=partition, value=value)


def update_record(group: str, start: int, done: int = 0, *, partition: int = 0) -> ShareUpdate:
    """An update of share state; a start of -1 leaves it as it is."""
    value = ShareUpdateValue(
        version=0,
        snapshot_epoch=0,
        leader_epoch=-1,
        start_offset=start,
        delivery_complete_count=done,
        state_batches=(),
    )
    return ShareUpdate(group_id=group, topic_id=OLD, partition=partition, value=value)


def snapshot_of(group: str, start: int | None, **more: Any) -> Pair:
    """`snapshot_record` as bytes."""
    return encode(snapshot_record(group, start, **more))


def apply_home(tracker: Tracker, *pairs: Pair) -> None:
    """The tracker applies these records of the partition of the group s."""
    apply(tracker, *pairs, partition=HOME)


def share(tracker: Tracker, place: int, *records: Pair, seen_at_ms: int = -1) -> None:
    """The tracker applies records of that partition of `__share_group_state`."""
    keys, values = [key for key, _ in records], [value for _, value in records]
    tracker.shares.apply(place, keys, values, seen_at_ms=seen_at_ms)


def build_tracker(*names: str, ends: dict[tuple[str, int], int] | None = None) -> Tracker:
    """A tracker of 50 partitions that knows these share groups, and the topic t with these end offsets."""
    tracker = Tracker()
    tracker.identify_topics({"t": OLD})
    tracker.set_offsets_partitions(50)
    add_share_groups(tracker, *names)
    if ends:
        starts = dict.fromkeys(ends, 0)
        tracker.add_samples(ends=ends, starts=starts, stables=ends, at_ms=NOW_MS)
    return tracker


def add_share_groups(tracker: Tracker, *names: str, count: int = 50) -> None:
    """Applies the own records of these share groups. The offsets topic has `count` partitions."""
    for name in names:
        apply(tracker, encode(Share.own(name, 1)), partition=group_partition(name, count))

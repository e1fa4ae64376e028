"""Share state of groups that do not exist: a share group exists while it has records in the offsets topic."""

from typing import NamedTuple

import pytest

from koff.records import encode
from koff.tracker import Group, Snapshot, Tracker
from koff.tracker.commit_columns import CommitColumns
from koff.tracker.groups import ShareGroupState
from tests.group_records import Consumer, Share, gone
from tests.unit.builders import classic_group, commit
from tests.unit.tracker.share_groups import HOME, NOW_MS, apply_home, build_tracker, share, snapshot_of


class Shown(NamedTuple):
    """What a snapshot shows of the group s."""

    rows: list[tuple[int, int | None]]
    types: list[str]
    totals: list[int | None]


NOTHING = Shown([], [], [])


def see(snapshot: Snapshot, name: str = "s") -> Shown:
    return Shown(
        [(row.partition, row.committed) for row in snapshot.rows() if row.group == name],
        [group.type for group in snapshot.groups() if group.name == name],
        [total.lag for total in snapshot.totals() if total.group.name == name],
    )


def shown(tracker: Tracker) -> Shown:
    return see(tracker.take_snapshot())


@pytest.fixture
def tracker():
    """A tracker with share state of the group s, at 4 of 10, and without any record of that group."""
    tracker = build_tracker(ends={("t", 0): 10})
    share(tracker, 3, snapshot_of("s", 4))
    return tracker


def test_the_age_of_an_orphans_records_is_not_asked_for(tracker):
    tracker.partitions.expect_past_ends(3600)
    assert tracker.find_undated(NOW_MS) == {}
    apply_home(tracker, encode(Share.own("s", 1)))
    assert tracker.find_undated(NOW_MS) == {("t", 0): [4]}


@pytest.mark.parametrize(
    "record",
    [Share.own("s", 1), Share.member("s", "m"), Share.assigned("s", 1)],
    ids=["own", "member", "target"],
)
def test_an_orphan_is_shown_as_soon_as_any_record_of_its_group_comes(tracker, record):
    """After compaction, the group's own record may come after the others."""
    assert shown(tracker) == NOTHING
    apply_home(tracker, encode(record))
    assert shown(tracker) == Shown([(0, 4)], ["share"], [6])


def test_records_of_the_group_count_in_a_batch_of_many_records_too(tracker):
    many = [commit("other", "t", number, 1) for number in range(100)]
    apply_home(tracker, *many[:50], encode(Share.own("s", 1)), *many[50:])
    assert shown(tracker) == Shown([(0, 4)], ["share"], [6])
    apply_home(tracker, *many[:50], encode(gone(Share.own("s", 1))), *many[50:])
    assert shown(tracker) == NOTHING
    assert len(see(tracker.take_snapshot(), "other").rows) == 100


@pytest.mark.parametrize("deleted", [True, False], ids=["after a tombstone", "without a tombstone"])
@pytest.mark.parametrize(
    ("taker", "kind"),
    [(classic_group("s", {}), "classic"), (encode(Consumer.own("s", 1)), "consumer")],
    ids=["classic", "consumer"],
)
def test_a_group_of_another_type_that_took_the_name_does_not_get_the_orphan(tracker, taker, kind, deleted):
    own = Share.own("s", 1)
    apply_home(tracker, encode(own))
    assert shown(tracker).rows == [(0, 4)]
    apply_home(tracker, *([encode(gone(own))] if deleted else []), taker)
    assert shown(tracker) == Shown([], [kind], [None])
    apply_home(tracker, commit("s", "t", 1, 8))
    assert shown(tracker) == Shown([(1, 8)], [kind], [None])


def test_the_layout_stays_the_same_object_while_coordinators_and_records_say_the_same_of_types(tracker):
    apply_home(tracker, encode(Share.own("s", 1)), classic_group("c", {}))
    layout = tracker.take_snapshot().shards[HOME].layout
    groups = {"s": ShareGroupState(), "c": Group("c", "classic")}
    tracker.shards[HOME].overwrite(CommitColumns.from_offsets({}), groups, ())
    assert tracker.take_snapshot().shards[HOME].layout is layout
    apply_home(tracker, classic_group("c", None), encode(Consumer.own("c", 1)))
    assert tracker.take_snapshot().shards[HOME].layout is layout


@pytest.mark.parametrize("exists", [True, False], ids=["share group", "orphan"])
def test_the_layout_stays_the_same_object_until_the_group_comes_or_goes(tracker, exists):
    own = Share.own("s", 1)
    if exists:
        apply_home(tracker, encode(own))
    apply_home(tracker, commit("plain", "t", 0, 1))
    layout = tracker.take_snapshot().shards[HOME].layout
    assert tracker.take_snapshot().shards[HOME].layout is layout
    # New offsets, and a new epoch of a group that is known.
    share(tracker, 3, snapshot_of("s", 5))
    apply_home(tracker, commit("plain", "t", 0, 2), *([encode(Share.own("s", 2))] if exists else []))
    tracker.add_samples(ends={("t", 0): 11}, at_ms=NOW_MS + 1)
    assert tracker.take_snapshot().shards[HOME].layout is layout
    apply_home(tracker, encode(gone(own) if exists else own))
    assert tracker.take_snapshot().shards[HOME].layout is not layout

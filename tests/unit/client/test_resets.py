"""What a plan chooses, and when koff refuses to carry it out: on a stand-in for the cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from koff.client.cluster_conf import OffsetSpec, TopicPartition
from koff.client.metadata import Metadata, PartitionMetadata
from koff.client.offset_plan import Commit, OffsetPlan
from koff.client.resets import (
    GroupNow,
    MembersAlive,
    Moved,
    NothingFound,
    Target,
    check_unmoved,
    make_plan,
    make_undo,
)
from koff.errors import ConfigError, ConnectError, KoffError

ORDERS = [TopicPartition("orders", number) for number in range(3)]
GROUP = GroupNow("g", "Empty", {ORDERS[0]: Commit(120, "kept"), ORDERS[1]: Commit(50)})
EARLIEST = Target("earliest", "earliest")


class StubCluster:
    """Partitions of `orders` with offsets 100 to 200. A record has its offset as its timestamp."""

    def __init__(self) -> None:
        self.id, self.topic_id, self.start, self.error = "cluster-1", "id-1", 100, ""

    def fetch_metadata(self) -> Metadata:
        partitions = tuple(PartitionMetadata(number, 1, (1,), (1,)) for number in range(3))
        return Metadata(self.id, 1, (), {"orders": partitions}, self.fetch_topic_ids(["orders"]))

    def fetch_topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.topic_id for name in names if name == "orders" and self.topic_id}

    def fetch_offsets(self, partitions: Collection[TopicPartition], spec: OffsetSpec | int) -> dict[Any, Any]:
        if self.error:
            return dict.fromkeys(partitions, self.error)
        if isinstance(spec, int):
            return dict.fromkeys(partitions, max(spec, self.start) if spec < 200 else -1)
        return dict.fromkeys(partitions, self.start if spec is OffsetSpec.EARLIEST else 200)


def plan(
    target: Target, topics: dict[str, list[int]] | None = None, *, group: GroupNow = GROUP
) -> OffsetPlan:
    return make_plan(StubCluster(), group, target, topics or {}, made="now")  # type: ignore[arg-type]


def check(made: OffsetPlan, cluster: StubCluster | None = None, group: GroupNow = GROUP) -> None:
    check_unmoved(cluster or StubCluster(), group, made)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (EARLIEST, [100, 100]),
        (Target("latest", "latest"), [200, 200]),
        (Target("time=150", "time", 150), [150, 150]),
        (Target("time=900", "time", 900), [200, 200]),  # no record is so young
        (Target("by=5", "by", 5), [125, 100]),
        (Target("by=-999", "by", -999), [100, 100]),
        (Target("offset=130", "offset", 130), [130, 130]),
        (Target("offset=999", "offset", 999), [200, 200]),
    ],
)
def test_a_target_names_an_offset_that_the_log_has(target, after):
    made = plan(target)
    assert [each.at for each in made.offsets] == ORDERS[:2]
    assert [each.after.offset for each in made.offsets if each.after] == after


def test_an_offset_that_the_log_lacks_is_noted():
    assert [each.note for each in plan(Target("offset=999", "offset", 999)).offsets] == [
        "999 is not in the log, which ends there"
    ] * 2
    low, _ = plan(Target("offset=9", "offset", 9)).offsets
    assert low.note == "9 is not in the log, which starts there"


def test_metadata_stays_where_the_offset_stays():
    first, second = plan(Target("offset=120", "offset", 120)).offsets
    assert not first.is_change
    assert first.after == Commit(120, "kept")
    assert second.after == Commit(120)


def test_a_topic_brings_in_its_partitions_without_a_commit():
    made = plan(EARLIEST, {"orders": []})
    assert [each.at for each in made.offsets] == ORDERS
    assert made.offsets[2].before is None
    assert [each.at for each in plan(EARLIEST, {"orders": [1]}).offsets] == ORDERS[1:2]


def test_a_file_names_the_partitions():
    each = {ORDERS[2]: Commit(110), ORDERS[0]: Commit(111)}
    target = Target("file=x", "each", each=each)
    assert plan(target).commits_after == each
    assert plan(target, {"orders": [2]}).commits_after == {ORDERS[2]: Commit(110)}


def test_partitions_of_a_deleted_topic_are_left_out():
    gone = GroupNow("g", "Empty", {**GROUP.commits, TopicPartition("gone", 0): Commit(1)})
    assert [each.at for each in plan(EARLIEST, group=gone).offsets] == ORDERS[:2]


@pytest.mark.parametrize(
    ("target", "topics", "text"),
    [
        (EARLIEST, {"ordres": []}, "there is no topic ordres"),
        (EARLIEST, {"orders": [3]}, "topic orders has no partition 3: it has 3"),
        (Target("by=1", "by", 1), {"orders": [2]}, "has committed nothing in orders/2"),
        (Target("file=x", "each", each={ORDERS[0]: Commit(1)}), {"orders": [2]}, "nothing is to be changed"),
    ],
)
def test_what_matches_nothing_is_an_error(target, topics, text):
    with pytest.raises(NothingFound, match=text):
        plan(target, topics)


def test_a_group_without_commits_needs_a_topic():
    new = GroupNow("g", "Empty", {})
    with pytest.raises(NothingFound, match="nothing is to be changed"):
        plan(EARLIEST, group=new)
    assert len(plan(EARLIEST, {"orders": []}, group=new).offsets) == 3


def test_there_is_no_plan_if_an_offset_is_not_known():
    cluster = StubCluster()
    cluster.error = "LEADER_NOT_AVAILABLE"
    with pytest.raises(ConnectError, match="offsets of orders/0 are not known: LEADER_NOT_AVAILABLE"):
        make_plan(cluster, GROUP, EARLIEST, {}, made="now")  # type: ignore[arg-type]


def test_a_plan_of_which_nothing_has_moved_may_be_carried_out():
    check(plan(EARLIEST))


def refuse(change: dict[str, Any], group: GroupNow = GROUP) -> KoffError:
    cluster = StubCluster()
    for name, value in change.items():
        setattr(cluster, name, value)
    with pytest.raises(KoffError) as caught:
        check(plan(Target("offset=130", "offset", 130)), cluster, group)
    return caught.value


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (
            {"id": "cluster-2"},
            ConfigError,
            "the plan is for cluster cluster-1, and this is cluster cluster-2",
        ),
        ({"topic_id": "id-2"}, Moved, "topic orders was deleted and created again"),
        ({"topic_id": ""}, Moved, "topic orders was deleted since"),
        ({"start": 131}, Moved, "offset 130 of orders/0 is not in the log now, which has 131 to 200"),
    ],
)
def test_a_cluster_that_has_changed_is_refused(change, kind, text):
    error = refuse(change)
    assert type(error) is kind
    assert text in str(error)


def test_a_commit_that_has_moved_is_refused():
    error = refuse({}, GroupNow("g", "Empty", {ORDERS[0]: Commit(121, "kept")}))
    assert isinstance(error, Moved)
    assert "orders/0 has offset 121 now, not that of the plan (1 more have moved)" in str(error)


def test_a_plan_is_carried_out_once():
    done = {each.at: Commit(130) for each in plan(EARLIEST).offsets}
    assert "was carried out before" in str(refuse({}, GroupNow("g", "Empty", done)))


def test_members_are_named():
    error = refuse({}, GroupNow("g", "Stable", GROUP.commits, tuple(f"c@/10.0.0.{n}" for n in range(7))))
    assert isinstance(error, MembersAlive)
    assert "c@/10.0.0.4 and more" in str(error)
    assert "10.0.0.5" not in str(error)


def test_an_undo_restores_what_was_committed_and_deletes_what_was_not():
    made = plan(EARLIEST, {"orders": []})
    after = GroupNow("g", "Empty", {at: Commit(100) for at in ORDERS})
    undo = make_undo(StubCluster(), after, made, made="later")  # type: ignore[arg-type]
    assert undo.commits_before == after.commits
    assert undo.commits_after == {ORDERS[0]: Commit(120, "kept"), ORDERS[1]: Commit(100), ORDERS[2]: None}
    assert [each.note for each in undo.offsets] == [
        "",
        "50 is not in the log, which starts there",
        "the commit is deleted",
    ]


@pytest.mark.parametrize(
    ("change", "text"), [({"topic_id": "id-2"}, "created again"), ({"id": "other"}, "this is cluster other")]
)
def test_there_is_no_way_back_to_another_log(change, text):
    cluster = StubCluster()
    for name, value in change.items():
        setattr(cluster, name, value)
    with pytest.raises(KoffError, match=text):
        make_undo(cluster, GROUP, plan(EARLIEST), made="later")  # type: ignore[arg-type]

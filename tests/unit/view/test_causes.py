"""Why groups lag, from records to sentences: each incident is named. A group that keeps up has no cause."""

from collections.abc import Iterable, Mapping

import numpy as np

from koff.lag import Reason
from koff.serve.api.group_columns import GroupPlace, find_group_causes
from koff.serve.events.changes import ClusterChanges
from koff.serve.events.event import ClusterEvent
from koff.tracker import Group, Objective, Tracker
from koff.view.activity import MOST_RESETS, ActivityLog, RecentActivity
from koff.view.cause_texts import Finding
from koff.view.causes import MOST_OFFSETS
from koff.view.cluster_view import ClusterView, MonitorStats
from koff.view.verdicts import attach_verdicts
from tests.group_records import assign
from tests.unit.builders import apply, classic_group, commit
from tests.unit.serve.views import NOW_MS, READY

STEP_S = 10
OWNED = {"a": (0, 1), "b": (2, 3)}


class Life:
    """A group g that reads four partitions of a topic, each with 10 offsets a second. It lives in steps."""

    def __init__(self) -> None:
        self.tracker, self.changes, self.activity = Tracker(), ClusterChanges(), RecentActivity(is_saved=True)
        self.now_ms, self.generation = NOW_MS, 1
        self.ends = dict.fromkeys(range(4), 1000)
        self.committed = dict(self.ends)
        self.rates = dict.fromkeys(self.ends, 10)
        self.stable: dict[int, int] = {}
        self.starts = dict.fromkeys(self.ends, 0)
        self.stats = MonitorStats()
        self.objectives: tuple[Objective, ...] = ()
        self.events: list[ClusterEvent] = []
        self.join(OWNED)
        self.pass_s(200)

    def join(self, owned: Mapping[str, tuple[int, ...]]) -> None:
        """The group rebalances: these are its members now, with these partitions."""
        self.generation += 1
        members = {name: assign(("t", partitions)) for name, partitions in owned.items()}
        self.apply([classic_group("g", members, generation=self.generation, since_ms=self.now_ms)])

    def apply(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        apply(self.tracker, *pairs, seen_at_ms=self.now_ms)

    def pass_s(
        self, seconds: int, *, reads: dict[int, float] | None = None, commits: Iterable[int] = range(4)
    ) -> None:
        """Time in which the group reads so many offsets a second, as many as there are by default.

        It commits the partitions `commits`, also if it has read nothing.
        """
        for _ in range(0, seconds, STEP_S):
            self.now_ms += STEP_S * 1000
            for partition in self.ends:
                self.ends[partition] += self.rates[partition] * STEP_S
                most = self.committed[partition] + round((reads or {}).get(partition, 1e6) * STEP_S)
                self.committed[partition] = min(self.ends[partition], most)
            self.apply(commit("g", "t", at, self.committed[at], at=self.now_ms) for at in commits)
            self.sample()
            self.events += self.changes.compare(self.take_view(), self.now_ms)

    def sample(self) -> None:
        named = {("t", partition): end for partition, end in self.ends.items()}
        self.tracker.add_samples(
            ends=named,
            starts={("t", partition): start for partition, start in self.starts.items()},
            stables=named | {("t", partition): stable for partition, stable in self.stable.items()},
            at_ms=self.now_ms,
        )

    def take_view(self) -> ClusterView:
        snapshot = attach_verdicts(self.tracker.take_snapshot(self.now_ms), self.activity.current.verdicts)
        return ClusterView(
            "c", snapshot, READY, self.stats, activity=self.activity, objectives=self.objectives
        )

    def find(self) -> list[Finding] | None:
        return find_group_causes(GroupPlace(self.take_view(), 0, 0))

    def explain(self) -> dict[str, str]:
        return {finding.cause.label: finding.text for finding in self.find() or ()}


def test_a_group_that_keeps_up_has_no_cause():
    life = Life()
    assert life.find() == []
    for _ in range(20):  # whenever one looks
        life.pass_s(STEP_S)
        life.now_ms += 7_000
        life.ends = {partition: end + 70 for partition, end in life.ends.items()}
        life.sample()
        assert life.find() == []


def test_a_group_that_commits_once_a_minute_keeps_up_with_bursts():
    life = Life()
    life.rates = dict.fromkeys(life.ends, 0)
    for _ in range(4):
        life.ends = {partition: end + 3000 for partition, end in life.ends.items()}
        for _ in range(4):
            for _ in range(5):
                life.pass_s(STEP_S, commits=())
                assert life.find() == []
            life.pass_s(STEP_S)
            assert life.find() == []


def test_a_partition_that_stands_still_is_named_with_its_offset_and_its_member():
    life = Life()
    life.pass_s(240, reads={1: 0})
    assert life.explain() == {
        "stuck_partition": "t-1 stands at offset 3,000: the group commits the same offset again and again, "
        "while its other partitions advance; perhaps its next record cannot be processed; a at /10.0.0.1 has "
        "it"
    }
    (finding,) = life.find() or []
    assert (finding.offsets, finding.share, finding.partitions) == (2400, 1.0, 1)
    assert (finding.topic, finding.partition) == ("t", 1)
    assert finding.member.client_id == "a"


def test_a_partition_that_is_not_committed_any_more():
    life = Life()
    life.pass_s(240, reads={1: 0}, commits=(0, 2, 3))
    assert life.explain()["stuck_partition"].startswith(
        "t-1 stands at offset 3,000: the group committed nothing for 4 min, while its other"
    )


def test_a_member_that_stands_still():
    life = Life()
    life.pass_s(240, reads={0: 0, 1: 0})
    assert life.explain() == {
        "slow_member": "a at /10.0.0.1: 2 of 2 partitions fall behind, while 1 other member keeps up"
    }


def test_a_member_that_is_slower_than_the_others():
    life = Life()
    life.pass_s(300, reads={2: 5, 3: 5})
    assert life.explain() == {
        "too_slow": "it consumes 10 offsets a second in t-2 and 1 more partition, and 20 are produced"
    }


def test_a_member_with_too_many_partitions():
    life = Life()
    life.join({"a": (0, 1, 2), "b": (3,), "c": ()})
    life.pass_s(600, reads={0: 6, 1: 6, 2: 6})
    assert life.explain() == {
        "uneven_assignment": "a at /10.0.0.1 has 3 of 4 partitions, with 3 members, and falls behind"
    }


def test_a_group_whose_members_are_gone():
    life = Life()
    life.join({})
    life.pass_s(150, commits=())
    assert life.explain() == {
        "no_members": "none of its 2 members is left, and it committed nothing for 2 min 30 s"
    }


def test_a_group_that_commits_without_members_needs_none():
    life = Life()
    life.join({})
    life.pass_s(300, reads=dict.fromkeys(range(4), 4))
    assert list(life.explain()) == ["too_slow"]


def test_a_group_without_members_that_was_reset_still_has_no_members():
    life = Life()
    life.join({})
    life.pass_s(60, commits=())
    life.committed = dict.fromkeys(life.ends, 1000)
    life.pass_s(10, reads=dict.fromkeys(range(4), 0))
    life.pass_s(120, commits=())
    assert "no_members" in life.explain()


def test_a_group_whose_members_commit_nothing():
    life = Life()
    life.pass_s(240, commits=())
    assert life.explain() == {"not_committing": "its 2 members committed nothing for 4 min"}


def test_a_partition_that_the_group_reads_no_more():
    life = Life()
    life.join({"a": (0, 1), "b": (2,)})
    life.pass_s(240, commits=(0, 1, 2))
    assert life.explain() == {"not_assigned": "none of its 2 members is assigned t-3"}
    (finding,) = life.find() or []
    assert finding.member is None


def test_a_partition_of_a_group_whose_only_member_reads_it_no_more():
    life = Life()
    life.join({"a": (0, 1)})
    life.pass_s(240, commits=(0, 1))
    assert life.explain() == {"not_assigned": "its member is not assigned t-2, and 1 more partition too"}


def test_a_group_that_is_too_slow():
    life = Life()
    life.pass_s(300, reads=dict.fromkeys(range(4), 4))
    assert life.explain() == {"too_slow": "it consumes 16 offsets a second, and 40 are produced"}


def test_a_group_that_lost_a_member():
    life = Life()
    life.join({"a": (0, 1, 2, 3)})
    life.pass_s(300, reads=dict.fromkeys(range(4), 5))
    assert life.explain() == {
        "too_slow": "it consumes 20 offsets a second, and 40 are produced; it has 1 member, and had 2 within "
        "the last hour"
    }


def test_a_group_whose_production_rose():
    life = Life()
    life.pass_s(1800)
    life.rates = dict.fromkeys(range(4), 40)
    life.pass_s(300, reads=dict.fromkeys(range(4), 12))
    (text,) = life.explain().values()
    assert text.startswith("160 offsets a second are produced, ")
    assert "it consumes 48 a second" in text


def test_a_partition_that_gets_most_of_the_records():
    life = Life()
    life.rates[2] = 200
    life.pass_s(400, reads={2: 20})
    (text,) = life.explain().values()
    assert text == "t-2 gets 200 offsets a second, 87% of all that the group reads"


def test_a_group_that_rebalances_without_end():
    life = Life()
    for number in range(8):
        life.join({"a": (0, 1), f"restarts-{number % 2}": (2, 3)})
        life.pass_s(20, reads=dict.fromkeys(range(4), 0))
    explained = life.explain()
    assert explained["rebalancing"] == (
        "it rebalanced 8 times within 5 minutes (joined: restarts-0, restarts-1; left: restarts-0, "
        "restarts-1, b)"
    )


def test_a_group_that_was_reset_until_it_has_read_all_again():
    life = Life()
    life.committed = dict.fromkeys(life.ends, 0)
    life.pass_s(20, reads=dict.fromkeys(range(4), 50))
    assert life.explain() == {
        "reset": "the committed offset of t-0 went back from 3,000, and 2,000 offsets are still to be read "
        "again, and 3 more partitions too"
    }
    life.pass_s(200)
    assert life.find() == []


def test_a_topic_that_was_created_again_is_no_reset():
    log = ActivityLog()
    log.note_reset(("g", "t", 0), 5000, NOW_MS)
    log.note_reset(("g", "u", 0), 5000, NOW_MS)
    log.forget([], [("g", "t")])
    assert list(log.build(NOW_MS).resets) == [("g", "u", 0)]


def test_a_position_that_fell_out_of_the_log():
    life = Life()
    life.pass_s(240, commits=())
    life.starts[0] = 3001
    life.pass_s(10, commits=())
    assert life.explain()["fell_out_of_log"].endswith(": 1 offset is lost")
    life.starts[0] = 4000
    life.pass_s(10, commits=())
    assert life.explain()["fell_out_of_log"] == (
        "the committed offset of t-0 is 3,000, but the log starts at 4,000: 1,000 offsets are lost"
    )


def test_a_transaction_that_hangs():
    life = Life()
    life.stable = {0: 3000}
    life.pass_s(150, reads={0: 0})
    assert life.explain() == {
        "open_transaction": "a transaction, open for 2 min 20 s at least, holds back t-0 from offset 3,000 on"
    }
    life.pass_s(180, reads={0: 0})
    assert life.explain()["open_transaction"].startswith("a transaction, open for 5 min 20 s at least")


def test_transactions_that_follow_one_another_are_no_cause():
    life = Life()
    for _ in range(18):
        life.stable = {0: life.ends[0]}  # the next one begins
        life.pass_s(STEP_S)
        assert life.find() == []


def test_a_transaction_that_holds_back_the_commits():
    life = Life()
    life.stats = MonitorStats(held_back_partitions=frozenset({0}))
    life.pass_s(240, commits=())
    assert list(life.explain()) == ["held_back_commits"]


def test_causes_are_sorted_by_how_much_they_explain():
    life = Life()
    life.committed[0] = 0
    life.pass_s(240, reads={0: 1, 3: 0})
    found = [(finding.cause.label, finding.offsets) for finding in life.find() or ()]
    assert found == [("stuck_partition", 2400), ("reset", 5160)]


def test_a_withheld_group_has_no_causes_but_is_unknown():
    life = Life()
    life.pass_s(240, commits=())
    snapshot = life.tracker.take_snapshot(life.now_ms)
    bits = np.array([Reason.END_NOT_CURRENT, 0, 0, 0], np.uint8)
    view = ClusterView("c", snapshot.withhold({0: bits}, {}), READY, life.stats)
    assert find_group_causes(GroupPlace(view, 0, 0)) is None


def test_what_was_long_ago_is_forgotten():
    log = ActivityLog()
    log.note_group(Group("g", "classic", epoch=1), Group("g", "classic", epoch=4), NOW_MS)
    assert log.build(NOW_MS + 300_000).groups["g"].rebalances == 3
    assert log.build(NOW_MS + 300_001).groups == {}
    log.note_reset(("g", "t", 0), 5, NOW_MS)
    assert log.build(NOW_MS + 3_600_001).resets == {}


def test_what_is_kept_of_resets_is_bounded():
    log = ActivityLog()
    for partition in range(MOST_RESETS + 5):
        log.note_reset(("g", "t", partition), 5, NOW_MS)
    resets = log.build(NOW_MS).resets
    assert len(resets) == MOST_RESETS
    assert ("g", "t", 4) not in resets


def test_what_a_deleted_group_did_is_forgotten():
    log = ActivityLog()
    for name in "gh":
        log.note_group(Group(name, "classic", epoch=1), Group(name, "classic", epoch=4), NOW_MS)
        log.note_reset((name, "t", 0), 5000, NOW_MS)
    log.forget(["g"], [])
    built = log.build(NOW_MS)
    assert (list(built.groups), list(built.resets)) == (["h"], [("h", "t", 0)])


def test_one_offset_is_one_offset():
    life = Life()
    life.rates = dict.fromkeys(life.ends, 0)
    life.pass_s(200)
    life.ends[0] += 1
    life.pass_s(240, reads={0: 0}, commits=())
    (text,) = life.explain().values()
    assert text.endswith("committed nothing for 4 min; what waits may be a transaction marker")


def test_a_group_that_stays_before_a_transaction_marker_may_be_fine():
    life = Life()
    life.committed[0] = life.ends[0]
    life.rates[0] = 0
    life.ends[0] += 1
    life.pass_s(300, reads={0: 0})
    assert (
        "perhaps its next record cannot be processed, or is a transaction marker; a at"
        in (life.explain()["stuck_partition"])
    )


def test_members_that_are_gone_do_not_commit_again_and_again():
    life = Life()
    life.pass_s(240, reads=dict.fromkeys(range(4), 0))
    assert "commit the same offset again and again" in life.explain()["not_committing"]
    life.join({})
    life.pass_s(70, commits=())
    assert "again and again" not in life.explain()["no_members"]


def test_the_rates_of_a_cause_are_those_of_its_partitions():
    life = Life()
    life.join({"a": (0, 1, 2, 3)})
    life.committed[3] -= 50_000
    life.pass_s(600, reads={0: 5, 3: 100})  # partition 3 catches up
    assert life.explain()["too_slow"].startswith("it consumes 5.0 offsets a second in t-0, and 10 are prod")


def test_members_that_have_nothing_to_read_do_not_keep_up():
    life = Life()
    life.join({"a": (0, 1), "b": (2, 3), "idle": ()})
    life.pass_s(300, reads={2: 0, 3: 0})
    (text,) = (text for cause, text in life.explain().items() if cause == "slow_member")
    assert text == "b at /10.0.0.1: 2 of 2 partitions fall behind, while 1 other member keeps up"


def test_a_rate_of_a_record_an_hour_is_not_zero():
    life = Life()
    life.rates = dict.fromkeys(range(4), 0.1)  # type: ignore[arg-type] # offsets grow by one each step
    life.ends = {partition: int(end) for partition, end in life.ends.items()}
    life.pass_s(600, reads=dict.fromkeys(range(4), 0.05))
    assert " 0.0 " not in "".join(life.explain().values())


def test_sums_that_do_not_fit_are_not_below_zero():
    life = Life()
    life.ends = dict.fromkeys(range(4), 2**63 - 1_000_000)
    life.sample()
    life.pass_s(240, commits=())
    (finding,) = life.find() or []
    assert (finding.offsets, finding.share) == (MOST_OFFSETS, 0.125)

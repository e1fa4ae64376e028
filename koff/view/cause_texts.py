"""The causes of a group's lag in sentences for people, with the numbers that they follow from."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.late_causes import Cause
from koff.tracker import Member
from koff.view.activity import REBALANCES_SPAN_MS, GroupActivity
from koff.view.causes import ShardCauses
from koff.view.wording import count, measure_silence_s, show, show_duration


class Finding(NamedTuple):
    """A cause of a group's lag.

    It explains `offsets` of the lag, a `share` of it from 0 to 1, in so many `partitions`. `topic` and
    `partition` are where it explains most; `member` has that partition, None if no member is known.
    """

    cause: Cause
    text: str
    offsets: int
    share: float
    partitions: int
    topic: str
    partition: int
    member: Member | None


def describe_causes(causes: ShardCauses, group: int) -> list[Finding] | None:
    """The causes of the lag of a group, the one that explains most first; None if its lag is withheld."""
    found = causes.list_causes(group)
    if not found:
        return None if found is None else []
    evidence = _Evidence(causes, group)
    total = sum(causes.lag[evidence.rows].tolist())  # a sum of int64 could overflow
    return [
        Finding(
            cause,
            _TEXTS[cause](evidence, rows),
            offsets,
            round(min(offsets / total, 1.0), 3) if total > 0 else 0.0,
            len(rows),
            *evidence.find_place(rows[0]),
            evidence.find_member(rows[0]),
        )
        for cause, offsets in found
        if (rows := evidence.list_rows(cause))
    ]


class _Evidence:
    """The numbers of one group."""

    def __init__(self, causes: ShardCauses, number: int) -> None:
        self.causes, self.number = causes, number
        self.snapshot, self.shard, self.lag = causes.snapshot, causes.shard, causes.lag
        self.group = self.shard.groups[number]
        self.rows = np.flatnonzero(self.shard.group == number)
        self.did = causes.activity.groups.get(self.group.name, GroupActivity())
        self._owners = {
            (topic, partition): member for topic, partition, member in self.snapshot.assignments(self.group)
        }

    def list_rows(self, cause: Cause) -> list[int]:
        """The rows of the group that have the cause: where it explains most first."""
        is_so = self.causes.verdicts.row_cause[self.rows] == cause
        rows = self.rows if cause is Cause.RECORDS_SKIPPED else self.rows[is_so]
        return list(rows[np.argsort(-self.lag[rows], kind="stable")].tolist())

    def find_place(self, row: int) -> tuple[str, int]:
        partition = int(self.shard.partition[row])
        return self.snapshot.partitions.topic[partition], self.snapshot.partitions.partition[partition]

    def show_place(self, row: int) -> str:
        topic, partition = self.find_place(row)
        return f"{show(topic)}-{partition}"

    def find_member(self, row: int) -> Member | None:
        return None if self.group.type == "share" else self._owners.get(self.find_place(row))

    def show_member(self, row: int) -> str:
        """The member that has the partition, by its client id and host."""
        member = self.find_member(row)
        return f"{show(member.client_id)} at {show(member.client_host)}" if member else "an unknown member"

    def show_silence(self, rows: list[int], *, by_many: bool = False) -> str:
        """For how long nothing new was committed, as in "committed nothing for 4 min 10 s".

        `by_many` says that the subject of the sentence is a plural.
        """
        known = [measure_silence_s(self.snapshot, self.shard, row) for row in rows]
        silence_s = np.array([np.nan if each is None else each for each in known])
        moved_at, window = self.shard.moved_at[rows], self.shard.features
        still_s = np.where(moved_at < 0, np.nan, (window.last_ms[rows] - moved_at) / 1000) + silence_s
        commits = "commit" if by_many else "commits"
        # It commits for most of the time in which its offset has not changed.
        stalled = (window.commits[rows] >= 3) & (silence_s <= still_s / 2)
        if stalled.all() and self.group.member_count:
            return f"{commits} the same offset again and again"
        is_clear = (silence_s >= 1).all() and not stalled.any()
        return (
            f"committed nothing for {show_duration(silence_s.min())}"
            if is_clear
            else f"{commits} nothing new"
        )

    def list_owned(self, rows: list[int]) -> list[int]:
        """All rows of the members that have these rows."""
        members = {member.id for row in rows if (member := self.find_member(row))}
        owners = ((row, self.find_member(row)) for row in self.rows.tolist())
        return [row for row, member in owners if member is not None and member.id in members]

    def count_members(self, rows: list[int]) -> int:
        return len({member.id for row in rows if (member := self.find_member(row))})

    def count_others(self, rows: list[int]) -> int:
        """How many members, other than those of these rows, have only rows that are not late."""
        late = self.rows[self.causes.verdicts.row_cause[self.rows] != Cause.NONE].tolist()
        slow = {*self.list_owned(rows), *self.list_owned(late)}
        return self.count_members([row for row in self.rows.tolist() if row not in slow])

    def sum_rates(self, rows: NDArray[np.int64] | list[int]) -> tuple[float, float]:
        """The produce and the consume rate of these rows."""
        produce, consume = self.snapshot.produce_rates(self.shard), self.snapshot.consume_rates(self.shard)
        return float(produce.per_s[rows].sum()), float(consume.per_s[rows].sum())

    def find_offset(self, row: int, name: str) -> int:
        """An offset of the partition of a row: `start` or `stable`."""
        return int(getattr(self.snapshot.partitions, name)[self.shard.partition[row]])


def _fell_out_of_log(group: _Evidence, rows: list[int]) -> str:
    row = rows[0]
    committed, start = int(group.shard.committed[row]), group.find_offset(row, "start")
    return (
        f"the committed offset of {group.show_place(row)} is {committed:,}, but the log starts at {start:,}: "
        f"{count(start - committed, 'offset')} {_be(start - committed)} lost{_and_more(rows)}"
    )


def _reset(group: _Evidence, rows: list[int]) -> str:
    row = rows[0]
    reset = group.causes.activity.resets.get((group.group.name, *group.find_place(row)))
    before, committed = reset.offset if reset else 0, int(group.shard.committed[row])
    place, left = group.show_place(row), before - committed
    if left <= 0:
        return f"the committed offset of {place} went back, to {committed:,}{_and_more(rows)}"
    return (
        f"the committed offset of {place} went back from {before:,}, and {count(left, 'offset')} {_be(left)} "
        f"still to be read again{_and_more(rows)}"
    )


def _no_members(group: _Evidence, rows: list[int]) -> str:
    before = group.did.most_members
    if before <= 0:
        return f"it has no members, and {group.show_silence(rows)}"
    gone = "its only member has left" if before == 1 else f"none of its {count(before, 'member')} is left"
    return f"{gone}, and it {group.show_silence(rows)}"


def _not_assigned(group: _Evidence, rows: list[int]) -> str:
    members = group.group.member_count
    none = "its member is not" if members == 1 else f"none of its {count(members, 'member')} is"
    return f"{none} assigned {group.show_place(rows[0])}{_and_more(rows)}"


def _open_transaction(group: _Evidence, rows: list[int]) -> str:
    row = rows[0]
    held = show_duration(group.find_offset(row, "held_ms") / 1000)
    return (
        f"a transaction, open for {held} at least, holds back {group.show_place(row)} from offset "
        f"{group.find_offset(row, 'stable'):,} on{_and_more(rows)}"
    )


def _held_back_commits(group: _Evidence, rows: list[int]) -> str:
    return f"it {group.show_silence(rows)}, and an open transaction may hold back its commits"


def _stuck_partition(group: _Evidence, rows: list[int]) -> str:
    row = rows[0]
    offset, silence = f"offset {int(group.shard.committed[row]):,}", group.show_silence([row])
    what = f"stands at {offset}: the group {silence}"
    member = group.find_member(row)
    owner = f"; {group.show_member(row)} has it" if member else ""
    marker = ", or is a transaction marker" if group.lag[row] == 1 else ""
    return (
        f"{group.show_place(row)} {what}, while its other partitions advance; perhaps its next "
        f"record cannot be processed{marker}{owner}{_and_more(rows)}"
    )


def _uneven_assignment(group: _Evidence, rows: list[int]) -> str:
    owned = len(group.list_owned(rows[:1]))
    return (
        f"{group.show_member(rows[0])} has {owned} of {count(len(group.rows), 'partition')}, with "
        f"{count(group.group.member_count, 'member')}, and falls behind"
    )


def _slow_member(group: _Evidence, rows: list[int]) -> str:
    members, owned, others = group.count_members(rows), group.list_owned(rows), group.count_others(rows)
    more = f" and {count(members - 1, 'more member')}" if members > 1 else ""
    while_others = f", while {count(others, 'other member')} {'keeps' if others == 1 else 'keep'} up"
    return (
        f"{group.show_member(rows[0])}{more}: {len(rows)} of {count(len(owned), 'partition')} "
        f"{'falls' if len(rows) == 1 else 'fall'} behind{while_others if others else ''}"
    )


def _hot_partition(group: _Evidence, rows: list[int]) -> str:
    row, produce = rows[0], group.snapshot.produce_rates(group.shard).per_s
    share = produce[row] / max(float(produce[group.rows].sum()), 1e-9)
    return (
        f"{group.show_place(row)} gets {_show_rate(produce[row])} offsets a second, {share:.0%} of all that "
        f"the group reads{_and_more(rows)}"
    )


def _rebalancing(group: _Evidence, _rows: list[int]) -> str:
    did = group.did
    names = (("joined:", did.joined), ("left:", did.left))
    who = "; ".join(f"{word} {', '.join(map(show, each))}" for word, each in names if each)
    minutes = REBALANCES_SPAN_MS // 60_000
    return f"it rebalanced {did.rebalances} times within {minutes} minutes" + (f" ({who})" if who else "")


def _not_committing(group: _Evidence, rows: list[int]) -> str:
    members = group.group.member_count
    who = "its member" if members == 1 else f"its {count(members, 'member')}" if members else "it"
    # Applications that commit "the last record's offset + 1" stay before the marker of a transaction.
    marker = "; what waits may be a transaction marker" if sum(group.lag[rows].tolist()) == 1 else ""
    return f"{who} {group.show_silence(rows, by_many=members > 1)}{marker}"


def _production_rose(group: _Evidence, _rows: list[int]) -> str:
    produced, consumed = map(_show_rate, group.sum_rates(group.rows))
    usual = float(group.causes.verdicts.usual_per_s[group.number])
    before = "" if np.isnan(usual) else f", {_show_rate(usual)} usually"
    return f"{produced} offsets a second are produced{before}; it consumes {consumed} a second"


def _records_skipped(group: _Evidence, _rows: list[int]) -> str:
    return "its offsets jumped forward while it had no members: records were skipped"


def _too_slow(group: _Evidence, rows: list[int]) -> str:
    produced, consumed = group.sum_rates(rows)
    where = "" if len(rows) == len(group.rows) else f" in {_list_places(group, rows)}"
    if consumed > produced:  # production has just risen, or fallen: the rates are means
        return f"its lag{where} did not shrink from one commit to the next"
    now, most = group.group.member_count, group.did.most_members
    fewer = f"; it has {count(now, 'member')}, and had {most} within the last hour" if most > now else ""
    return (
        f"it consumes {_show_rate(consumed)} offsets a second{where}, and {_show_rate(produced)} are "
        f"produced{fewer}"
    )


_TEXTS: dict[Cause, Callable[[_Evidence, list[int]], str]] = {
    Cause.FELL_OUT_OF_LOG: _fell_out_of_log,
    Cause.RESET: _reset,
    Cause.NO_MEMBERS: _no_members,
    Cause.NOT_ASSIGNED: _not_assigned,
    Cause.OPEN_TRANSACTION: _open_transaction,
    Cause.HELD_BACK_COMMITS: _held_back_commits,
    Cause.STUCK_PARTITION: _stuck_partition,
    Cause.UNEVEN_ASSIGNMENT: _uneven_assignment,
    Cause.SLOW_MEMBER: _slow_member,
    Cause.HOT_PARTITION: _hot_partition,
    Cause.REBALANCING: _rebalancing,
    Cause.NOT_COMMITTING: _not_committing,
    Cause.PRODUCTION_ROSE: _production_rose,
    Cause.TOO_SLOW: _too_slow,
    Cause.RECORDS_SKIPPED: _records_skipped,
}


ADVICE: dict[Cause, str] = {
    Cause.FELL_OUT_OF_LOG: "the lost records are gone, and the consumer goes on by auto.offset.reset: make "
    "it faster, or keep records longer (retention.ms, retention.bytes)",
    Cause.RESET: "if that was on purpose, wait; if not, find out who reset the offsets",
    Cause.NO_MEMBERS: "start the consumers, or find out why they cannot join",
    Cause.NOT_ASSIGNED: "look at the topics to which the members subscribe; if the group is done with this "
    "one, delete its offsets (kafka-consumer-groups.sh --delete-offsets)",
    Cause.OPEN_TRANSACTION: "find the transaction with kafka-transactions.sh find-hanging, and abort it",
    Cause.HELD_BACK_COMMITS: "find the transaction with kafka-transactions.sh find-hanging, and abort it",
    Cause.STUCK_PARTITION: "look at the record at that offset, and at the log of the member; if the record "
    "cannot be processed, skip it",
    Cause.UNEVEN_ASSIGNMENT: "look at the assignor, and whether all members subscribe to the same topics",
    Cause.SLOW_MEMBER: "look at the host of the member: CPU, memory, network, and what it calls",
    Cause.HOT_PARTITION: "look at the keys of the records: more members do not help one partition",
    Cause.REBALANCING: "look at the logs of the members: max.poll.interval.ms, crashes, deployments",
    Cause.NOT_COMMITTING: "look at the logs of the consumers: they may hang, or not commit",
    Cause.PRODUCTION_ROSE: "if it lasts, add members (up to one for each partition)",
    Cause.TOO_SLOW: "add members (up to one for each partition), or make the processing faster",
    Cause.RECORDS_SKIPPED: "if that was not on purpose, set the offsets back",
}
"""What helps."""


def _list_places(group: _Evidence, rows: list[int]) -> str:
    more = f" and {count(len(rows) - 1, 'more partition')}" if len(rows) > 1 else ""
    return f"{group.show_place(rows[0])}{more}"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _and_more(rows: list[int]) -> str:
    return f", and {count(len(rows) - 1, 'more partition')} too" if len(rows) > 1 else ""


def _show_rate(per_s: float) -> str:
    """A rate with at least two digits: a topic may get a record an hour."""
    if per_s >= 1 or per_s == 0:
        return f"{float(per_s):,.0f}" if per_s >= 10 or per_s == 0 else f"{float(per_s):.1f}"
    return f"{float(per_s):.2g}" if per_s >= 0.0001 else "less than 0.0001"

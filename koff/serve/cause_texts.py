"""The causes of a group's lag in sentences for people, with the numbers that they follow from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from koff.lag import UNKNOWN, Cause, Status
from koff.lag.causes import REBALANCES_SPAN_MS
from koff.serve.activity import GroupActivity
from koff.serve.causes import ShardCauses
from koff.serve.wording import count, measure_silence_s, show, show_duration
from koff.tracker import Member


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
    total = sum(causes.facts.lag[evidence.rows].tolist())  # a sum of int64 could overflow
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
        for rows in [evidence.list_rows(cause)]
    ]


class _Evidence:
    """The numbers of one group."""

    def __init__(self, causes: ShardCauses, number: int) -> None:
        self.causes, self.number = causes, number
        self.snapshot, self.shard, self.facts = causes.snapshot, causes.shard, causes.facts
        self.group = self.shard.groups[number]
        self.rows = np.flatnonzero(self.shard.group == number)
        self.did = causes.activity.groups.get(self.group.name, GroupActivity())
        self._owners = {
            (topic, partition): member for topic, partition, member in self.snapshot.assignments(self.group)
        }

    def list_rows(self, cause: Cause) -> list[int]:
        """The rows of the group that have the cause: where it explains most first."""
        explained = self.causes.explanations[cause]
        rows = self.rows[explained.rows[self.rows]]
        return list(rows[np.argsort(-explained.offsets[rows], kind="stable")].tolist())

    def find_place(self, row: int) -> tuple[str, int]:
        """Topic and partition of a row."""
        partition = int(self.shard.partition[row])
        return self.snapshot.partitions.topic[partition], self.snapshot.partitions.partition[partition]

    def show_place(self, row: int) -> str:
        """Topic and partition of a row."""
        topic, partition = self.find_place(row)
        return f"{show(topic)}-{partition}"

    def find_member(self, row: int) -> Member | None:
        """The member that has the partition."""
        return None if self.group.type == "share" else self._owners.get(self.find_place(row))

    def show_member(self, row: int) -> str:
        """The member that has the partition, by its client id and host."""
        member = self.find_member(row)
        return f"{show(member.client_id)} at {show(member.client_host)}" if member else "an unknown member"

    def show_silence(self, rows: list[int]) -> str:
        """For how long nothing new was committed, as in "committed nothing for 4 min 10 s"."""
        stalled = self.facts.status[rows] == Status.STALL
        if stalled.all() and self.group.member_count:
            return "commits the same offset again and again"
        known = [measure_silence_s(self.snapshot, self.shard, row) for row in rows]
        seconds = [each for each in known if each is not None and each >= 1]
        # As of a stalled row, the newest commit is no progress.
        is_clear = len(seconds) == len(rows) and not stalled.any()
        return f"committed nothing for {show_duration(min(seconds))}" if is_clear else "commits nothing new"

    def show_wait(self, rows: list[int]) -> str:
        """The same, and how much waits."""
        lag = sum(self.facts.lag[rows].tolist())
        marker = ", which may be a transaction marker" if lag == 1 else ""
        return f"{self.show_silence(rows)}, while {_count_waiting(lag)}{marker}"

    def count_others(self, rows: list[int]) -> int:
        """How many members, other than those of these rows, have only rows without a cause."""
        member = self.facts.member
        has_cause = np.zeros(len(member), np.bool_)
        for explained in self.causes.explanations.values():
            has_cause |= explained.rows
        slow = self.rows[has_cause[self.rows]]
        others = np.setdiff1d(member[self.rows], [*member[rows], *member[slow]])
        return int((others >= 0).sum())

    def show_rates(self) -> tuple[str, str]:
        """The produce and the consume rate of the group."""
        produce, consume = self.facts.produce_per_s[self.rows], self.facts.consume_per_s[self.rows]
        return _show_rate(float(produce.sum())), _show_rate(float(consume.sum()))


def _fell_out_of_log(group: _Evidence, rows: list[int]) -> str:
    row = rows[0]
    committed, start = int(group.facts.committed[row]), int(group.facts.start[row])
    return (
        f"the committed offset of {group.show_place(row)} is {committed:,}, but the log starts at {start:,}: "
        f"{count(start - committed, 'offset')} {_be(start - committed)} lost{_and_more(rows)}"
    )


def _reset(group: _Evidence, rows: list[int]) -> str:
    row = rows[0]
    before, committed = int(group.facts.went_back_from[row]), int(group.facts.committed[row])
    place, left = group.show_place(row), before - committed
    if before == UNKNOWN:
        return f"the committed offset of {place} went back, to {committed:,}{_and_more(rows)}"
    return (
        f"the committed offset of {place} went back from {before:,}, and {count(left, 'offset')} {_be(left)} "
        f"still to be read again{_and_more(rows)}"
    )


def _no_members(group: _Evidence, rows: list[int]) -> str:
    before = f"; it had {count(group.did.most_members, 'member')}" if group.did.most_members > 0 else ""
    return f"it has no members, and {group.show_wait(rows)}{before}"


def _not_assigned(group: _Evidence, rows: list[int]) -> str:
    members = group.group.member_count
    none = "its member is not" if members == 1 else f"none of its {count(members, 'member')} is"
    return f"{none} assigned {group.show_place(rows[0])}{_and_more(rows)}"


def _open_transaction(group: _Evidence, rows: list[int]) -> str:
    row = rows[0]
    return (
        f"a transaction, open for {show_duration(group.facts.held_ms[row] / 1000)} at least, holds back "
        f"{group.show_place(row)} from offset {int(group.facts.stable[row]):,} on{_and_more(rows)}"
    )


def _held_back_commits(group: _Evidence, rows: list[int]) -> str:
    return f"it {group.show_silence(rows)}, and an open transaction may hold back its commits"


def _stuck_partition(group: _Evidence, rows: list[int]) -> str:
    row = rows[0]
    offset, silence = f"offset {int(group.facts.committed[row]):,}", group.show_silence([row])
    what = f"stands at {offset}: the group {silence}"
    member = group.find_member(row)
    owner = f"; {group.show_member(row)} has it" if member else ""
    # Applications that commit "the last record's offset + 1" stay before the marker of a transaction.
    marker = ", or is a transaction marker" if group.facts.lag[row] == 1 else ""
    return (
        f"{group.show_place(row)} {what}, while its other partitions advance. Perhaps its next "
        f"record cannot be processed{marker}{owner}{_and_more(rows)}"
    )


def _uneven_assignment(group: _Evidence, rows: list[int]) -> str:
    owned = group.facts.member == group.facts.member[rows[0]]
    return (
        f"{group.show_member(rows[0])} has {int(owned.sum())} of {count(len(group.rows), 'partition')}, with "
        f"{count(group.group.member_count, 'member')}, and falls behind"
    )


def _slow_member(group: _Evidence, rows: list[int]) -> str:
    members = np.unique(group.facts.member[rows])
    owned, others = np.isin(group.facts.member, members), group.count_others(rows)
    more = f" and {count(len(members) - 1, 'more member')}" if len(members) > 1 else ""
    while_others = f", while {count(others, 'other member')} {'keeps' if others == 1 else 'keep'} up"
    return (
        f"{group.show_member(rows[0])}{more}: {len(rows)} of {count(int(owned.sum()), 'partition')} "
        f"{'falls' if len(rows) == 1 else 'fall'} behind{while_others if others else ''}"
    )


def _hot_partition(group: _Evidence, rows: list[int]) -> str:
    row, produce = rows[0], group.facts.produce_per_s
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


def _fewer_members(group: _Evidence, _rows: list[int]) -> str:
    now, before = group.group.member_count, group.did.most_members
    return f"it has {count(now, 'member')}, and had {before} within the last hour"


def _not_committing(group: _Evidence, rows: list[int]) -> str:
    members = group.group.member_count
    has = f"it has {count(members, 'member')}, but " if members else "it "
    return f"{has}{group.show_wait(rows)}"


def _production_rose(group: _Evidence, _rows: list[int]) -> str:
    produced, consumed = group.show_rates()
    before = _show_rate(float(group.facts.produced_before[group.number]))
    return f"{produced} offsets a second are produced, {before} usually; it consumes {consumed} a second"


def _too_slow(group: _Evidence, rows: list[int]) -> str:
    produced = float(group.facts.produce_per_s[rows].sum())
    consumed = float(group.facts.consume_per_s[rows].sum())
    where = "" if len(rows) == len(group.rows) else f" in {_list_places(group, rows)}"
    if consumed > produced:  # production has just risen, or fallen: the rates are means
        return f"its lag{where} did not shrink from one commit to the next"
    return (
        f"it consumes {_show_rate(consumed)} offsets a second{where}, and {_show_rate(produced)} are produced"
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
    Cause.FEWER_MEMBERS: _fewer_members,
    Cause.NOT_COMMITTING: _not_committing,
    Cause.PRODUCTION_ROSE: _production_rose,
    Cause.TOO_SLOW: _too_slow,
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
    Cause.FEWER_MEMBERS: "find out what became of the other members",
    Cause.NOT_COMMITTING: "look at the logs of the consumers: they may hang, or not commit",
    Cause.PRODUCTION_ROSE: "if it lasts, add members (up to one for each partition)",
    Cause.TOO_SLOW: "add members (up to one for each partition), or make the processing faster",
}
"""What helps."""


def _list_places(group: _Evidence, rows: list[int]) -> str:
    more = f" and {count(len(rows) - 1, 'more partition')}" if len(rows) > 1 else ""
    return f"{group.show_place(rows[0])}{more}"


def _count_waiting(offsets: int) -> str:
    """So many offsets wait."""
    return f"{count(offsets, 'offset')} {'waits' if offsets == 1 else 'wait'}"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _and_more(rows: list[int]) -> str:
    return f", and {count(len(rows) - 1, 'more partition')} too" if len(rows) > 1 else ""


def _show_rate(per_s: float) -> str:
    """A rate with at least two digits: a topic may get a record an hour."""
    if per_s >= 1 or per_s == 0:
        return f"{float(per_s):,.0f}" if per_s >= 10 or per_s == 0 else f"{float(per_s):.1f}"
    return f"{float(per_s):.2g}" if per_s >= 0.0001 else "less than 0.0001"

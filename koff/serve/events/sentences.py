"""The events of one look at a cluster, with their sentences for people."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.late_causes import Cause
from koff.lag.verdict import IncidentChange, Verdict
from koff.serve.events.event import ClusterEvent, Kind, Severity
from koff.tracker import Group, Member, ShardSnapshot, Snapshot
from koff.view.activity import list_new
from koff.view.cause_texts import ADVICE, Finding, describe_causes
from koff.view.causes import ShardCauses
from koff.view.cluster_view import ClusterView
from koff.view.incidents import Incident, Step, Told
from koff.view.sentences import write_sentence
from koff.view.wording import count, show, show_duration

MOST = 1000
"""So many events of a cluster are told of one look. The rest is counted."""
NAMED = 10
"""An event names so many members at most."""
INCIDENTS: dict[IncidentChange, Kind] = {
    IncidentChange.OPENED: "incident_opened",
    IncidentChange.RAISED: "incident_raised",
    IncidentChange.CLOSED: "incident_closed",
}


class Drafts:
    """Events that are to be built: only `MOST` of them are. The worst come first."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._drafts: list[tuple[Kind, Severity, Callable[[], dict[str, Any]]]] = []

    def add(self, kind: Kind, severity: Severity, build: Callable[[], dict[str, Any]]) -> None:
        """Adds an event. `build` returns its other fields."""
        self._drafts.append((kind, severity, build))

    @property
    def have_room(self) -> bool:
        """Whether `build` returns all events that were added up to now."""
        return len(self._drafts) < MOST

    def build(self) -> list[ClusterEvent]:
        drafts = sorted(self._drafts, key=lambda draft: -draft[1])
        events = [
            ClusterEvent(cluster=self._cluster, kind=kind, severity=severity, **build())
            for kind, severity, build in drafts[:MOST]
        ]
        if rest := drafts[MOST:]:
            counts = dict(Counter(str(kind) for kind, _, _ in rest))
            text = f"cluster {show(self._cluster)}: {count(len(rest), 'more event')} at the same time"
            details = {"count": len(rest), "kinds": counts}
            events.append(ClusterEvent(self._cluster, "more_events", rest[0][1], text, details=details))
        return events


def name_owner(event: ClusterEvent, view: ClusterView) -> ClusterEvent:
    """The event with the owner and the runbook of its group."""
    if event.group is None:
        return event
    cause = next((each["cause"] for each in event.details.get("causes", ())), Cause.NONE.label)
    runbook_url = view.find_runbook_url(event.group, cause)
    return replace(event, owner=view.owners.find(event.group), runbook_url=runbook_url)


def add_incident(causes: ShardCauses, told: Told, now_ms: int, drafts: Drafts) -> None:
    """What became of an incident: adds an event if it was opened, raised or closed, and notes the step."""
    incident, number = told.incident, told.number
    if told.change is IncidentChange.CLOSED:
        add_end(incident, f"it is OK again, with a lag of {_sum_lag(causes, number):,}", drafts)
        return
    verdict = Verdict(causes.verdicts.verdict[number])
    # Sentences take time, and there may be thousands of incidents at once: then most have none.
    found = (describe_causes(causes, number) or []) if drafts.have_room else []
    why = found[0].text if found else "its lag is above what is allowed"
    incident.note(Step(now_ms, verdict.name, incident.cause.label, why))
    if told.change is not IncidentChange.NONE:
        build = partial(_describe_incident, causes, told, found)
        drafts.add(INCIDENTS[told.change], find_severity(verdict), build)


def add_end(incident: Incident, why: str, drafts: Drafts) -> None:
    """Adds the event that an incident has ended."""
    lost = f", and {count(incident.records_lost, 'offset')} left the log" if incident.records_lost else ""
    duration_s = incident.duration_s or 0.0
    drafts.add(
        INCIDENTS[IncidentChange.CLOSED],
        Severity.INFO,
        lambda: {
            "key": incident.key,
            "ends": find_severity(incident.worst),
            **describe_group(
                incident.group,
                f"{why}. The incident lasted {show_duration(duration_s)}; the group was at most"
                f" {incident.lag:,} offsets and {show_duration(incident.time_lag_s)} behind{lost}",
                status=Verdict.OK.name,
                duration_s=duration_s,
                worst=incident.worst.name,
                worst_lag=incident.lag,
                worst_time_lag_s=incident.time_lag_s,
                records_lost=incident.records_lost,
            ),
        },
    )


def _describe_incident(causes: ShardCauses, told: Told, found: list[Finding]) -> dict[str, Any]:
    """Names why, and the partition where most lags."""
    snapshot, shard, verdicts = causes.snapshot, causes.shard, causes.verdicts
    number, group, rows = told.number, told.incident.group, np.flatnonzero(shard.group == told.number)
    times = snapshot.time_lags(shard)
    known = rows[times.known[rows]] if times is not None else rows[:0]
    late_s = float(times.seconds[known].max(initial=0.0)) if times is not None else 0.0
    verdict, allowance_s = Verdict(verdicts.verdict[number]), float(verdicts.allowance_s[number])
    catch_up_s = float(verdicts.catch_up_s[number])
    details: dict[str, Any] = {
        "status": verdict.name,
        "lag": _sum_lag(causes, number),
        "time_lag_s": round(late_s, 3),
        "allowance_s": allowance_s,
        "catch_up_s": round(catch_up_s, 3) if np.isfinite(catch_up_s) else None,
        "causes": [
            {"cause": each.cause.label, "text": each.text, "advice": ADVICE[each.cause]} for each in found
        ],
    }
    sentence = write_sentence(verdict, found, details["lag"], late_s)
    text = f"group {show(group)}: {verdict.name}: {sentence} ({show_duration(allowance_s)} is allowed)"
    place = {"topic": found[0].topic, "partition": found[0].partition} if found else {}
    return {"key": told.incident.key, "group": group, **place, "text": text, "details": details}


def _sum_lag(causes: ShardCauses, number: int) -> int:
    return sum(causes.lag[causes.shard.group == number].tolist())


def find_severity(verdict: Verdict) -> Severity:
    """The severity of an incident."""
    return Severity.ERROR if verdict is Verdict.ERR else Severity.WARNING


def describe_group(name: str, text: str, **details: Any) -> dict[str, Any]:
    return {"group": name, "text": f"group {show(name)}: {text}", "details": details}


def describe_rebalance(before: Group, now: Group) -> dict[str, Any]:
    """The epoch or the members of a group have changed."""
    came, left = list_new(before, now), list_new(now, before)
    word = "generation" if now.type == "classic" else "epoch"
    parts = [f"rebalanced ({word} {before.epoch} to {now.epoch})"] if before.epoch != now.epoch else []
    parts += [f"{len(came)} joined ({_list_clients(came)})"] if came else []
    parts += [f"{len(left)} left ({_list_clients(left)})"] if left else []
    parts.append(count(now.member_count, "member"))
    return describe_group(
        now.name,
        ", ".join(parts),
        epoch_before=before.epoch,
        epoch=now.epoch,
        members=now.member_count,
        joined=[_describe_member(member) for member in came[:NAMED]],
        joined_count=len(came),
        left=[_describe_member(member) for member in left[:NAMED]],
        left_count=len(left),
    )


class GroupRows(NamedTuple):
    """Rows of a group, and for all rows of its shard the offsets that these are compared with."""

    snapshot: Snapshot
    shard: ShardSnapshot
    rows: NDArray[np.intp]
    offsets: NDArray[np.int64]

    def split(self) -> "Iterator[GroupRows]":
        """The rows of each group."""
        rows = self.rows[np.argsort(self.shard.group[self.rows], kind="stable")]
        firsts = np.flatnonzero(np.diff(self.shard.group[rows], prepend=-1)).tolist()
        for first, end in pairwise([*firsts, len(rows)]):
            yield self._replace(rows=rows[first:end])

    def find_place(self, row: int) -> dict[str, Any]:
        """Group, topic and partition of a row."""
        number = int(self.shard.partition[row])
        return {
            "group": self.shard.groups[self.shard.group[row]].name,
            "topic": self.snapshot.partitions.topic[number],
            "partition": self.snapshot.partitions.partition[number],
        }

    def describe(self, row: int, text: str, **details: Any) -> dict[str, Any]:
        """Something about a row. `{}` in the text stands for topic and partition."""
        place, details = self.find_place(row), {**details, "partitions": len(self.rows)}
        where = f"{show(place['topic'])}-{place['partition']}"
        text = f"group {show(place['group'])}: {text.format(where)}"
        return {**place, "text": text, "details": details}

    def name_rest(self, before: str) -> str:
        """How many partitions there are besides the one that is named, if any."""
        return "" if len(self.rows) == 1 else f"{before}{count(len(self.rows) - 1, 'more partition')}"


def describe_jump(what: str, of: GroupRows) -> dict[str, Any]:
    """Committed offsets of a group have gone back, or forward without members: from `of.offsets`."""
    offsets = np.abs(of.offsets[of.rows] - of.shard.committed[of.rows])
    row = int(of.rows[np.argmax(offsets)])
    old, new = int(of.offsets[row]), int(of.shard.committed[row])
    text = f"the committed offset of {{}} {what} from {old:,} to {new:,}{of.name_rest(', and of ')}"
    return of.describe(row, text, **{"from": old}, to=new, offsets=sum(offsets.tolist()))


def describe_left_topic(of: GroupRows) -> dict[str, Any]:
    """No member of a group subscribes any more to the topics of these rows."""
    group = of.find_place(int(of.rows[0]))["group"]
    topics = sorted({of.snapshot.partitions.topic[number] for number in of.shard.partition[of.rows].tolist()})
    more = "" if len(topics) == 1 else f" and {count(len(topics) - 1, 'more topic')}"
    text = f"no member subscribes to {show(topics[0])}{more} any more: the lag there does not count"
    details = {"topics": topics[:NAMED], "partitions": len(of.rows)}
    return {**describe_group(group, text, **details), "topic": topics[0]}


def describe_loss(of: GroupRows) -> dict[str, Any]:
    """Records have left the log before a group committed them. `of.offsets` are where the logs start."""
    lost = of.offsets[of.rows] - of.shard.committed[of.rows]
    row, most, total = int(of.rows[np.argmax(lost)]), int(lost.max()), int(lost.sum())
    more = of.name_rest(f", and {total - most:,} of ")
    text = f"{most:,} offsets of {{}} left the log before they were committed{more}"
    committed, start = int(of.shard.committed[row]), int(of.offsets[row])
    return of.describe(row, text, committed_offset=committed, start_offset=start, offsets=total)


def describe_ahead(of: GroupRows) -> dict[str, Any]:
    """The commits of these rows are beyond the ends of the logs, which are `of.offsets`."""
    row = int(of.rows[np.argmax(of.shard.committed[of.rows] - of.offsets[of.rows])])
    committed, end = int(of.shard.committed[row]), int(of.offsets[row])
    more = of.name_rest(", and so are those of ")
    text = f"the committed offset {committed:,} of {{}} is beyond the end of the log, {end:,}{more}"
    return of.describe(row, text, committed_offset=committed, end_offset=end)


def describe_topic(group: str, topic: str, what: str) -> dict[str, Any]:
    """A topic that a group reads was deleted, or created again."""
    return {
        "group": group,
        "topic": topic,
        "text": f"group {show(group)}: the topic {show(topic)}, which it has commits to, was {what}",
    }


def _describe_member(member: Member) -> dict[str, str]:
    return {"id": member.id, "client_id": member.client_id, "client_host": member.client_host}


def _list_clients(members: Sequence[Member]) -> str:
    names = [show(member.client_id) for member in members[:NAMED]]
    return ", ".join(names) + (", ..." if len(members) > NAMED else "")

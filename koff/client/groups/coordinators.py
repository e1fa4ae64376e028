"""All groups of a cluster with their offsets, at once: each coordinator is asked for its own.

A round asks where `__consumer_offsets` is led, asks each leader at the same time (which groups there are,
then for thousands of offsets a request), and asks again where it is led. If that has changed, a broker
did not answer, or a group was not where it was said to be, another round asks for what is missing.

A broker that has just been made leader lists no groups of a partition before it has begun to load it, and
no error either (seen after a restart of 4.3.1). So each is first asked for the offsets of a group that does
not exist, one a partition: NOT_COORDINATOR then says that the list will be short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf
from koff.client.groups import offset_fetch as offsetfetch
from koff.client.groups.descriptions import Listed, descriptions, listed, share_offsets
from koff.client.groups.leaders import BrokerAddress, Layout, layout
from koff.client.groups.responses import DescribedGroup, GroupAnswers, Offsets, ShareOffset, columns
from koff.client.wire.connection import QUESTION_BYTES, Connection, Unanswerable
from koff.client.wire.credentials import TokenSource, addresses, supports
from koff.client.wire.requests import Api, Question, error_name, question
from koff.errors import ConfigError, ConnectError, Denied
from koff.records.topics import OFFSETS_TOPIC

GroupFilter = Callable[[str], bool]

_THREADS = 32
_PAUSE_S = (0.05, 0.4)
"""Between rounds: the first, and the longest that it grows to."""
_ELSEWHERE = frozenset({"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"})
_CHANGED = "GROUP_ID_NOT_FOUND"
"""A group that is gone, or that has become one of another type since it was listed."""
_CHANGES = 3


def ask(
    conf: ClusterConf,
    *,
    group_filter: GroupFilter | None = None,
    deadline_s: float = 30.0,
    describe: bool = True,
    token: TokenSource | None = None,
) -> GroupAnswers:
    """`ask_coordinators` where that is possible, else `ask_admin`: `source` and `reason` say so, and why."""
    from koff.client.groups.admin import ask_admin

    reason = supports(conf, token=token).reason
    if not reason and find_spec("kio") is None:
        reason = "kio is not installed (pip install koff[snapshot])"
    if not reason:
        try:
            return ask_coordinators(
                conf, group_filter=group_filter, deadline_s=deadline_s, describe=describe, token=token
            )
        except Unanswerable as old:
            reason = str(old)
    answers = ask_admin(conf, group_filter=group_filter, deadline_s=deadline_s, describe=describe)
    return replace(answers, reason=reason)


def ask_coordinators(
    conf: ClusterConf,
    *,
    group_filter: GroupFilter | None = None,
    deadline_s: float = 30.0,
    describe: bool = True,
    token: TokenSource | None = None,
) -> GroupAnswers:
    """What all coordinators say of the groups that `group_filter` lets through, within `deadline_s`.

    Raises `ConnectError` (`Denied` for a refused log-in) when nobody answers at all, `ConfigError` without
    kio or for properties that are not supported, `Unanswerable` when a broker is too old. What fails
    later is in the answers, by name. Needs DESCRIBE on groups, on their topics, and on `__consumer_offsets`:
    who lacks it sees less, and while coordinators change it may be less than that, with nothing said.
    """
    with _Interview(conf, group_filter, deadline_s, describe, token) as interview:
        return interview.run()


@dataclass(slots=True)
class _Answer:
    """What one broker said in one round."""

    broker: BrokerAddress
    probes: Sequence[str] = ()
    listed: Sequence[Listed] | None = None
    offsets: list[offsetfetch.FetchedOffsets] = field(default_factory=list)
    described: list[DescribedGroup] = field(default_factory=list)
    share: list[tuple[str, str, list[ShareOffset]]] = field(default_factory=list)
    trouble: str = ""
    steps: dict[str, float] = field(default_factory=dict)


class _Interview(Closing):
    """The state of one asking, over as many rounds as it takes. Threads only ever add to an `_Answer`."""

    def __init__(
        self,
        conf: ClusterConf,
        group_filter: GroupFilter | None,
        deadline_s: float,
        describe: bool,
        token: TokenSource | None,
    ) -> None:
        self._conf = conf
        self._wanted = group_filter
        self._describe = describe
        self._token = token
        self._began = time.monotonic()
        self._deadline = self._began + deadline_s
        self._wires: dict[tuple[str, int], Connection] = {}
        self._seeds = list(addresses(conf.brokers))
        if not self._seeds:
            raise ConfigError("--brokers names no broker")
        self._listed: dict[str, Listed] = {}
        self._offsets: list[Offsets] = []
        self._share: list[ShareOffset] = []
        self._fetched: set[str] = set()
        self._described: dict[str, DescribedGroup] = {}
        self._failed: dict[str, str] = {}
        self._pending: dict[str, str] = {}
        self._changes: dict[str, int] = {}
        self._steps: dict[str, float] = {}
        self._bytes = 0

    def close(self) -> None:
        """Closes all connections."""
        for wire in self._wires.values():
            wire.close()

    def run(self) -> GroupAnswers:
        now, pause, rounds = self._layout(), _PAUSE_S[0], 0
        while True:
            rounds += 1
            answers = self._round(now)
            self._take(answers)
            trouble = [f"{answer.broker}: {answer.trouble}" for answer in answers if answer.trouble]
            try:
                before, now = now, self._layout()
            except ConnectError as failure:
                trouble.append(str(failure))
            else:
                trouble += _moved(before, now)
            if not trouble and not self._pending:
                break
            if time.monotonic() + pause >= self._deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_S[1])
        self._bytes += sum(wire.bytes_read for wire in self._wires.values())
        return GroupAnswers(
            offsets=columns(self._offsets),
            groups=tuple(map(self._group, self._listed.values())),
            failed={**self._pending, **self._failed},
            brokers=sum(answer.listed is not None for answer in answers),
            seconds=time.monotonic() - self._began,
            share=tuple(self._share),
            incomplete=tuple(trouble),
            rounds=rounds,
            bytes_read=self._bytes,
            seconds_by_step=self._steps,
        )

    def _layout(self) -> Layout:
        """As the first broker tells it that answers. One that has just failed comes last."""
        began = time.monotonic()
        failures: list[ConnectError] = []
        connected = [address for address, wire in self._wires.items() if not wire.closed]
        for host, port in dict.fromkeys([*connected, *self._seeds, *self._wires]):
            try:
                found = layout(self._wire(host, port, share_of=1 if self._wires else len(self._seeds)))
            except Denied:
                raise
            except ConnectError as failure:
                failures.append(failure)
            else:
                self._steps["metadata"] = self._steps.get("metadata", 0.0) + time.monotonic() - began
                return found
        raise failures[0]

    def _wire(self, host: str, port: int, *, share_of: int = 1) -> Connection:
        """The connection to that address, made when there is none. Raises `ConnectError`."""
        wire = self._wires.get((host, port))
        if wire is None or wire.closed:
            if wire is not None:
                self._bytes += self._wires.pop((host, port)).bytes_read
            patience = min(self._conf.connect_timeout_s / share_of, self._deadline - time.monotonic())
            wire = Connection.connect(
                self._conf, host, port, token=self._token, timeout_s=max(patience, 0.001)
            )
            wire.deadline = self._deadline
            self._wires[host, port] = wire
        return wire

    def _round(self, now: Layout) -> list[_Answer]:
        answers = [_Answer(broker, now.probes(broker)) for broker in now.coordinators]
        if len(answers) == 1:
            self._ask(answers[0])
        elif answers:
            with ThreadPoolExecutor(min(len(answers), _THREADS), "koff-coordinators") as threads:
                list(threads.map(self._ask, answers))
        for step in ("connect", "list", "ask"):
            longest = max((answer.steps.get(step, 0.0) for answer in answers), default=0.0)
            self._steps[step] = self._steps.get(step, 0.0) + longest
        return answers

    def _ask(self, answer: _Answer) -> None:
        """All that one broker has to say. What it said before it failed is kept."""
        times = [time.monotonic()]
        try:
            wire = self._wire(answer.broker.host, answer.broker.port)
            times.append(time.monotonic())
            *probed, response = wire.ask(_list_questions(wire, answer.probes))
            times.append(time.monotonic())
            if response.error_code:
                answer.trouble = f"does not list its groups: {error_name(response.error_code)}"
                return
            loading = [error for each in probed for error in each.errors.values() if error in _ELSEWHERE]
            if loading:
                answer.trouble = f"is not ready for {len(loading)} of its partitions: {loading[0]}"
            wanted = self._wanted
            answer.listed = [each for each in listed(response) if wanted is None or wanted(each.name)]
            asked = list(self._questions(wire, answer))
            for (_, take), said in zip(asked, wire.ask(each for each, _ in asked), strict=True):
                take(said)
        except ConnectError as failure:
            answer.trouble = str(failure)
        finally:
            times.append(time.monotonic())
            steps = zip(("connect", "list", "ask"), times, times[1:], strict=False)
            answer.steps = {step: until - since for step, since, until in steps}

    def _questions(
        self, wire: Connection, answer: _Answer
    ) -> Iterator[tuple[Question[Any], Callable[[Any], None]]]:
        """What is still to be asked of this broker, each with where the answer goes."""
        groups = answer.listed or ()
        missing = [each for each in groups if each.name not in self._fetched]
        names = [each.name for each in missing if each.type != "share"]
        for offsets in _offset_questions(wire, names):
            yield offsets, answer.offsets.append
        names = [each.name for each in missing if each.type == "share"]
        if names and wire.version(Api.DESCRIBE_SHARE_GROUP_OFFSETS) is not None:
            for share in share_offsets(wire, names):
                yield share, answer.share.extend
        if self._describe:
            unknown = [each for each in groups if each.name not in self._described]
            for api in dict.fromkeys(each.described_by for each in unknown):
                if api is not None and wire.version(api) is not None:
                    of = [each for each in unknown if each.described_by is api]
                    for description in descriptions(wire, api, of):
                        yield description, answer.described.extend

    def _take(self, answers: Sequence[_Answer]) -> None:
        """Puts the answers to what is known, and finds out what is still missing, and why."""
        everyone = all(answer.listed is not None and not answer.trouble for answer in answers)
        listed = {each.name: (each, answer.trouble) for answer in answers for each in answer.listed or ()}
        if everyone:  # what is not listed any more is gone; what it had committed until then stays
            gone = [name for name in self._pending if name not in listed]
            for name in gone:
                del self._pending[name]
                if name not in self._fetched:
                    self._listed.pop(name, None)
        self._listed |= {name: each for name, (each, _) in listed.items()}
        errors: dict[str, str] = {}
        for answer in answers:
            self._take_offsets(answer, errors)
            self._take_descriptions(answer, errors)
        for name, (each, trouble) in listed.items():
            if name in errors:
                self._pending[name] = errors[name]
            elif self._done(each) or not trouble:
                self._pending.pop(name, None)
            else:
                self._pending[name] = f"its coordinator failed: {trouble}"

    def _take_offsets(self, answer: _Answer, errors: dict[str, str]) -> None:
        for fetched in answer.offsets:
            self._offsets.append(fetched.offsets)
            self._fetched.update(fetched.answered)
            self._fetched.update(
                name for name, error in fetched.errors.items() if self._final(name, error, errors)
            )
        for name, error, offsets in answer.share:
            if not error or self._final(name, error, errors):
                self._fetched.add(name)
                self._share += offsets

    def _take_descriptions(self, answer: _Answer, errors: dict[str, str]) -> None:
        for group in answer.described:
            if not group.error or self._final(group.name, group.error, errors):
                self._described[group.name] = group

    def _final(self, name: str, error: str, errors: dict[str, str]) -> bool:
        """Whether the error is for good, and so the group has failed. Others are worth another round."""
        if error == _CHANGED:
            self._changes[name] = self._changes.get(name, 0) + 1
        if error in _ELSEWHERE or (error == _CHANGED and self._changes[name] < _CHANGES):
            errors[name] = error
            return False
        self._failed[name] = error
        return True

    def _done(self, group: Listed) -> bool:
        described = not self._describe or group.described_by is None or group.name in self._described
        return described and group.name in self._fetched

    def _group(self, group: Listed) -> DescribedGroup:
        known = self._described.get(group.name)
        return known or group.described(self._failed.get(group.name) or self._pending.get(group.name, ""))


def _list_questions(wire: Connection, probes: Sequence[str]) -> Iterator[Question[Any]]:
    """Whether the broker is ready, and then, on the same connection and so later, its groups."""
    yield from _offset_questions(wire, probes)
    yield question(wire.build(Api.LIST_GROUPS))


def _offset_questions(
    wire: Connection, groups: Sequence[str]
) -> Iterator[Question[offsetfetch.FetchedOffsets]]:
    version = min(wire.version(Api.OFFSET_FETCH) or 0, offsetfetch.LAST)
    if version < offsetfetch.FIRST:
        raise Unanswerable(f"Kafka at {wire.address} takes one group a request (older than 3.0)")
    return offsetfetch.questions(groups, version, max_bytes=QUESTION_BYTES)


def _moved(before: Layout, now: Layout) -> Iterator[str]:
    """Why there may be groups that no answer has named, although all have answered."""
    if now.headless:
        yield f"{OFFSETS_TOPIC} has no leader for partitions {', '.join(map(str, now.headless))}"
    elif now != before:
        yield f"the leaders of {OFFSETS_TOPIC} have changed while they were asked"

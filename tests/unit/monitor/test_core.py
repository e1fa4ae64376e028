"""What the simulation does not show of the core: inputs that cannot be used, and late results."""

from __future__ import annotations

from typing import Any

import pytest

from koff.monitor.core import TIMEOUT_S, Core, CoreConf
from koff.monitor.requests import (
    Failed,
    FetchOffsets,
    FetchRetention,
    FetchTopics,
    Load,
    Loaded,
    Moment,
    OffsetsFetched,
    Origin,
    Polled,
    Read,
    ReadFailed,
    Records,
    Request,
    Topic,
    TopicsFetched,
)
from tests.unit.builders import Share, commit

OFFSETS = "__consumer_offsets"
IDS = {OFFSETS: Share.places[0], "t": Share.places[1]}


class Driven:
    """A core, and the requests that it has sent."""

    def __init__(self, **conf: Any) -> None:
        self.second = 0.0
        self.core = Core(CoreConf(start=conf.pop("start", "replay"), **conf), self.now())
        self.sent: list[Request] = list(self.core.handle(None, self.now()))

    def now(self) -> Moment:
        return Moment(self.second, 1_000_000 + round(self.second * 1000))

    def give(self, given: Any, *, after_s: float = 0.0) -> None:
        self.second += after_s
        self.sent += self.core.handle(given, self.now())

    def last(self, kind: type[Any]) -> Any:
        return next(request for request in reversed(self.sent) if isinstance(request, kind))

    def list_topics(self, **partitions: int) -> None:
        topics = {name: Topic(IDS[name], count) for name, count in partitions.items()}
        self.give(TopicsFetched(self.last(FetchTopics).id, topics))

    def read(self) -> Driven:
        """The offsets topic has one partition, of which 0 to 5 can be read."""
        self.list_topics(**{OFFSETS: 1, "t": 1})
        for kind, offset in (("start", 0), ("stable", 5)):
            request = next(r for r in self.sent if isinstance(r, FetchOffsets) and r.kind == kind)
            self.give(OffsetsFetched(request.id, {(OFFSETS, 0): offset}, final=True))
        self.give(Failed(self.last(FetchRetention).id, "may not be asked"))
        return self

    def poll(self, *pairs: tuple[Any, Any]) -> None:
        attempt = self.last(Read).starts[0].attempt
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        self.give(Polled(OFFSETS, [Records(0, attempt, keys, values, range(len(pairs)))]))

    def groups(self) -> set[str]:
        return {row.group for row in self.core.tracker.take_snapshot().rows()}


def test_a_record_that_makes_the_tracker_fail_is_skipped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven().read()
    apply = driven.core.tracker.apply

    def fail_on_poison(partition: int, keys: Any, values: Any, **more: Any) -> None:
        if any(b"poison" in key for key in keys):
            raise OverflowError("too long")
        apply(partition, keys, values, **more)

    monkeypatch.setattr(driven.core.tracker, "apply", fail_on_poison)
    driven.poll(commit("a", "t", 0, 1), (b"poison", b""), commit("b", "t", 0, 1))
    assert driven.groups() == {"a", "b"}
    assert driven.core.skipped == {"record: OverflowError: too long": 1}
    assert driven.core.offsets.partitions[0].position == 3


def test_an_input_that_cannot_be_used_is_counted_and_ends_nothing() -> None:
    driven = Driven().read()
    driven.give(Polled(OFFSETS, [None]))  # type: ignore[list-item]  # no worker may send this
    assert len(driven.core.skipped) == 1
    driven.poll(commit("a", "t", 0, 1))
    assert driven.groups() == {"a"}


def test_a_result_that_comes_after_its_deadline_is_ignored() -> None:
    driven = Driven()
    late = driven.last(FetchTopics).id
    driven.give(None, after_s=TIMEOUT_S)
    driven.give(None, after_s=TIMEOUT_S)
    assert driven.last(FetchTopics).id != late
    driven.give(TopicsFetched(late, {OFFSETS: Topic("id", 1)}))
    assert driven.core.offsets.exists is None
    driven.list_topics(**{OFFSETS: 1})
    assert driven.core.offsets.exists is True


def test_why_the_topic_may_not_be_read_is_said_once_and_that_it_may_again() -> None:
    driven = Driven(source="log").read()
    for _ in range(3):
        driven.give(ReadFailed(OFFSETS, "grant READ", denied=True), after_s=1)
    driven.give(None, after_s=30)
    driven.poll(commit("a", "t", 0, 1))
    texts = [event.text for event in driven.core.take_events()]
    assert texts.count("topic may not be read") == 1
    assert texts.count("topic may be read again") == 1
    assert driven.groups() == {"a"}


def test_the_state_of_a_topic_that_was_created_again_meanwhile_is_not_used() -> None:
    driven = Driven(start="resume", cluster_id="c")
    driven.list_topics(**{OFFSETS: 1})
    load = driven.last(Load)
    assert load.origin == Origin("c", OFFSETS, IDS[OFFSETS], 1)
    driven.core.offsets.note_topic(Topic("another", 1))
    driven.give(Loaded(load.id, {}, "nothing was saved"))
    assert "the saved state is not used" in [event.text for event in driven.core.take_events()]

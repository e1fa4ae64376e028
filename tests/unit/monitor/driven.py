"""The core alone, driven by a test that answers its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from koff.monitor.core import Core
from koff.monitor.core_conf import CoreConf
from koff.monitor.duties.groups import FetchGroups, GroupsFetched
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.retention import FetchTopicConfigs
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.moment import Moment
from koff.monitor.requests import Command, Failed, Polled, Read, Records, Topic, TopicPartition, Watermarks
from koff.tracker import Group
from koff.tracker.commit_columns import CommitColumns
from koff.view.cluster_view import ClusterView
from tests.group_records import Share

OFFSETS = "__consumer_offsets"
IDS = {OFFSETS: Share.places[0], "t": Share.places[1]}


FindOffset = Callable[[TopicPartition, Any], int | str | None]
"""The offset of a partition, by the kind of the request: `end`, `start`, `stable`, or a time."""


class Driven:
    """A core, and the requests that it has sent."""

    def __init__(self, **conf: Any) -> None:
        self.second, self.wall_step_ms = 0.0, 0
        self.core = Core(CoreConf(start=conf.pop("start", "replay"), **conf), self.now())
        self.sent: list[Command] = list(self.core.handle(None, self.now()))

    def now(self) -> Moment:
        return Moment(self.second, 1_000_000 + self.wall_step_ms + round(self.second * 1000))

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
        self.give(Failed(self.last(FetchTopicConfigs).id, "may not be asked"))
        return self

    def wait_for(self, kind: type[Any]) -> Any:
        """Time passes until a request of this kind is open. Returns the request."""
        while not self.core.outbox.has(kind):
            self.give(None, after_s=1)
        return self.last(kind)

    def poll(self, *pairs: tuple[Any, Any], partition: int = 0, first: int = 0) -> None:
        """The reader has read these records of a partition of the offsets topic, from this offset on."""
        attempt = self.core.logs.offsets.partitions[partition].attempt
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        offsets = range(first, first + len(pairs))
        self.give(Polled(OFFSETS, [Records(partition, attempt, keys, values, offsets)]))

    def report_ends(self, *, stable: int | None = None, end: int | None = None) -> None:
        """The readers report where the partitions end that they read: by default at their positions."""
        for log in self.core.logs.both:
            ends = {
                number: Watermarks(
                    part.attempt,
                    part.position if end is None else end,
                    part.position if stable is None else stable,
                    self.now(),
                )
                for number, part in log.reading()
            }
            if ends and log.denied is None:
                self.give(Polled(log.topic, ends=ends))

    def respond_offsets(self, find: FindOffset) -> int:
        """Responds to the open requests for offsets, but not where `find` has none. Returns how many."""
        responses = 0
        for ask in list(self.core.outbox.list_open(FetchOffsets)):
            found = {at: find(at, ask.request.kind) for at in ask.request.partitions}
            if None not in found.values():
                self.give(OffsetsFetched(ask.request.id, found, final=True))  # type: ignore[arg-type]
                responses += 1
        return responses

    def respond_groups(self, commits: Mapping[tuple[str, str, int], int], **more: Any) -> None:
        """The coordinators return these commits, with their groups, to the last request."""
        columns, groups = CommitColumns.from_offsets(commits), {name: Group(name) for name, _, _ in commits}
        self.give(GroupsFetched(self.last(FetchGroups).id, columns, groups, **more))

    def respond_log_end(self, log_end: int = 5) -> None:
        """Responds to all requests for offsets, but not to those by time. Other topics end at 10."""
        ends = {OFFSETS: log_end}
        self.respond_offsets(
            lambda at, kind: 0 if kind == "start" else None if type(kind) is int else ends.get(at[0], 10)
        )

    def run(self, seconds: int, *, log_end: int = 5, **topics: int) -> None:
        """Time passes. Topics and offsets are answered."""
        for _ in range(seconds):
            self.give(None, after_s=1)
            if self.core.outbox.has(FetchTopics):
                self.list_topics(**(topics or {OFFSETS: 1, "t": 1}))
            self.report_ends(stable=log_end, end=log_end)
            self.respond_log_end(log_end)

    def requests(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.sent if isinstance(request, kind)]

    def starts(self) -> dict[int, int]:
        """The partitions that are read by the newest request, and from where."""
        return {number: place.offset for number, place in self.last(Read).starts.items()}

    def take_texts(self) -> list[str]:
        """The texts of the events since the last call."""
        return [event.text for event in self.core.take_events()]

    def take_view(self) -> ClusterView:
        return self.core.take_view(self.now())

    def groups(self) -> set[str]:
        return {row.group for row in self.core.tracker.take_snapshot().rows()}

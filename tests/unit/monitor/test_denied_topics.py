"""A topic that koff may not describe any more was not deleted: its rows are unknown, and none is withheld."""

from typing import Any

import pytest

from koff.lag import Reason
from koff.monitor.duties.groups import FetchGroups
from koff.monitor.duties.offsets import FetchOffsets
from koff.monitor.duties.topics import AGREEING, FetchTopics, TopicList, TopicsFetched
from koff.monitor.moment import Moment
from koff.monitor.requests import Topic, TopicPartition
from koff.monitor.workers import Workers, WorkersConf
from koff.tracker.rows import PartitionLag
from koff.view.cluster_view import ClusterFacts
from tests.unit.builders import commit
from tests.unit.monitor.driven import IDS, OFFSETS, Driven
from tests.unit.monitor.fakes import FakeCluster, Inbox

END = 100
TOPIC_IDS = {**IDS, "u": "AAAAAAAAAAAAAAAAAAAAAQ"}


class Watched(Driven):
    """A core that serves the lags of group a in t-0 and u-0. koff may not describe the topics `denied`."""

    def __init__(self, **conf: Any) -> None:
        super().__init__(**conf)
        self.denied: frozenset[str] = frozenset()
        self.present = frozenset({"t", "u"})
        self.committed = {"t": 50, "u": 60}
        self.commits = 0
        self.list_present()
        self.answer()

    def list_present(self) -> None:
        shown = {OFFSETS, *(self.present - self.denied)}
        topics = {name: Topic(TOPIC_IDS[name], 1) for name in shown}
        denied = self.denied & self.last(FetchTopics).wanted
        self.give(TopicsFetched(self.last(FetchTopics).id, topics, ClusterFacts(1, denied=denied)))

    def answer(self) -> None:
        """Responds to all open requests, but not to those for groups."""
        self.report_ends()
        self.respond_offsets(self.find_offset)

    def find_offset(self, at: TopicPartition, kind: Any) -> int | str:
        if at[0] == OFFSETS:
            return 0 if kind == "start" else self.commits
        return "TOPIC_AUTHORIZATION_FAILED" if at[0] in self.denied else END

    def commit(self) -> None:
        """The group commits to both topics."""
        pairs = [commit("a", topic, 0, offset) for topic, offset in self.committed.items()]
        first, self.commits = self.commits, self.commits + 2
        self.poll(*pairs, first=first)

    def respond(self) -> None:
        """The coordinator returns the commits to the topics that koff may describe."""
        commits = {("a", topic, 0): at for topic, at in self.committed.items() if topic not in self.denied}
        self.respond_groups(commits)

    def pass_time(self, seconds: int, *, commits: bool = False, lists: bool = True) -> None:
        for _ in range(seconds):
            self.give(None, after_s=1)
            if commits:
                self.commit()
            if lists and self.core.outbox.has(FetchTopics):
                self.list_present()
            if self.core.outbox.has(FetchGroups):
                self.respond()
            self.answer()

    def rows(self) -> dict[str, PartitionLag]:
        return {row.topic: row for row in self.take_view().snapshot.rows()}

    def find_withheld(self) -> int:
        return self.take_view().stats.withheld


@pytest.fixture
def log():
    watched = Watched()
    watched.pass_time(3)
    watched.pass_time(20, commits=True)
    assert {topic: row.lag for topic, row in watched.rows().items()} == {"t": 50, "u": 40}
    return watched


@pytest.fixture
def polled():
    watched = Watched(source="coordinators", start="snapshot")
    watched.pass_time(30)
    assert {topic: row.lag for topic, row in watched.rows().items()} == {"t": 50, "u": 40}
    return watched


def test_rows_are_unknown_and_not_withheld_although_their_commits_are_newer_than_each_list(log):
    log.denied = frozenset({"u"})
    log.pass_time(90, commits=True)
    view = log.take_view()
    (total,) = view.snapshot.totals()
    assert (log.rows()["t"].lag, log.rows()["u"].reasons) == (50, Reason.END_UNKNOWN)
    assert (view.readiness.ready, view.stats.rows, view.stats.withheld) == (True, 1, 0)
    assert (total.lag, total.partitions, total.unknown) == (50, 2, 1)
    log.denied = frozenset()
    log.pass_time(60, commits=True)
    assert {topic: row.lag for topic, row in log.rows().items()} == {"t": 50, "u": 40}


def test_end_offsets_of_a_topic_that_may_not_be_described_are_not_requested(log):
    log.denied = frozenset({"u"})
    log.pass_time(60)
    log.sent.clear()
    log.pass_time(30)
    asked = {at for request in log.requests(FetchOffsets) for at in request.partitions}
    assert asked & {("t", 0), ("u", 0)} == {("t", 0)}


def test_the_list_is_asked_by_name_about_the_topics_of_groups(log):
    assert log.last(FetchTopics).wanted == {"t", "u", OFFSETS, log.core.logs.share.topic}


def test_rows_stay_if_responses_of_coordinators_lack_the_topic(polled):
    polled.denied = frozenset({"u"})
    polled.pass_time(90)
    rows = polled.rows()
    assert (rows["t"].lag, rows["u"].lag, rows["u"].reasons) == (50, None, Reason.END_UNKNOWN)
    assert rows["u"].committed is None  # only the log would show the present one
    assert polled.find_withheld() == 0
    polled.denied, polled.committed["u"] = frozenset(), 70
    polled.pass_time(60)
    assert {topic: row.lag for topic, row in polled.rows().items()} == {"t": 50, "u": 30}


def test_rows_stay_until_a_list_says_whether_the_missing_topic_may_be_described(polled):
    polled.denied = frozenset({"u"})
    polled.pass_time(15, lists=False)
    assert polled.rows().keys() == {"t", "u"}
    assert polled.core.outbox.has(FetchTopics)  # at once


@pytest.mark.parametrize("is_deleted", [True, False])
def test_commits_that_are_deleted_are_gone_after_the_next_list(polled, is_deleted):
    del polled.committed["u"]
    if is_deleted:
        polled.present = frozenset({"t"})
    polled.pass_time(20)
    assert polled.rows().keys() == {"t"}
    assert polled.find_withheld() == 0


# --- The list of topics ----------------------------------------------------------------------------------


def list_topics(*denied: bool, known: bool = True) -> TopicList:
    topics = TopicList()
    if known:
        topics.note({"orders": Topic("id", 4)}, Moment(0.0, 0), wanted={"orders"}, alive=())
    for number, is_denied in enumerate(denied, 1):
        names = frozenset({"orders"} if is_denied else ())
        topics.note({}, Moment(5.0 * number, 0), wanted={"orders"}, alive=(), denied=names)
    return topics


def test_a_topic_that_was_deleted_meanwhile_is_gone_once_lists_that_may_say_so_agree():
    assert list_topics(*[True] * 9, *[False] * (AGREEING - 1)).partition_count("orders") == 4
    assert list_topics(*[True] * 9, *[False] * AGREEING).partition_count("orders") == 0


def test_brokers_are_asked_by_name_about_wanted_topics_that_are_not_listed():
    cluster: Any = FakeCluster({"a": [1]})
    cluster.denied = {"hidden", "a"}
    workers = Workers(WorkersConf(cluster.conf, ()), cluster, Inbox().post)
    fetched = FetchTopics(1, frozenset({"a", "hidden", "deleted"})).carry_out(workers)
    assert isinstance(fetched, TopicsFetched)
    assert fetched.facts.denied == {"hidden"}

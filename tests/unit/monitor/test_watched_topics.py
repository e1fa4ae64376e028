"""The topics whose offsets are requested although no group reads them."""

from koff.monitor.duties.offsets import FetchOffsets
from koff.monitor.duties.retention import FetchTopicConfigs
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.requests import Display, Failed, Topic
from koff.serve.metrics.conf import MetricsConf
from koff.serve.metrics.exposition import Exposition
from koff.tracker import Rule, ShownNames
from tests.unit.builders import commit
from tests.unit.monitor.driven import IDS, OFFSETS, Driven

INTERNAL = {OFFSETS: Topic(IDS[OFFSETS], 1), "__share_group_state": Topic("AAAAAAAAAAAAAAAAAAAAAw", 1)}
T, IDLE = Topic(IDS["t"], 1), Topic("AAAAAAAAAAAAAAAAAAAABA", 2)


class Watching(Driven):
    """A core that watches all topics, and what the cluster lists."""

    def __init__(self, *rules: str, watches_all: bool = True) -> None:
        names = ShownNames(topics=tuple(map(Rule.parse, rules)))
        super().__init__(watches_all=watches_all, display=Display(names))
        self.listed = {**INTERNAL, "t": T, "idle": IDLE}
        self.list_topics()
        self.respond_log_end()
        self.give(Failed(self.last(FetchTopicConfigs).id, "may not be asked"))
        self.poll(*[commit("other", "t", 0, number) for number in range(5)])
        self.pass_time(8)

    def list_topics(self, **_: int) -> None:
        self.give(TopicsFetched(self.last(FetchTopics).id, self.listed))

    def pass_time(self, seconds: int) -> set[tuple[str, int]]:
        """Time passes. Returns the partitions whose end offsets are requested, but for internal topics."""
        before = len(self.sent)
        for _ in range(seconds):
            self.give(None, after_s=1)
            if self.core.outbox.has(FetchTopics):
                self.list_topics()
            self.respond_log_end()
        new = [each for each in self.sent[before:] if isinstance(each, FetchOffsets) and each.kind == "end"]
        return {at for each in new for at in each.partitions if at[0] not in INTERNAL}

    def render(self) -> str:
        exposition = Exposition(MetricsConf(families=("all",)))
        return b"".join(exposition.render_chunks(self.take_view())).decode()


def test_offsets_of_all_topics_but_those_that_koff_reads_itself_are_requested_and_served():
    driven = Watching()
    sent = [each for each in driven.sent if isinstance(each, FetchOffsets)]
    kinds = {each.kind for each in sent if ("idle", 1) in each.partitions}
    assert kinds == {"end", "start", "stable"}
    assert driven.pass_time(20) == {("t", 0), ("idle", 0), ("idle", 1)}
    assert {topic for topic, _ in driven.core.tracker.watched_partitions()} == {"t", "idle"}
    text = driven.render()
    for partition in (0, 1):
        labels = f'topic="idle",partition="{partition}"'
        assert f'koff_partition_end_offset{{cluster="",{labels}}} 10\n' in text
        assert f'koff_partition_start_offset{{cluster="",{labels}}} 0\n' in text
    assert 'koff_topic_messages_total{cluster="",topic="idle"} 0\n' in text


def test_a_topic_that_grows_is_requested_whole_and_one_that_is_deleted_no_more():
    driven = Watching()
    driven.listed["idle"] = Topic("AAAAAAAAAAAAAAAAAAAABA", 3)
    assert ("idle", 2) in driven.pass_time(25)
    del driven.listed["idle"]
    driven.pass_time(60)
    assert driven.pass_time(20) == {("t", 0)}
    assert "idle" not in driven.render()


def test_topics_that_are_hidden_are_not_requested_and_the_rules_may_change():
    driven = Watching("exclude:^i")
    assert driven.pass_time(20) == {("t", 0)}
    driven.give(Display())
    assert driven.pass_time(20) == {("t", 0), ("idle", 0), ("idle", 1)}

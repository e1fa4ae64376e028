"""A life of dozens of real groups of every kind, step by step: how members come, go and change."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition

from koff.kafkatest import KafkaTestError, LocalKafka, wait_until
from tests.kafka_groups import Member, member, produce, streaming
from tests.kafka_tools import CONFIGS, Picture, Workbench, kafkas_picture

OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 4
CONFIG = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "share.coordinator.state.topic.num.partitions": "2",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
TOPICS = {
    "orders": 3,
    "clicks": 2,
    "jobs": 2,
    "words": 2,
    "doomed": 2,
    "trimmed": 1,
    "logs-a": 1,
    "logs-b": 2,
}
STATIC = ("static-classic", "static-consumer", "java-static")
SIMPLE = [f"simple-{number}" for number in range(12)]


class Life:
    """What the steps act on. `picture` is what Kafka's tools say when a step is over."""

    def __init__(self, kafka: LocalKafka, workbench: Workbench) -> None:
        self.kafka, self.workbench = kafka, workbench
        self.picture: Picture = {}
        self.held_back: Mapping[str, str | None] = {}
        """What who reads the log must say instead, as an open transaction hides what is behind it.

        None: nothing.
        """
        self.members: dict[str, Member] = {}
        self.open: Producer | None = None
        self.before_the_cut: Callable[[], None] = lambda: None
        """Called when commits have been made that the log is about to lose."""
        self._said = ""
        self._alive = ExitStack()
        self._leaving: dict[str, ExitStack] = {}

    def close(self) -> None:
        self._alive.close()

    def join(
        self, name: str, group: str, topic: str, protocol: str = "classic", **properties: object
    ) -> None:
        """A member of librdkafka, its client id `name`; in names of `properties` _ stands for the point."""
        own = {key.replace("_", "."): value for key, value in properties.items()}
        self.members[name] = self._stay(name).enter_context(
            member(self.kafka, group, topic, protocol=protocol, client_id=name, properties=own)
        )

    def join_streams(self, name: str, topic: str, *, count: int) -> None:
        self._stay(name).enter_context(streaming(self.kafka, name, topic, count=count))

    def leave(self, *names: str) -> None:
        for name in names:
            if name in self._leaving:
                self._leaving.pop(name).close()
            else:
                self.workbench.leave(name)

    def _stay(self, name: str) -> ExitStack:
        self._leaving[name] = self._alive.enter_context(ExitStack())
        return self._leaving[name]

    def commit(self, group: str, *offsets: tuple[str, int, int]) -> None:
        """Commits for a group without members, as administrators do."""
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(*at) for at in offsets])

        def committed() -> bool:
            """A coordinator that has only just come refuses at first."""
            answer = self.kafka.admin.alter_consumer_group_offsets([request], request_timeout=10)[group]
            try:
                failures = [at.error for at in answer.result(60).topic_partitions if at.error]
            except KafkaException as failure:
                failures = [failure.args[0]]
            away = ("COORDINATOR", "_TIMED_OUT", "_TRANSPORT")
            assert all(any(word in each.name() for word in away) for each in failures), failures
            return not failures

        wait_until(committed, what=f"the commit of {group}")

    def admin(self, tool: str, *args: str, until: Callable[[Picture], object]) -> None:
        """Runs one of Kafka's tools, which may have to be asked twice, and waits for what it does."""
        printed = ""

        def done() -> object:
            nonlocal printed
            printed = self.workbench.run(tool, *args)
            return until(kafkas_picture(self.workbench))

        try:
            wait_until(done, what=f"{tool} {' '.join(args)}")
        except TimeoutError as failure:
            raise TimeoutError(f"{failure}; the tool said {printed}") from failure

    def settle(self, **counts: int) -> Picture:
        """Waits until Kafka tells the same twice, with so many members in those groups (_ for the dash)."""
        expected = {
            f"{group.replace('_', '-')} {what}": value
            for group, count in counts.items()
            for what, value in (("members", str(count)), ("state", "Stable" if count else "Empty"))
        }
        missing: dict[str, str | None] = {}

        def settled() -> bool:
            before, self.picture = self.picture, self._look()
            missing.clear()
            missing.update(
                {at: self.picture.get(at) for at in expected if self.picture.get(at) != expected[at]}
            )
            return not missing and before == self.picture

        try:
            wait_until(settled, timeout_s=80, what="groups to settle", every_s=0.2)
        except TimeoutError as failure:
            found = missing or "they go on changing"
            raise TimeoutError(f"{failure}; {found}, not {expected}; {self._said}") from failure
        return self.picture

    def _look(self) -> Picture:
        """Nothing while a tool fails: some do, as long as a group holds commits for a topic that is gone."""
        try:
            return kafkas_picture(self.workbench)
        except KafkaTestError as failure:
            self._said = str(failure)
            return {}


def simple_groups_commit(life: Life) -> None:
    for topic, partitions in TOPICS.items():
        life.kafka.create_topic(topic, partitions)
        for partition in range(partitions):
            produce(life.kafka, topic, 10, partition=partition)
    for number, group in enumerate(SIMPLE):
        life.commit(group, ("orders", number % 3, number), ("clicks", number % 2, 7))
    life.commit("overtaken", ("trimmed", 0, 2))
    life.commit("doomed-simple", ("doomed", 0, 3), ("orders", 0, 3))
    life.settle(simple_0=0, overtaken=0)


def members_join(life: Life) -> None:
    life.join("a1", "classic-a", "orders")
    life.join("a2", "classic-a", "orders")
    life.join("b1", "classic-b", "clicks")
    life.join("sticky1", "classic-sticky", "orders", partition_assignment_strategy="cooperative-sticky")
    life.join("m1", "consumer-a", "orders", "consumer")
    life.join("m2", "consumer-a", "orders", "consumer")
    life.join("n1", "consumer-b", "clicks", "consumer")
    life.join("u1", "converted", "orders")
    life.join("u2", "converted", "orders")
    life.join("s1", "static-classic", "orders", group_instance_id="one")
    life.join("s2", "static-classic", "orders", group_instance_id="two")
    life.join("s3", "static-consumer", "orders", "consumer", group_instance_id="three")
    life.join("s4", "static-brief", "clicks", group_instance_id="four", session_timeout_ms=1500)
    life.join("d1", "doomed-classic", "doomed", topic_metadata_refresh_interval_ms=500)
    life.join("d2", "doomed-consumer", "doomed", "consumer")
    join = life.workbench.join
    join("j1", "classic", "orders", group_id="java-classic")
    join("j2", "classic", "/logs-.*/", group_id="java-pattern")
    join("j3", "consumer", "clicks", group_id="java-consumer")
    join("j4", "consumer", "/logs-.*|clicks/", group_id="java-regex")
    join("j5", "consumer", "orders", group_id="java-static", group_instance_id="five")
    for group in ("share-a", "share-b", "doomed-share"):
        earliest = ("--add-config", "share.auto.offset.reset=earliest")
        life.workbench.run(CONFIGS, "--alter", "--group", group, *earliest)
    join("k1", "share", "jobs", group_id="share-a")
    join("k2", "share", "jobs", group_id="share-b")
    join("k3", "share", "doomed", group_id="doomed-share")
    for number in range(3):
        join(f"left{number}", "classic", "clicks", group_id=f"left-{number}")
    join("left3", "consumer", "clicks", group_id="left-consumer")
    life.join_streams("streams-a", "words", count=20)
    life.settle(classic_a=2, classic_b=1, classic_sticky=1, consumer_a=2, consumer_b=1, converted=2)
    life.settle(static_classic=2, static_consumer=1, static_brief=1, doomed_classic=1, doomed_consumer=1)
    life.settle(java_classic=1, java_pattern=1, java_consumer=1, java_regex=1, java_static=1, share_a=1)
    life.settle(share_b=1, doomed_share=1, left_0=1, left_1=1, left_2=1, left_consumer=1, streams_a=1)


def members_commit_while_lag_grows(life: Life) -> None:
    for name in ("a1", "u1", "s1", "s3", "m1", "sticky1"):
        life.members[name].commit(1, 2, 3)
    for name in ("b1", "n1", "d1", "d2", "s4"):
        life.members[name].commit(4, 5)
    for topic in ("orders", "clicks", "jobs", "words"):
        produce(life.kafka, topic, 5)

    def committed() -> bool:
        picture = kafkas_picture(life.workbench)
        at_two = (
            "classic-a",
            "classic-sticky",
            "consumer-a",
            "converted",
            "static-classic",
            "static-consumer",
        )
        at_five = ("classic-b", "consumer-b", "doomed-classic", "doomed-consumer", "static-brief")
        return all(picture.get(f"{group} orders/2 committed") == "3" for group in at_two) and all(
            picture.get(f"{group} {topic}/1 committed") == "5"
            for group in at_five
            for topic in ("doomed" if group.startswith("doomed") else "clicks",)
        )

    wait_until(committed, what="the members' commits", every_s=0.2)
    life.settle()


def groups_rebalance(life: Life) -> None:
    life.join("a3", "classic-a", "orders")
    life.join("sticky2", "classic-sticky", "orders", partition_assignment_strategy="cooperative-sticky")
    life.join("m3", "consumer-a", "orders", "consumer")
    life.workbench.join("k4", "share", "jobs", group_id="share-a")
    life.workbench.join("j6", "consumer", "/logs-.*|clicks/", group_id="java-regex")
    life.settle(classic_a=3, classic_sticky=2, consumer_a=3, share_a=2, java_regex=2)


def members_leave(life: Life) -> None:
    life.leave("a2", "a3", "sticky1", "m1", "k4", "j6", "b1", "n1", "k2")
    life.leave("left0", "left1", "left2", "left3")
    life.settle(classic_a=1, classic_sticky=1, consumer_a=2, share_a=1, java_regex=1, classic_b=0)
    life.settle(consumer_b=0, share_b=0, left_0=0, left_1=0, left_2=0, left_consumer=0)


def static_members_are_away(life: Life) -> None:
    """The last one's session ends before it is back."""
    life.leave("s2", "s3", "s4")
    life.workbench.leave("j5")

    def gone() -> bool:
        picture = kafkas_picture(life.workbench)
        return all(picture[f"{group} state"] == "Reconciling" for group in STATIC[1:])

    wait_until(gone, what="static members to go")
    life.settle(static_classic=2, static_brief=0)


def static_members_come_back(life: Life) -> None:
    before = life.picture
    life.join("s2b", "static-classic", "orders", group_instance_id="two")
    life.join("s3b", "static-consumer", "orders", "consumer", group_instance_id="three")
    life.workbench.join("j5b", "consumer", "orders", group_id="java-static", group_instance_id="five")

    def back() -> bool:
        """Each under another member id; of a classic member the coordinator keeps the old client id."""
        now = kafkas_picture(life.workbench)
        places = [(group, one) for group in STATIC for one in ("two", "three", "five")]
        return all(static(before, *at) != static(now, *at) for at in places if static(before, *at))

    wait_until(back, what="static members to be back")
    after = life.settle(static_classic=2, static_consumer=1, java_static=1)
    for group in STATIC:
        assert assignments(before, group) == assignments(after, group)


def static(picture: Picture, group: str, instance: str) -> list[str]:
    """The ids of the group's member that calls itself so."""
    return [at for at, who in picture.items() if at.startswith(f"{group} ") and who == instance]


def assignments(picture: Picture, group: str) -> list[str]:
    return sorted(
        value for at, value in picture.items() if at.startswith(f"{group} ") and at.endswith(" assigned")
    )


def classic_groups_are_upgraded(life: Life) -> None:
    """One by a third member, one that is empty."""
    life.join("u3", "converted", "orders", "consumer")
    life.workbench.join("left0b", "consumer", "clicks", group_id="left-0")
    picture = life.settle(converted=3, left_0=1)
    assert {picture[f"{group} type"] for group in ("converted", "left-0")} == {"Consumer"}


def consumer_groups_are_downgraded(life: Life) -> None:
    life.leave("u3", "left0b")
    life.settle(left_0=0)
    life.workbench.join("left0c", "classic", "clicks", group_id="left-0")
    life.workbench.join("left3b", "classic", "clicks", group_id="left-consumer")
    picture = life.settle(converted=2, left_0=1, left_consumer=1)
    assert {picture[f"{group} type"] for group in ("converted", "left-0", "left-consumer")} == {"Classic"}


MEMBERS_COME_AND_GO: tuple[Callable[[Life], None], ...] = (
    simple_groups_commit,
    members_join,
    members_commit_while_lag_grows,
    groups_rebalance,
    members_leave,
    static_members_are_away,
    static_members_come_back,
    classic_groups_are_upgraded,
    consumer_groups_are_downgraded,
)
"""The first steps, in order; scripted_changes.py has all."""

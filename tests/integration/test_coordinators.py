"""Coordinators asked for all groups at once."""

import base64
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AclOperation, ResourceType, ScramMechanism

from koff.client import BrokerConf, ClusterConf, ConsumerConf, dial
from koff.client.errors import NoData, NoDataInTime
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import DescribedGroup, FetchedGroups
from koff.client.wire.credentials import check_properties
from koff.errors import Denied
from koff.kafkatest import LocalKafka, wait_until
from tests.all_groups import fetch_all_groups
from tests.clusters import lend_kafka, log_in
from tests.kafka_groups import allow, commit, consuming, produce, set_password, sharing, streaming
from tests.token_provider import make_answer, providing_tokens

pytestmark = pytest.mark.kafka
SIMPLE = [f"simple-{number}" for number in range(40)]


@pytest.fixture(scope="module")
def three() -> Iterator[LocalKafka]:
    """Three brokers, with groups of several kinds over all of them."""
    with lend_kafka(brokers=3) as kafka, ExitStack() as live:
        orders = kafka.create_topic("orders", partitions=3)
        for partition in range(3):
            produce(kafka, orders, 10, partition=partition)
        live.enter_context(consuming(kafka, "classic", orders, count=30, client_id="classic-app"))
        live.enter_context(consuming(kafka, "modern", orders, count=30, protocol="consumer"))
        live.enter_context(streaming(kafka, "streams", orders, count=30))
        live.enter_context(sharing(kafka, "shared", orders, count=30))
        for at, name in enumerate(SIMPLE):
            commit(kafka, name, (orders, at % 3, at), (orders, (at + 1) % 3, 7))
        yield kafka


def groups(answers: FetchedGroups) -> Mapping[str, DescribedGroup]:
    return {group.name: group for group in answers.groups}


Rows = dict[tuple[str, str, int], tuple[int, int]]
"""Offset and leader epoch by group, topic and partition."""


def offsets(answers: FetchedGroups) -> Rows:
    return {row[:3]: row[3:5] for row in answers.offsets.rows()}


def kafkas_offsets(kafka: LocalKafka, names: list[str]) -> Rows:
    """What confluent-kafka's admin client says."""
    found = {}
    asked = [kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(n)]) for n in names]
    for name, answer in zip(names, asked, strict=True):
        for row in answer[name].result(60).topic_partitions:
            epoch = -1 if row.leader_epoch is None else row.leader_epoch
            found[name, row.topic, row.partition] = (row.offset, epoch)
    return found


def test_all_groups_of_all_coordinators_are_found_with_their_offsets(three):
    answers = fetch_all_groups(ClusterConf(three.bootstrap))
    assert answers.brokers == 3
    assert not answers.failed
    assert not answers.incomplete
    assert answers.rounds == 1
    assert groups(answers).keys() == {"classic", "modern", "shared", "streams", *SIMPLE}
    quiet = ["classic", "modern", *SIMPLE]
    assert {key: row for key, row in offsets(answers).items() if key[0] in quiet} == kafkas_offsets(
        three, quiet
    )


def test_a_classic_group_is_described_with_its_members_and_what_they_were_given(three):
    group = groups(fetch_all_groups(ClusterConf(three.bootstrap)))["classic"]
    assert (group.type, group.state, group.protocol_type) == ("classic", "Stable", "consumer")
    assert group.protocol == "range"
    assert group.epoch is None
    (member,) = group.members
    assert member.client_id == "classic-app"
    assert member.client_host == "/127.0.0.1"
    assert {topic: sorted(partitions) for topic, partitions in member.assigned.items()} == {
        "orders": [0, 1, 2]
    }
    assert member.subscribed == ("orders",)


def test_a_consumer_group_is_described_with_epochs_and_targets(three):
    group = groups(fetch_all_groups(ClusterConf(three.bootstrap)))["modern"]
    assert (group.type, group.state, group.protocol_type) == ("consumer", "Stable", "consumer")
    assert group.protocol == "uniform"
    assert group.epoch == group.assignment_epoch
    assert group.epoch is not None
    assert group.epoch >= 1
    (member,) = group.members
    assert member.epoch == group.epoch
    assert {topic: sorted(partitions) for topic, partitions in member.assigned.items()} == {
        "orders": [0, 1, 2]
    }
    assert member.target == member.assigned
    assert member.subscribed == ("orders",)


def test_a_share_group_is_described_and_its_lag_is_the_coordinators(three):
    answers = fetch_all_groups(ClusterConf(three.bootstrap))

    def acknowledged() -> bool:
        nonlocal answers
        answers = fetch_all_groups(ClusterConf(three.bootstrap))
        return [each.lag for each in answers.share_offsets] == [0, 0, 0]

    wait_until(acknowledged, what="the share group's lag to be 0")
    group = groups(answers)["shared"]
    assert (group.type, group.state) == ("share", "Stable")
    assert group.members[0].assigned.keys() == {"orders"}
    assert {(each.group, each.topic) for each in answers.share_offsets} == {("shared", "orders")}
    assert sorted(each.partition for each in answers.share_offsets) == [0, 1, 2]
    assert len({each.topic_id for each in answers.share_offsets}) == 1
    assert all(len(each.topic_id) == 22 for each in answers.share_offsets)


def test_a_streams_group_is_described_with_its_tasks_and_the_topics_they_read(three):
    only = ["streams"]

    def settled() -> FetchedGroups | None:
        """It commits a moment after it has counted."""
        asked = fetch_all_groups(ClusterConf(three.bootstrap), FetchOptions(group_filter=only.__contains__))
        return asked if len(asked.offsets) > 3 and offsets(asked) == kafkas_offsets(three, only) else None

    answers = wait_until(settled, what="commits of the streams group")
    group = groups(answers)["streams"]
    assert (group.type, group.state, group.protocol_type) == ("streams", "Stable", "streams")
    assert group.topics == {"0": ("orders",), "1": ("streams-by-value-repartition",)}
    (member,) = group.members
    assert {task: sorted(of) for task, of in member.assigned.items()} == {"0": [0, 1, 2], "1": [0, 1, 2]}
    assert all(row.metadata for row in answers.offsets.rows())


def test_groups_are_left_out_by_the_filter_and_descriptions_when_not_asked_for(three):
    answers = fetch_all_groups(
        ClusterConf(three.bootstrap),
        FetchOptions(group_filter=lambda name: name in ("classic", "simple-1"), describe=False),
    )
    assert groups(answers).keys() == {"classic", "simple-1"}
    assert groups(answers)["classic"].members == ()
    assert groups(answers)["classic"].state == "Stable"
    assert {key[0] for key in offsets(answers)} == {"classic", "simple-1"}


def test_metadata_of_commits_comes_along(three):
    long = "m" * 300
    commit(three, "with-metadata", ("orders", 0, 3, "marked"), ("orders", 1, 4), ("orders", 2, 5, long))
    answers = fetch_all_groups(
        ClusterConf(three.bootstrap), FetchOptions(group_filter=lambda n: n == "with-metadata")
    )
    # confluent-kafka writes C's zero byte behind the text, too.
    found = {row.partition: (row.offset, row.metadata.rstrip("\0")) for row in answers.offsets.rows()}
    assert found == {0: (3, "marked"), 1: (4, ""), 2: (5, long)}


def test_a_broker_killed_in_the_middle_loses_no_group(three):
    conf = ClusterConf(three.bootstrap)
    before = offsets(fetch_all_groups(conf, FetchOptions(group_filter=SIMPLE.__contains__)))
    victim = three.nodes[2]
    dying = threading.Lock()

    def wanted(group: str) -> bool:
        """Asked between the list of a coordinator's groups and their offsets."""
        with dying:
            if victim.running:
                victim.kill()
        return group in SIMPLE

    try:
        answers = fetch_all_groups(conf, FetchOptions(deadline_s=60, group_filter=wanted))
        again = fetch_all_groups(conf, FetchOptions(deadline_s=60, group_filter=SIMPLE.__contains__))
    finally:
        victim.start()
        three.wait_until_up()
    assert answers.rounds > 1
    assert again.brokers == 2
    for seen in (answers, again):
        assert not seen.failed
        assert not seen.incomplete
        assert offsets(seen) == before
        assert len(seen.offsets) == len(before)


def test_a_broker_that_does_not_answer_is_said_at_the_deadline(three):
    conf = ClusterConf(three.nodes[0].bootstrap, request_timeout_s=2.0, connect_timeout_s=2.0)

    def fetch_all() -> FetchedGroups | None:
        """A test before this one has restarted a broker."""
        fetched = fetch_all_groups(ClusterConf(three.bootstrap))
        return fetched if fetched.brokers > 1 and not fetched.incomplete else None

    def is_said() -> bool:
        before = wait_until(fetch_all, what="all groups")
        three.nodes[1].pause()
        try:
            started = time.monotonic()
            # Four seconds after the pause, other brokers lead what this one led.
            answers = fetch_all_groups(conf, FetchOptions(deadline_s=3.0))
            assert time.monotonic() - started < 20  # of three
        finally:
            three.nodes[1].resume()
        return (
            answers.brokers == before.brokers - 1
            and any("broker 2" in line for line in answers.incomplete)
            and len(answers.groups) < len(before.groups)
        )

    # On a busy machine, another broker may not answer in three seconds either.
    wait_until(is_said, timeout_s=90, what="the answers of all brokers but one")


# Security

SCRAM_PASSWORD = "scram-secret"


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalKafka]:
    """SASL by every mechanism that is ours, TLS, and a user who may see one group of two."""
    with lend_kafka(security=True) as kafka:
        kafka.create_topic("orders")
        kafka.create_topic("secret")
        commit(kafka, "seen", ("orders", 0, 1), ("secret", 0, 2))
        commit(kafka, "hidden", ("orders", 0, 3))
        allow(
            kafka,
            ("reader", ResourceType.GROUP, "seen", AclOperation.DESCRIBE),
            ("reader", ResourceType.TOPIC, "orders", AclOperation.DESCRIBE),
        )
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            set_password(kafka, SCRAM_PASSWORD, mechanism)
        yield kafka


def sasl(kafka: LocalKafka, user: str, password: str = "", mechanism: str = "PLAIN") -> ClusterConf:
    return ClusterConf(kafka.sasl_bootstrap, log_in(user, password, mechanism=mechanism))


def test_sasl_plain_lets_in_who_knows_the_password(secured):
    answers = fetch_all_groups(sasl(secured, "admin"))
    assert groups(answers).keys() == {"seen", "hidden"}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_lets_in_who_knows_the_password(secured, mechanism):
    def asked() -> FetchedGroups | None:
        """The credentials reach the broker a moment after they were made."""
        try:
            return fetch_all_groups(sasl(secured, "admin", SCRAM_PASSWORD, mechanism))
        except Denied:
            return None

    answers = wait_until(asked, what="the log-in")
    assert groups(answers).keys() == {"seen", "hidden"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_denied_and_not_shown(secured, mechanism):
    conf = sasl(secured, "admin", "wr0ng-secret", mechanism)
    with pytest.raises(Denied, match="refused the log-in") as denied:
        fetch_all_groups(conf)
    assert "wr0ng-secret" not in str(denied.value)
    assert "\n" not in str(denied.value)


def make_token(lives_s: float = 600) -> str:
    """A token for admin that the broker accepts without a signature."""

    def part(of: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(of).encode()).decode().rstrip("=")

    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': 'admin', 'iat': now - 900, 'exp': now + lives_s})}."


def test_a_bearer_token_lets_in_and_another_does_not(secured):
    conf = ClusterConf(
        secured.sasl_bootstrap, {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
    )
    assert groups(fetch_all_groups(conf, token=make_token)).keys() == {"seen", "hidden"}
    with pytest.raises(Denied, match="refused the log-in"):
        fetch_all_groups(conf, token=lambda: make_token(lives_s=-600))


def can_read(conf: ClusterConf) -> bool:
    """Whether librdkafka's consumer reaches the end of a partition, which is empty."""
    with dial(conf.brokers, BrokerConf(properties=conf.properties)) as broker:
        with pytest.raises(NoData) as found:
            broker.consumer(ConsumerConf("orders", retry_limit=0)).consume(timeout_s=60.0)
        return not isinstance(found.value, NoDataInTime)


def test_tokens_of_a_provider_let_in_both_kinds_of_connections(secured):
    with providing_tokens() as provider:
        provider.always = make_answer(make_token())
        properties = {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": provider.url,
            "sasl.oauthbearer.client.id": "koff",
            "sasl.oauthbearer.client.secret": "oidc-secret",
        }
        conf = ClusterConf(secured.sasl_bootstrap, properties)
        answers = fetch_all_groups(conf)
        assert groups(answers).keys() == {"seen", "hidden"}
        assert can_read(conf)


def test_tokens_for_msk_let_in_both_kinds_of_connections(secured, monkeypatch):
    regions = []

    class MSKAuthTokenProvider:
        """What the library of AWS has. There is no MSK to test with."""

        @staticmethod
        def generate_auth_token(region: str) -> tuple[str, int]:
            regions.append(region)
            return make_token(), int((time.time() + 600) * 1000)

    library = SimpleNamespace(MSKAuthTokenProvider=MSKAuthTokenProvider)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", library)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    conf = ClusterConf(
        secured.sasl_bootstrap, {"security.protocol": "sasl_plaintext", "sasl.mechanism": "AWS_MSK_IAM"}
    )
    check_properties(conf)
    assert not regions  # a check of the configuration asks AWS for nothing
    answers = fetch_all_groups(conf)
    assert groups(answers).keys() == {"seen", "hidden"}
    assert can_read(conf)
    assert set(regions) == {"eu-central-1"}


def test_hidden_groups_and_topics_are_absent_and_nothing_says_so(secured):
    conf = sasl(secured, "reader")
    answers = fetch_all_groups(conf)
    assert groups(answers).keys() == {"seen"}
    assert offsets(answers).keys() == {("seen", "orders", 0)}
    assert not answers.failed
    assert not answers.incomplete


def test_a_user_without_any_right_sees_nothing(secured):
    answers = fetch_all_groups(sasl(secured, "half"))
    assert answers.groups == ()
    assert len(answers.offsets) == 0


def test_a_coordinator_that_has_just_started_is_waited_for(secured):
    """At first it lists no groups, and then says that it loads them."""
    secured.restart()
    answers = fetch_all_groups(ClusterConf(secured.bootstrap))
    assert groups(answers).keys() == {"seen", "hidden"}
    assert not answers.failed
    assert not answers.incomplete

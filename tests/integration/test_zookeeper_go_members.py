"""A group of members of koff and of the Go library: each partition has an owner, whoever comes and goes."""

from collections.abc import Callable
from contextlib import ExitStack, suppress

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from koff.client import ClusterConf
from koff.client.zookeeper import ConsumerGroupConf
from koff.client.zookeeper.znodes import GroupPaths
from koff.kafkatest import LocalKafka, LocalZooKeeper, wait_until
from tests.zookeeper_go_member import GoMember
from tests.zookeeper_groups import joining

GROUP, COUNT = "mixed", 6


def test_every_partition_of_a_mixed_group_has_an_owner_through_joins_and_ends(
    more_kafka: Callable[..., LocalKafka], koff_zookeeper: LocalZooKeeper
):
    kafka = more_kafka(brokers=2)
    topic = kafka.create_topic(partitions=COUNT, replicas=1)
    chroot = f"/{topic}"
    hosts = koff_zookeeper.hosts + chroot
    tree = KazooClient(koff_zookeeper.hosts)
    conf = ConsumerGroupConf(cluster=ClusterConf(kafka.bootstrap), session_timeout_s=6.0)

    def list_leaders() -> list[int]:
        return [leader for _, leader in sorted(kafka.leaders(topic).items())]

    def list_owners() -> dict[int, str]:
        paths, owners = GroupPaths(GROUP), {}
        for partition in range(COUNT):
            with suppress(NoNodeError):
                owners[partition] = tree.get(paths.owner(topic, partition))[0].decode()
        return owners

    def wait_for_owners(*members: str) -> None:
        wait_until(
            lambda: len(owners := list_owners()) == COUNT and set(owners.values()) == set(members),
            timeout_s=60,
            what=f"an owner of each partition among {members}",
        )

    assert list_leaders() != sorted(list_leaders())  # else the order by leader is that by number
    with ExitStack() as opened:
        tree.start()
        opened.callback(tree.close)
        opened.callback(tree.stop)
        tree.ensure_path(chroot)
        tree.chroot = chroot
        join = opened.enter_context(joining(GROUP, conf))
        one = join([topic], hosts)
        with GoMember(hosts, GROUP, topic, list_leaders) as go:
            wait_for_owners(one.id, go.id)
            two = join([topic], hosts)
            wait_for_owners(one.id, two.id, go.id)
            with GoMember(hosts, GROUP, topic, list_leaders) as other:
                wait_for_owners(one.id, two.id, go.id, other.id)
                one.close()
                wait_for_owners(two.id, go.id, other.id)
            wait_for_owners(two.id, go.id)
        wait_for_owners(two.id)
        # The leaders move after this member has divided the partitions, and before koff's does: both want the
        # same half.
        with GoMember(hosts, GROUP, topic, lambda: [3 - leader for leader in list_leaders()]):
            wait_until(lambda: len(list_owners()) < COUNT, what="partitions in nobody's share")
            wait_until(lambda: len(list_owners()) == COUNT, what="an owner of each partition")

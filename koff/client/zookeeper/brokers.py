"""The brokers that are registered in ZooKeeper."""

from dataclasses import replace

from koff.client.cluster_conf import ClusterConf
from koff.client.zookeeper.session import NoNode, Session
from koff.client.zookeeper.znodes import BROKERS, bootstrap_servers
from koff.errors import ConfigError


def find_brokers(session: Session, cluster: ClusterConf) -> ClusterConf:
    """`cluster` with the registered brokers that have a listener of its security protocol.

    Raises `ConfigError` if there is none, and `ConnectError`.
    """
    protocol = str(cluster.read_properties().get("security.protocol", "plaintext")).upper()
    nodes: list[bytes] = []
    for number in session.list_children(BROKERS):
        try:
            nodes.append(session.call("get", f"{BROKERS}/{number}")[0])
        except NoNode:
            continue  # that broker has just ended
    addresses = bootstrap_servers(nodes, protocol)
    if not addresses:
        raise ConfigError(
            f"ZooKeeper at {session.hosts} knows no brokers with a {protocol} listener (in {BROKERS}): name "
            "the brokers in the config's cluster, add Kafka's chroot to the address, or check "
            "security.protocol"
        )
    return replace(cluster, brokers=addresses)

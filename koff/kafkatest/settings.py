"""The configuration of a node of a `LocalKafka`: server.properties and log4j2.properties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from koff.kafkatest.ports import HOST, free_ports

KEYSTORE_PASSWORD = "koff-test"  # noqa: S105 - guards a key that lives as long as a test

LOG4J2 = """\
rootLogger.level=INFO
rootLogger.appenderRef.file.ref=file
appender.file.type=File
appender.file.name=file
appender.file.fileName={log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{{ISO8601}} %-5p %c{{1}} %m%n
"""

# For one machine, few messages, and groups whose members join and leave quickly.
_TEST_DEFAULTS = {
    "broker.session.timeout.ms": "5000",  # a broker that starts again after SIGKILL waits this long
    "broker.heartbeat.interval.ms": "1000",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "10000",
    "group.streams.min.heartbeat.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "10000",
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "log.cleaner.dedupe.buffer.size": "4194304",  # Kafka's default alone is a quarter of the kit's heap
    "log.index.size.max.bytes": "1048576",
    # Tests write messages with old timestamps, which Kafka would delete at its check every five minutes.
    "log.retention.ms": "-1",
    "metadata.max.idle.interval.ms": "0",  # a controller that writes nothing needs a third less CPU
    "num.io.threads": "4",
    "num.network.threads": "2",
}


@dataclass(frozen=True, slots=True)
class Ports:
    """The loopback ports of one node."""

    plain: int
    controller: int
    sasl: int
    ssl: int
    proxied: int

    @classmethod
    def find_free(cls, nodes: int) -> "list[Ports]":
        """Free ports for that many nodes."""
        count = len(cls.__slots__)
        ports = free_ports(count * nodes)
        return [cls(*ports[first : first + count]) for first in range(0, len(ports), count)]


def server_properties(
    node: int,
    ports: Sequence[Ports],
    data: Path,
    overrides: Mapping[str, str],
    security: Mapping[str, str],
    proxies: Sequence[int] = (),
    *,
    zookeeper: str = "",
) -> dict[str, str]:
    """The server.properties of node number `node` (the first is 1).

    `ports` has the ports of all nodes. Each node is broker and controller of a KRaft cluster, unless
    `zookeeper` has the addresses of a ZooKeeper. `proxies` has the port of each node's proxy, if there are
    proxies.
    """
    own_ports = ports[node - 1]
    replicas = str(min(3, len(ports)))  # Kafka refuses more replicas than there are brokers
    listeners = {"PLAINTEXT": own_ports.plain}
    controller = {"broker.id": str(node), "zookeeper.connect": zookeeper}
    if not zookeeper:
        listeners["CONTROLLER"] = own_ports.controller
        voters = (f"{voter}@{HOST}:{voter_ports.controller}" for voter, voter_ports in enumerate(ports, 1))
        controller = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
        }
    if security:
        listeners |= {"SASL_PLAINTEXT": own_ports.sasl, "SSL": own_ports.ssl}
    advertised = {name: port for name, port in listeners.items() if name != "CONTROLLER"}
    if proxies:
        listeners["PROXIED"], advertised["PROXIED"] = own_ports.proxied, proxies[node - 1]
    return {
        **controller,
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(
            f"{name}:{'PLAINTEXT' if name in ('CONTROLLER', 'PROXIED') else name}" for name in listeners
        ),
        "listeners": _format_listeners(listeners),
        "advertised.listeners": _format_listeners(advertised),
        "log.dirs": str(data),
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        # The later properties win: the caller's overrides come last.
        **_TEST_DEFAULTS,
        **security,
        **overrides,
    }


def security_properties(users: Mapping[str, str], keystore: Path) -> dict[str, str]:
    """SASL/PLAIN for `users` (name -> password), TLS, and an authorizer: users but `admin` need ACLs."""
    entries = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {entries};"
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",  # ANONYMOUS: clients without a login, and the brokers
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(keystore),
        "ssl.keystore.password": KEYSTORE_PASSWORD,
        "ssl.client.auth": "none",
    }


def format_properties(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in properties.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _format_listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())

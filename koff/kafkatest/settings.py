"""What a node of a `LocalKafka` is told: server.properties and log4j2.properties."""

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

# One machine, few messages, groups that come and go quickly.
_QUICK = {
    "broker.session.timeout.ms": "5000",  # one started again after SIGKILL waits this long
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
    "log.cleaner.dedupe.buffer.size": "4194304",  # Kafka's default alone is a quarter of our heap
    "log.index.size.max.bytes": "1048576",
    "log.retention.ms": "-1",  # every five minutes Kafka would delete what tests write with times long past
    "num.io.threads": "4",
    "num.network.threads": "2",
}


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one node listens, on loopback."""

    plain: int
    controller: int
    sasl: int
    ssl: int

    @classmethod
    def free(cls, nodes: int) -> "list[Ports]":
        ports = free_ports(4 * nodes)
        return [cls(*ports[at : at + 4]) for at in range(0, len(ports), 4)]


def server_properties(
    node: int,
    ports: Sequence[Ports],
    data: Path,
    overrides: Mapping[str, str],
    security: Mapping[str, str],
) -> dict[str, str]:
    """The properties of node `node` (the first is 1) of a KRaft cluster, every node broker and controller."""
    own = ports[node - 1]
    copies = str(min(3, len(ports)))
    listeners = {"PLAINTEXT": own.plain, "CONTROLLER": own.controller}
    if security:
        listeners |= {"SASL_PLAINTEXT": own.sasl, "SSL": own.ssl}
    advertised = {name: port for name, port in listeners.items() if name != "CONTROLLER"}
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{voter}@{HOST}:{its.controller}" for voter, its in enumerate(ports, start=1)
        ),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(
            f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in listeners
        ),
        "listeners": _listeners(listeners),
        "advertised.listeners": _listeners(advertised),
        "log.dirs": str(data),
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": "1",
        **_QUICK,
        **security,
        **overrides,
    }


def security_properties(users: Mapping[str, str], keystore: Path) -> dict[str, str]:
    """SASL/PLAIN for `users` (name -> password), TLS, and ACLs for all but `admin` and the plain listener."""
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(keystore),
        "ssl.keystore.password": KEYSTORE_PASSWORD,
        "ssl.client.auth": "none",
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """A Java properties file."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())

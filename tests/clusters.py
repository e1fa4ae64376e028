"""Clusters of this process: each is started when a test first wants one, and lent to one test at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ConfigSource,
    ResourcePatternType,
    ResourceType,
    UserScramCredentialDeletion,
)

from koff.kafkatest import LocalKafka, wait_until

USERS = {"admin": "admin-secret"} | {
    name: f"{name}-secret"
    for name in ("alice", "bare", "blind", "describer", "half", "koff", "nobody", "reader")
}
"""The users who log in by SASL/PLAIN at a cluster with security, with their passwords."""

_LOGIN = "listener.name.sasl_plaintext.{}.sasl.jaas.config"
_MODULE = "org.apache.kafka.common.security.{}LoginModule required"
SASL = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    _LOGIN.format("scram-sha-256"): _MODULE.format("scram.Scram") + ";",
    _LOGIN.format("scram-sha-512"): _MODULE.format("scram.Scram") + ";",
    _LOGIN.format("oauthbearer"): _MODULE.format("oauthbearer.OAuthBearer")
    + ' unsecuredLoginStringClaim_sub="admin";',
}
"""What brokers with security have beside PLAIN: a user's SCRAM credentials are up to the test."""
_NEW = {ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG}
MOST_IDLE = 5
"""So many brokers wait for a test at most."""


class Clusters:
    """Clusters that wait for the next test: empty, with all brokers running."""

    def __init__(self) -> None:
        self._idle: list[tuple[object, LocalKafka]] = []
        self.lent: list[LocalKafka] = []

    @contextmanager
    def lend(
        self, *, brokers: int = 1, security: bool = False, config: Mapping[str, str] | None = None
    ) -> Iterator[LocalKafka]:
        """Lends a cluster without topics, groups and ACLs. Its id, and producer ids, may have been used.

        With `security`, it has the `USERS`.
        """
        config = {**(SASL if security else {}), **(config or {})}
        kind = (brokers, security, *sorted(config.items()))
        kafka = self._take(kind) or LocalKafka(brokers=brokers, security=security, users=USERS, config=config)
        if not kafka.nodes:
            kafka.start()
        self.lent.append(kafka)
        try:
            yield kafka
        finally:
            self.lent.remove(kafka)
            if put_right(kafka, security=security):
                self._idle.append((kind, kafka))
            else:
                kafka.stop()
            self._stop_down_to(MOST_IDLE)

    def forget_admins(self) -> None:
        """Closes the admin clients of all clusters: each is made anew at its next use."""
        for kafka in (*self.lent, *(kafka for _, kafka in self._idle)):
            kafka.__dict__.pop("admin", None)

    def stop(self) -> None:
        """Stops the clusters that wait."""
        self._stop_down_to(0)

    def _take(self, kind: object) -> LocalKafka | None:
        for at, (other, kafka) in enumerate(self._idle):
            if kind == other:
                del self._idle[at]
                return kafka
        return None

    def _stop_down_to(self, brokers: int) -> None:
        while sum(len(kafka.nodes) for _, kafka in self._idle) > brokers:
            self._idle.pop(0)[1].stop()


CLUSTERS = Clusters()
lend_kafka = CLUSTERS.lend


def log_in(user: str, password: str = "", *, mechanism: str = "PLAIN") -> dict[str, str]:
    """The properties with which a user logs in by SASL: with the password of `USERS`, if none is given."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password or USERS[user],
    }


def put_right(kafka: LocalKafka, *, security: bool) -> bool:
    """Starts the brokers that are down, and deletes what a test has made. Returns False if that fails.

    The configurations of groups stay, by the group's name.
    """
    if not any(node.running for node in kafka.nodes):
        return False
    try:
        down = [node for node in kafka.nodes if not node.running]
        kafka.resume()
        for node in down:
            node.start()
        if down:
            kafka.wait_until_up()
        kafka.__dict__.pop("admin", None)  # an older client may wait for a broker that was down
        if security:
            _delete_rights(kafka.admin)
        # Deleting the offsets topic deletes all groups, also those that have members.
        if topics := list(kafka.admin.list_topics(timeout=30).topics):
            _wait(kafka.admin.delete_topics(topics, operation_timeout=30))
            wait_until(lambda: not kafka.admin.list_topics(timeout=30).topics, what="all topics to be gone")
        return not _has_new_configuration(kafka)
    except (KafkaException, TimeoutError):
        return False


def _delete_rights(admin: AdminClient) -> None:
    """Deletes all ACLs and SCRAM credentials."""
    any_name: Any = None
    acls = AclBindingFilter(
        ResourceType.ANY,
        any_name,
        ResourcePatternType.ANY,
        any_name,
        any_name,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    _wait(admin.delete_acls([acls]))
    for user, described in admin.describe_user_scram_credentials().result(60).items():
        for info in described.scram_credential_infos:
            _wait(admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, info.mechanism)]))


def _has_new_configuration(kafka: LocalKafka) -> bool:
    """Returns whether the configuration of a broker was changed since it began."""
    changed = {
        entry.name
        for node in kafka.nodes  # a request may name one broker
        for described in kafka.admin.describe_configs(
            [ConfigResource(ResourceType.BROKER, str(node.id))]
        ).values()
        for entry in described.result(60).values()
        if ConfigSource(entry.source) in _NEW
    }
    return changed != {"min.insync.replicas"}  # the controller sets this one when it begins


def _wait(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(60)

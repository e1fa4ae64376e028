"""The names of librdkafka's properties that a user may set: those of its CONFIGURATION.md, version 2.16."""

from collections.abc import Mapping
from pathlib import Path

from koff.errors import ConfigError

_NAMES = """
acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
auto.commit.enable auto.commit.interval.ms auto.offset.reset batch.num.messages batch.size
broker.address.family broker.address.ttl broker.version.fallback check.crcs client.dns.lookup client.id
client.rack compression.codec compression.level compression.type connections.max.idle.ms
consume.callback.max.messages coordinator.query.interval.ms debug delivery.report.only.error
delivery.timeout.ms enable.auto.commit enable.auto.offset.store enable.gapless.guarantee
enable.idempotence enable.metrics.push enable.partition.eof enable.random.seed
enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification fetch.error.backoff.ms
fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id
group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms
https.ca.location https.ca.pem internal.termination.signal isolation.level linger.ms log.connection.close
log.queue log.thread.name log_level max.in.flight max.in.flight.requests.per.connection
max.partition.fetch.bytes max.poll.interval.ms max.poll.records message.copy.max.bytes message.max.bytes
message.send.max.retries message.timeout.ms metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy offset.store.method offset.store.path offset.store.sync.interval.ms
partition.assignment.strategy partitioner plugin.library.paths produce.offset.report
queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages queuing.strategy
receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms
request.required.acks request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password
sasl.username security.protocol session.timeout.ms share.acknowledgement.mode socket.blocking.max.ms
socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores
ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location
ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location
ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list
statistics.interval.ms sticky.partitioning.linger.ms topic.blacklist topic.metadata.propagation.max.ms
topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
topic.metadata.refresh.sparse transaction.timeout.ms transactional.id
"""
NAMES = frozenset(_NAMES.split())
_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
    "sasl.kerberos.keytab",
)


def check_names(properties: Mapping[str, str]) -> None:
    """Raises `ConfigError` for a name that is none, or a file that cannot be read."""
    for name in properties:
        if name not in NAMES:
            from difflib import get_close_matches

            near = get_close_matches(name, NAMES, 1)
            cure = f"did you mean {near[0]}?" if near else "the names are librdkafka's"
            raise ConfigError(f"there is no property {name}: {cure}")
    if unreadable := find_unreadable(properties):
        raise ConfigError(unreadable)


def find_unreadable(properties: Mapping[str, str]) -> str | None:
    """The property whose file cannot be read, and why."""
    for name in _FILES:
        path = properties.get(name)
        if path and not (name == "ssl.ca.location" and path == "probe"):
            try:
                if not Path(path).is_dir():
                    Path(path).open("rb").close()
            except OSError as error:
                return f"cannot read {path}, the file of {name}: {error.strerror}"
    return None
